//! HAProxy.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use super::proxy::{Front, Setting, WORKERS};

pub fn command(setting: &Setting, address: SocketAddr) -> Result<Command> {
    let file = setting.write("haproxy.cfg", &config(setting, address)?)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}

fn config(setting: &Setting, address: SocketAddr) -> Result<String> {
    let scheme = setting.front.scheme();
    let bind = match setting.front {
        Front::Http1 => address.to_string(),
        Front::Http2 => format!("{address} proto h2"),
        Front::Tls => format!("{address} ssl crt {}", both_in_one(setting)?.display()),
    };
    Ok(format!(
        "global
  nbthread {WORKERS}
  maxconn 4096
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 2s
  timeout http-request 10s
  timeout queue 30s
  timeout tunnel 60s
  http-reuse always
frontend clients
  bind {bind}
  option forwardfor
  unique-id-format %{{+X}}o%ci%cp%ts%rt%pid
  unique-id-header x-request-id
  http-request set-header x-forwarded-proto {scheme}
  http-request set-header x-forwarded-host %[req.hdr(host)]
  http-request set-header forwarded for=%[src];proto={scheme};host=%[req.hdr(host)]
  http-request add-header via \"1.1 haproxy\"
  http-response set-header x-request-id %[unique-id]
  default_backend instances
backend instances
  balance leastconn
  server one {instance} maxconn 256
",
        instance = setting.instance
    ))
}

/// HAProxy reads a chain and its key from one file.
fn both_in_one(setting: &Setting) -> Result<std::path::PathBuf> {
    let [chain, key] = setting.certificate;
    setting.write("haproxy.pem", &(std::fs::read_to_string(chain)? + &std::fs::read_to_string(key)?))
}
