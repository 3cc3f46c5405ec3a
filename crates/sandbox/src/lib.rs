//! Confines a program: what it sees of the machine, what it may change, which system calls it may make.
//!
//! The agent makes a [`SandboxPlan`] from what the config says and what the machine can do ([`ConfinementSupport::probe`]). The shim carries it out in the
//! process that becomes the program, in two parts: [`Sandbox::enter`] while it is root, then it becomes its user, then [`Sandbox::confine`],
//! after which there is no way back. [`Exposure`] judges a plan as `systemd-analyze security` judges a unit.
//!
//! | part | needs | what it takes away |
//! | --- | --- | --- |
//! | [`Mounts`] | root | writing anywhere but in its own folders; others' /tmp, /dev and processes |
//! | [`OtherRoot`] | root | the machine's files, where an image has its own |
//! | [`Landlock`] | nothing | writing anywhere but in its own folders; signals to others; where mounts cannot be made |
//! | [`Filter`] | nothing | system calls that no service needs; namespaces; exotic sockets |
//! | rights | root for the bounding set | capabilities, kernel keys, open files, core dumps |

mod agent;
mod attach;
mod exposure;
mod failure;
mod filter;
mod landlock_rules;
mod mounts;
mod plan;
mod rights;
mod root;
mod support;
mod syscalls;
mod user;
mod way;

pub use agent::confine_agent;
pub use exposure::{ConfinedAs, Exposure};
pub use failure::Failure;
pub use filter::{Filter, NoFilter};
pub use landlock_rules::Landlock;
pub use mounts::{Mounts, Tmp, join};
pub use plan::{Paths, Sandbox, SandboxPlan};
pub use rights::ProcessLimits;
pub use root::OtherRoot;
pub use support::ConfinementSupport;
pub use user::SeenAs;
