//! `tare tune status`: lists the applied tunings, and whether their settings are in force.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_tune::{LiveHost, status};

use super::{outcome, tune_error};
use crate::cli::TuneStatus;
use crate::exit::Exit;
use crate::terminal::style;

pub(crate) fn run(
    arguments: &TuneStatus,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let tunings = status(&LiveHost::new("/"), state).map_err(tune_error)?;
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "tunings": tunings }))?)?;
    } else {
        write!(out, "{}", outcome::tunings(&tunings, true, style()))?;
    }
    Ok(Exit::Success)
}
