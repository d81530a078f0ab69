//! Reads cassandra-stress's output and its log of histograms (`-log hdrfile=`).
//!
//! Each interval it prints a line `total, OPERATIONS SO FAR, ..., SECONDS, ..., ERRORS SO FAR ...`
//! and logs a histogram of each kind: `-st` service time; with a fixed rate also `-rt` response
//! time, from when the operation was due, and `-wt` the wait, in ns. At the end it prints totals.
//! <https://github.com/apache/cassandra/tree/cassandra-4.0/tools/stress/src/org/apache/cassandra/stress/report>
//!
//! Known faults: with its own HdrHistogram jar and Java 11 or later, its reporting thread dies; it
//! goes on, exits with 0, and prints the totals of its first seconds. Then the log disagrees with
//! the totals, or totals of the requested operations are missing. The times of the log count from a
//! start cut to whole seconds, so only their difference to the times of the lines is known: both
//! end with the same interval.

use crate::tool::outcome::{Outcome, OutputError, WindowCut, add, bad, ns, whole};
use crate::tool::{Count, Progress};
use tare_load::{histogram, log};

/// Reads `total, 134, ...`: operations so far, and the tool's time.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let fields: Vec<&str> = line.strip_prefix("total,")?.split(',').map(str::trim).collect();
    let tool_s = fields.get(10)?.parse().ok()?;
    Some(Progress { tool_s: Some(tool_s), count: Count::Total(fields.first()?.parse().ok()?) })
}

/// Reads its output and its log. Latency is that of the cut; operations are those of the whole run.
///
/// # Errors
/// If a part is missing, or the log and the totals disagree.
pub(super) fn read(
    printed: &str,
    log: &str,
    cut: Option<&WindowCut>,
) -> Result<Outcome, OutputError> {
    let results = printed.split_once("\nResults:").map(|(_, results)| results);
    let results = results.ok_or(OutputError::Missing { what: "its results" })?;
    let operations = by_kind(results, "Total partitions")?;
    let errors = by_kind(results, "Total errors")?;
    let errors: Vec<(String, u64)> = errors.into_iter().filter(|(_, count)| *count > 0).collect();
    let last = printed.lines().filter_map(progress).next_back();
    let last_s =
        last.and_then(|last| last.tool_s).ok_or(OutputError::Missing { what: "its intervals" })?;
    let intervals = log::intervals(log)?;
    let log_s = intervals.iter().map(|one| one.end().as_secs_f64()).fold(0.0, f64::max);
    let ahead_s = log_s - last_s;
    let (mut service, mut response) = (histogram::new(), histogram::new());
    let mut counted = 0;
    for interval in &intervals {
        // Its lines have one decimal, and no interval is shorter than that.
        let end_s = interval.end().as_secs_f64() - ahead_s;
        let inside = cut.and_then(|cut| cut.tool_s).is_none_or(|(begin_s, close_s)| {
            end_s > begin_s + ROUNDED_S && end_s <= close_s + ROUNDED_S
        });
        let kind = interval.tag.rsplit_once('-').map_or("", |(_, kind)| kind);
        let histogram = interval.histogram()?;
        if kind == "st" {
            counted += histogram.len();
        }
        match kind {
            "st" if inside => add(&mut service, &histogram, 1),
            "rt" if inside => add(&mut response, &histogram, 1),
            _ => {}
        }
    }
    let said: u64 = operations.iter().map(|(_, count)| count).sum();
    let failed: u64 = errors.iter().map(|(_, count)| count).sum();
    if counted < said || counted > said + failed {
        return Err(OutputError::Disagrees { what: "operations", said, counted });
    }
    Ok(Outcome {
        operations,
        errors,
        elapsed_ns: ns(last_s).ok_or(OutputError::Missing { what: "its time" })?,
        service: Some(service),
        response: (!response.is_empty()).then_some(response),
    })
}

/// Half of the shortest possible interval.
const ROUNDED_S: f64 = 0.075;

/// `Total partitions : 60,000 [READ: 29,598, WRITE: 30,402]`.
fn by_kind(results: &str, name: &'static str) -> Result<Vec<(String, u64)>, OutputError> {
    let line = results.lines().find(|line| line.starts_with(name));
    let line = line.ok_or(OutputError::Missing { what: name })?;
    let form = "TOTAL [KIND: N, ...]";
    let kinds = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let (kinds, _) = kinds.ok_or_else(|| bad(line, form))?;
    let one = |kind: &str| {
        let (kind, count) = kind.split_once(':')?;
        Some((kind.trim().to_string(), whole(count)?))
    };
    let kinds = kinds.split(", ").map(|kind| one(kind).ok_or_else(|| bad(line, form)));
    kinds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    #[test]
    fn closed_loop_agrees_with_summary() {
        let [printed, log] =
            ["txt", "hdr"].map(|end| fixture(&format!("cassandra-stress-4.0-write.{end}")));
        let outcome = read(&printed, &log, None).unwrap();
        assert_eq!(outcome.operations, [("WRITE".to_string(), 200_000)]);
        assert!(outcome.errors.is_empty() && outcome.response.is_none());
        assert_eq!(outcome.elapsed_ns, 20_500_000_000);
        let service = outcome.service.unwrap();
        assert_eq!(service.len(), 200_000);
        near(&service, &[(0.5, 3.5e6), (0.95, 9.3e6), (0.99, 16.4e6), (1.0, 557.3e6)], 0.02);
        assert_eq!(printed.lines().filter_map(progress).count(), 21);
    }

    #[test]
    fn fixed_rate_response_is_cut_by_lines() {
        let [printed, log] =
            ["txt", "hdr"].map(|end| fixture(&format!("cassandra-stress-4.0-mixed-fixed.{end}")));
        let whole = read(&printed, &log, None).unwrap();
        let kinds = [("READ".to_string(), 29_598), ("WRITE".to_string(), 30_402)];
        assert_eq!(whole.operations, kinds);
        let response = whole.response.unwrap();
        let points = [(0.5, 0.7e6), (0.95, 2_044.7e6), (0.99, 2_535.5e6), (1.0, 2_678.1e6)];
        near(&response, &points, 0.07);
        assert!(whole.service.unwrap().value_at_quantile(0.95) < 100_000_000);
        // Its lines at 50.0 and 60.0 s, without the backlog of the start.
        let lines: Vec<Progress> = printed.lines().filter_map(progress).collect();
        let count = |at: f64| {
            let line = lines.iter().find(|line| line.tool_s == Some(at)).unwrap();
            match line.count {
                Count::Total(count) => count,
                other => panic!("{other:?}"),
            }
        };
        let cut = WindowCut { unix_s: (0.0, 0.0), tool_s: Some((50.0, 60.0)) };
        let part = read(&printed, &log, Some(&cut)).unwrap();
        let response = part.response.unwrap();
        assert_eq!(response.len(), count(60.0) - count(50.0));
        assert!(response.max() < 150_000_000, "{}", response.max());
    }

    #[test]
    fn report_of_dead_thread_is_refused() {
        let [printed, log] =
            ["txt", "hdr"].map(|end| fixture(&format!("cassandra-stress-4.0-write.{end}")));
        let half: String = log.lines().take(15).map(|line| format!("{line}\n")).collect();
        let error = read(&printed, &half, None).unwrap_err().to_string();
        assert!(error.contains("200000 operations in one place"), "{error}");
        let error = read("Connected to cluster\n", &log, None).unwrap_err().to_string();
        assert!(error.contains("nothing of its results"), "{error}");
        for text in mangled(&printed) {
            // The result does not matter; an error must be one line.
            let _ =
                read(&text, &log, None).map_err(|error| assert!(!error.to_string().contains('\n')));
        }
        for text in mangled(&log) {
            let _ = read(&printed, &text, None)
                .map_err(|error| assert!(!error.to_string().contains('\n')));
        }
    }
}
