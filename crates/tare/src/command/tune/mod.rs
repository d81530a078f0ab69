//! `tare tune`: plan, apply, verify, put back. One file per subcommand.

mod apply;
mod choose;
mod flags;
mod gains;
mod options;
mod outcome;
mod persist;
mod plan;
mod prove;
mod revert;
mod status;
mod table;
pub(crate) mod temporary;
mod verify;

use std::io::Write;
use std::path::Path;

use tare_tune::TuneError;

use crate::cli::{Tune, TuneCommand};
use crate::exit::{Exit, coded};

pub(crate) fn run(options: &Tune, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.command {
        TuneCommand::Plan(options) => plan::run(options, out),
        TuneCommand::Apply(options) => apply::run(options, state, out),
        TuneCommand::Verify(options) => verify::run(options, state, out),
        TuneCommand::Revert(options) => revert::run(options, state, out),
        TuneCommand::Flags(options) => flags::run(options, out),
        TuneCommand::Status(options) => status::run(options, state, out),
        TuneCommand::Prove(options) => prove::run(options, state, out),
        TuneCommand::Persist(options) => persist::run(options, state, out),
    }
}

/// An error of the tuner with its exit code.
fn failure(error: TuneError) -> anyhow::Error {
    let exit = match error {
        TuneError::NotAllowed { .. } | TuneError::Lock { .. } => Exit::Host,
        TuneError::Unknown { .. } => Exit::Usage,
        TuneError::Header { .. } => Exit::Input,
        TuneError::Plan(error) => return options::unplanned(error),
        _ => Exit::Failure,
    };
    coded(error, exit)
}
