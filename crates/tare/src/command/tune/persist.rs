//! `tare tune persist`: stores a plan that a systemd unit applies at every boot.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use tare_tune::plan::Options;
use tare_tune::{LiveHost, PersistError, UNIT, Units};

use super::{outcome, tune_error};
use crate::cli::TunePersist;
use crate::exit::{Exit, exit_error, plan_error};
use crate::terminal::style;

pub(crate) fn run(
    arguments: &TunePersist,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if arguments.remove {
        let removed = tare_tune::remove(state).map_err(persist_error)?;
        for path in &removed {
            writeln!(out, "removed {}", path.display())?;
        }
        if removed.is_empty() {
            writeln!(out, "nothing was persisted")?;
        }
        return Ok(Exit::Success);
    }
    let tare = crate::own_program()?;
    let state = std::path::absolute(state)?;
    if arguments.print {
        write!(out, "{}", tare_tune::unit(&tare, &state))?;
        return Ok(Exit::Success);
    }
    let units = Units::of_host().map_err(persist_error)?;
    let options = Options::from(&arguments.plan);
    tare_tune::persist(&LiveHost::new("/"), &state, &options, &tare, &units)
        .map_err(persist_error)?;
    writeln!(
        out,
        "{UNIT} applies this plan at every boot; tare tune persist --remove removes it\n\
         it runs {}; keep the program there",
        tare.display()
    )?;
    Ok(Exit::Success)
}

/// Runs `tare tune store`, which a pod of `tare tune manifest` starts.
pub(super) fn store(state: &Path) -> anyhow::Result<Exit> {
    let plan = std::io::read_to_string(std::io::stdin()).context("cannot read the plan")?;
    tare_tune::store(state, &plan).map_err(persist_error)?;
    Ok(Exit::Success)
}

/// Runs `tare tune apply --stored`, which the unit starts.
pub(super) fn apply_stored(
    store: &mut LiveHost,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let stored = tare_tune::apply_stored(store, state).map_err(persist_error)?;
    for line in &stored.changed {
        writeln!(out, "the hardware has changed since the plan was stored: {line}")?;
    }
    if !stored.changed.is_empty() {
        writeln!(out, "planned again with the stored options")?;
    }
    write!(out, "{}", outcome::applied(&stored.applied, style()))?;
    if !stored.left_out.is_empty() {
        writeln!(
            out,
            "{} settings that a plan would change now are not in the stored plan and were left alone; \
             tare tune persist stores a new one",
            stored.left_out.len()
        )?;
    }
    let failed = stored.applied.failed().next().is_some();
    Ok(if failed { Exit::Failure } else { Exit::Success })
}

/// Adds the exit code to an error of persisting.
pub(super) fn persist_error(error: PersistError) -> anyhow::Error {
    let exit = match error {
        PersistError::NoSystemd | PersistError::HasOwn | PersistError::Write { .. } => Exit::Host,
        PersistError::NotStored { .. } | PersistError::Unusable { .. } => Exit::Input,
        PersistError::Plan(error) => return plan_error(error),
        PersistError::Tune(error) => return tune_error(error),
        _ => Exit::Failure,
    };
    exit_error(error, exit)
}
