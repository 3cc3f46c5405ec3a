//! Why an instance has not answered, or not to the end.

use super::h1::LinkError;

/// What went wrong, by what speaks with the instance.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    #[error(transparent)]
    H1(#[from] LinkError),
    #[error(transparent)]
    H2(#[from] h2::Error),
}

impl InstanceError {
    /// True when the instance has answered something that is no response.
    pub fn is_nonsense(&self) -> bool {
        match self {
            Self::H1(error) => matches!(error, LinkError::Head(_) | LinkError::Body(_)),
            Self::H2(_) => false,
        }
    }
}
