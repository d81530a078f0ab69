//! `tare tune persist`: a plan that is applied at every boot.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use tare_tune::plan::Options;
use tare_tune::{LiveHost, PersistError, UNIT, Units};

use super::{failure, options, outcome};
use crate::cli::TunePersist;
use crate::command::report::style;
use crate::exit::{Exit, coded};

pub(crate) fn run(typed: &TunePersist, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if typed.remove {
        let removed = tare_tune::remove(state).map_err(unpersisted)?;
        for path in &removed {
            writeln!(out, "removed {}", path.display())?;
        }
        if removed.is_empty() {
            writeln!(out, "nothing was persisted")?;
        }
        return Ok(Exit::Success);
    }
    let tare = std::env::current_exe().context("cannot find this program's own path")?;
    let state = std::path::absolute(state)?;
    if typed.print {
        write!(out, "{}", tare_tune::unit(&tare, &state))?;
        return Ok(Exit::Success);
    }
    let units = Units::of_host().map_err(unpersisted)?;
    let asked = Options::from(&typed.plan);
    tare_tune::persist(&LiveHost::new("/"), &state, &asked, &tare, &units).map_err(unpersisted)?;
    writeln!(
        out,
        "{UNIT} applies this plan at every boot; tare tune persist --remove takes it away\n\
         it runs {}: leave the program there",
        tare.display()
    )?;
    Ok(Exit::Success)
}

/// `tare tune apply --stored`, which the unit starts.
pub(super) fn apply_stored(
    store: &mut LiveHost,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let stored = tare_tune::apply_stored(store, state).map_err(unpersisted)?;
    for line in &stored.changed {
        writeln!(out, "the hardware is another than when the plan was stored: {line}")?;
    }
    if !stored.changed.is_empty() {
        writeln!(out, "so the host was planned for anew with the stored options")?;
    }
    write!(out, "{}", outcome::applied(&stored.applied, style()))?;
    if !stored.left_out.is_empty() {
        writeln!(
            out,
            "{} settings that the plan would change now were not in the stored plan and were left; \
             tare tune persist stores a new one",
            stored.left_out.len()
        )?;
    }
    let failed = stored.applied.failed().next().is_some();
    Ok(if failed { Exit::Failure } else { Exit::Success })
}

fn unpersisted(error: PersistError) -> anyhow::Error {
    let exit = match error {
        PersistError::NoSystemd | PersistError::Write { .. } => Exit::Host,
        PersistError::NotStored { .. } | PersistError::Unusable { .. } => Exit::Input,
        PersistError::Plan(error) => return options::unplanned(error),
        PersistError::Tune(error) => return failure(error),
        _ => Exit::Failure,
    };
    coded(error, exit)
}
