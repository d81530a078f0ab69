//! Reads fio's json+ output of a job: counts, errors and histograms.
//!
//! A bin of fio covers all latencies between two bounds and is recorded at fio's own value for it.
//! fio divides each power of two into 64 bins, so that value is off by less than 1/64 (1.6 %) of
//! the latency; the 0.1 % of our histograms do not matter beside that. The largest latency is the
//! upper end of its bin for the same reason.
//!
//! Limits: fio 3.0 or later; older ones count in µs and number their bins (`clat`, not `clat_ns`).

use serde_json::{Map, Value};

use tare_load::histogram::{self, Histogram};

/// What a job did while it was measured, over all its threads and directions.
#[derive(Debug)]
pub(super) struct Totals {
    /// The version, such as `fio-3.33`.
    pub(super) version: String,
    /// Operations by fio's own count, which starts after the lead-in.
    pub(super) operations: u64,
    /// Operations per second: each direction's count over its own time.
    pub(super) rate_per_s: f64,
    /// The longest measured time of a direction, in ms.
    pub(super) runtime_ms: u64,
    /// Latencies from when fio created the request to its completion (`lat`; `clat`, from when it
    /// was issued, if there is no `lat`).
    pub(super) latency: Histogram,
    /// Operations that moved fewer bytes than they should have.
    pub(super) short: u64,
    /// The `errno` of the first job that failed.
    pub(super) error: Option<i32>,
    /// Whether it became steady, if that was requested.
    pub(super) steady: Option<bool>,
}

/// Why an output cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("fio printed no JSON: {said:?}")]
    NoJson { said: String },
    #[error("fio's JSON cannot be read")]
    Json(#[from] serde_json::Error),
    #[error("fio's output has no {what}")]
    Missing { what: &'static str },
    #[error("{version} is too old: its latencies have no bins in ns; install fio 3.0 or later")]
    TooOld { version: String },
}

/// Reads an output, skipping what fio prints before its JSON (signals, warnings).
pub(super) fn read(output: &str) -> Result<Totals, OutputError> {
    let begin = match output.starts_with('{') {
        true => Some(0),
        false => output.find("\n{").map(|at| at + 1),
    };
    let no_json = || OutputError::NoJson { said: output.chars().take(300).collect() };
    let text = &output[begin.ok_or_else(no_json)?..];
    // Text after the JSON does not matter.
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let root = values.next().ok_or_else(no_json)??;
    let version = root["fio version"].as_str().unwrap_or_default().to_string();
    let jobs = root["jobs"].as_array().ok_or(OutputError::Missing { what: "jobs" })?;
    let mut totals = Totals {
        version,
        operations: 0,
        rate_per_s: 0.0,
        runtime_ms: 0,
        latency: histogram::new(),
        short: 0,
        error: None,
        steady: None,
    };
    for job in jobs {
        add_job(&mut totals, job)?;
    }
    Ok(totals)
}

fn add_job(totals: &mut Totals, job: &Value) -> Result<(), OutputError> {
    let error = job["error"].as_i64().and_then(|error| i32::try_from(error).ok());
    totals.error = totals.error.or(error.filter(|error| *error != 0));
    if let Some(attained) = job["steadystate"]["attained"].as_i64() {
        totals.steady = Some(totals.steady.unwrap_or(true) && attained == 1);
    }
    for direction in ["read", "write"].map(|name| &job[name]) {
        let operations = direction["total_ios"].as_u64().unwrap_or(0);
        let runtime_ms = direction["runtime"].as_u64().unwrap_or(0);
        if operations == 0 || runtime_ms == 0 {
            continue;
        }
        totals.operations += operations;
        totals.rate_per_s += operations as f64 * 1e3 / runtime_ms as f64;
        totals.runtime_ms = totals.runtime_ms.max(runtime_ms);
        totals.short += direction["short_ios"].as_u64().unwrap_or(0);
        let bins = |name: &str| direction[name]["bins"].as_object();
        match bins("lat_ns").or_else(|| bins("clat_ns")) {
            Some(bins) => add_bins(&mut totals.latency, bins),
            None if direction["clat"].is_object() => {
                return Err(OutputError::TooOld { version: totals.version.clone() });
            }
            None => return Err(OutputError::Missing { what: "latency bins; was it json+?" }),
        }
    }
    Ok(())
}

/// Bins are (latency in ns, count).
fn add_bins(histogram: &mut Histogram, bins: &Map<String, Value>) {
    for (ns, count) in bins {
        if let (Ok(ns), Some(count)) = (ns.parse::<u64>(), count.as_u64()) {
            histogram.saturating_record_n(ns, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Reads every recorded output and checks what must hold for any.
    #[test]
    fn recorded_outputs_of_all_versions_parse() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fio");
        let mut versions = Vec::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            let totals = read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(name.starts_with(&totals.version), "{name} says {}", totals.version);
            versions.push(totals.version.clone());
            if name.contains("no-space") {
                assert_eq!(totals.error, Some(28), "{name}");
                continue;
            }
            assert_eq!(totals.error, None, "{name}");
            assert!(totals.operations > 0 && totals.runtime_ms > 0, "{name}: {totals:?}");
            // Every operation has a latency.
            assert_eq!(totals.latency.len(), totals.operations, "{name}");
            assert_eq!(totals.steady, name.contains("steady").then_some(true), "{name}");
            let root: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
            compare(&root["jobs"][0], &totals, &name);
        }
        versions.sort();
        versions.dedup();
        assert!(versions.len() >= 2, "{versions:?}");
    }

    /// fio's percentiles and ours of the same bins agree within the width of a bin.
    fn compare(job: &Value, totals: &Totals, name: &str) {
        let active: Vec<&Value> = ["read", "write"]
            .iter()
            .map(|direction| &job[*direction])
            .filter(|one| one["total_ios"] != 0)
            .collect();
        let [direction] = active.as_slice() else { return };
        for (key, quantile) in [("50.000000", 0.5), ("99.000000", 0.99)] {
            let theirs = direction["lat_ns"]["percentile"][key].as_u64().unwrap() as f64;
            let ours = totals.latency.value_at_quantile(quantile) as f64;
            let off = (ours / theirs - 1.0).abs();
            assert!(off < 1.0 / 64.0 + 0.002, "{name}: p{key}: {ours} against {theirs}");
        }
        let mean = direction["lat_ns"]["mean"].as_f64().unwrap();
        let off = (totals.latency.mean() / mean - 1.0).abs();
        assert!(off < 0.02, "{name}: mean {} against {mean}", totals.latency.mean());
    }

    #[test]
    fn broken_output_is_refused() {
        for (text, expect) in [
            ("", "no JSON"),
            ("fio: engine libaio not loadable\n", "not loadable"),
            ("{\"fio version\": \"fio-3.33\"}", "no jobs"),
            ("{ truncated", "cannot be read"),
            ("{\"jobs\":[{\"read\":{\"total_ios\":5,\"runtime\":9}}]}", "latency bins"),
            (
                "{\"fio version\":\"fio-2.99\",\
                 \"jobs\":[{\"read\":{\"total_ios\":5,\"runtime\":9,\"clat\":{}}}]}",
                "fio-2.99 is too old",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
