//! Compares random reads of data ten times as large as the memory with fio's on the same file
//! system: one file of the same size, direct I/O, blocks of 4 KiB, 64 in flight, the server's CPU.
//! Not all requests in flight are at the disk: some are in the server or on the network. So the
//! server is measured twice, with as many requests in flight as fio has reads and with twice as
//! many, and the average number at the disk is printed for each (by Little's law, from the device's
//! own statistics).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tare_db::metrics::ShardMetrics;
use tare_stats as stats;
use tare_std::rng::Rng;

use crate::server::{ROW_BYTES, Server, cpus, figure, printed, scratch};
use crate::{Result, median, rounds};

/// Reads of fio in flight, and requests of the client in flight.
const IN_FLIGHT: u32 = 64;
/// Factors on [`IN_FLIGHT`] for the server.
const TIMES: [u32; 2] = [1, 2];
const ROUNDS: usize = 10;
/// Limit for the compactions that are left after the rows are written.
const REST_DEADLINE: Duration = Duration::from_secs(900);

pub(crate) fn run(size_mib: u64, seconds: u64) -> Result<()> {
    if tare_host::exec::find("fio").is_none() {
        println!("skipped: reads: needs fio on the PATH");
        return Ok(());
    }
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let memory = (size_mib / 10).max(64);
    let rows = (size_mib << 20) / ROW_BYTES;
    let data = scratch.path().join("data");
    let memory = format!("{memory}M");
    let server = Server::start(&data, &server_cpu.to_string(), &["--memory", &memory])?;
    println!(
        "{rows} rows of {ROW_BYTES} B, --memory {memory}, {IN_FLIGHT} and twice as many in flight"
    );
    server.populate(client_cpu, rows)?;
    let file = scratch.path().join("fio");
    fio(&file, size_mib, server_cpu, seconds)?;
    let disk = Disk::of(scratch.path())?;
    let read = |what: &str, times: u32| -> Result<f64> {
        let (before, cpu_ns, at_disk) = (server.metrics()?, server.cpu_ns(), disk.reads_and_ms()?);
        let (duration, in_flight) = (format!("{seconds}s"), (IN_FLIGHT * times).to_string());
        let words = ["--operation", "read", "--keys", "uniform", "--in-flight", &in_flight];
        let mut load = server.load(client_cpu, rows, &words);
        let output = printed(load.args(["--duration", &duration, "--lead-in", "500ms"]))?;
        let (after, cpu_ns) = (server.metrics()?, server.cpu_ns() - cpu_ns);
        let per_s = figure(&output, "throughput_per_s")?;
        let client = figure(&output, "client_cpu_share")?;
        let depth = per_s * disk.seconds_each(at_disk)?;
        let costs = Costs::of(&before, &after, cpu_ns);
        println!("{what:<9}{in_flight:>5}{per_s:>9.0}{depth:>7.1}{costs}{client:>7.2}");
        Ok(per_s)
    };
    println!(
        "{:<9}{:>5}{:>9}{:>7}{}{:>7}",
        "who",
        "depth",
        "reads/s",
        "at disk",
        Costs::HEAD,
        "client"
    );
    read("behind", 1)?;
    let rested = server.wait_idle(REST_DEADLINE)?;
    println!("compactions ended {:.1} s later; {} tables", rested.as_secs_f64(), tables(&server)?);
    read("warm-up", 1)?;
    let mut rng = Rng::new(1);
    let (mut ours, mut theirs) = (TIMES.map(|_| Vec::new()), Vec::new());
    for _ in 0..rounds(ROUNDS) {
        let mut order = [None, Some(0), Some(1)];
        rng.shuffle(&mut order);
        for who in order {
            if let Some(which) = who {
                ours[which].push(read("tare", TIMES[which])?);
                continue;
            }
            let at_disk = disk.reads_and_ms()?;
            let (per_s, cpu_us) = fio(&file, size_mib, server_cpu, seconds)?;
            let depth = per_s * disk.seconds_each(at_disk)?;
            println!("{:<9}{IN_FLIGHT:>5}{per_s:>9.0}{depth:>7.1}{cpu_us:>8.2}", "fio");
            theirs.push(per_s);
        }
    }
    for (times, ours) in TIMES.into_iter().zip(ours) {
        let pairs = ours.iter().copied().zip(theirs.iter().copied());
        let ratio = stats::estimate(&stats::log_ratios(pairs)).ok_or("too few rounds")?;
        let ratio = ratio.map(f64::exp);
        println!(
            "{} requests in flight, median: tare {:.0}/s, fio {:.0}/s; tare over fio {:.3} [{:.3}, {:.3}], n = {}",
            IN_FLIGHT * times,
            median(ours),
            median(theirs.clone()),
            ratio.centre,
            ratio.low,
            ratio.high,
            ratio.rounds
        );
    }
    println!("resident set: {} MiB", server.resident_bytes()? >> 20);
    Ok(())
}

/// The block device below a directory.
struct Disk(PathBuf);

impl Disk {
    fn of(directory: &Path) -> Result<Self> {
        let device = std::fs::metadata(directory)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self(format!("/sys/dev/block/{major}:{minor}/stat").into()))
    }

    /// Returns the completed reads and their total time in ms (Documentation/block/stat.rst).
    fn reads_and_ms(&self) -> Result<(f64, f64)> {
        let text = std::fs::read_to_string(&self.0)?;
        let field = |number: usize| -> Result<f64> {
            Ok(text.split_whitespace().nth(number).ok_or("a short block/stat")?.parse()?)
        };
        Ok((field(0)?, field(3)?))
    }

    /// Returns the average duration in s of a read since the given counts.
    fn seconds_each(&self, (reads, ms): (f64, f64)) -> Result<f64> {
        let now = self.reads_and_ms()?;
        Ok((now.1 - ms) / 1e3 / (now.0 - reads).max(1.0))
    }
}

fn tables(server: &Server) -> Result<u64> {
    Ok(server.metrics()?.tables)
}

/// The server's average cost of one read.
struct Costs([f64; 9]);

impl Costs {
    /// CPU time, blocks read by kind, bytes read, lookups in table files by outcome, and the share
    /// of blocks that were in the cache.
    const HEAD: &str = "  cpu µs  data index filtr  bytes found denied invain   hits";

    fn of(before: &ShardMetrics, after: &ShardMetrics, cpu_ns: u64) -> Self {
        let reads = (after.reads - before.reads).max(1) as f64;
        let each = |field: fn(&ShardMetrics) -> u64| (field(after) - field(before)) as f64 / reads;
        let (index, filters) =
            (each(|m| m.index_blocks_fetched), each(|m| m.filter_blocks_fetched));
        let (hits, misses) = (each(|m| m.cache_hits), each(|m| m.cache_misses));
        Self([
            cpu_ns as f64 / 1e3 / reads,
            each(|m| m.blocks_fetched) - index - filters,
            index,
            filters,
            each(|m| m.fetched_bytes),
            each(|m| m.lookups_found),
            each(|m| m.lookups_denied),
            each(|m| m.lookups_in_vain),
            hits / (hits + misses).max(f64::MIN_POSITIVE),
        ])
    }
}

impl std::fmt::Display for Costs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([cpu, data, index, filters, bytes, found, denied, vain, hits]) = self;
        write!(f, "{cpu:>8.2}{data:>6.3}{index:>6.3}{filters:>6.3}{bytes:>7.0}")?;
        write!(f, "{found:>6.3}{denied:>7.2}{vain:>7.4}{hits:>7.3}")
    }
}

/// Runs fio; returns its reads per second and the CPU time of each in µs.
fn fio(file: &Path, size_mib: u64, cpu: u32, seconds: u64) -> Result<(f64, f64)> {
    let output = Command::new("taskset")
        .args(["-c", &cpu.to_string(), "fio", "--name=reads", "--rw=randread", "--bs=4k"])
        .args(["--direct=1", "--ioengine=io_uring", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={size_mib}M"))
        .arg(format!("--iodepth={IN_FLIGHT}"))
        .arg(format!("--runtime={seconds}"))
        .stderr(Stdio::null())
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let figure = |value: &serde_json::Value| value.as_f64().ok_or("fio printed no figure");
    let per_s = figure(&job["read"]["iops"])?;
    let percent = figure(&job["usr_cpu"])? + figure(&job["sys_cpu"])?;
    Ok((per_s, percent * 1e4 / per_s))
}
