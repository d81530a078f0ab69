//! The loaders of a run in a line each, as every text, the page and JSON have them: the CPU that
//! each used, how far its window was from that of the accounts, and how well its clock is known.

use serde::Serialize;
use tare_lab::loader::LoaderSlice;
use tare_lab::record::Record;

use crate::figures::share;

/// One loader over all slices that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LoaderSummary {
    pub(crate) host: String,
    pub(crate) cpus: String,
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    /// Slices that count and in which it had a part.
    pub(crate) slices: usize,
    pub(crate) operations: u64,
    pub(crate) cpu_ns: u64,
    /// Share of its CPUs that it used, at capacity as at the fixed rate.
    pub(crate) cpu_share: Option<f64>,
    /// Distance of the edges of its window from those of the accounts.
    pub(crate) edge_distance_us: Option<Middle>,
    /// Bound of the error of the comparison of its clock.
    pub(crate) clock_error_us: Option<Middle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) largest: f64,
}

impl Middle {
    fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut us: Vec<f64> = values.map(|ns| ns as f64 / 1e3).collect();
        us.sort_by(f64::total_cmp);
        Some(Self { median: *us.get(us.len() / 2)?, largest: *us.last()? })
    }
}

/// Returns the loaders of a run, in the order of the study.
pub(crate) fn summaries(record: &Record) -> Vec<LoaderSummary> {
    let counts = record.slices.iter().filter(|slice| slice.void.is_none());
    let parts: Vec<&LoaderSlice> = counts.flat_map(|slice| &slice.loaders).collect();
    (0u32..)
        .zip(&record.loaders)
        .map(|(index, loader)| {
            let own = || parts.iter().filter(move |part| part.loader == index);
            let cpu_ns = own().map(|part| part.cpu_ns).sum::<u64>();
            let window_ns: u64 = own().map(|part| part.window_ns).sum();
            let available = window_ns as f64 * loader.cpus.len().max(1) as f64;
            LoaderSummary {
                host: loader.host.clone(),
                cpus: loader.cpus.to_string(),
                kernel: loader.kernel.clone(),
                architecture: loader.architecture.clone(),
                slices: own().count(),
                operations: own().map(|part| part.operations).sum(),
                cpu_ns,
                cpu_share: (window_ns > 0).then(|| cpu_ns as f64 / available),
                edge_distance_us: Middle::of(own().map(|part| part.apart_ns())),
                clock_error_us: Middle::of(own().map(|part| part.clock_error_ns)),
            }
        })
        .collect()
}

/// Returns the loaders as (host, what each did). Texts keep their control characters.
pub(crate) fn lines(record: &Record) -> Vec<(String, String)> {
    let us = |middle: Middle| format!("{:.0} µs, at most {:.0} µs", middle.median, middle.largest);
    let line = |one: LoaderSummary| {
        let known = one.cpu_share.zip(one.edge_distance_us).zip(one.clock_error_us);
        let figures = match known {
            Some(((cpu, edges), clock)) => format!(
                "{} of CPU {} used; window away from that of the accounts by {}; clock known to {}",
                share(cpu),
                one.cpus,
                us(edges),
                us(clock)
            ),
            None => format!("CPU {}; no slice counts", one.cpus),
        };
        (one.host, format!("{figures}; Linux {}, {}", one.kernel, one.architecture))
    };
    summaries(record).into_iter().map(line).collect()
}

/// Returns who loaded the system, as part of a line.
pub(crate) fn client(record: &Record) -> String {
    let hosts: Vec<&str> = record.loaders.iter().map(|loader| loader.host.as_str()).collect();
    match hosts.as_slice() {
        [] => String::new(),
        [one] => format!("loaded from {one}"),
        [first, second] => format!("loaded from {first} and {second}"),
        many => format!("loaded from {} hosts: {}", many.len(), many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::loader::Loader;

    #[test]
    fn lines_lead_with_the_share_of_cpu() {
        let (mut record, _) = crate::fixture::quick();
        assert!(lines(&record).is_empty() && client(&record).is_empty());
        let loader = |host: &str| Loader {
            host: host.into(),
            cpus: "2-3".parse().unwrap(),
            kernel: "6.1.0".into(),
            architecture: "x86_64".into(),
        };
        record.loaders = vec![loader("ssh:a"), loader("ssh:b")];
        let part = |begin_offset_ns, clock_error_ns| LoaderSlice {
            window_ns: 1_000_000,
            operations: 10,
            cpu_ns: 500_000,
            begin_offset_ns,
            clock_error_ns,
            ..LoaderSlice::default()
        };
        record.slices.truncate(4);
        for (slice, offset) in record.slices.iter_mut().zip([-3_000, 1_000, 9_000, 2_000]) {
            slice.loaders = vec![part(offset, 5_000)];
            slice.void = (offset == 9_000).then(|| "late".into());
        }
        let lines = lines(&record);
        assert_eq!(
            lines[0].1,
            "25 % of CPU 2-3 used; window away from that of the accounts by 2 µs, at most 3 µs; \
             clock known to 5 µs, at most 5 µs; Linux 6.1.0, x86_64"
        );
        assert!(lines[1].1.starts_with("CPU 2-3; no slice counts"), "{}", lines[1].1);
        assert_eq!(client(&record), "loaded from ssh:a and ssh:b");
        let summary = &summaries(&record)[0];
        assert_eq!((summary.slices, summary.operations, summary.cpu_ns), (3, 30, 1_500_000));
    }
}
