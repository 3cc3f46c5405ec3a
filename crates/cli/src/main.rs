//! `weal`: hosts applications on a shared pool and keeps every one of them equally close to its goal.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`args`], [`values`] | the shape of the command line |
//! | [`supervisor`] | `weal up`: sockets, roles, config, the end |
//! | [`role`] | the processes that the supervisor starts |
//! | [`commands`] | everything else: calls to the running pool, and what needs none |
//! | [`config_file`], [`machine_check`] | the config, and what it names that this machine lacks |
//! | [`client`], [`state`], [`found`] | how commands find and call a pool |
//! | [`completion`] | what a shell may write next: commands, options, names of what runs |
//! | [`users`], [`trust`], [`allowed`], [`confidential`] | whom roles and applications run as, what root relies on, what is secret |
//! | [`output`], [`lines`], [`log_entry`], [`level`], [`failure`] | how they answer and fail |

mod allowed;
mod args;
mod certificate;
mod client;
mod commands;
mod completion;
mod confidential;
mod config_file;
mod digest;
mod failure;
mod found;
mod level;
mod lines;
mod log_entry;
mod machine_check;
mod output;
mod process;
mod role;
mod role_name;
mod state;
mod supervisor;
mod terminal;
mod trust;
mod users;
mod values;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, Format};

fn main() -> ExitCode {
    completion::answer();
    let cli = Cli::parse();
    output::set_color(cli.global.color);
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(failure::report(&error, cli.global.output == Format::Json)),
    }
}

/// The answer is the exit code.
fn run(cli: &Cli) -> anyhow::Result<u8> {
    let json = cli.global.output == Format::Json;
    match &cli.command {
        Command::Run(order) => commands::run::run(order),
        Command::Init(order) => commands::init::run(order, json),
        Command::Up(order) => supervisor::up(order),
        Command::Service { command } => commands::service::run(command, json),
        Command::Down(order) => commands::down::run(order, json),
        Command::Upgrade(order) => commands::upgrade::run(order, json),
        Command::Status(order) => commands::status::run(order, json),
        Command::Top(target) => commands::top::run(target, json),
        Command::Logs(order) => commands::logs::run(order, json),
        Command::Why(order) => commands::why::run(order, json),
        Command::Instances(order) => commands::instances::run(order, json),
        Command::Sleep(order) => commands::sleep::run(order, json),
        Command::Wake(order) => commands::wake::run(order, json),
        Command::Deploy(order) => commands::deploy::deploy(order, json),
        Command::History(target) => commands::deploy::history(target, json),
        Command::Rollback(order) => commands::deploy::rollback(order, json),
        Command::Restart(order) => commands::verbs::restart(order, json),
        Command::Reload(order) => commands::reload::run(order, json),
        Command::Stop(order) => commands::verbs::stop(order, json),
        Command::Start(order) => commands::verbs::start(order, json),
        Command::Scale(order) => commands::verbs::scale(order, json),
        Command::KeepAwake(order) => commands::verbs::keep_awake(order, json),
        Command::Exec(order) => return commands::exec::run(order),
        Command::Submit(order) => commands::submit::submit(order, json),
        Command::Jobs(order) => commands::jobs::list(order, json),
        Command::Job { command } => commands::jobs::job(command, json),
        Command::Events(order) => commands::events::run(order, json),
        Command::Token { command } => commands::token::run(command, json),
        Command::Audit(order) => commands::token::audit(order, json),
        Command::Doctor(target) => commands::doctor::run(target, json),
        Command::Validate(target) => commands::config::validate(target, json),
        Command::Config { command } => commands::config::show(command, json),
        Command::Apply(order) => commands::config::apply(order, json),
        Command::Load(order) => commands::load::run(order, json),
        Command::Rehearse(order) => commands::rehearse::run(order, json),
        Command::Simulate(order) => commands::simulate::run(order, json),
        Command::Record(order) => commands::recording::record(order),
        Command::Replay(order) => commands::recording::replay(order, json),
        Command::WhatIf(order) => commands::what_if::run(order, json),
        Command::Import(order) => commands::config::import(order, json),
        Command::Reproduce(order) => commands::reproduce::run(order, json),
        Command::Completion { shell } => commands::about::completion(*shell),
        Command::Man { folder } => commands::about::man(folder),
        Command::Schema => commands::about::schema(),
        Command::Version => commands::about::version(json),
        Command::StandIn(order) => commands::stand_in::run(order),
        Command::Role { role } => role::run(role),
        Command::Shim { dir, adopt } => role::shim(dir, *adopt),
    }?;
    Ok(0)
}
