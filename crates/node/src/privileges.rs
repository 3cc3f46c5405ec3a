//! Becoming the user that an instance runs as.

use std::io;

use rustix::process::{Gid, Uid};
use weal_host::users::User;

/// Makes this process `user`, for good, between fork and exec: no program that it starts gets more rights than it has.
///
/// `None` keeps the user, without the way up all the same.
pub fn become_user(user: Option<&User>) -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(user) = user {
        let groups: Vec<Gid> = std::iter::once(user.gid).chain(user.groups.iter().copied()).map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        // The raw system calls, per thread: there is only one thread here.
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
