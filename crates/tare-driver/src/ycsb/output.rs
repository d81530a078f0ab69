//! Reads YCSB's output and its logs of histograms (`hdrhistogram.fileoutput`), one for each kind of
//! operation: `READ` from the send, `Intended-READ` from when it was due, in µs.
//! <https://github.com/brianfrankcooper/YCSB/tree/0.17.0/core/src/main/java/site/ycsb>
//!
//! Each second it prints a line with the operations so far and ends an interval of each log. At the
//! end it prints totals by kind.
//!
//! Known faults: by default it measures from the send. Its time starts before it connects, and at
//! the end it goes on printing lines for seconds. It exits with 0 after any failure: a missing
//! binding, a system that does not answer, a thread that ends early. So the totals by kind, the
//! total operations and the logs are compared. Its rate counts failed operations, whose times have
//! kinds of their own (`READ-FAILED`).

use crate::tool::outcome::{Outcome, OutputError, WindowCut, add, bad, ns, whole};
use crate::tool::{Count, Progress};
use tare_load::{histogram, log};

/// The kinds that are requests to the system. `READ-MODIFY-WRITE` is made of two of them, `CLEANUP`
/// is not a request.
const KINDS: [&str; 4] = ["READ", "UPDATE", "INSERT", "SCAN"];
const FAILED: &str = "-FAILED";
/// Its logs count in µs.
const UNIT_NS: u64 = 1_000;
/// An interval ends when its line is printed; intervals are a second long.
const ROUNDED_S: f64 = 0.3;

/// Printed when its time is over, which counts from before it connects. Lines follow while it
/// disconnects.
pub(super) const LAST: &str = "Maximum time elapsed. Requesting stop for the workload.";

/// Reads `DATE TIME 10 sec: 31687 operations; 3168.38 current ops/sec; ...`. Its first lines have 0
/// while it connects.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let (time, rest) = line.split_once(" sec: ")?;
    time.rsplit_once(' ')?.1.parse::<u64>().ok()?;
    let (count, _) = rest.split_once(" operations; ")?;
    let count = count.parse().ok().filter(|count| *count > 0)?;
    Some(Progress { tool_s: None, count: Count::Total(count) })
}

/// Reads its output and its logs, by their names. Latency is that of the cut; operations are those
/// of the whole run. `open`: it ran at a fixed rate.
///
/// # Errors
/// If a part is missing, or the parts disagree.
pub(super) fn read(
    printed: &str,
    logs: &[(String, String)],
    open: bool,
    cut: Option<&WindowCut>,
) -> Result<Outcome, OutputError> {
    let number = |of: &str, name: &str| -> Option<Result<f64, OutputError>> {
        let head = format!("[{of}], {name}, ");
        let line = printed.lines().find(|line| line.starts_with(&head))?;
        let value = line[head.len()..].trim().parse().ok().filter(|value: &f64| value.is_finite());
        Some(value.ok_or_else(|| bad(line, "[KIND], NAME, NUMBER")))
    };
    let needed = |name: &'static str| {
        number("OVERALL", name).unwrap_or(Err(OutputError::Missing { what: name }))
    };
    let elapsed_ms = needed("RunTime(ms)")?;
    let all = needed("Throughput(ops/sec)")? * elapsed_ms / 1e3;
    let count = |kind: &str| -> Result<u64, OutputError> {
        let head = format!("[{kind}], Operations, ");
        let Some(line) = printed.lines().find(|line| line.starts_with(&head)) else { return Ok(0) };
        whole(&line[head.len()..]).ok_or_else(|| bad(line, "[KIND], Operations, NUMBER"))
    };
    let (mut operations, mut errors) = (Vec::new(), Vec::new());
    for kind in KINDS {
        operations.push((kind.to_string(), count(kind)?));
        errors.push((kind.to_string(), count(&format!("{kind}{FAILED}"))?));
    }
    operations.retain(|(_, count)| *count > 0);
    errors.retain(|(_, count)| *count > 0);
    let sum = |counts: &[(String, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    let (done, failed) = (sum(&operations), sum(&errors));
    // A read-modify-write is two requests and is counted besides them.
    let counted = done.saturating_sub(count("READ-MODIFY-WRITE")?);
    // Failed operations are among its operations, but not while rows are written.
    let near = counted as f64 - 0.5..=(counted + failed) as f64 + 0.5;
    if done + failed == 0 {
        return Err(OutputError::Missing { what: "an operation" });
    }
    if !near.contains(&all) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let said = all.round().max(0.0) as u64;
        return Err(OutputError::Disagrees { what: "operations", said, counted });
    }
    let (mut service, mut response) = (histogram::new(), histogram::new());
    let mut logged = 0;
    for (name, text) in logs {
        let (kind, due) = match name.strip_prefix("Intended-") {
            Some(kind) => (kind, true),
            None => (name.as_str(), false),
        };
        if !KINDS.contains(&kind) {
            continue;
        }
        for interval in log::intervals(text)? {
            let end_s = interval.end().as_secs_f64();
            let inside = cut.is_none_or(|cut| {
                end_s > cut.unix_s.0 + ROUNDED_S && end_s <= cut.unix_s.1 + ROUNDED_S
            });
            let histogram = interval.histogram()?;
            if !due {
                logged += histogram.len();
            }
            if inside {
                add(if due { &mut response } else { &mut service }, &histogram, UNIT_NS);
            }
        }
    }
    if logged != done {
        return Err(OutputError::Disagrees { what: "requests", said: done, counted: logged });
    }
    Ok(Outcome {
        operations,
        errors,
        elapsed_ns: ns(elapsed_ms / 1e3).ok_or(OutputError::Missing { what: "RunTime(ms)" })?,
        service: Some(service),
        response: (open && !response.is_empty()).then_some(response),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    /// Returns a recorded run and its logs.
    fn run(name: &str, kinds: &[&str]) -> (String, Vec<(String, String)>) {
        let log = |kind: &&str| (kind.to_string(), fixture(&format!("{name}.{kind}.hdr")));
        (fixture(&format!("{name}.txt")), kinds.iter().map(log).collect())
    }

    #[test]
    fn run_agrees_with_summary() {
        let (printed, logs) = run("ycsb-0.17-a", &["READ", "UPDATE"]);
        let whole = read(&printed, &logs, true, None).unwrap();
        let kinds = [("READ".to_string(), 100_188), ("UPDATE".to_string(), 99_812)];
        assert_eq!(whole.operations, kinds);
        assert_eq!(whole.elapsed_ns, 39_258_000_000);
        // It did not measure from when an operation was due.
        assert!(whole.errors.is_empty() && whole.response.is_none());
        assert_eq!(whole.service.unwrap().len(), 200_000);
        let reads = [logs[0].clone()];
        let printed_reads = printed.replace("[UPDATE]", "[CLEANUP]").replace(
            "Throughput(ops/sec), 5094.503031229304",
            &format!("Throughput(ops/sec), {}", 100_188.0 / 39.258),
        );
        let reads = read(&printed_reads, &reads, false, None).unwrap().service.unwrap();
        near(&reads, &[(0.95, 11.599e6), (0.99, 25.535e6), (1.0, 256.639e6)], 0.002);
        let lines: Vec<Progress> = printed.lines().filter_map(progress).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0].count, Count::Total(31_687));
        // Its lines of 00:34:35 and 00:34:55.
        let cut = WindowCut { unix_s: (1_795_221_275.42, 1_795_221_295.42), tool_s: None };
        let part = read(&printed, &logs, false, Some(&cut)).unwrap().service.unwrap();
        let share = part.len() as f64 / f64::from(159_183 - 31_687);
        assert!((share - 1.0).abs() < 0.002, "{share}");
    }

    /// At 200 operations/s, against a busy system.
    #[test]
    fn fixed_rate_response_is_cut_by_lines() {
        let kinds = ["READ", "UPDATE", "Intended-READ", "Intended-UPDATE"];
        let (printed, logs) = run("ycsb-0.17-a-target", &kinds);
        let whole = read(&printed, &logs, true, None).unwrap();
        assert_eq!(whole.total(), 3_944);
        let (service, response) = (whole.service.unwrap(), whole.response.unwrap());
        assert_eq!((service.len(), response.len()), (3_944, 3_944));
        near(&service, &[(1.0, 122.751e6)], 0.002);
        near(&response, &[(1.0, 151.679e6)], 0.002);
        assert!(read(&printed, &logs, false, None).unwrap().response.is_none());
        // Its lines of 23:55:22 and 23:55:32, ten seconds apart.
        let cut = WindowCut { unix_s: (1_795_305_322.06, 1_795_305_332.06), tool_s: None };
        let part = read(&printed, &logs, true, Some(&cut)).unwrap().response.unwrap();
        assert!((part.len() as f64 / f64::from(2_335 - 335) - 1.0).abs() < 0.005, "{}", part.len());
        // Lines follow when its load is over.
        let placement = |text: &str| printed.lines().position(|line| line.contains(text)).unwrap();
        let last = printed.lines().position(|line| line == LAST).unwrap();
        assert!(placement("27 sec: ") < last && last < placement("28 sec: "), "{last}");
    }

    #[test]
    fn lost_operations_are_found() {
        let (printed, logs) = run("ycsb-0.17-a", &["READ", "UPDATE"]);
        let refused = |printed: &str, logs: &[(String, String)], expect: &str| {
            let error = read(printed, logs, true, None).unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains('\n'), "{error}");
        };
        refused(&printed, &logs[..1], "200000 requests in one place and 100188 in another");
        let fewer = printed.replace("[UPDATE], Operations, 99812", "[UPDATE], Operations, 99811");
        refused(&fewer, &logs, "200000 operations in one place and 199999 in another");
        // Its output with exit code 0 when the system could not be reached at all.
        let none = "[OVERALL], RunTime(ms), 104\n[OVERALL], Throughput(ops/sec), 0.0\n";
        refused(none, &[], "nothing of an operation");
        refused("Unknown DB x\n", &[], "nothing of RunTime(ms)");
        refused(&none.replace("0.0", "NaN"), &[], "not of the form");
        for text in mangled(&printed) {
            let one_line = |error: OutputError| assert!(!error.to_string().contains('\n'));
            let _ = read(&text, &logs, true, None).map_err(one_line);
        }
        for text in mangled(&logs[0].1) {
            let logs = [("READ".to_string(), text), logs[1].clone()];
            let one_line = |error: OutputError| assert!(!error.to_string().contains('\n'));
            let _ = read(&printed, &logs, true, None).map_err(one_line);
        }
        for line in
            ["", "2026-11-21 00:34:25:610 0 sec: 0 operations; est", "x sec: 5 operations; "]
        {
            assert_eq!(progress(line), None, "{line}");
        }
    }

    /// Failed requests have kinds of their own; while rows are written they are not operations.
    #[test]
    fn failures_are_counted_apart() {
        let (printed, logs) = run("ycsb-0.17-a", &["READ", "UPDATE"]);
        let failed = "[READ-FAILED], Operations, 12\n";
        for all in [200_000.0, 200_012.0] {
            let rate = format!("Throughput(ops/sec), {}", all / 39.258);
            let text = printed.replace("Throughput(ops/sec), 5094.503031229304", &rate) + failed;
            let outcome = read(&text, &logs, true, None).unwrap();
            assert_eq!(outcome.errors, [("READ".to_string(), 12)]);
            assert_eq!(outcome.total(), 200_000);
        }
    }
}
