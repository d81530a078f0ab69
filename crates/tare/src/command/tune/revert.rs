//! `tare tune revert`: puts back what still is as it was written, and says what is not.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_host::tune::{LiveHost, Reverted, revert_all};

use super::{failure, table};
use crate::cli::TuneRevert;
use crate::command::report::style;
use crate::exit::Exit;

pub(crate) fn run(typed: &TuneRevert, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut hand = LiveHost::new("/");
    let reverted = revert_all(&mut hand, state, typed.to.as_deref()).map_err(failure)?;
    let whole = reverted.iter().all(Reverted::is_whole);
    if typed.json {
        let all = json!({ "reverted": reverted, "whole": whole });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", table::reverted(&reverted, style()))?;
    }
    Ok(if whole { Exit::Success } else { Exit::Failure })
}
