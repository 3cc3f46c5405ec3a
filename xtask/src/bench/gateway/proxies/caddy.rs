//! Caddy.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use super::proxy::{Front, Setting, WORKERS};
use crate::bench::gateway::programs::Programs;

pub fn command(setting: &Setting, programs: &Programs, address: SocketAddr) -> Result<Command> {
    let file = setting.write("Caddyfile", &config(setting, address))?;
    let mut command = Command::new(&programs.caddy);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    command.env("GOMAXPROCS", WORKERS.to_string());
    // What it keeps of its own is gone with the measurement.
    command.env("XDG_DATA_HOME", setting.folder).env("XDG_CONFIG_HOME", setting.folder);
    Ok(command)
}

fn config(setting: &Setting, address: SocketAddr) -> String {
    let [chain, key] = setting.certificate;
    let tls = match setting.front {
        Front::Tls => format!("tls {} {}", chain.display(), key.display()),
        Front::Http1 | Front::Http2 => String::new(),
    };
    let protocols = if setting.front == Front::Http2 { "h1 h2 h2c" } else { "h1 h2" };
    format!(
        "{{
	admin off
	auto_https off
	persist_config off
	default_sni bench.test
	log {{
		level ERROR
	}}
	servers {{
		protocols {protocols}
	}}
}}
{scheme}://:{port} {{
	bind {ip}
	{tls}
	reverse_proxy {instance} {{
		header_up Forwarded \"for={{remote_host}};proto={{scheme}};host={{host}}\"
		header_up X-Request-Id {{http.request.uuid}}
		header_down X-Request-Id {{http.request.uuid}}
		transport http {{
			keepalive_idle_conns_per_host 256
			compression off
		}}
	}}
}}
",
        scheme = setting.front.scheme(),
        port = address.port(),
        ip = address.ip(),
        instance = setting.instance,
    )
}
