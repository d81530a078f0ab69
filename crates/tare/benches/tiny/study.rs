//! Runs a study with the built program, and reads figures of its report.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs the text of a study in a directory and returns its report.
pub(crate) fn weigh(folder: &Path, name: &str, text: &str) -> Result<Value> {
    std::fs::write(folder.join(format!("{name}.toml")), text)?;
    let output = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["weigh", &format!("{name}.toml"), "--json", "-o", &format!("{name}.tare")])
        .arg("--state")
        .arg(folder.join("state"))
        .current_dir(folder)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn named<'r>(all: &'r Value, key: &str, name: &str) -> Result<&'r Value> {
    let found = all.as_array().into_iter().flatten().find(|one| one[key] == name);
    found.ok_or_else(|| format!("the report has no {name:?}").into())
}

/// Returns the finding of an environment, which must not be left out, with all layers in force.
pub(crate) fn finding<'r>(report: &'r Value, environment: &str) -> Result<&'r Value> {
    let one = named(&report["environments"], "name", environment)?;
    if !one["left_out"].is_null() {
        return Err(format!("{environment} was left out: {}", one["left_out"]).into());
    }
    named(&report["analysis"]["findings"], "environment", environment)
}

/// Returns a number of a report.
pub(crate) fn number(value: &Value, what: &str) -> Result<f64> {
    value.as_f64().ok_or_else(|| format!("the report has no {what}").into())
}

/// Returns the operations per second of an environment.
pub(crate) fn per_s(report: &Value, environment: &str) -> Result<f64> {
    let found = finding(report, environment)?;
    number(&found["throughput_per_s"]["value"], "throughput")
}

/// Returns a counter of an environment, for each second.
pub(crate) fn counter_per_s(report: &Value, environment: &str, name: &str) -> Result<f64> {
    let one = named(&report["environments"], "name", environment)?;
    let counter = named(&one["counters"], "name", name)?;
    Ok(number(&counter["value"]["value"], name)? * per_s(report, environment)?)
}
