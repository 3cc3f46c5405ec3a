//! The node agent: starts, suspends, resumes, limits and measures processes. The only privileged role.

pub mod api;
