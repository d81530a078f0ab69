//! Inserts rows of a given total size while the store flushes and compacts.

use std::time::{Duration, Instant};

use crate::Result;
use crate::server::{ROW_BYTES, Server, cpus, scratch};

const MEMORY: &str = "256M";
const STEP: Duration = Duration::from_secs(5);
const STEPS_PER_MINUTE: usize = 12;

pub(crate) fn run(size_mib: u64) -> Result<()> {
    let (server_cpu, client_cpu) = cpus()?;
    let scratch = scratch()?;
    let data = scratch.path().join("data");
    let words = ["--memory", MEMORY, "--stall-threshold", "100ms"];
    let server = Server::start(&data, &server_cpu.to_string(), &words)?;
    let rows = (size_mib << 20) / ROW_BYTES;
    println!("{rows} rows of {ROW_BYTES} B, --memory {MEMORY}, one shard");
    println!("{:>8}{:>12}{:>12}{:>12}{:>10}", "s", "rows", "rows/s", "resident", "overload");
    let words = ["--populate", "--duration", "100ms", "--lead-in", "0s"];
    let mut load = server.load(client_cpu, rows, &words).spawn()?;
    let (began, mut steps, mut resident) = (Instant::now(), Vec::new(), 0);
    let mut before = server.metrics()?;
    let mut last = began;
    let status = loop {
        let status = load.try_wait()?;
        resident = resident.max(server.resident_bytes()?);
        if status.is_some() || last.elapsed() >= STEP {
            let now = server.metrics()?;
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
        "written to disk: {:.2} bytes per byte of rows (log, flushes, compactions); resident set at most {} MiB",
        server.written_bytes()? as f64 / payload,
        resident >> 20
    );
    Ok(())
}
