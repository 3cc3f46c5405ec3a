//! Envoy.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::proxy::{Front, Setting, WORKERS};
use crate::bench::gateway::programs::Programs;

pub fn command(setting: &Setting, programs: &Programs, address: SocketAddr) -> Result<Command> {
    let file = setting.write("envoy.json", &config(setting, address).to_string())?;
    let mut command = Command::new(&programs.envoy);
    command.arg("--config-path").arg(file).args(["--concurrency", &WORKERS.to_string()]);
    command.args(["--disable-hot-restart", "--log-level", "error"]);
    Ok(command)
}

fn config(setting: &Setting, address: SocketAddr) -> Value {
    let mut chain = json!({ "filters": [{ "name": "http", "typed_config": manager(setting.front) }] });
    if setting.front == Front::Tls {
        chain["transport_socket"] = tls(setting);
    }
    json!({ "static_resources": {
        "listeners": [{
            "name": "clients",
            "address": socket(address),
            "tcp_backlog_size": 4096,
            "filter_chains": [chain],
        }],
        "clusters": [{
            "name": "instance",
            "type": "STATIC",
            "connect_timeout": "2s",
            "load_assignment": {
                "cluster_name": "instance",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket(setting.instance) } }] }],
            },
        }],
    }})
}

fn manager(front: Front) -> Value {
    let forwarded = format!("for=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%;proto={};host=%REQ(:AUTHORITY)%", front.scheme());
    json!({
        "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "clients",
        "use_remote_address": true,
        "via": "1.1 envoy",
        "always_set_request_id_in_response": true,
        // `openssl s_time` asks in HTTP/1.0, without a host.
        "http_protocol_options": { "accept_http_10": true, "default_host_for_http_10": "bench.test" },
        "upgrade_configs": [{ "upgrade_type": "websocket" }],
        "route_config": {
            "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "instance", "timeout": "60s" } }],
                "request_headers_to_add": [
                    header("x-forwarded-host", "%REQ(:AUTHORITY)%"),
                    header("forwarded", &forwarded),
                ],
            }],
        },
        "http_filters": [{
            "name": "router",
            "typed_config": { "@type": kind("filters.http.router.v3.Router"), "suppress_envoy_headers": true },
        }],
    })
}

fn tls(setting: &Setting) -> Value {
    let [chain, key] = setting.certificate;
    json!({
        "name": "tls",
        "typed_config": {
            "@type": kind("transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {
                "tls_certificates": [{ "certificate_chain": { "filename": chain }, "private_key": { "filename": key } }],
            },
        },
    })
}

fn kind(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn socket(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } })
}

fn header(name: &str, value: &str) -> Value {
    json!({ "header": { "key": name, "value": value }, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD" })
}
