//! A POST to a receiver, with a bound on time.

use std::time::Duration;

use hyper::Uri;

use super::message::DeliveryError;
use crate::supervisor::outgoing::Poster;

/// What one attempt may take. A receiver that works answers within a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Posts `body` as JSON.
///
/// # Errors
/// It was not taken: there is no answer in time, or another than 2xx.
pub async fn post(url: &str, body: Vec<u8>) -> Result<(), DeliveryError> {
    tokio::time::timeout(PATIENCE, attempt(url, body)).await.unwrap_or(Err(DeliveryError::TooSlow(PATIENCE)))
}

/// The host that is called.
pub fn host_of(url: &str) -> String {
    url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_else(|| "a receiver".to_owned())
}

async fn attempt(url: &str, body: Vec<u8>) -> Result<(), DeliveryError> {
    let status = Poster::default().post(url, body).await?;
    if status.is_success() { Ok(()) } else { Err(DeliveryError::Refused(status)) }
}
