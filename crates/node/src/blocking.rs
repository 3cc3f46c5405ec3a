//! Calls that wait for the disk or for the kernel, made from asynchronous tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does `work` here, while the other tasks of this thread go on elsewhere, wakes among them: there are as few threads as cores.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let has_others = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if has_others { tokio::task::block_in_place(work) } else { work() }
}
