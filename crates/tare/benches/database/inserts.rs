//! Inserts rows of a given total size while the store flushes and compacts: throughput, and bytes
//! written for each byte of rows, by what wrote them. Beside what compactions wrote it prints the
//! least that they have to, see [`fewest_rewrites`].

use std::time::{Duration, Instant};

use crate::Result;
use crate::server::{ROW_BYTES, Server, cpus, scratch};

pub(crate) const MEMORY: &str = "256M";
const STEP: Duration = Duration::from_secs(5);
const STEPS_PER_MINUTE: usize = 12;

pub(crate) fn run(size_mib: u64, memory: &str) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let words = ["--memory", memory, "--stall-threshold", "100ms"];
    let server = Server::start(&data, &server_cpu.to_string(), &words)?;
    let rows = (size_mib << 20) / ROW_BYTES;
    println!("{rows} rows of {ROW_BYTES} B, --memory {memory}, one shard");
    println!("{:>8}{:>12}{:>12}{:>12}{:>10}", "s", "rows", "rows/s", "resident", "overload");
    let words = ["--populate", "--duration", "100ms", "--lead-in", "0s"];
    let mut load = server.load(client_cpu, rows, &words).spawn()?;
    let (began, mut steps, mut resident, mut files) = (Instant::now(), Vec::new(), 0, 0);
    let mut before = server.metrics()?;
    let mut last = began;
    let status = loop {
        let status = load.try_wait()?;
        let now = server.metrics()?;
        (resident, files) = (resident.max(server.resident_bytes()?), now.tables.max(files));
        if status.is_some() || last.elapsed() >= STEP {
            let per_s = (now.writes - before.writes) as f64 / last.elapsed().as_secs_f64();
            let (at, mib) = (began.elapsed().as_secs_f64(), server.resident_bytes()? >> 20);
            println!(
                "{at:>8.1}{:>12}{per_s:>12.0}{:>12}{:>10}",
                now.writes,
                format!("{mib} MiB"),
                now.overloaded
            );
            steps.push((at, per_s));
            (before, last) = (now, Instant::now());
        }
        if let Some(status) = status {
            break status;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        return Err("tare load failed".into());
    }
    let mean = |part: &[(f64, f64)]| {
        part.iter().map(|(_, per_s)| per_s).sum::<f64>() / part.len().max(1) as f64
    };
    let minute = STEPS_PER_MINUTE.min(steps.len() / 2).max(1);
    // The last step is shorter than the others.
    let whole = &steps[..steps.len().saturating_sub(1).max(1)];
    let (first, end) =
        (&whole[..minute.min(whole.len())], &whole[whole.len().saturating_sub(minute)..]);
    let metrics = server.metrics()?;
    let payload = (rows * ROW_BYTES) as f64;
    println!(
        "first minute {:.0}/s, last {:.0}/s: {:.3}; turns over 100 ms: {}, longest {:.1} ms",
        mean(first),
        mean(end),
        mean(end) / mean(first),
        metrics.stalls,
        metrics.stall_ns_max as f64 / 1e6
    );
    println!(
        "written to disk: {:.2} bytes per byte of rows; resident set at most {} MiB",
        server.written_bytes()? as f64 / payload,
        resident >> 20
    );
    let each = |bytes: u64| bytes as f64 / payload;
    let [log, flushed, compacted] =
        [metrics.log_written_bytes, metrics.flushed_bytes, metrics.compacted_bytes_written];
    println!(
        "of these the log {:.2}, flushes {:.2}, compactions {:.2}",
        each(log),
        each(flushed),
        each(compacted)
    );
    let fewest = fewest_rewrites(metrics.flushes.try_into()?, files.try_into()?);
    println!(
        "{} flushes, at most {files} files at once: compactions have to write at least {:.2}, {:.2} in all",
        metrics.flushes,
        fewest * each(flushed),
        each(log + flushed) + fewest * each(flushed)
    );
    Ok(())
}

/// Returns how often each of so many flushes of one size has to be rewritten on average, if there
/// are never more than so many files, whatever is compacted with what: the least of all ways.
///
/// The oldest file at the end has the first so many flushes. These had all files before they became
/// one, and the flushes after them had one file less.
fn fewest_rewrites(flushes: usize, files: usize) -> f64 {
    const NEVER: usize = usize::MAX / 4;
    // The flushes that are written until so many have come, by their number.
    let mut least = vec![NEVER; flushes + 1];
    least[0] = 0;
    for files in 1..=files {
        let with_one_less = std::mem::replace(&mut least, vec![0; flushes + 1]);
        let mut in_one = vec![0; flushes + 1];
        for count in 1..=flushes {
            if count > files {
                let ways = (1..count).map(|first| in_one[first] + with_one_less[count - first]);
                least[count] = ways.min().unwrap_or(NEVER);
            }
            in_one[count] = if count == 1 { 0 } else { least[count] + count };
        }
    }
    least[flushes] as f64 / flushes.max(1) as f64
}
