//! What peers of the gateway hear while it is down.

use weal_protocol::Refusal;

/// The gateway is down.
pub fn gateway_away() -> Refusal {
    Refusal::Away { peer: "the gateway".to_owned(), detail: "it is down".to_owned() }
}
