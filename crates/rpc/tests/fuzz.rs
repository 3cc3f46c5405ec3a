//! Bodies of calls that were never meant for the role that is called, and answers that were never meant for callers.

use weal_fuzz::check_json;
use weal_model::{LatencyHistogram, RefusedRequest};
use weal_protocol::engine::OutputRequest;
use weal_protocol::gateway::{ConfigAck, GatewayConfig, GatewayCounters, RefusedQuery};
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

/// What a gateway that was taken over answers to its controller.
#[test]
fn fuzz_gateway_answers() {
    weal_fuzz::target("gateway-answer", |bytes| {
        check_json::<GatewayCounters>(bytes);
        check_json::<Vec<RefusedRequest>>(bytes);
        check_json::<ConfigAck>(bytes);
        let Ok(counters) = serde_json::from_slice::<GatewayCounters>(bytes) else { return };
        let flows = counters.flows.iter().chain(&counters.inner).flat_map(|flow| [&flow.response_time, &flow.service_time]);
        let mut all = LatencyHistogram::default();
        for times in flows.chain(counters.clusters.iter().map(|cluster| &cluster.wake_wait)) {
            all.add(times);
            assert!(all.since(times).count() <= all.count());
            for share in [0.0, 0.5, 1.0] {
                let found = [times.quantile_s(share), times.quantile_with_s(share, u64::MAX, 1.0), all.mean_with_s(7, share)];
                assert!(found.into_iter().flatten().all(|seconds| seconds.is_finite() && seconds >= 0.0), "{found:?}");
            }
            assert!(all.share_within(1.0).is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    });
}
