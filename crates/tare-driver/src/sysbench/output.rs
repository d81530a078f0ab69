//! Reads sysbench's output: a line each second, a report at its checkpoint, and a histogram and a
//! report at its end, both since the checkpoint. <https://github.com/akopytov/sysbench>
//!
//! An "ignored error" is no error here: it repeats the transaction until that succeeds, and its
//! latency contains all of it (`thread_run` in `sysbench.lua`).
//!
//! Limits: values of the histogram are rounded to µs by its print, and apart by 1.8 %.

use crate::tool::outcome::{Outcome, OutputError, bad, ns, whole};
use crate::tool::{Count, Progress, ToolError, ToolOutput};
use tare_load::histogram::{self, Histogram};

/// The title of the histogram.
const HISTOGRAM: &str = "Latency histogram (values are in milliseconds)";
const FORM: &str = "milliseconds |stars count";
/// It reads its counters and its histogram one after the other while transactions end: how many of
/// 1,000 may be in one of them only.
const APART_OF_1000: u64 = 50;

/// Reads `[ 1s ] thds: 4 tps: 8996.83 qps: ...`.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let (time, rest) = line.strip_prefix("[ ")?.split_once("s ] ")?;
    let (_, rest) = rest.strip_prefix("thds: ")?.split_once(" tps: ")?;
    let rate = rest.split_once(' ')?.0.parse().ok()?;
    Some(Progress { tool_s: Some(time.parse().ok()?), count: Count::Rate(rate) })
}

/// Checks that it has written all its tables. It exits with 0 where a statement failed. Its threads
/// share a line now and then, because Lua's `print` writes text and line end apart.
///
/// # Errors
/// If it has not, with what it printed.
pub(super) fn filled(printed: &ToolOutput, tables: u64) -> Result<(), ToolError> {
    let all = [&printed.stdout, &printed.stderr];
    let count = |what: &str| all.iter().map(|text| text.matches(what).count() as u64).sum::<u64>();
    if count("Creating a secondary index") == tables && count("FATAL") == 0 {
        return Ok(());
    }
    let said = printed.said();
    Err(ToolError::Failed { tool: super::NAME, status: "its tables are incomplete".into(), said })
}

/// Reads a completed run. Operations and latency are those since the checkpoint; errors and time
/// are those of the whole run.
///
/// # Errors
/// If a part is missing, or the histogram has other transactions than the report.
pub(super) fn read(printed: &str) -> Result<Outcome, OutputError> {
    let last = printed.rsplit_once(HISTOGRAM).map(|(_, last)| last);
    let last = last.ok_or(OutputError::Missing { what: "its histogram" })?;
    let said =
        field(last, "transactions:").ok_or(OutputError::Missing { what: "transactions:" })?;
    let said = number(said)?;
    let time = field(last, "total time:").ok_or(OutputError::Missing { what: "total time:" })?;
    let elapsed_ns = time.strip_suffix('s').and_then(|seconds| ns(seconds.parse().ok()?));
    let elapsed_ns = elapsed_ns.ok_or_else(|| bad(time, "seconds"))?;
    let service = read_histogram(last)?;
    let counted = service.len();
    if said.abs_diff(counted) > said.max(1_000) * APART_OF_1000 / 1_000 {
        return Err(OutputError::Disagrees { what: "transactions", said, counted });
    }
    let mut reconnects = 0_u64;
    for line in printed.lines() {
        if let Some(count) = line.trim().strip_prefix("reconnects:") {
            reconnects = reconnects.saturating_add(number(count)?);
        }
    }
    Ok(Outcome {
        operations: vec![("transaction".into(), said)],
        errors: if reconnects > 0 { vec![("reconnect".into(), reconnects)] } else { Vec::new() },
        elapsed_ns,
        service: Some(service),
        response: None,
    })
}

/// Returns what follows a name at the begin of a line.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim)
}

/// Reads the first word, which is a number.
fn number(text: &str) -> Result<u64, OutputError> {
    text.split_whitespace().next().and_then(whole).ok_or_else(|| bad(text, "a number"))
}

/// Reads lines such as `       0.017 |*****       943`.
fn read_histogram(text: &str) -> Result<Histogram, OutputError> {
    let mut all = histogram::new();
    for line in text.lines().filter(|line| line.contains('|')) {
        let read = || {
            let (value, rest) = line.split_once('|')?;
            let value = ns(value.trim().parse::<f64>().ok()? / 1e3)?;
            let count = whole(rest.trim_start_matches('*'))?;
            Some((value, count))
        };
        let (value, count) = read().ok_or_else(|| bad(line, FORM))?;
        all.saturating_record_n(value.max(1), count);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled, near};

    #[test]
    fn progress_line_has_time_and_rate() {
        let line = "[ 12s ] thds: 4 tps: 8996.83 qps: 8996.83 (r/w/o: 0.00/8996.83/0.00) lat \
                    (ms,99%): 4.25 err/s: 0.00 reconn/s: 0.00";
        let expect = Progress { tool_s: Some(12.0), count: Count::Rate(8_996.83) };
        assert_eq!(progress(line), Some(expect));
        for other in ["[ 2s ] Checkpoint report:", "[ 1s ] queue length: 0, concurrency: 0", "[ "] {
            assert_eq!(progress(other), None, "{other}");
        }
    }

    #[test]
    fn histogram_begins_at_the_checkpoint() {
        let printed = fixture("sysbench-1.0-closed.txt");
        let outcome = read(&printed).unwrap();
        let service = outcome.service.unwrap();
        let of_end = printed.rsplit_once(HISTOGRAM).unwrap().1;
        let said = number(field(of_end, "transactions:").unwrap()).unwrap();
        assert_eq!((outcome.operations[0].1, outcome.errors.len()), (said, 0));
        assert!(said < number(field(of_end, "total number of events:").unwrap()).unwrap() + 1);
        let percentile: f64 = field(of_end, "99th percentile:").unwrap().parse().unwrap();
        near(&service, &[(0.99, percentile * 1e6)], 0.02);
        assert!(outcome.response.is_none());
        assert!((4_000_000_000..4_200_000_000).contains(&outcome.elapsed_ns));
    }

    #[test]
    fn lost_connections_of_the_whole_run_are_errors() {
        let printed = fixture("sysbench-1.0-closed.txt");
        let zero = "                      0 ";
        let with = |name: &str| {
            let some = printed.replace(&format!("{name}:{zero}"), &format!("{name}: 3 "));
            let some = some.replace(&format!("{name}:    {zero}"), &format!("{name}: 3 "));
            assert_ne!(some, printed, "{name}");
            read(&some).unwrap().errors
        };
        assert_eq!(with("ignored errors"), []);
        assert_eq!(with("reconnects"), [("reconnect".to_string(), 6)]);
    }

    #[test]
    fn broken_run_is_refused() {
        let printed = fixture("sysbench-1.0-closed.txt");
        let error = read("FATAL: unable to connect").unwrap_err().to_string();
        assert!(error.contains("its histogram"), "{error}");
        let stars = "****************************************";
        let few: Vec<&str> = printed.lines().filter(|line| !line.contains(stars)).collect();
        let fewer = few.join("\n").replace("|**", "x");
        assert!(read(&fewer).unwrap_err().to_string().contains("transactions in one place"));
        for text in mangled(&printed) {
            let _ = read(&text).map_err(|error| assert!(!error.to_string().contains('\n')));
        }
        let output = |stdout: &str| ToolOutput { stdout: stdout.into(), stderr: String::new() };
        let index = "Creating a secondary index on 'sbtest1'...\n";
        assert!(filled(&output(index), 1).is_ok());
        let error = filled(&output(&format!("{index}FATAL: no space\n")), 1).unwrap_err();
        assert!(error.to_string().contains("FATAL: no space"), "{error}");
        assert!(filled(&output(index), 2).is_err());
        let shared = "Creating a secondary index on 'sbtest2'...Creating a secondary index on 'sbtest1'...\n\n";
        assert!(filled(&output(shared), 2).is_ok());
    }
}
