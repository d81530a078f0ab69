//! Reads pgbench's output and its log of transactions (`--log`), which has a line with end time and
//! duration for each. The log can be cut exactly.
//! <https://www.postgresql.org/docs/15/pgbench.html>, "Per-Transaction Logging".
//!
//! At a fixed rate (`--rate`) the time in a line counts from when the transaction was due; the lag
//! of its start is beside it.

use crate::tool::outcome::{Outcome, OutputError, WindowCut, bad, ns, whole};
use crate::tool::{Count, Progress};
use tare_load::histogram;

const FORM: &str = "client transaction µs script seconds µs [lag in µs]";

/// One line of the log.
struct Line<'l> {
    /// The duration in µs, or why it was not done.
    time: Result<u64, &'l str>,
    end_unix_s: f64,
    lag_us: Option<u64>,
}

/// Reads `progress: 1.0 s, 5034.2 tps, lat ...` (`--progress`); its time begins when all clients
/// are connected.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let (time, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
    let rate = rest.split_once(" tps")?.0.parse().ok()?;
    Some(Progress { tool_s: Some(time.parse().ok()?), count: Count::Rate(rate) })
}

/// Reads its output and the logs of all its threads. Operations and latency are those of the cut.
///
/// # Errors
/// If a part is missing, or the log lacks transactions that it counts.
pub(super) fn read(
    printed: &str,
    log: &str,
    cut: Option<&WindowCut>,
) -> Result<Outcome, OutputError> {
    let field = |name: &'static str| {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(name));
        line.ok_or(OutputError::Missing { what: name })
    };
    let processed = field("number of transactions actually processed:")?;
    let said = whole(processed.split('/').next().unwrap_or_default());
    let said = said.ok_or_else(|| bad(processed, "a number"))?;
    let seconds = field("duration:")?.trim().trim_end_matches(" s");
    let elapsed_ns = seconds.parse().ok().and_then(ns).ok_or_else(|| bad(seconds, "seconds"))?;
    let (mut service, mut response) = (histogram::new(), histogram::new());
    let (mut all, mut inside) = (0, 0);
    let mut errors: Vec<(String, u64)> = Vec::new();
    for line in log.lines() {
        let Line { time, end_unix_s, lag_us } = transaction(line).ok_or_else(|| bad(line, FORM))?;
        let us = match time {
            Ok(us) => us,
            Err(kind) => {
                match errors.iter_mut().find(|(name, _)| name == kind) {
                    Some((_, count)) => *count += 1,
                    None => errors.push((kind.to_string(), 1)),
                }
                continue;
            }
        };
        all += 1;
        if cut.is_some_and(|cut| end_unix_s < cut.unix_s.0 || end_unix_s >= cut.unix_s.1) {
            continue;
        }
        inside += 1;
        histogram::record(&mut service, us.saturating_sub(lag_us.unwrap_or(0)) * 1_000);
        if lag_us.is_some() {
            histogram::record(&mut response, us * 1_000);
        }
    }
    if all != said {
        return Err(OutputError::Disagrees { what: "transactions", said, counted: all });
    }
    Ok(Outcome {
        operations: vec![("transaction".into(), inside)],
        errors,
        elapsed_ns,
        service: Some(service),
        response: (!response.is_empty()).then_some(response),
    })
}

/// Reads a line of the log.
fn transaction(line: &str) -> Option<Line<'_>> {
    let mut words = line.split(' ');
    let (_client, _number) = (words.next()?, words.next()?);
    let time = words.next()?;
    let time = match time.parse::<u64>() {
        Ok(us) => Ok(us.min(u64::MAX / 1_000)),
        Err(_) if time.bytes().all(|byte| byte.is_ascii_lowercase()) => Err(time),
        Err(_) => return None,
    };
    let _script = words.next()?;
    let (seconds, us): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let lag_us = words.next().map(str::parse).transpose().ok()?;
    Some(Line { time, end_unix_s: seconds as f64 + us as f64 / 1e6, lag_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_run_time() {
        let line = "progress: 1.0 s, 396.9 tps, lat 0.312 ms stddev 0.103, 0 failed, lag 0.061 ms";
        let expect = Progress { tool_s: Some(1.0), count: Count::Rate(396.9) };
        assert_eq!(progress(line), Some(expect));
        assert_eq!(progress("progress: x s, 1 tps"), None);
    }
    use crate::tool::tests::{fixture, mangled, near};

    fn files(name: &str) -> [String; 2] {
        ["txt", "log"].map(|end| fixture(&format!("pgbench-15-{name}.{end}")))
    }

    #[test]
    fn closed_loop_is_cut_by_clock() {
        let [printed, log] = files("closed");
        let whole = read(&printed, &log, None).unwrap();
        assert_eq!(whole.operations, [("transaction".to_string(), 1_083)]);
        assert!(whole.errors.is_empty() && whole.response.is_none());
        let service = whole.service.unwrap();
        assert!((service.mean() / 3.658e6 - 1.0).abs() < 0.02, "{}", service.mean());
        let cut = WindowCut { unix_s: (1_795_290_483.5, 1_795_290_484.0), tool_s: None };
        let part = read(&printed, &log, Some(&cut)).unwrap();
        let inside = log.lines().filter(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            words[4] == "1795290483" && words[5].parse::<u32>().unwrap() >= 500_000
        });
        assert_eq!(part.total(), inside.count() as u64);
        assert!(part.total() > 100 && part.total() < 1_083);
    }

    #[test]
    fn fixed_rate_lag_is_waiting() {
        let [printed, log] = files("rate");
        let outcome = read(&printed, &log, None).unwrap();
        let (service, response) = (outcome.service.unwrap(), outcome.response.unwrap());
        near(&response, &[(1.0, response.max() as f64)], 0.0);
        assert_eq!((service.len(), response.len()), (349, 349));
        assert!((response.mean() / 3.430e6 - 1.0).abs() < 0.02, "{}", response.mean());
        let lag = response.mean() - service.mean();
        assert!((lag / 1.274e6 - 1.0).abs() < 0.02, "{lag}");
    }

    #[test]
    fn skipped_and_failed_are_errors_by_kind() {
        let [printed, log] = files("limit");
        let outcome = read(&printed, &log, None).unwrap();
        assert_eq!(
            (outcome.total(), &outcome.errors[..]),
            (210, &[("skipped".to_string(), 66)][..])
        );
        let failed = log.replacen(" skipped ", " serialization ", 2);
        let outcome = read(&printed, &failed, None).unwrap();
        assert_eq!(outcome.errors, [("serialization".to_string(), 2), ("skipped".to_string(), 64)]);
    }

    #[test]
    fn broken_run_is_refused() {
        let [printed, log] = files("rate");
        let short: String = log.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let error = read(&printed, &short, None).unwrap_err().to_string();
        assert!(error.contains("349 transactions in one place and 348"), "{error}");
        let error = read("pgbench: error: connection to server failed", &log, None).unwrap_err();
        assert!(error.to_string().contains("actually processed"), "{error}");
        for text in mangled(&printed).chain(mangled(&log)) {
            let _ = read(&printed, &text, None)
                .map_err(|error| assert!(!error.to_string().contains('\n')));
            let _ =
                read(&text, &log, None).map_err(|error| assert!(!error.to_string().contains('\n')));
        }
    }
}
