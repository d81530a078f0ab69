//! `cargo bench -p tare --bench disk_against_fio [-- DIRECTORY [ROUNDS [BYTES_PER_S]]]`
//!
//! Checks that `tare disk` and fio measure the same rates: in each round both run the four loads on
//! files of the same size in the same directory, in alternating order, fio at the greatest depth
//! that `tare disk` has found so far. Prints the ratio of the rates, tare over fio, with its 95 %
//! interval. With a limit, further rounds run both in a cgroup that throttles reads and writes of
//! the directory's device: a throttle lets operations through in bursts, and a rate from too short
//! a window is wrong by much more than its interval indicates. Needs fio, for a limit also root and
//! cgroup v1 blkio; takes about 25 s a round, with a limit 90 s.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tare_stats::estimate;

mod tiny;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LOADS: [(&str, &str, &str); 4] = [
    ("sequential read", "read", "1m"),
    ("sequential write", "write", "1m"),
    ("random read", "randread", "4k"),
    ("random write", "randwrite", "4k"),
];
const SIZE: &str = "1G";

/// Returns the size of the files and the time budget of `tare disk`.
fn scale(throttled: bool) -> (&'static str, &'static str) {
    match (tiny::words().1, throttled) {
        (true, _) => ("128M", "5s"),
        (false, true) => (SIZE, "40s"),
        (false, false) => (SIZE, "12s"),
    }
}

fn main() -> Result<()> {
    let (arguments, tiny) = tiny::words();
    if tare_host::exec::find("fio").is_none() {
        println!("skipped: disk_against_fio: needs fio on the PATH");
        return Ok(());
    }
    let directory = arguments.first().map_or("/var/tmp", String::as_str);
    let rounds: usize =
        arguments.get(1).map_or(Ok(if tiny { 1 } else { 5 }), |text| text.parse())?;
    let limit: Option<u64> = arguments.get(2).map(|text| text.parse()).transpose()?;
    let here = tempfile::tempdir_in(directory)?;
    compare(here.path(), rounds, None)?;
    match limit {
        Some(bytes_per_s) => {
            let throttle = Throttle::new(here.path(), bytes_per_s)?;
            compare(here.path(), rounds, Some(&throttle))
        }
        None => Ok(()),
    }
}

fn compare(here: &Path, rounds: usize, throttle: Option<&Throttle>) -> Result<()> {
    let limit =
        throttle.map_or(String::new(), |one| format!(" at {} MB/s", one.bytes_per_s / 1_000_000));
    let mut depths = [0; LOADS.len()];
    let mut logs: [Vec<f64>; LOADS.len()] = Default::default();
    for round in 0..rounds {
        let (ours, theirs) = if round % 2 == 0 {
            let ours = tare(here, &mut depths, throttle)?;
            (ours, fio(here, &depths, throttle)?)
        } else {
            let theirs = fio(here, &depths, throttle)?;
            (tare(here, &mut depths, throttle)?, theirs)
        };
        for (index, (name, _, _)) in LOADS.iter().enumerate() {
            let ratio = ours[index] / theirs[index];
            logs[index].push(ratio.ln());
            println!(
                "round {}{limit}: {name}, depth {}: tare {:.0}/s, fio {:.0}/s, ratio {ratio:.3}",
                round + 1,
                depths[index],
                ours[index],
                theirs[index],
            );
        }
    }
    for ((name, _, _), logs) in LOADS.iter().zip(&logs) {
        if let Some(found) = estimate(logs).map(|found| found.map(f64::exp)) {
            println!(
                "{name}{limit}: tare / fio = {:.3} [{:.3}, {:.3}], n = {}",
                found.centre, found.low, found.high, found.rounds
            );
        }
    }
    Ok(())
}

/// Returns the command for a program, in the throttled cgroup if there is one.
fn command(program: &str, throttle: Option<&Throttle>) -> Command {
    let Some(throttle) = throttle else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]);
    command.arg(throttle.folder.join("cgroup.procs")).arg(program);
    command
}

/// A cgroup that limits reads and writes of one device; removed on drop.
struct Throttle {
    folder: PathBuf,
    bytes_per_s: u64,
}

impl Throttle {
    fn new(directory: &Path, bytes_per_s: u64) -> Result<Self> {
        let number = fs::metadata(directory)?.dev();
        let device = (rustix::fs::major(number), rustix::fs::minor(number));
        // A limit applies to a whole disk; the directory of a partition is inside its disk's.
        let folder = fs::canonicalize(format!("/sys/dev/block/{}:{}", device.0, device.1))?;
        let disk = if folder.join("partition").exists() {
            folder.join("../dev")
        } else {
            folder.join("dev")
        };
        let disk = fs::read_to_string(disk)?;
        let name = format!("/sys/fs/cgroup/blkio/tare-bench-{}", std::process::id());
        let throttle = Self { folder: name.into(), bytes_per_s };
        fs::create_dir(&throttle.folder)?;
        for side in ["read", "write"] {
            let file = throttle.folder.join(format!("blkio.throttle.{side}_bps_device"));
            fs::write(file, format!("{} {bytes_per_s}", disk.trim()))?;
        }
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _removed = fs::remove_dir(&self.folder);
    }
}

/// Runs `tare disk`; returns the operations per second of the four loads and raises `depths`.
fn tare(
    directory: &Path,
    depths: &mut [u64; LOADS.len()],
    throttle: Option<&Throttle>,
) -> Result<Vec<f64>> {
    let (size, budget) = scale(throttle.is_some());
    let output = command(env!("CARGO_BIN_EXE_tare"), throttle)
        .arg("disk")
        .arg(directory)
        // Behind a throttle, writing the file already takes long.
        .args(["--budget", budget, "--json", "--size", size, "--state"])
        .arg(directory.join("state"))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let mut rates = Vec::new();
    for (index, (name, _, _)) in LOADS.iter().enumerate() {
        let loads = report["loads"].as_array().ok_or("no loads")?;
        let load = loads.iter().find(|load| load["load"] == *name).ok_or("a load is missing")?;
        let depth = load["saturation_depth"].as_u64().ok_or("no depth")?;
        depths[index] = depths[index].max(depth);
        rates.push(load["operations_per_s"]["value"].as_f64().ok_or("no rate")?);
    }
    Ok(rates)
}

/// Runs the same loads with fio, which fills its buffers with random bytes and scrambles them for
/// each write. Like ours, its file is first written in full, bypassing the page cache.
fn fio(
    directory: &Path,
    depths: &[u64; LOADS.len()],
    throttle: Option<&Throttle>,
) -> Result<Vec<f64>> {
    let file = directory.join("fio");
    let (size, _) = scale(throttle.is_some());
    if !file.exists() {
        let created = Command::new("fio")
            .args(["--name=x", "--direct=1", "--rw=write", "--bs=1m", "--end_fsync=1"])
            .args([format!("--filename={}", file.display()), format!("--size={size}")])
            .output()
            .map_err(|error| format!("cannot run fio (apt-get install fio): {error}"))?;
        if !created.status.success() {
            return Err(String::from_utf8_lossy(&created.stderr).into());
        }
    }
    let mut rates = Vec::new();
    for ((_, pattern, block), depth) in LOADS.iter().zip(depths) {
        let output = command("fio", throttle)
            .args(["--name=x", "--ioengine=io_uring", "--direct=1", "--time_based"])
            .args(["--runtime=2", "--ramp_time=300ms", "--output-format=json"])
            .arg(format!("--filename={}", file.display()))
            .arg(format!("--size={size}"))
            .arg(format!("--rw={pattern}"))
            .arg(format!("--bs={block}"))
            .arg(format!("--iodepth={depth}"))
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let side = if pattern.ends_with("read") { "read" } else { "write" };
        let rate = report["jobs"][0][side]["iops"].as_f64().filter(|rate| *rate > 0.0);
        rates.push(rate.ok_or("fio transferred nothing")?);
    }
    Ok(rates)
}
