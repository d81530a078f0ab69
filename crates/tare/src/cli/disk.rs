//! The command line of `tare disk`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{RunInside, RunOn, bytes, duration};

#[derive(Debug, Args)]
pub struct Disk {
    /// A directory (a file is created in it and removed), or a file or block device to read only
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Time for the whole measurement, such as 5m; at least 5s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = budget)]
    pub budget: Duration,
    /// Size of the file [default: 4G or a tenth of the free space, whichever is less]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Make the disk steady first: write it over in sequence, then at random in rounds of this
    /// length (a minute if none is given) until five have the same rate
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "60s", value_parser = round)]
    pub steady: Option<Duration>,
    /// Let --steady write more than 100 GB
    #[arg(short, long, requires = "steady")]
    pub yes: bool,
    /// Overwrite this block device, which must be PATH; all data on it is lost
    #[arg(long, value_name = "DEVICE")]
    pub destroy_data_on: Option<PathBuf>,
    #[command(flatten)]
    pub inside: RunInside,
    #[command(flatten)]
    pub on: RunOn,
    /// Write Seastar's io_properties.yaml to this file (`-` for standard output)
    #[arg(long, value_name = "FILE")]
    pub io_properties: Option<PathBuf>,
    /// Measure read latency at 21 x 21 read and write rates, and draw a map (.svg or .html)
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    pub map: Option<PathBuf>,
    /// Draw rates over operations in flight, and latency over the load (.svg or .html)
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    pub chart: Option<PathBuf>,
    /// Seed of offsets, data and order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

fn budget(text: &str) -> Result<Duration, String> {
    let budget = duration(text).map_err(|error| error.to_string())?;
    let enough = budget >= Duration::from_secs(5);
    enough.then_some(budget).ok_or_else(|| "the budget must be at least 5s".to_string())
}

fn round(text: &str) -> Result<Duration, String> {
    let round = duration(text).map_err(|error| error.to_string())?;
    let enough = round >= Duration::from_secs(1);
    enough.then_some(round).ok_or_else(|| "a round takes at least 1s".to_string())
}

fn size(text: &str) -> Result<u64, String> {
    let size = bytes(text).map_err(|error| error.to_string())?;
    let least = tare_disk::SIZE_MIN_BYTES;
    let enough = size >= least;
    enough
        .then_some(size)
        .ok_or_else(|| format!("less than {} MiB fits into the cache of a device", least >> 20))
}

fn picture_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|e| e == "svg" || e == "html");
    known.then_some(path).ok_or_else(|| "the file of a picture ends in .svg or .html".to_string())
}
