//! weal's gateway, with one cluster and nothing around it.

use std::net::SocketAddr;
use std::process::Command;

use super::proxy::{Front, Setting, WORKERS};
use crate::bench::gateway::programs::Programs;

/// More than there are clients: requests take seats, and none waits.
const SEATS: &str = "256";

pub fn command(setting: &Setting, programs: &Programs, address: SocketAddr) -> Command {
    let (address, instance, workers) = (address.to_string(), setting.instance.to_string(), WORKERS.to_string());
    if setting.front == Front::Tls {
        let mut command = Command::new(programs.examples.join("sessions-bench"));
        command.args(["serve", &address, "127.0.0.1:0", &instance]).args(setting.certificate).args([&workers, "ordered"]);
        return command;
    }
    let mut command = Command::new(programs.examples.join("gateway-bench"));
    command.args([&address, &instance, SEATS, &workers]);
    command
}
