//! The options of `tare load` about the workload.

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tare_load::Part;
use tare_load::keys::Keys;
use tare_load::rows::{KeyType, Shape};
use tare_load::workload::{Workload, parse, shipped};

use super::share;
use crate::exit::{Exit, ExitWith};

#[derive(Debug, Args)]
pub struct LoadWorkload {
    /// A shipped workload (see `tare list workloads`) or a TOML file [default: rows of blobs]
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["operation", "write_share", "columns", "column_bytes"])]
    pub workload: Option<String>,
    /// Print the file of a shipped workload, and exit
    #[arg(long, value_name = "NAME")]
    pub show: Option<String>,
    /// Operations to send
    #[arg(long, value_name = "OPERATION", default_value = "write")]
    pub operation: Operation,
    /// Share of writes of `--operation mixed`, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub write_share: f64,
    /// Distribution of keys, such as zipfian:1.1 (docs/reference/load-spec.md lists all) [default:
    /// that of the workload, else gaussian]
    #[arg(long, value_name = "DISTRIBUTION")]
    pub keys: Option<Keys>,
    /// Rows to choose keys from [default: those of the workload, else 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    pub rows: Option<u64>,
    /// Columns of a row in addition to the key
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub columns: u32,
    /// Bytes of a column
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub column_bytes: u32,
    /// This loader's number out of several, such as 2/5: each loads its own part of the rows
    #[arg(long, value_name = "I/N", default_value_t = Part::ALL)]
    pub part: Part,
    /// Write every row of the part once before the load
    #[arg(long)]
    pub populate: bool,
    /// Check every row that is read, and count wrong, stale and lost ones
    #[arg(long)]
    pub verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    Write,
    Read,
    Mixed,
}

impl LoadWorkload {
    /// Returns the workload of these options.
    pub fn resolve(&self) -> anyhow::Result<Arc<Workload>> {
        let mut workload = match &self.workload {
            Some(name) => read_workload(name)?,
            None => {
                let (columns, column_bytes) = (self.columns, self.column_bytes);
                let shape = Shape { key_type: KeyType::default(), columns, column_bytes };
                let write_share = match self.operation {
                    Operation::Write => 1.0,
                    Operation::Read => 0.0,
                    Operation::Mixed => self.write_share,
                };
                let gaussian = Keys::Gaussian { mean: 0.5, deviation: 1.0 / 6.0 };
                Workload::plain(shape, 100_000, write_share, gaussian).exit_with(Exit::Usage)?
            }
        };
        if let Some(keys) = self.keys {
            workload.set_keys(keys);
        }
        if let Some(rows) = self.rows {
            workload.set_rows(rows).exit_with(Exit::Usage)?;
        }
        Ok(Arc::new(workload))
    }
}

/// Returns the text of a shipped workload.
pub fn shipped_text(name: &str) -> anyhow::Result<&'static str> {
    check_supported(name)?;
    match shipped::find(name) {
        Some(shipped) => Ok(shipped.text),
        None => unknown_workload(name).exit_with(Exit::Usage),
    }
}

/// Reads a workload by its name or path.
fn read_workload(name: &str) -> anyhow::Result<Workload> {
    check_supported(name)?;
    if let Some(shipped) = shipped::find(name) {
        return Ok(shipped.read()?);
    }
    if !name.contains(['/', '.']) {
        return unknown_workload(name).exit_with(Exit::Usage);
    }
    let text = std::fs::read_to_string(name)
        .with_context(|| format!("cannot read the workload {name}"))
        .exit_with(Exit::Input)?;
    let stem = std::path::Path::new(name).file_stem().and_then(|stem| stem.to_str());
    parse(&text, name, stem.unwrap_or(name)).exit_with(Exit::Input)
}

/// Refuses the names of workloads that Tare does not support.
fn check_supported(name: &str) -> anyhow::Result<()> {
    match shipped::REFUSED.iter().find(|refused| refused.name == name) {
        Some(refused) => {
            let error = anyhow::anyhow!("no workload {name:?}: {}", refused.why);
            Err(error).exit_with(Exit::Usage)
        }
        None => Ok(()),
    }
}

fn unknown_workload<T>(name: &str) -> anyhow::Result<T> {
    let names: Vec<&str> = shipped::ALL.iter().map(|shipped| shipped.name).collect();
    let hint = tare_lab::study::Hint::new(name, &names);
    bail!("no shipped workload is named {name:?}{hint}; the name of a file contains '.' or '/'")
}
