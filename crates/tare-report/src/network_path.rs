//! The network path from each loader to the system, with the figures of the run.

use serde::Serialize;
use tare_lab::path::LoaderPath;
use tare_lab::probe::names;
use tare_lab::record::{Phase, Record, Slice};
use tare_stats::median;
use tare_std::net_device::NetDevice;
use tare_std::units::{nanoseconds, significant};

use crate::figures::{clean, share};

/// The path of one loader, from left to right as the page draws it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DrawnPath {
    /// The loader, its device, the device of the system's host and the environment.
    pub(crate) stations: Vec<String>,
    /// Round-trip times, and bytes against the speed of the link.
    pub(crate) figures: String,
}

/// Returns the paths of a record, in the order of the loaders.
pub(crate) fn drawn(record: &Record) -> Vec<DrawnPath> {
    let draw = |path: &LoaderPath| {
        let mut stations = vec![clean(&loader(record, path)), device(&path.there)];
        stations.extend(path.here.as_ref().map(device));
        stations.push("environment".into());
        DrawnPath { stations, figures: figures(record, path) }
    };
    record.paths.iter().map(draw).collect()
}

/// Returns each path in one line of text.
pub(crate) fn lines(record: &Record) -> Vec<String> {
    let line = |path: DrawnPath| {
        let stations = path.stations.join(" -> ");
        match path.figures.is_empty() {
            true => format!("Path: {stations}"),
            false => format!("Path: {stations}; {}", path.figures),
        }
    };
    drawn(record).into_iter().map(line).collect()
}

/// Returns the paths as they are in the record, with the round-trip times of the run.
pub(crate) fn json(record: &Record) -> serde_json::Value {
    let value = |path: &LoaderPath| {
        let [median_ns, least_ns] = round_trip(record, path.loader);
        serde_json::json!({
            "loader": path.loader,
            "host": loader(record, path),
            "there": path.there,
            "here": path.here,
            "rtt_ns": median_ns,
            "rtt_least_ns": least_ns,
        })
    };
    record.paths.iter().map(value).collect()
}

fn loader(record: &Record, path: &LoaderPath) -> String {
    let at = usize::try_from(path.loader).ok();
    let named = at.and_then(|at| record.loaders.get(at));
    named.map_or_else(|| "client".to_string(), |loader| loader.host.clone())
}

fn device(device: &NetDevice) -> String {
    clean(&device.to_string())
}

fn valid(record: &Record) -> impl Iterator<Item = &Slice> {
    record.slices.iter().filter(|slice| slice.void.is_none())
}

fn counter(slice: &Slice, name: &str) -> Option<f64> {
    slice.counters.iter().find(|one| one.name == name).map(|one| one.value)
}

/// Returns the median of the round-trip times of all slices, and the least of them.
fn round_trip(record: &Record, loader: u32) -> [Option<f64>; 2] {
    let all = |name: String| -> Vec<f64> {
        valid(record).filter_map(|slice| counter(slice, &name)).collect()
    };
    let least = all(names::loader_rtt_least(loader)).into_iter().reduce(f64::min);
    [median(all(names::loader_rtt(loader))), least]
}

fn figures(record: &Record, path: &LoaderPath) -> String {
    let mut parts = Vec::new();
    let [trip, least] = round_trip(record, path.loader);
    parts.extend(trip.map(|ns| format!("round trip {}", nanoseconds(ns))));
    parts.extend(least.map(|ns| format!("least {}", nanoseconds(ns))));
    // The device of this host counts what all loaders send.
    let capacity = || valid(record).filter(|slice| slice.phase == Phase::Capacity);
    let per_s =
        |name: &'static str| {
            median(capacity().filter_map(|slice| {
                Some(counter(slice, name)? * 1e9 / slice.window_ns.max(1) as f64)
            }))
        };
    for (name, what) in [("path_in_bytes", "to the system"), ("path_out_bytes", "from it")] {
        let megabytes = per_s(name).map(|bytes| significant(bytes / 1e6, 3));
        parts.extend(megabytes.map(|figure| format!("{figure} MB/s {what}")));
    }
    let used = median(capacity().filter_map(|slice| counter(slice, names::LINK_SHARE)));
    parts.extend(used.map(|used| format!("{} of the link", share(used))));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::probe::Counter;
    use tare_std::net_device::DeviceKind;

    /// The record of a run whose client is behind a veth pair and whose link has a speed.
    fn record() -> Record {
        let (mut record, _) = crate::fixture::quick();
        let device = |name: &str, kind| NetDevice {
            name: name.into(),
            kind,
            mtu_bytes: Some(1500),
            ..NetDevice::default()
        };
        let (there, here) = (device("eth0", DeviceKind::Card), device("<b>", DeviceKind::Veth));
        record.paths = vec![LoaderPath { loader: 0, there, here: Some(here) }];
        for slice in &mut record.slices {
            let seconds = slice.window_ns as f64 / 1e9;
            let values = [
                ("loader_0_rtt_ns_mean", 95_000.0),
                ("loader_0_rtt_least_ns_mean", 5_000.0),
                ("path_in_bytes", 2e6 * seconds),
                ("path_out_bytes", 30e6 * seconds),
                ("path_link_share", 0.24),
            ];
            let counters = values.map(|(name, value)| Counter { name: name.into(), value });
            slice.counters.extend(counters);
        }
        record
    }

    #[test]
    fn path_is_one_line_with_figures() {
        assert!(lines(&crate::fixture::quick().0).is_empty());
        let found = lines(&record());
        let expect = "Path: client -> eth0 (card, MTU 1500) -> <b> (veth, MTU 1500) -> environment; \
                      round trip 95.0 µs, least 5.00 µs, 2.00 MB/s to the system, 30.0 MB/s from it, 24 % of \
                      the link";
        assert_eq!(found, [expect]);
    }

    #[test]
    fn json_has_devices_and_times() {
        let found = json(&record());
        assert_eq!((&found[0]["host"], &found[0]["rtt_ns"]), (&"client".into(), &95e3.into()));
        assert_eq!(found[0]["here"]["kind"], "veth");
    }

    #[test]
    fn page_draws_path_and_escapes_names() {
        let record = record();
        let analysis = tare_lab::analysis::analyse(&record);
        let page = crate::html::page(&record, &analysis, &[]);
        assert!(page.contains("<ol class=\"path\""), "no drawing");
        assert!(page.contains("&lt;b&gt;") && !page.contains("<li><b>"));
    }
}
