//! Bodies of calls that were never meant for those who are called.

use serde::Serialize;
use serde::de::DeserializeOwned;
use weal_protocol::engine::OutputRequest;
use weal_protocol::gateway::{GatewayConfig, RefusedQuery};
use weal_protocol::node::{Command, EventsAfter, LogsRequest, WakeRequest};
use weal_protocol::tls::{ApiCertificate, TlsConfig};

/// What is understood can be said again, and is understood again.
fn check<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<T>(bytes) else { return };
    let said = serde_json::to_vec(&body).expect("what was read can be written");
    assert!(serde_json::from_slice::<T>(&said).is_ok(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn fuzz_rpc_bodies() {
    weal_fuzz::target("rpc-body", |bytes| {
        check::<Vec<Command>>(bytes);
        check::<EventsAfter>(bytes);
        check::<LogsRequest>(bytes);
        check::<OutputRequest>(bytes);
        check::<WakeRequest>(bytes);
        check::<RefusedQuery>(bytes);
        check::<GatewayConfig>(bytes);
        check::<TlsConfig>(bytes);
        check::<ApiCertificate>(bytes);
        check::<Vec<u32>>(bytes);
    });
}
