//! Reads scylla-bench's output: a line each second, and at the end percentiles of the whole run,
//! twice: `raw` from the send, `c-o fixed` from when an operation was due.
//! <https://github.com/scylladb/scylla-bench>
//!
//! A histogram made of those is exact at p50, p90, p95, p99, p99.9 and the maximum, and too slow
//! between them.

use crate::tool::outcome::{Outcome, OutputError, bad, ns, of_points, whole};
use crate::tool::{Count, Progress};
use tare_load::histogram::Histogram;

/// The percentiles by name, with how many of 1,000 operations took at most so long.
const POINTS: [(&str, u64); 6] = [
    ("median:", 500),
    ("90th:", 900),
    ("95th:", 950),
    ("99th:", 990),
    ("99.9th:", 999),
    ("max:", 1_000),
];

/// Reads `30s 4595 4595 0 77ms ...`: time, operations/s, rows/s, errors, seven latencies.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [time, rate, _rows, errors, latencies @ ..] = words.as_slice() else { return None };
    let is_line = latencies.len() == 7 && whole(errors).is_some();
    let tool_s = duration(time).filter(|_| is_line)?;
    Some(Progress { tool_s: Some(tool_s), count: Count::Rate(rate.parse().ok()?) })
}

/// Reads a completed run. `open`: it ran at a fixed rate.
///
/// # Errors
/// If a part is missing.
pub(super) fn read(printed: &str, open: bool) -> Result<Outcome, OutputError> {
    let results = printed.split_once("\nResults\n").map(|(_, results)| results);
    let results = results.ok_or(OutputError::Missing { what: "its results" })?;
    let field = |name: &str| {
        let line = results.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim)
    };
    let number = |name: &'static str| {
        let text = field(name).ok_or(OutputError::Missing { what: name })?;
        whole(text).ok_or_else(|| bad(text, "a number"))
    };
    let done = number("Total ops:")?;
    let failed = if field("Total errors:").is_some() { number("Total errors:")? } else { 0 };
    let time = field("Time (avg):").ok_or(OutputError::Missing { what: "Time (avg):" })?;
    let elapsed_ns = duration(time).and_then(ns).ok_or_else(|| bad(time, "a duration"))?;
    let raw = block(results, "raw latency", done)?;
    let fixed = if open { Some(block(results, "c-o fixed latency", done)?) } else { None };
    Ok(Outcome {
        operations: vec![("operation".into(), done)],
        errors: if failed > 0 { vec![("operation".into(), failed)] } else { Vec::new() },
        elapsed_ns,
        service: Some(raw),
        response: fixed,
    })
}

/// Reads a block of percentiles under its title.
fn block(results: &str, title: &'static str, done: u64) -> Result<Histogram, OutputError> {
    let (_, rest) = results.split_once(title).ok_or(OutputError::Missing { what: title })?;
    let point = |(name, of_1000): (&'static str, u64)| {
        let mut lines = rest.lines().skip(1).take_while(|line| line.starts_with(' '));
        let value = lines.find_map(|line| line.trim().strip_prefix(name));
        let value = value.ok_or(OutputError::Missing { what: name })?.trim();
        let ns = duration(value).and_then(ns).ok_or_else(|| bad(value, "a duration"))?;
        Ok((done.saturating_mul(of_1000).div_ceil(1_000), ns))
    };
    let points: Result<Vec<(u64, u64)>, OutputError> = POINTS.into_iter().map(point).collect();
    Ok(of_points(points?))
}

/// Reads a duration as Go prints it, such as `1m2.5s` or `12.5ms`, in seconds.
fn duration(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit_s = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "µs" | "us" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit_s;
        rest = tail;
    }
    (!text.is_empty()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    #[test]
    fn runs_have_raw_and_fixed_latency() {
        for (name, done, elapsed_ns, p99_ns) in [
            ("write", 300_000, 31_700_000_000, 20.512767e6),
            ("read", 171_912, 40_000_000_000, 48.955391e6),
        ] {
            let printed = fixture(&format!("scylla-bench-1.3-{name}.txt"));
            let outcome = read(&printed, true).unwrap();
            assert_eq!((outcome.total(), outcome.elapsed_ns), (done, elapsed_ns), "{name}");
            assert!(outcome.errors.is_empty());
            let (raw, fixed) = (outcome.service.unwrap(), outcome.response.unwrap());
            assert_eq!((raw.len(), fixed.len()), (done, done));
            near(&raw, &[(0.99, p99_ns)], 0.002);
            assert!(fixed.value_at_quantile(0.95) > raw.value_at_quantile(0.5));
            assert!(read(&printed, false).unwrap().response.is_none());
            let lines: Vec<Progress> = printed.lines().filter_map(progress).collect();
            let counted: f64 = lines
                .iter()
                .map(|line| match line.count {
                    Count::Rate(rate) => rate,
                    other => panic!("{other:?}"),
                })
                .sum();
            assert!((counted / done as f64 - 1.0).abs() < 0.05, "{name}: {counted}");
            for text in mangled(&printed) {
                let one_line = |error: OutputError| assert!(!error.to_string().contains('\n'));
                let _ = read(&text, true).map_err(one_line);
            }
        }
    }

    #[test]
    fn errors_are_counted_and_broken_run_is_refused() {
        let printed = fixture("scylla-bench-1.3-read.txt")
            .replace("Total rows:", "Total errors:\t 12\nTotal rows:");
        assert_eq!(read(&printed, true).unwrap().errors, [("operation".to_string(), 12)]);
        let error = read("Configuration\n", true).unwrap_err().to_string();
        assert!(error.contains("nothing of its results"), "{error}");
    }

    #[test]
    fn go_durations_parse() {
        for (text, expect) in [
            ("31.7s", Some(31.7)),
            ("1m2.5s", Some(62.5)),
            ("850.5µs", Some(850.5e-6)),
            ("2h0m0s", Some(7_200.0)),
            ("", None),
            ("5", None),
            ("5x", None),
        ] {
            let found = duration(text);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(
                found.zip(expect).map_or(found == expect, |(a, b)| near(a, b)),
                "{text}: {found:?}"
            );
        }
    }
}
