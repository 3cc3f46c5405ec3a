//! HTTP/2 (RFC 9113): many exchanges over one connection.
//!
//! Each exchange is the same as over HTTP/1: checked, routed, seated, refused and recorded by the same code. Only what surrounds it differs:
//! `connection` accepts streams and ends the connection, `reply` writes one answer to its stream, `outgoing` sends a body as far as its
//! receiver has room, and `conduct` says when a client sends too much of what costs only the gateway.

mod conduct;
mod connection;
pub(crate) mod outgoing;
mod reply;
mod wire;

pub(crate) use connection::serve;

/// What a client says first on a connection for HTTP/2 (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
