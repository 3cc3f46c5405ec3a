//! Bodies of calls that were never meant for the role that is called.

use weal_fuzz::check_json;
use weal_protocol::engine::OutputRequest;
use weal_protocol::gateway::{GatewayConfig, RefusedQuery};
use weal_protocol::node::{Command, EventsAfter, LogsRequest, WakeRequest};
use weal_protocol::tls::{ApiCertificate, TlsConfig};

#[test]
fn fuzz_rpc_bodies() {
    weal_fuzz::target("rpc-body", |bytes| {
        check_json::<Vec<Command>>(bytes);
        check_json::<EventsAfter>(bytes);
        check_json::<LogsRequest>(bytes);
        check_json::<OutputRequest>(bytes);
        check_json::<WakeRequest>(bytes);
        check_json::<RefusedQuery>(bytes);
        check_json::<GatewayConfig>(bytes);
        check_json::<TlsConfig>(bytes);
        check_json::<ApiCertificate>(bytes);
        check_json::<Vec<u32>>(bytes);
    });
}
