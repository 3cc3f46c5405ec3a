//! What an authority is shown: proofs that hosts are ours, by the gateway.

use tokio::sync::{mpsc, oneshot};
use weal_protocol::tls::Challenges;

use super::error::AcmeError;

/// Has the gateway show these proofs and no others.
pub struct Show {
    /// The proofs.
    pub challenges: Challenges,
    /// Told whether the gateway shows them.
    pub done: oneshot::Sender<bool>,
}

/// The way to the gateway.
pub struct Proofs(mpsc::Sender<Show>);

impl Proofs {
    /// Whoever receives has the gateway show them.
    pub fn new(shows: mpsc::Sender<Show>) -> Self {
        Self(shows)
    }

    /// Has the gateway show `challenges` and no others, and waits until it does.
    ///
    /// # Errors
    /// It does not.
    pub async fn show(&self, challenges: Challenges) -> Result<(), AcmeError> {
        let (done, shown) = oneshot::channel();
        self.0.send(Show { challenges, done }).await.map_err(|_| AcmeError::NotShown)?;
        match shown.await {
            Ok(true) => Ok(()),
            _ => Err(AcmeError::NotShown),
        }
    }
}
