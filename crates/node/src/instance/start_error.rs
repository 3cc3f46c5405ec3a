//! Why an instance was not started.

use std::io;
use std::time::Duration;

use super::program::NoProgram;
use crate::accounts::NoAccount;
use crate::image::NoImage;
use crate::privileges::Barrier;
use crate::shim::carry;
use crate::variables::UnknownVariable;

/// Why an instance was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// It gets no user to run as.
    #[error(transparent)]
    NoAccount(#[from] NoAccount),
    /// Its command or environment cannot be filled in.
    #[error(transparent)]
    Variable(#[from] UnknownVariable),
    /// The supervisor has not said what a secret of it is.
    #[error("its secret {name} is not known here: weal apply reads it again")]
    NoSecret {
        /// The variable.
        name: String,
    },
    /// It has no command.
    #[error("`run` is empty")]
    EmptyRun,
    /// Its port is taken, and so are all others.
    #[error("its port is taken by another process, and no other one is free")]
    NoPort,
    /// Its user is kept from what it needs. Mounts of its own must not open it: the way to them is not the machine's.
    #[error("user {user} {barrier}, keep the application elsewhere (for example in /srv), or name another user with `user`")]
    Unreachable {
        /// Its user.
        user: String,
        /// What is in the way.
        barrier: Barrier,
    },
    /// Its program cannot be run.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// It cannot have its image.
    #[error(transparent)]
    NoImage(#[from] NoImage),
    /// Its results are named by what is no pattern.
    #[error("its results: {0}")]
    Results(#[from] carry::CarryError),
    /// Its folder, its files or its control group cannot be made.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Its shim cannot be started.
    #[error("cannot start a shim: {0}")]
    NoShim(io::Error),
    /// Its shim ended without a word about the instance.
    #[error("its shim ended at once: {complaint}")]
    ShimEnded {
        /// The last line that the shim wrote.
        complaint: String,
    },
    /// Its shim said why the process could not be started.
    #[error("{why}")]
    Refused {
        /// What the shim said.
        why: String,
    },
    /// Its shim hangs.
    #[error("its shim said nothing within {} s", .within.as_secs())]
    ShimSilent {
        /// How long was waited.
        within: Duration,
    },
    /// Its shim did not write down who runs.
    #[error("its shim left no process id")]
    NoProcessId,
}

impl StartError {
    /// True when the fault is what was asked for, and would be there again.
    pub(super) fn is_its_own(&self) -> bool {
        matches!(
            self,
            Self::NoAccount(NoAccount::NotAllowed(_))
                | Self::Variable(_)
                | Self::EmptyRun
                | Self::Unreachable { .. }
                | Self::NoProgram(_)
                | Self::NoImage(_)
                | Self::Results(_)
                | Self::Refused { .. }
        )
    }
}
