//! Where the tasks of a gang are, as `mpirun --hostfile` reads it: a line for each task, with its address. Open MPI and MPICH count an address
//! that comes several times as so many places.

use std::io;
use std::path::Path;

use weal_protocol::node::JobRun;

use crate::folder::{Folder, Owner};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "WEAL_HOSTFILE";

/// The name of the file of a run, in the job's folder.
pub(crate) fn file_name(run: &JobRun) -> String {
    format!(".hosts-{}", run.attempt)
}

/// Writes the file for a task of `run` into the job's folder `data`. Each task writes the same.
pub(crate) fn write(run: &JobRun, data: &Path, owner: Option<Owner>) -> io::Result<()> {
    let lines: String = run.addresses.iter().map(|address| format!("{address}\n")).collect();
    Folder::open(data)?.replace_file(&file_name(run), lines.as_bytes(), owner).map(drop)
}
