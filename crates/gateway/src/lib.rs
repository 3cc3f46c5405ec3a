//! Sockets around `weal_control::flow` and `weal_control::dispatch`: the role that faces clients.

pub mod api;
