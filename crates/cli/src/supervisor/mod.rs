//! `weal up`: one supervisor that owns the sockets, starts the roles, starts again those that die, feeds the config, and
//! ends everything in order.
//!
//! It decides nothing about the pool and nothing depends on it to serve: when it is killed, roles and instances go on,
//! and the next `weal up` takes them over.

mod acme;
mod api_tls;
mod background;
mod console;
mod feed;
mod identity;
pub mod leftovers;
mod logs;
mod notify;
mod otlp;
mod outgoing;
mod outlet;
mod ports;
mod progress;
mod pulse;
mod role;
mod secure;
mod ship;
mod shutdown;
mod signals;
pub mod sockets;
mod stamp;
mod telemetry;
mod tickets;
mod up;
mod upgrade;
mod urls;

pub use console::Console;
pub use progress::{dated_event_line, event_line, event_text, state_tone, wrote_last};
pub use shutdown::{Needs, Shutdown, needs_of};
pub use up::{host, up};
pub use urls::of_app as urls_of;
