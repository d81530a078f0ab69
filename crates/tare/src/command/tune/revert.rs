//! `tare tune revert`: restores the settings that still have the written value, and reports the
//! others.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_tune::{LiveHost, OnDrift, RevertOutcome, revert_all};

use super::{outcome, tune_error};
use crate::cli::TuneRevert;
use crate::exit::Exit;
use crate::terminal::style;

pub(crate) fn run(typed: &TuneRevert, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut store = LiveHost::new("/");
    let drift = if typed.forget_drift { OnDrift::Forget } else { OnDrift::Keep };
    let reverted = revert_all(&mut store, state, typed.to.as_deref(), drift).map_err(tune_error)?;
    let is_settled = |outcome: &RevertOutcome| {
        outcome.is_done() || typed.forget_drift && matches!(outcome, RevertOutcome::Drift { .. })
    };
    let whole = reverted.iter().flat_map(|tuning| &tuning.settings).all(|s| is_settled(&s.outcome));
    if typed.json {
        let all = json!({ "reverted": reverted, "whole": whole });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", outcome::reverted(&reverted, style()))?;
    }
    Ok(if whole { Exit::Success } else { Exit::Failure })
}
