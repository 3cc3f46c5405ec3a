//! What this machine says about itself: readers of `/proc`, control groups, swap, sockets and users.
//!
//! | module | file | what |
//! | --- | --- | --- |
//! | [`process`] | `/proc/PID/*` | one process, all of them, and who belongs together |
//! | [`machine`] | `/proc/{meminfo,stat,cpuinfo,pressure}` | memory, CPUs and kernel |
//! | [`maps`] | `/proc/PID/maps` | what a process has mapped |
//! | [`pagemap`] | `/proc/PID/pagemap` | where each of its pages is |
//! | [`swap`] | `/proc/swaps`, `/sys/dev/block` | swap devices |
//! | [`sockets`] | `/proc/net/tcp`, `/proc/PID/fd` | which process listens at an address |
//! | [`listening`] | none: netlink | which sockets listen at a port |
//! | [`cgroup`] | `/proc/*/mountinfo`, `/proc/*/cgroup` | mounted hierarchies, and the files of a group |
//! | [`users`] | `/etc/passwd`, `/etc/group` | users by name and by number |
//! | [`allocator`] | none | hands memory that this process has freed back to the machine |
//! | [`files`] | none | replaces a file of weal's own, and tells files apart |
//!
//! Every reader takes the directory that it reads in, so that it is tested in a temporary one. None of them writes. Each reads a bounded
//! number of bytes: a file that is longer than the kernel would make it is an error.

pub mod allocator;
pub mod cgroup;
mod connections;
pub mod files;
pub mod listening;
pub mod machine;
pub mod maps;
pub mod pagemap;
pub mod process;
pub mod ranges;
mod read;
pub mod sockets;
pub mod swap;
pub mod users;

pub use process::{Identity, Proc, Stat};
