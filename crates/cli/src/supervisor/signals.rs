//! The signals that the supervisor listens to.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{Stream, is_terminal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Read the config again.
    Reload,
    /// End, for this reason.
    Stop(&'static str),
}

/// What the terminal, the system and other commands ask for.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Whether a terminal was there at the start: its end means that the person left.
    terminal: bool,
}

impl Signals {
    /// Listens from now on.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            terminal: is_terminal(Stream::Out),
        })
    }

    /// What is asked for next.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop("interrupted"),
            _ = self.terminate.recv() => Asked::Stop("asked to end"),
            _ = self.hangup.recv() => match self.terminal && !is_terminal(Stream::Out) {
                true => Asked::Stop("the terminal is gone"),
                false => Asked::Reload,
            },
        }
    }
}
