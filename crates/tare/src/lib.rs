//! The program: arguments, exit codes, and one file per command. No other crate uses clap or
//! anyhow. Results go to `out` (stdout), progress and logs to stderr.
#![forbid(unsafe_code)]

mod campaign;
mod cleanup;
pub mod cli;
mod command;
pub mod exit;
mod inside;
mod live;
mod registry;
mod remote_run;
mod run_server;
mod serve;
mod signals;
pub mod stream;
mod studies;
mod study_plan;
mod terminal;
mod topology;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use cli::{Arguments, Command};
use exit::Exit;

/// Runs one command.
///
/// # Errors
/// Any error that stops the command; `exit::of` prints it and returns its exit code.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // In an environment this program is the first of the system.
    tare_host::memory_policy::apply_pages()?;
    if let Some(on) = remote_run::asked(&arguments.command) {
        return remote_run::run(&arguments.command, on, &arguments.state, out);
    }
    match &arguments.command {
        Command::Weigh(options) => command::weigh::run(options, &arguments.state, out),
        Command::Explain(options) => command::explain::run(options, &arguments.state, out),
        Command::Report(options) => command::report::run(options, out),
        Command::Compare(options) => command::compare::run(options, out),
        Command::History(options) => command::history::run(options, out),
        Command::Check(options) => command::check::run(options, &arguments.state, out),
        Command::Init(options) => command::init::run(options, out),
        Command::Share(options) => command::share::run(options, out),
        Command::List(options) => command::list::run(options, &arguments.state, out),
        Command::Doctor(options) => command::doctor::run(options, &arguments.state, out),
        Command::Clean(options) => command::clean::run(options, &arguments.state, out),
        Command::Attach(options) => remote_run::attach(options, &arguments.state, out),
        Command::Tune(options) => command::tune::run(options, &arguments.state, out),
        Command::Cpus(options) => command::cpus::run(options, out),
        Command::Host(options) => command::host::run(options, out),
        Command::Disk(options) => command::disk::run(options, &arguments.state, out),
        Command::Db(options) => command::db::run(options, out),
        Command::Load(options) => command::load::run(options, out),
        Command::Image(options) => command::image::run(options, out),
        Command::Completions(options) => command::shell::completions(options, out),
        Command::Man(options) => command::shell::man(options),
        Command::LoadAgent(options) => command::load::agent(options),
        Command::FioServer(options) => command::fio_server::run(options),
        Command::HostAgent => command::host_agent::run(&arguments.state),
        Command::StartSystem(options) => command::start_system::run(options),
        Command::NeighbourSystem(options) => command::neighbour_system::run(options),
        Command::Proxy(options) => command::proxy::run(options),
        Command::Guest => command::guest::run(),
        Command::RunServer(options) => run_server::run(options, out),
        Command::Pod(options) => command::pod::run(options, &arguments.state, out),
        Command::Facts => command::facts::run(out),
    }
}

/// Returns the file of this program, for what runs it again.
fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find the file of this program")
}
