//! Bytes per second of a workload whose operations all have one size: fio's block size.

use tare_lab::analysis::Finding;
use tare_lab::record::Record;
use tare_lab::study::WorkloadSpec;
use tare_std::units::{parse_bytes, significant};

/// Returns the bytes of one operation of a workload, if all have the same.
pub(crate) fn operation_bytes(workload: &WorkloadSpec) -> Option<u64> {
    let (_, size) = workload.options.iter().find(|(name, _)| name == "bs")?;
    parse_bytes(size).ok()
}

/// Returns the bandwidth of an environment at capacity in bytes per second.
pub(crate) fn per_s(record: &Record, finding: &Finding) -> Option<f64> {
    let workload = record.study.workloads.iter().find(|one| one.name == finding.workload)?;
    let bytes = operation_bytes(workload)?;
    Some(finding.throughput_per_s.as_ref()?.value * bytes as f64)
}

/// A bandwidth with three digits: `98.8 MB/s`, `1.24 GB/s`. A MB is 1,000,000 bytes.
pub(crate) fn text(bytes_per_s: f64) -> String {
    let (value, unit) = match bytes_per_s {
        x if x < 999.5e3 => (bytes_per_s / 1e3, "kB/s"),
        x if x < 999.5e6 => (bytes_per_s / 1e6, "MB/s"),
        _ => (bytes_per_s / 1e9, "GB/s"),
    };
    format!("{} {unit}", significant(value, 3))
}

/// Returns the bandwidths of a workload's environments on one line; `None` if operations have no
/// common size.
pub(crate) fn line(record: &Record, findings: &[&Finding]) -> Option<String> {
    let one = |finding: &&Finding| {
        let bytes_per_s = per_s(record, finding)?;
        Some(format!("{} {}", finding.environment, text(bytes_per_s)))
    };
    let all: Vec<String> = findings.iter().filter_map(one).collect();
    (!all.is_empty()).then(|| format!("Bandwidth at capacity: {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::terminal::Style;

    #[test]
    fn bandwidths_have_three_digits() {
        assert_eq!(text(98_765_432.0), "98.8 MB/s");
        assert_eq!(text(1_240_000_000.0), "1.24 GB/s");
        assert_eq!(text(4_096.0), "4.10 kB/s");
    }

    #[test]
    fn only_operations_of_one_size_have_a_bandwidth() {
        let (mut record, analysis) = fixture::quick();
        let findings: Vec<&Finding> = analysis.findings.iter().collect();
        assert_eq!(line(&record, &findings), None);
        let name = findings[0].workload.clone();
        let workload = record.study.workloads.iter_mut().find(|one| one.name == name).unwrap();
        workload.options.push(("bs".into(), "4k".into()));
        let expect = findings[0].throughput_per_s.unwrap().value * 4096.0;
        assert_eq!(per_s(&record, findings[0]), Some(expect));
        let shown = line(&record, &findings).unwrap();
        let first = format!("Bandwidth at capacity: {} {}", findings[0].environment, text(expect));
        assert!(shown.starts_with(&first), "{shown}");
        let report = crate::terminal::render(&record, &analysis, &[], Style::new(false, 120));
        assert!(report.contains("Bandwidth at capacity: "), "{report}");
        let page = crate::html::page(&record, &analysis, &[]);
        let escaped = text(expect).replace('/', "&#x2f;");
        assert!(page.contains(&escaped), "{escaped} is not on the page");
        let json = crate::json::render(&record, &analysis, &[]);
        assert!(json.contains("\"bandwidth_bytes_per_s\""), "{json}");
    }
}
