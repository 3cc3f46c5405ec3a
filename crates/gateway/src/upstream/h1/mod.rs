//! HTTP/1.1 towards an instance (RFC 9112), written and read here and by no library.
//!
//! `head` and `body` are pure: they read what has come, and `outgoing` says what is to be sent. `link` moves the bytes. A library's client puts
//! channels between a connection and whoever uses it, because each may be on a task of its own. Here whoever has a request drives its
//! connection, so the head of the request stays where it is, and a part of a response goes from the socket's buffer to the client's.

mod body;
mod error;
mod head;
mod link;
mod outgoing;

pub(crate) use self::error::LinkError;
pub(crate) use self::link::Link;
