//! Compression of answers (RFC 9110 section 8.4): which coding a client gets, if any, and what that changes in the head.
//!
//! An instance's answer is compressed only where that is allowed and helps: its type is one that compresses, it has no coding yet, it is
//! whole (no range), and nobody has said `no-transform`.

mod accepted;
mod body;
mod coding;
mod encoder;
mod wish;

pub(crate) use body::Encoded;
pub(crate) use wish::Wish;
