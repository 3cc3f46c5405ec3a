//! The gateway over real sockets.

mod bed;
mod faults;
mod framing;
mod life;
mod routing;
mod seats;
mod wake;
