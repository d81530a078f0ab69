//! `tare tune status`: what is applied, and whether it still is as it was written.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_tune::{LiveHost, status};

use super::{failure, outcome};
use crate::cli::TuneStatus;
use crate::command::report::style;
use crate::exit::Exit;

pub(crate) fn run(typed: &TuneStatus, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let tunings = status(&LiveHost::new("/"), state).map_err(failure)?;
    if typed.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "tunings": tunings }))?)?;
    } else {
        write!(out, "{}", outcome::tunings(&tunings, true, style()))?;
    }
    Ok(Exit::Success)
}
