//! What a system counts by itself, beside the client's figures: reads from disk, latency inside the
//! system, and the throughput of the slices.

use serde::Serialize;
use tare_lab::analysis::Finding;
use tare_lab::own_view::{self, Times};
use tare_lab::record::{Phase, Record};
use tare_std::units::nanoseconds;

use crate::doubts::DoubtGroups;
use crate::figures::{clean, rate, role, share};
use crate::run_conditions::fixed_rate;

/// A figure that the system does not count.
const ABSENT: &str = "–";

/// The table of a workload on the page.
#[derive(Serialize)]
pub(crate) struct OwnTable {
    /// At the fixed rate, or at capacity, in words.
    phase: String,
    /// Whether any system counts its reads from disk.
    reads: bool,
    /// The share of reads from disk that the study asks for.
    asked: Option<String>,
    rows: Vec<OwnRow>,
}

#[derive(Serialize)]
struct OwnRow {
    environment: String,
    role: Option<&'static str>,
    doubts: Vec<usize>,
    disk_share: String,
    server: [String; 3],
    service: [String; 3],
    per_s: [String; 3],
}

/// Mean, p50 and p99.
fn cells(mean_ns: Option<f64>, times: Option<&Times>) -> [String; 3] {
    let text = |ns: Option<f64>| ns.map_or_else(|| ABSENT.into(), nanoseconds);
    let at = |which: fn(&Times) -> u64| text(times.map(|times| which(times) as f64));
    [text(mean_ns), at(|times| times.p50_ns), at(|times| times.p99_ns)]
}

fn percent(of: Option<f64>) -> String {
    of.map_or_else(|| ABSENT.into(), share)
}

impl OwnTable {
    /// `None` if no system of the workload counts by itself.
    pub(crate) fn new(
        record: &Record,
        workload: &str,
        findings: &[&Finding],
        marks: &DoubtGroups,
    ) -> Option<Self> {
        let views = own_view::of(record, workload);
        let first = views.first()?;
        let row = |finding: &&Finding| {
            let view = views.iter().find(|view| view.environment == finding.environment)?;
            Some(OwnRow {
                environment: clean(&view.environment),
                role: role(finding),
                doubts: marks.numbers(&view.environment, workload),
                disk_share: percent(view.disk_share),
                server: cells(view.server_mean_ns, view.server.as_ref()),
                service: cells(view.service.map(|times| times.mean_ns), view.service.as_ref()),
                per_s: view.per_s.map(rate),
            })
        };
        Some(Self {
            phase: match first.phase {
                Phase::Capacity => "at capacity".into(),
                _ => match fixed_rate(record, workload) {
                    Some(at) => format!("at {} op/s", rate(at)),
                    None => "at the fixed rate".into(),
                },
            },
            reads: views.iter().any(|view| view.disk_share.is_some()),
            asked: first.disk_share_asked.map(share),
            rows: findings.iter().filter_map(row).collect(),
        })
    }
}

/// Returns the shares of reads from disk of a workload's environments on one line; `None` if its
/// systems do not count them, or no read came from disk and the study does not ask for any.
pub(crate) fn line(record: &Record, workload: &str) -> Option<String> {
    let views = own_view::of(record, workload);
    let asked = views.first()?.disk_share_asked;
    let known = views.iter().filter_map(|view| Some((&view.environment, view.disk_share?)));
    let all: Vec<(&String, f64)> = known.collect();
    if all.is_empty() || (asked.is_none() && all.iter().all(|(_, found)| *found == 0.0)) {
        return None;
    }
    let shown = all.iter().map(|(name, found)| format!("{name} {}", share(*found)));
    let shown: Vec<String> = shown.collect();
    let asked = asked.map(|asked| format!(" (the study asks for {})", share(asked)));
    Some(format!("Reads from disk: {}{}", shown.join("; "), asked.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::terminal::Style;
    use tare_lab::probe::{Counter, names};

    /// The fixture with a system that counts: reads from disk, and the client's service times as
    /// its own.
    fn counted() -> Record {
        let (mut record, _) = fixture::quick();
        let workload = record.study.workloads[0].name.clone();
        for slice in record.slices.iter_mut().filter(|slice| slice.workload == workload) {
            let reads = slice.operations as f64;
            let share = if slice.environment == "native" { 0.25 } else { 0.5 };
            for (name, value) in [
                (names::SYSTEM_READS, reads),
                (names::SYSTEM_DISK_READS, reads * share),
                (names::SYSTEM_LATENCY_NS, reads * 12_000.0),
            ] {
                slice.counters.push(Counter { name: name.into(), value });
            }
            slice.server = slice.service.clone();
        }
        record
    }

    #[test]
    fn system_that_counts_nothing_has_no_section() {
        let (record, analysis) = fixture::quick();
        assert!(record.study.workloads.iter().all(|one| line(&record, &one.name).is_none()));
        let page = crate::html::page(&record, &analysis, &[]);
        assert!(!page.contains("inside the system"), "a section without figures");
    }

    #[test]
    fn mean_alone_is_shown_without_percentiles() {
        let mut record = counted();
        for slice in &mut record.slices {
            slice.server.clear();
            slice.counters.retain(|counter| !counter.name.starts_with("system_"));
            let name = names::SYSTEM_LATENCY_NS_MEAN.into();
            slice.counters.push(Counter { name, value: 123_400.0 });
        }
        let analysis = tare_lab::analysis::analyse(&record);
        let page = crate::html::page(&record, &analysis, &[]);
        let row = "<td>123 µs</td><td>–</td><td>–</td>";
        assert!(page.contains("Latency inside the system") && page.contains(row), "the page");
        let json = crate::json::render(&record, &analysis, &[]);
        assert!(json.contains("\"server_mean_ns\": 123400.0"), "JSON");
    }

    #[test]
    fn reads_from_disk_are_in_every_report() {
        let mut record = counted();
        let workload = record.study.workloads[0].name.clone();
        let analysis = tare_lab::analysis::analyse(&record);
        let shown = line(&record, &workload).unwrap();
        assert!(shown.starts_with("Reads from disk: native 25 %; "), "{shown}");
        assert!(!shown.contains("asks"), "{shown}");
        record.study.workloads[0].reads_from_disk = Some(0.95);
        let shown = line(&record, &workload).unwrap();
        assert!(shown.ends_with("(the study asks for 95 %)"), "{shown}");
        let report = crate::terminal::render(&record, &analysis, &[], Style::new(false, 200));
        assert!(report.contains("Reads from disk: native 25 %"), "{report}");
        let page = crate::html::page(&record, &analysis, &[]);
        for part in ["Reads from disk, and latency", "The study asks for 95", "<td>25", "12.0"] {
            assert!(page.contains(part), "{part} is not on the page");
        }
        let json = crate::json::render(&record, &analysis, &[]);
        assert!(json.contains("\"own_account\"") && json.contains("\"disk_share\": 0.25"), "JSON");
    }
}
