//! Reads redis-benchmark's output: a line with its rate each 250 ms, and at the end its latency
//! distribution, of the whole run, and a summary.
//!
//! The distribution is printed as points. A histogram made of them is exact at those (p50, p75,
//! p87.5 ..., p95, p99, and each 0.1 ms below 2 ms, each 1 ms above) and too slow between them.

use crate::tool::outcome::{Outcome, OutputError, bad, ns, of_points, whole};
use crate::tool::{Count, Progress};

/// Reads `GET: rps=57155.4 (overall: ...) ...`.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let (_, rest) = line.split_once(": rps=")?;
    let rate: f64 = rest.split_once(" (overall:")?.0.parse().ok()?;
    (rate.is_finite() && rate >= 0.0).then_some(Progress { tool_s: None, count: Count::Rate(rate) })
}

/// Reads the output of a completed run; carriage returns also end lines.
///
/// # Errors
/// If a part is missing, or the parts disagree.
pub(super) fn read(printed: &str) -> Result<Outcome, OutputError> {
    let lines = || printed.split(['\n', '\r']).map(str::trim);
    let title = lines().find_map(|line| line.strip_prefix("====== ")?.strip_suffix(" ======"));
    let title = title.ok_or(OutputError::Missing { what: "a test's title" })?;
    let form = "N requests completed in S seconds";
    let done = lines().find(|line| line.contains(" requests completed in "));
    let line = done.ok_or(OutputError::Missing { what: "requests completed" })?;
    let (count, rest) = line.split_once(" requests completed in ").unwrap_or_default();
    let done = whole(count).ok_or_else(|| bad(line, form))?;
    let seconds = rest.split(' ').next().and_then(|seconds| seconds.parse().ok()).and_then(ns);
    let elapsed_ns = seconds.ok_or_else(|| bad(line, form))?;
    let mut points: Vec<(u64, u64)> = lines().filter_map(point).collect();
    let counted = points.iter().map(|(count, _)| *count).max();
    let counted = counted.ok_or(OutputError::Missing { what: "its distribution of latencies" })?;
    if counted != done {
        return Err(OutputError::Disagrees { what: "operations", said: done, counted });
    }
    points.extend(summary(&lines().collect::<Vec<_>>(), done)?);
    Ok(Outcome {
        operations: vec![(title.split(' ').next().unwrap_or(title).to_string(), done)],
        errors: Vec::new(),
        elapsed_ns,
        service: Some(of_points(points)),
        response: None,
    })
}

/// Reads `75.000% <= 3.855 milliseconds (cumulative count 112592)`.
fn point(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.split_once("% <= ")?;
    let (ms, rest) = rest.split_once(" milliseconds (cumulative count ")?;
    Some((whole(rest.strip_suffix(')')?)?, ns(ms.parse::<f64>().ok()? / 1e3)?))
}

/// Returns the percentiles of the summary: `avg min p50 p95 p99 max`, then their values on the next
/// line.
fn summary(lines: &[&str], done: u64) -> Result<Vec<(u64, u64)>, OutputError> {
    let head = ["avg", "min", "p50", "p95", "p99", "max"];
    let at = lines.iter().position(|line| line.split_whitespace().eq(head));
    let values = at.and_then(|at| lines.get(at + 1));
    let line = values.ok_or(OutputError::Missing { what: "its latency summary" })?;
    let values: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [_, _, p50, p95, p99, _] = values[..] else { return Err(bad(line, "six latencies")) };
    let points = [(50, p50), (95, p95), (99, p99)].into_iter();
    Ok(points
        .filter_map(|(of_100, ms)| {
            Some(((done.saturating_mul(of_100)).div_ceil(100), ns(ms / 1e3)?))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    #[test]
    fn run_agrees_with_summary() {
        let printed = fixture("redis-benchmark-7.0-get.txt");
        let outcome = read(&printed).unwrap();
        assert_eq!(outcome.operations, [("GET".to_string(), 150_000)]);
        assert_eq!(outcome.elapsed_ns, 9_570_000_000);
        assert!(outcome.errors.is_empty() && outcome.response.is_none());
        let service = outcome.service.unwrap();
        assert_eq!(service.len(), 150_000);
        let points = [(0.5, 1.015e6), (0.95, 8.263e6), (0.99, 11.935e6), (1.0, 16.031e6)];
        near(&service, &points, 0.002);
        // Values between two of its points count as the slower one.
        let mean = service.mean() / 2.608e6;
        assert!((1.0..1.1).contains(&mean), "{mean}");
        let lines: Vec<Progress> = printed.split(['\n', '\r']).filter_map(progress).collect();
        assert_eq!(lines.len(), 38);
        let rates = lines.iter().map(|line| match line.count {
            Count::Rate(rate) => rate,
            other => panic!("{other:?}"),
        });
        // A line each 250 ms.
        let counted = rates.sum::<f64>() / 4.0;
        assert!((counted / 150_000.0 - 1.0).abs() < 0.05, "{counted}");
    }

    #[test]
    fn broken_run_is_refused() {
        for (text, expect) in [
            ("", "a test's title"),
            ("Could not connect to Redis at 127.0.0.1:1: Connection refused", "a test's title"),
            ("====== GET ======\n  5 requests completed in x", "not of the form"),
            ("====== GET ======\n  5 requests completed in 1.0 seconds\n", "distribution"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
        let printed = fixture("redis-benchmark-7.0-get.txt");
        let short = printed.replace("  150000 requests", "  150001 requests");
        let error = read(&short).unwrap_err().to_string();
        assert!(error.contains("150001 operations in one place and 150000"), "{error}");
        for text in mangled(&printed) {
            let _ = read(&text).map_err(|error| assert!(!error.to_string().contains('\n')));
        }
    }
}
