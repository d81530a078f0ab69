//! A command that another host started here with `--on`: its directory, the process that watches
//! over it, and the files that go there and back.
//!
//! Method: the other host speaks to these tasks through ssh only. `start` unpacks the files, starts
//! `supervise` in the background, and ends. `supervise` runs the command, on a terminal of its own
//! if the user has one, and listens on a socket. `attach` relays between the socket and ssh. The
//! supervisor interrupts the command when the relay ends, unless the user detached it.

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

use crate::cli::{There, ThereTask};
use crate::exit::Exit;

pub(crate) use command::facts;
pub(crate) use files::Packer;
pub(crate) use frame::{Frame, Kind, read_frame, write_frame};
pub(crate) use programs::ProgramCopy;
pub(crate) use session::{Ended, Session, SessionSpec, TerminalSpec, id};

/// Lists the runs. Their files are for the host that started them, and `tare clean --on` there
/// removes them.
pub(crate) const HOUSEKEEPING: Housekeeping =
    Housekeeping { leftovers: session::leftovers, ..Housekeeping::NOTHING };

pub(crate) fn run(options: &There, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        ThereTask::Start => supervise::start(out)?,
        ThereTask::Supervise { directory } => supervise::run(directory)?,
        ThereTask::Run { directory, parent } => command::become_command(directory, *parent)?,
        ThereTask::Attach { directory, after, again } => relay::run(directory, *after, *again)?,
        ThereTask::List => session::print_all(out)?,
        ThereTask::Fetch { directory } => files::fetch(directory, out)?,
        ThereTask::Remove { directory } => session::remove(directory)?,
        ThereTask::Programs { remove } => programs::print_all(*remove, out)?,
    }
    Ok(Exit::Success)
}
