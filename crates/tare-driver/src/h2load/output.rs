//! Reads h2load's output and its log of requests (`--log-file`), which has a line with start,
//! status and duration for each. The log can be cut exactly.
//! <https://nghttp2.org/documentation/h2load.1.html>

use std::collections::BTreeMap;

use tare_load::histogram;

use crate::tool::outcome::{Outcome, OutputError, WindowCut, bad, ns, whole};
use crate::tool::{Count, Progress};

const FORM: &str = "start in µs, status, µs";
/// The statuses of an answer that is no failure.
const GOOD: std::ops::Range<i32> = 100..400;

/// One line of the log.
struct Request {
    end_unix_s: f64,
    /// The status of HTTP, or -1 for a request without an answer.
    status: i32,
    us: u64,
}

/// Reads the line by which all of it is connected, with the time that its load has run.
pub(super) fn progress(line: &str) -> Option<Progress> {
    let begins = line.starts_with("Main benchmark duration is started");
    begins.then_some(Progress { tool_s: Some(0.0), count: Count::Interval(0) })
}

/// Returns whether a line says that a thread's load is over.
pub(super) fn is_last(line: &str) -> bool {
    line.starts_with("Main benchmark duration is over")
}

/// Reads its output and its log. Operations and latency are those of the cut.
///
/// # Errors
/// If a part is missing, or the log lacks requests that it counts.
pub(super) fn read(
    printed: &str,
    log: &str,
    cut: Option<&WindowCut>,
) -> Result<Outcome, OutputError> {
    let line_of = |start: &'static str, what: &'static str| {
        printed
            .lines()
            .find_map(|line| line.strip_prefix(start))
            .ok_or(OutputError::Missing { what })
    };
    let counts = line_of("requests: ", "requests")?;
    let done = counts.split(", ").find_map(|part| part.strip_suffix(" done"));
    let said = done.and_then(whole).ok_or_else(|| bad(counts, "N total, N started, N done"))?;
    let finished = line_of("finished in ", "its time")?;
    let time = finished.split(',').next().unwrap_or_default();
    let elapsed_ns = duration(time).ok_or_else(|| bad(time, "a time such as 1.5s"))?;
    let mut service = histogram::new();
    let (mut all, mut inside) = (0, 0);
    let mut errors: BTreeMap<i32, u64> = BTreeMap::new();
    for line in log.lines() {
        let Request { end_unix_s, status, us } = request(line).ok_or_else(|| bad(line, FORM))?;
        all += 1;
        if !GOOD.contains(&status) {
            *errors.entry(status).or_default() += 1;
        } else if cut.is_none_or(|cut| end_unix_s >= cut.unix_s.0 && end_unix_s < cut.unix_s.1) {
            inside += 1;
            histogram::record(&mut service, us.saturating_mul(1_000));
        }
    }
    if all != said {
        return Err(OutputError::Disagrees { what: "requests", said, counted: all });
    }
    let kind = |(status, count): (i32, u64)| match status {
        ..0 => ("no answer".to_string(), count),
        status => (format!("status {status}"), count),
    };
    Ok(Outcome {
        operations: vec![("request".into(), inside)],
        errors: errors.into_iter().map(kind).collect(),
        elapsed_ns,
        service: Some(service),
        response: None,
    })
}

/// Reads `2.02s`, `970.51ms` or `1.05m` as ns.
fn duration(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let unit_s = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    ns(number.parse::<f64>().ok()? * unit_s)
}

/// Reads a line of the log.
fn request(line: &str) -> Option<Request> {
    let mut words = line.split('\t');
    let (start_us, status, us) = (words.next()?, words.next()?, words.next()?);
    let (start_us, us): (u64, u64) = (start_us.parse().ok()?, us.parse().ok()?);
    let end_unix_s = start_us.saturating_add(us) as f64 / 1e6;
    Some(Request { end_unix_s, status: status.parse().ok()?, us })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::{fixture, mangled};

    fn files() -> [String; 2] {
        ["txt", "log"].map(|end| fixture(&format!("h2load-1.52.{end}")))
    }

    #[test]
    fn log_is_cut_by_the_clock() {
        let [printed, log] = files();
        let all = read(&printed, &log, None).unwrap();
        assert_eq!(all.elapsed_ns, 1_010_000_000);
        let failed: u64 = all.errors.iter().map(|(_, count)| count).sum();
        assert_eq!(all.total() + failed, log.lines().count() as u64);
        let ends = |line: &str| request(line).unwrap().end_unix_s;
        let mut sorted: Vec<f64> = log.lines().map(ends).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted[sorted.len() / 2];
        let cut = WindowCut { unix_s: (middle, middle + 60.0), tool_s: None };
        let part = read(&printed, &log, Some(&cut)).unwrap();
        let inside = part.total();
        assert_eq!(part.service.unwrap().len(), inside);
        assert!(inside.abs_diff(log.lines().count() as u64 / 2) < 10, "{inside}");
    }

    #[test]
    fn failures_are_errors_by_status() {
        let [printed, log] = files();
        let failed = log.replacen("\t200\t", "\t503\t", 3).replacen("\t200\t", "\t-1\t", 1);
        let outcome = read(&printed, &failed, None).unwrap();
        assert_eq!(outcome.errors, [("no answer".to_string(), 1), ("status 503".to_string(), 3)]);
    }

    #[test]
    fn load_begins_and_ends_with_lines() {
        let [printed, _] = files();
        let is_start = |line: &&str| progress(line).is_some();
        assert_eq!(printed.lines().filter(is_start).count(), 1);
        assert_eq!(printed.lines().filter(|line| is_last(line)).count(), 1);
        for (text, expect) in [("2.02s", Some(2_020_000_000)), ("1.50m", Some(90_000_000_000))] {
            assert_eq!(duration(text), expect);
        }
        assert_eq!(
            (duration("970.50ms"), duration("5"), duration("x")),
            (Some(970_500_000), None, None)
        );
    }

    #[test]
    fn broken_run_is_refused() {
        let [printed, log] = files();
        let short: String = log.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let error = read(&printed, &short, None).unwrap_err().to_string();
        assert!(error.contains("requests in one place"), "{error}");
        for text in mangled(&printed).chain(mangled(&log)) {
            for found in [read(&printed, &text, None), read(&text, &log, None)] {
                let _ = found.map_err(|error| assert!(!error.to_string().contains('\n')));
            }
        }
    }
}
