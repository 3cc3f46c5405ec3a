//! What peers of the gateway hear while it is down.

use weal_protocol::Refusal;
use weal_protocol::gateway::PEER;

/// The gateway is down.
pub fn gateway_away() -> Refusal {
    Refusal::Away { peer: PEER.to_owned(), detail: "it is down".to_owned() }
}
