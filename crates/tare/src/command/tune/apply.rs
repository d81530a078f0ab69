//! `tare tune apply`: makes the changes of the plan, journalled first, each read back.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::anyhow;
use serde_json::json;
use tare_tune::plan::{Options, Plan};
use tare_tune::{Applied, LiveHost, Purpose, SettingStore, apply_plan};

use super::{failure, options, outcome, table};
use crate::cli::TuneApply;
use crate::command::report::style;
use crate::exit::{Exit, ExitWith};

pub(crate) fn run(typed: &TuneApply, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut store = LiveHost::new("/");
    if typed.stored {
        return super::persist::apply_stored(&mut store, state, out);
    }
    let options = Options::from(&typed.plan);
    if options.like_perftune {
        return Err(anyhow!(
            "tare tune apply applies only Tare's own plan; --like perftune is for tare tune plan"
        ))
        .exit_with(Exit::Usage);
    }
    if !typed.yes {
        let plan = options::planned(&store.snapshot(), &options)?;
        if plan.changes().next().is_none() {
            return finish(typed, &plan, &Applied::default(), out);
        }
        write!(out, "{}", table::plan(&plan, false, style()))?;
        if !confirmed(plan.changes().count(), out)? {
            writeln!(out, "nothing was changed")?;
            return Ok(Exit::Success);
        }
    }
    let (plan, applied) =
        apply_plan(&mut store, state, &options, Purpose::Keep).map_err(failure)?;
    finish(typed, &plan, &applied, out)
}

/// Asks whoever sits at the terminal.
fn confirmed(changes: usize, out: &mut dyn Write) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(anyhow!("nobody can be asked whether to make these changes; say --yes"))
            .exit_with(Exit::Usage);
    }
    let them = if changes == 1 { "this change" } else { "these changes" };
    write!(out, "\nMake {them}? They are undone by tare tune revert. [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn finish(
    typed: &TuneApply,
    plan: &Plan,
    applied: &Applied,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let exit = if applied.failed().next().is_some() { Exit::Failure } else { Exit::Success };
    if typed.json {
        let both = json!({ "plan": plan, "applied": applied });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
    } else {
        write!(out, "{}", outcome::applied(applied, style()))?;
    }
    Ok(exit)
}
