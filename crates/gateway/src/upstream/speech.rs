//! How an instance is spoken to over a connection.

use std::net::SocketAddr;

use weal_model::{InstanceProtocol, ProxyVersion};

/// What a connection to an instance speaks, and what it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Speech {
    pub protocol: InstanceProtocol,
    /// Whose connection it is, where the instance is to be told.
    pub announced: Option<Announced>,
}

/// Whose connection one to an instance is, as a header of the PROXY protocol says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    pub version: ProxyVersion,
    pub ends: Ends,
}

/// The two ends of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Its client.
    pub client: SocketAddr,
    /// Where the client connected to.
    pub server: SocketAddr,
}

impl Announced {
    /// The header that says it.
    pub fn header(self) -> Vec<u8> {
        self.version.header(self.ends.client, self.ends.server)
    }
}
