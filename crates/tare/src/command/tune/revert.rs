//! `tare tune revert`: puts back what still is as it was written, and says what is not.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_tune::{LiveHost, OnDrift, RevertOutcome, revert_all};

use super::{failure, outcome};
use crate::cli::TuneRevert;
use crate::command::report::style;
use crate::exit::Exit;

pub(crate) fn run(typed: &TuneRevert, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut store = LiveHost::new("/");
    let drift = if typed.forget_drift { OnDrift::Forget } else { OnDrift::Keep };
    let reverted = revert_all(&mut store, state, typed.to.as_deref(), drift).map_err(failure)?;
    let settled = |outcome: &RevertOutcome| {
        outcome.is_done() || typed.forget_drift && matches!(outcome, RevertOutcome::Drift { .. })
    };
    let whole = reverted.iter().flat_map(|tuning| &tuning.settings).all(|s| settled(&s.outcome));
    if typed.json {
        let all = json!({ "reverted": reverted, "whole": whole });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", outcome::reverted(&reverted, style()))?;
    }
    Ok(if whole { Exit::Success } else { Exit::Failure })
}
