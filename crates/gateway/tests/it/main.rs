//! The gateway over real sockets.

mod bed;
mod compression;
mod corpus;
mod dispatch;
mod exchange;
mod faults;
mod flows;
mod framing;
mod grpc;
mod h2;
mod inner;
mod life;
mod manners;
mod ports;
mod proxy;
mod raw;
mod resume;
mod routing;
mod seats;
mod slow;
mod threads;
mod tls;
mod wake;
mod websocket;
