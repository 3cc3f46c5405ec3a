//! Why a connection to an instance is of no use any more.

use std::io;

use super::body::BadBody;
use super::head::BadHead;

/// Why an exchange over HTTP/1 came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("it closed the connection before the end of its response")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the request's body broke off")]
    RequestBody,
    #[error("the request's body is not as long as it says")]
    RequestLength,
    #[error(transparent)]
    Head(#[from] BadHead),
    #[error(transparent)]
    Body(#[from] BadBody),
    #[error("interim responses without end")]
    EndlessInterims,
}
