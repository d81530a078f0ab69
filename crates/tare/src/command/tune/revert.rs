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

pub(crate) fn run(
    arguments: &TuneRevert,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut store = LiveHost::new("/");
    let drift = if arguments.forget_drift { OnDrift::Forget } else { OnDrift::Keep };
    let reverted =
        revert_all(&mut store, state, arguments.to.as_deref(), drift).map_err(tune_error)?;
    let is_settled = |outcome: &RevertOutcome| {
        outcome.is_done()
            || arguments.forget_drift && matches!(outcome, RevertOutcome::Drift { .. })
    };
    let whole = reverted.iter().flat_map(|tuning| &tuning.settings).all(|s| is_settled(&s.outcome));
    if arguments.json {
        let all = json!({ "reverted": reverted, "whole": whole });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", outcome::reverted(&reverted, style()))?;
    }
    Ok(if whole { Exit::Success } else { Exit::Failure })
}
