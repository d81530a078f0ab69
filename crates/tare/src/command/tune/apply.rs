//! `tare tune apply`: journals the changes of a plan, makes them, and reads each back.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::anyhow;
use serde_json::json;
use tare_tune::plan::{Options, Plan};
use tare_tune::{Applied, LiveHost, Purpose, SettingStore, apply_plan};

use super::{options, outcome, table, tune_error};
use crate::cli::TuneApply;
use crate::exit::{Exit, ExitWith};
use crate::terminal::style;

pub(crate) fn run(
    arguments: &TuneApply,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut store = LiveHost::new("/");
    if arguments.stored {
        return super::persist::apply_stored(&mut store, state, out);
    }
    let options = Options::from(&arguments.plan);
    if options.like_perftune {
        return Err(anyhow!(
            "tare tune apply applies only Tare's own plan; use --like perftune with tare tune plan"
        ))
        .exit_with(Exit::Usage);
    }
    if !arguments.yes {
        let plan = options::plan_host(&store.snapshot(), &options)?;
        if plan.changes().next().is_none() {
            return finish(arguments, &plan, &Applied::default(), out);
        }
        write!(out, "{}", table::plan(&plan, false, style()))?;
        if !confirmed(plan.changes().count(), out)? {
            writeln!(out, "nothing was changed")?;
            return Ok(Exit::Success);
        }
    }
    let (plan, applied) =
        apply_plan(&mut store, state, &options, Purpose::Keep).map_err(tune_error)?;
    finish(arguments, &plan, &applied, out)
}

/// Asks the user at the terminal to confirm.
fn confirmed(changes: usize, out: &mut dyn Write) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(anyhow!(
            "cannot ask for confirmation: standard input is no terminal; pass --yes"
        ))
        .exit_with(Exit::Usage);
    }
    let them = if changes == 1 { "this change" } else { "these changes" };
    write!(out, "\nMake {them}? tare tune revert undoes them. [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn finish(
    arguments: &TuneApply,
    plan: &Plan,
    applied: &Applied,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let exit = if applied.failed().next().is_some() { Exit::Failure } else { Exit::Success };
    if arguments.json {
        let both = json!({ "plan": plan, "applied": applied });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
    } else {
        write!(out, "{}", outcome::applied(applied, style()))?;
    }
    Ok(exit)
}
