//! Reads latte's output and its JSON report (`--output`), which has a histogram of each sample.
//!
//! Known faults: its `error_count` is that of one thread or function, not their sum
//! (`cycle_error_count = fs.error_count`, both branches), so the request errors of all samples are
//! used. Branch 0.29 skips starts that it misses at a fixed rate, so its latency is service time.
//! Branch 0.49 counts the latency of a cycle from when it was due.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::tool::outcome::{Outcome, OutputError, WindowCut, add, ns};
use crate::tool::{Count, Progress};
use tare_load::histogram;

#[derive(Deserialize)]
struct Report {
    result: Totals,
}

#[derive(Deserialize)]
struct Totals {
    elapsed_time_s: f64,
    request_count: u64,
    log: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    time_s: f64,
    duration_s: f64,
    request_count: u64,
    req_error_count: u64,
    cycle_latency: Latency,
    request_latency: Latency,
}

#[derive(Deserialize)]
struct Latency {
    /// HdrHistogram V2 in base64, in ns.
    histogram: String,
}

/// Reads a line of its log: end of the sample in s, cycles, errors, ...
pub(super) fn progress(line: &str) -> Option<Progress> {
    let words: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // Time, cycles, errors, throughput, and eight latencies.
    if words.len() != 12 || !line.split_whitespace().nth(1)?.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(Progress { tool_s: Some(words[0]), count: Count::Interval(count) })
}

/// Reads its report. Latency is that of the cut. `scheduled`: cycles count from when they were due.
///
/// # Errors
/// If it is not such a report, or its samples lack requests that it counts.
pub(super) fn read(
    report: &str,
    scheduled: bool,
    cut: Option<&WindowCut>,
) -> Result<Outcome, OutputError> {
    let Report { result } = serde_json::from_str(report)?;
    let (mut service, mut response) = (histogram::new(), histogram::new());
    let (mut counted, mut errors) = (0, 0);
    for sample in &result.log {
        counted += sample.request_count;
        errors += sample.req_error_count;
        let end_s = sample.time_s + sample.duration_s;
        // The lines have ms.
        let inside = cut.and_then(|cut| cut.tool_s).is_none_or(|(begin_s, close_s)| {
            end_s > begin_s + ROUNDED_S && end_s <= close_s + ROUNDED_S
        });
        if inside {
            add(&mut service, &decoded(&sample.request_latency)?, 1);
            if scheduled {
                add(&mut response, &decoded(&sample.cycle_latency)?, 1);
            }
        }
    }
    if counted != result.request_count {
        let said = result.request_count;
        return Err(OutputError::Disagrees { what: "requests", said, counted });
    }
    Ok(Outcome {
        operations: vec![("request".into(), counted.saturating_sub(errors))],
        errors: if errors > 0 { vec![("request".into(), errors)] } else { Vec::new() },
        elapsed_ns: ns(result.elapsed_time_s).ok_or(OutputError::Missing { what: "its time" })?,
        service: Some(service),
        response: (!response.is_empty()).then_some(response),
    })
}

const ROUNDED_S: f64 = 0.02;

fn decoded(latency: &Latency) -> Result<histogram::Histogram, OutputError> {
    let what = "a latency's histogram";
    let bytes = STANDARD.decode(&latency.histogram).map_err(|_| OutputError::Missing { what })?;
    Ok(histogram::decode(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    #[test]
    fn report_is_cut_by_lines() {
        let (printed, report) = (fixture("latte-0.29-write.txt"), fixture("latte-0.29-write.json"));
        let whole = read(&report, false, None).unwrap();
        assert_eq!(whole.operations, [("request".to_string(), 400_000)]);
        assert!(whole.errors.is_empty() && whole.response.is_none());
        assert_eq!(whole.elapsed_ns, 36_793_335_818);
        let service = whole.service.unwrap();
        assert_eq!(service.len(), 400_000);
        let json: serde_json::Value = serde_json::from_str(&report).unwrap();
        let percentiles = &json["result"]["request_latency"]["percentiles"];
        let ms = |at: usize| percentiles[at]["value"].as_f64().unwrap() * 1e6;
        near(&service, &[(0.5, ms(6)), (0.99, ms(11)), (0.999, ms(12))], 0.03);
        let lines: Vec<Progress> = printed.lines().filter_map(progress).collect();
        assert_eq!(lines.len(), 37);
        let at = |number: usize| lines[number].tool_s.unwrap();
        let cut = WindowCut { unix_s: (0.0, 0.0), tool_s: Some((at(4), at(6))) };
        let part = read(&report, true, Some(&cut)).unwrap();
        assert_eq!(part.service.unwrap().len(), 15_577 + 14_062);
        assert_eq!(part.response.unwrap().len(), 15_577 + 14_062);
    }

    /// Its own `error_count` is 0 there because of its fault.
    #[test]
    fn errors_are_those_of_the_requests() {
        let report = fixture("latte-0.29-write.json").replacen(
            "\"req_error_count\": 0",
            "\"req_error_count\": 7",
            2,
        );
        let outcome = read(&report, false, None).unwrap();
        assert_eq!(outcome.errors, [("request".to_string(), 14)]);
        assert_eq!(outcome.total(), 400_000 - 14);
    }

    #[test]
    fn broken_report_is_refused() {
        let report = fixture("latte-0.29-write.json");
        let more = report.replacen("\"request_count\": 400000", "\"request_count\": 400001", 1);
        let error = read(&more, false, None).unwrap_err().to_string();
        assert!(error.contains("400001 requests in one place and 400000"), "{error}");
        for text in mangled(&report) {
            let _ = read(&text, false, None)
                .map_err(|error| assert!(!error.to_string().contains('\n')));
        }
        for line in ["", "   1.009      7955", "info: Running", "1 2.5 3 4 5 6 7 8 9 10 11 12"] {
            assert_eq!(progress(line), None, "{line}");
        }
    }
}
