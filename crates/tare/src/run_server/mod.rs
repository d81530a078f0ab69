//! The far side of `--on` (the near one is `remote_run`): serves a command that another host
//! started here. Its directory, the process that supervises it, and the files that go there and
//! back.
//!
//! Method: the other host speaks to these tasks through ssh only. `start` unpacks the files, starts
//! `supervise` in the background, and ends. `supervise` runs the command, on a terminal of its own
//! if the user has one, and listens on a socket. `attach` relays between the socket and ssh. The
//! supervisor interrupts the command when the relay ends, unless the user detached it.

mod clean;
mod command;
mod files;
mod frame;
mod hub;
mod programs;
mod relay;
mod session;
mod supervise;
mod terminal;

use std::io::Write;

use tare_host::housekeeping::Housekeeping;

use crate::cli::{RunServer, RunServerTask};
use crate::exit::Exit;

pub(crate) use command::{facts, kubeconfig};
pub(crate) use files::Packer;
pub(crate) use frame::{Frame, Kind, read_frame, write_frame};
pub(crate) use programs::ProgramCopy;
pub(crate) use session::{Ended, Session, SessionAccount, SessionSpec, TerminalSpec, id};

/// Lists the runs. Their files are for the host that started them, and `tare clean --on` there
/// removes them.
pub(crate) const HOUSEKEEPING: Housekeeping =
    Housekeeping { leftovers: session::leftovers, ..Housekeeping::NOTHING };

pub(crate) fn run(options: &RunServer, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        RunServerTask::Start => supervise::start(out)?,
        RunServerTask::Supervise { directory } => supervise::run(directory)?,
        RunServerTask::Run { directory, parent } => command::become_command(directory, *parent)?,
        RunServerTask::Attach { directory, after, again } => relay::run(directory, *after, *again)?,
        RunServerTask::Clean { json } => return clean::run(*json),
        RunServerTask::List => session::print_all(out)?,
        RunServerTask::Fetch { directory } => files::fetch(directory, out)?,
        RunServerTask::Remove { directory } => session::remove(directory)?,
        RunServerTask::Programs { remove } => programs::print_all(*remove, out)?,
    }
    Ok(Exit::Success)
}
