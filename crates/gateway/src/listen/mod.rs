//! Client connections: accepting them, spreading them over workers, watching over them and closing them.

pub(crate) mod accepting;
pub(crate) mod client;
pub(crate) mod guard;
pub(crate) mod handshake;
pub(crate) mod l4;
mod line;
pub(crate) mod linger;
mod named;
pub(crate) mod own;
mod pace;
pub(crate) mod patience;
mod preface;
pub(crate) mod proxy;
pub(crate) mod refusal;
pub(crate) mod registry;
pub(crate) mod stillness;
pub(crate) mod stream;
pub(crate) mod transport;
pub(crate) mod workers;
