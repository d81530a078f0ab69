//! `tare tune`: plans, applies, verifies and reverts host settings. One file per subcommand.

mod apply;
mod daemon;
mod flags;
mod found;
mod gains;
mod kubelet;
mod options;
mod outcome;
mod persist;
mod plan;
mod prove;
mod remarks;
mod revert;
mod sources;
mod status;
mod table;
mod unit;
mod verify;

use std::io::Write;
use std::path::Path;

use tare_tune::TuneError;

use crate::cli::{Tune, TuneCommand};
use crate::exit::{Exit, exit_error, plan_error};

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
        TuneCommand::Manifest(options) => daemon::run(options, out),
        TuneCommand::Store => persist::store(state),
    }
}

/// Adds the exit code to an error of the tuner.
fn tune_error(error: TuneError) -> anyhow::Error {
    let exit = match error {
        TuneError::NotAllowed { .. } | TuneError::Lock { .. } => Exit::Host,
        TuneError::Unknown { .. } => Exit::Usage,
        TuneError::Header { .. } => Exit::Input,
        TuneError::Plan(error) => return plan_error(error),
        _ => Exit::Failure,
    };
    exit_error(error, exit)
}
