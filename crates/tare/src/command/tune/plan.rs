//! `tare tune plan`: prints the recommended changes to this host. Reads only.

use std::io::Write;

use tare_tune::plan::Options;

use super::{options, table};
use crate::cli::TunePlan;
use crate::exit::Exit;
use crate::terminal::style;

pub(crate) fn run(arguments: &TunePlan, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let options = Options::from(&arguments.plan);
    let snapshot = options::snapshot(arguments.snapshot.as_ref())?;
    let plan = options::plan_host(&snapshot, &options)?;
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", table::plan(&plan, arguments.long, style()))?;
    if plan.changes().next().is_some() && arguments.snapshot.is_none() && !options.like_perftune {
        writeln!(
            out,
            "\nNothing was changed. tare tune apply makes these changes; revert undoes them."
        )?;
    }
    Ok(Exit::Success)
}
