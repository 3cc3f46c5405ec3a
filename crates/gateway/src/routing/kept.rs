//! The config that a gateway keeps, to serve when it is started again without a controller.
//!
//! What it knows of instances may be long past then: they have ended, and another program may have their ports. So it keeps beside each address
//! which sockets listened there, and goes on only with those addresses where the same ones still do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weal_host::listening::{Listening, listening};
use weal_protocol::gateway::GatewayConfig;

/// Where the last config is kept, below the state directory.
pub(super) const FILE: &str = "gateway/gateway.json";
/// Differs from one start of the machine to the next, and so do the numbers of sockets.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A config and the sockets that it was true for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    boot: String,
    sockets: BTreeMap<SocketAddr, BTreeSet<u32>>,
    config: GatewayConfig,
}

impl Kept {
    /// `config` with who listens at its addresses now.
    pub(super) fn now(config: &GatewayConfig) -> Self {
        let listening = all_listening();
        let addresses = config.clusters.iter().flat_map(|cluster| &cluster.endpoints).map(|endpoint| endpoint.address);
        let sockets = addresses.map(|address| (address, sockets(&listening, address))).collect();
        Self { boot: boot(), sockets, config: config.clone() }
    }

    /// The config with the addresses only where the same sockets listen as then.
    pub(super) fn confirmed(self) -> GatewayConfig {
        let is_same_boot = self.boot == boot();
        let listening = all_listening();
        let mut config = self.config;
        for cluster in &mut config.clusters {
            cluster.endpoints.retain(|endpoint| {
                let then = self.sockets.get(&endpoint.address);
                let is_confirmed = is_same_boot && then.is_some_and(|then| !then.is_empty() && *then == sockets(&listening, endpoint.address));
                if !is_confirmed {
                    tracing::info!(app = %cluster.app, address = %endpoint.address, "another socket listens there than before: nothing is sent there");
                }
                is_confirmed
            });
        }
        config
    }

    /// What a file of it holds.
    pub(super) fn content(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }
}

/// Empty where the kernel does not say: nothing is confirmed then.
fn all_listening() -> Vec<Listening> {
    listening().unwrap_or_default()
}

/// The sockets that take what is sent to `address`.
fn sockets(listening: &[Listening], address: SocketAddr) -> BTreeSet<u32> {
    listening.iter().filter(|socket| socket.takes(address)).map(|socket| socket.inode).collect()
}

fn boot() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn config_for(address: SocketAddr) -> GatewayConfig {
        let endpoint = serde_json::json!({ "instance": "shop-1", "address": address, "weight": 1.0, "draining": false });
        let cluster = serde_json::json!({
            "app": "shop", "routes": [], "seats": null, "flows": {}, "endpoints": [endpoint], "request_timeout_s": 1.0,
        });
        serde_json::from_value(serde_json::json!({ "version": 1, "clusters": [cluster] })).unwrap()
    }

    #[test]
    fn nothing_is_sent_where_another_program_listens_now() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let config = config_for(address);
        let kept = || serde_json::from_slice::<Kept>(&serde_json::to_vec(&Kept::now(&config)).unwrap()).unwrap();
        let of_the_first = [kept(), kept(), kept()];
        let [same, gone, other] = of_the_first;
        assert_eq!(same.confirmed(), config);
        drop(first);
        assert!(gone.confirmed().clusters[0].endpoints.is_empty(), "nobody listens");
        let _second = TcpListener::bind(address).unwrap();
        assert!(other.confirmed().clusters[0].endpoints.is_empty(), "somebody else listens");
    }

    #[test]
    fn another_start_of_the_machine_confirms_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kept = Kept { boot: "before".to_owned(), ..Kept::now(&config_for(listener.local_addr().unwrap())) };
        assert!(kept.confirmed().clusters[0].endpoints.is_empty());
    }
}
