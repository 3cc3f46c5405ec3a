//! nginx, as a proxy and as the instance.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::proxy::{Front, Proxy, Setting, WORKERS, answers};
use crate::bench::gateway::setting::SMALL;
use crate::bench::real::pool::free_address;

/// Connections are closed neither for their age nor for what they carried. What a slow client has not taken yet waits in memory, not in a file.
const LASTING: &str = "access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on; proxy_max_temp_file_size 0;";

pub fn command(setting: &Setting, address: SocketAddr) -> Result<Command> {
    nginx("nginx", setting.folder, WORKERS, &server(setting, address))
}

fn server(setting: &Setting, address: SocketAddr) -> String {
    let [chain, key] = setting.certificate;
    let listen = match setting.front {
        Front::Http1 => "backlog=4096;".to_owned(),
        Front::Http2 => "http2 backlog=4096;".to_owned(),
        Front::Tls => format!(
            "ssl backlog=4096; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {}; ssl_certificate_key {};",
            chain.display(),
            key.display()
        ),
    };
    format!(
        "map $http_upgrade $wanted {{ default upgrade; '' ''; }}
         upstream instance {{ server {instance}; keepalive 256; keepalive_requests 100000000; }}
         server {{
           listen {address} {listen}
           location / {{
             proxy_pass http://instance;
             proxy_http_version 1.1;
             proxy_set_header Connection $wanted;
             proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Host $http_host;
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             proxy_set_header X-Forwarded-Proto $scheme;
             proxy_set_header X-Forwarded-Host $http_host;
             proxy_set_header Forwarded \"for=$remote_addr;proto=$scheme;host=$http_host\";
             proxy_set_header Via \"1.1 nginx\";
             proxy_set_header X-Request-Id $request_id;
             add_header X-Request-Id $request_id;
           }}
         }}",
        instance = setting.instance
    )
}

/// An instance that answers from memory: `/small`, `/large` and `/huge`.
pub fn start_instance(folder: &Path) -> Result<Proxy> {
    let address = free_address()?;
    std::fs::write(folder.join("large"), vec![b'x'; 64 << 10])?;
    std::fs::write(folder.join("huge"), vec![b'x'; 1 << 20])?;
    let server = format!(
        "server {{ listen {address} backlog=4096; root {folder}; location /small {{ return 200 \"{small}\"; }} }}",
        folder = folder.display(),
        small = "x".repeat(SMALL)
    );
    let command = nginx("instance", folder, 1, &server)?;
    Proxy::spawn("instance", command, address, folder)?.ready(|| answers(Front::Http1, address, "/small", SMALL))
}

fn nginx(name: &str, folder: &Path, workers: u32, server: &str) -> Result<Command> {
    let file = folder.join(format!("{name}.conf"));
    let config = format!(
        "daemon off; worker_processes {workers}; pid {folder}/{name}.pid; error_log stderr error;
         events {{ worker_connections 4096; }}
         http {{ {LASTING} {server} }}",
        folder = folder.display()
    );
    std::fs::write(&file, config)?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&file);
    Ok(command)
}
