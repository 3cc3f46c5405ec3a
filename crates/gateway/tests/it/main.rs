//! The gateway over real sockets.

mod bed;
mod routing;
