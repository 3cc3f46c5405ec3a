//! The proxies under test, each started by a file of its own: two threads or workers, no access log, connections to the instance kept, and the
//! same headers added (`X-Forwarded-For`, `-Proto`, `-Host`, `Forwarded`, `Via` and `X-Request-Id`, the last to the answer too).

mod caddy;
mod envoy;
mod haproxy;
mod nginx;
mod proxy;
mod weal;

use anyhow::Result;

use super::programs::Programs;
use crate::bench::real::pool::free_address;

pub use nginx::start_instance;
use proxy::answers;
pub use proxy::{Front, Proxy, Setting};

/// Which proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Weal,
    Haproxy,
    Nginx,
    Envoy,
    Caddy,
}

impl Kind {
    /// In the order of rows.
    pub const ALL: [Self; 5] = [Self::Weal, Self::Haproxy, Self::Nginx, Self::Envoy, Self::Caddy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Weal => "weal",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::Caddy => "caddy",
        }
    }
}

/// Starts a proxy, and waits until it answers.
pub fn start(kind: Kind, setting: &Setting, programs: &Programs) -> Result<Proxy> {
    let address = free_address()?;
    let command = match kind {
        Kind::Weal => weal::command(setting, programs, address),
        Kind::Haproxy => haproxy::command(setting, address)?,
        Kind::Nginx => nginx::command(setting, address)?,
        Kind::Envoy => envoy::command(setting, programs, address)?,
        Kind::Caddy => caddy::command(setting, programs, address)?,
    };
    let proxy = Proxy::spawn(kind.name(), command, address, setting.folder)?;
    proxy.ready(|| answers(setting.front, address, setting.path, setting.bytes))
}
