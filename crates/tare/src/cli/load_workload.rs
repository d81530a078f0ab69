//! What `tare load` asks for.

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
    /// A workload that ships (see `tare list workloads`) or a TOML file; without it rows of blobs
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["operation", "write_share", "columns", "column_bytes"])]
    pub workload: Option<String>,
    /// Print the file of a workload that ships, and do nothing else
    #[arg(long, value_name = "NAME")]
    pub show: Option<String>,
    /// What to do
    #[arg(long, value_name = "OPERATION", default_value = "write")]
    pub operation: Operation,
    /// Share of writes of `--operation mixed`, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub write_share: f64,
    /// How keys are drawn, such as zipfian:1.1 (docs/reference/load-spec.md has them all); gaussian
    /// without a workload
    #[arg(long, value_name = "DISTRIBUTION")]
    pub keys: Option<Keys>,
    /// Rows that keys are drawn from; 100000 without a workload
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    pub rows: Option<u64>,
    /// Columns of a row, besides the key
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub columns: u32,
    /// Bytes of a column
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub column_bytes: u32,
    /// Which of several loaders this is, such as 2/5: each has a part of the rows of its own
    #[arg(long, value_name = "I/N", default_value_t = Part::ALL)]
    pub part: Part,
    /// Write every row of its part once before the load
    #[arg(long)]
    pub populate: bool,
    /// Check every row that is read: wrong, stale and lost ones are counted
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
    /// The workload that is asked for.
    pub fn resolve(&self) -> anyhow::Result<Arc<Workload>> {
        let mut workload = match &self.workload {
            Some(name) => named(name)?,
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

/// The text of a workload that ships.
pub fn shown(name: &str) -> anyhow::Result<&'static str> {
    refused(name)?;
    match shipped::find(name) {
        Some(shipped) => Ok(shipped.text),
        None => unknown(name).exit_with(Exit::Usage),
    }
}

fn named(name: &str) -> anyhow::Result<Workload> {
    refused(name)?;
    if let Some(shipped) = shipped::find(name) {
        return Ok(shipped.read()?);
    }
    if !name.contains(['/', '.']) {
        return unknown(name).exit_with(Exit::Usage);
    }
    let text = std::fs::read_to_string(name)
        .with_context(|| format!("cannot read the workload {name}"))
        .exit_with(Exit::Input)?;
    let stem = std::path::Path::new(name).file_stem().and_then(|stem| stem.to_str());
    parse(&text, name, stem.unwrap_or(name)).exit_with(Exit::Input)
}

fn refused(name: &str) -> anyhow::Result<()> {
    match shipped::REFUSED.iter().find(|refused| refused.name == name) {
        Some(refused) => {
            let error = anyhow::anyhow!("no workload {name:?}: {}", refused.why);
            Err(error).exit_with(Exit::Usage)
        }
        None => Ok(()),
    }
}

fn unknown<T>(name: &str) -> anyhow::Result<T> {
    let names: Vec<&str> = shipped::ALL.iter().map(|shipped| shipped.name).collect();
    let hint = tare_lab::study::Hint::new(name, &names);
    bail!("no workload that ships is named {name:?}{hint}; a file has a '.' or '/' in its name")
}
