//! The slices of a record as CSV, one line per slice, for a spreadsheet or a data frame. Totals and
//! quantiles have their own columns; the raw histograms are in the JSON.

mod figures;
mod seconds;

use std::collections::BTreeSet;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use tare_lab::record::{Record, Slice};

use crate::csv_table::CsvTable;

pub use figures::figures;
pub use seconds::seconds;

const COLUMNS: [&str; 29] = [
    "id",
    "block",
    "position",
    "environment",
    "workload",
    "phase",
    "started_unix_ms",
    "window_ns",
    "operations",
    "throughput_per_s",
    "errors",
    "unsent",
    "rate_per_s",
    "system_cpu_ns",
    "layer_cpu_ns",
    "busy_ns",
    "idle_poll_ns",
    "client_cpu_ns",
    "throttled_ns",
    "response_mean_ns",
    "response_p50_ns",
    "response_p99_ns",
    "response_p999_ns",
    "response_max_ns",
    "service_mean_ns",
    "service_p50_ns",
    "service_p99_ns",
    "service_p999_ns",
    "void",
];

/// The slices in the order in which they ran, a header line first. Counters follow the fixed
/// columns, one column each. Lines end in CR LF. A missing figure is empty.
pub fn render(record: &Record) -> String {
    let counters: BTreeSet<&str> =
        record.slices.iter().flat_map(|s| &s.counters).map(|c| c.name.as_str()).collect();
    let mut table = CsvTable::new(COLUMNS.into_iter().chain(counters.iter().copied()));
    for slice in &record.slices {
        let of_counter = |name: &&str| {
            let counter = slice.counters.iter().find(|c| c.name == **name);
            counter.map_or_else(String::new, |c| c.value.to_string())
        };
        table.row(fields(slice).into_iter().chain(counters.iter().map(of_counter)));
    }
    table.finish()
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn fields(slice: &Slice) -> [String; 29] {
    let optional = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
    let sum = |parts: &[(String, u64)]| parts.iter().map(|(_, n)| n).sum::<u64>().to_string();
    let throughput = if slice.window_ns == 0 {
        String::new()
    } else {
        format!("{:.3}", slice.operations as f64 * 1e9 / slice.window_ns as f64)
    };
    let [response, service] = [&slice.response, &slice.service].map(|bytes| histogram(bytes));
    let mean = |h: &Option<Histogram<u64>>| {
        h.as_ref().map_or_else(String::new, |h| format!("{:.0}", h.mean()))
    };
    let at =
        |h: &Option<Histogram<u64>>, q: f64| optional(h.as_ref().map(|h| h.value_at_quantile(q)));
    [
        slice.id.to_string(),
        slice.round.to_string(),
        slice.position.to_string(),
        slice.environment.clone(),
        slice.workload.clone(),
        slice.phase.name().to_string(),
        slice.started_unix_ms.to_string(),
        slice.window_ns.to_string(),
        slice.operations.to_string(),
        throughput,
        sum(&slice.errors),
        slice.unsent.to_string(),
        slice.rate_per_s.map_or_else(String::new, |rate| rate.to_string()),
        slice.system_cpu_ns.to_string(),
        sum(&slice.layer_cpu_ns),
        optional(slice.busy_time.map(|own| own.busy_ns)),
        optional(slice.busy_time.map(|own| own.idle_poll_ns)),
        slice.client_cpu_ns.to_string(),
        optional(slice.throttled_ns),
        mean(&response),
        at(&response, 0.5),
        at(&response, 0.99),
        at(&response, 0.999),
        optional(response.as_ref().map(Histogram::max)),
        mean(&service),
        at(&service, 0.5),
        at(&service, 0.99),
        at(&service, 0.999),
        slice.void.clone().unwrap_or_default(),
    ]
}

fn histogram(bytes: &[u8]) -> Option<Histogram<u64>> {
    Deserializer::new().deserialize(&mut &*bytes).ok().filter(|h: &Histogram<u64>| !h.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn parse(text: &str) -> Vec<Vec<String>> {
        let mut reader =
            ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let row = |row: ::csv::StringRecord| row.iter().map(str::to_string).collect();
        reader.records().map(|record| row(record.unwrap())).collect()
    }

    #[test]
    fn every_slice_is_a_line_and_names_survive() {
        let (mut record, _) = fixture::hostile();
        record.slices[0].environment = "a,\"b\"\r\nc".to_string();
        let rows = parse(&render(&record));
        assert_eq!(rows.len(), record.slices.len() + 1);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        for (row, slice) in rows[1..].iter().zip(&record.slices) {
            let expected = slice.environment.clone();
            assert_eq!(row[3], expected);
            assert_eq!(row[8], slice.operations.to_string());
        }
    }

    #[test]
    fn every_figure_is_a_line_with_its_interval() {
        let (record, analysis) = fixture::hostile();
        let rows = parse(&figures(&analysis));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let hostile = &record.environments[3].spec.name;
        let of = |environment: &str, figure: &str| -> Option<Vec<String>> {
            rows.iter().find(|row| row[1] == environment && row[3] == figure).cloned()
        };
        let p99 = of(hostile, "response_p99_over_baseline").unwrap();
        let number = |at: usize| p99[at].parse::<f64>().unwrap();
        assert!(number(6) <= number(5) && number(5) <= number(7), "{p99:?}");
        assert!(["true", "false"].contains(&p99[10].as_str()), "{p99:?}");
        assert!(of("native", "server_cpu").unwrap()[2] == "baseline");
        assert!(
            of("native", "server_cpu_cost").is_none() && of(hostile, "throughput_cost").is_some()
        );
        // One round gives a figure without bounds.
        let (_, single) = fixture::single_round();
        let rows = parse(&figures(&single));
        let p50 = rows.iter().find(|row| row[3] == "response_p50_over_baseline").unwrap();
        assert!(!p50[5].is_empty() && p50[7].is_empty(), "{p50:?}");
    }

    #[test]
    fn every_second_is_a_line() {
        let (record, _) = fixture::by_second();
        let rows = parse(&seconds(&record));
        let all = record.slices.iter().map(|slice| slice.seconds.load.len()).sum::<usize>();
        assert_eq!(rows.len(), all + 1);
        let (row, second) = (&rows[2], record.slices[0].seconds.load[1]);
        assert_eq!((row[6].as_str(), row[9].clone()), ("1", second.max_ns.to_string()));
    }

    #[test]
    fn an_empty_record_has_a_header() {
        let (record, _) = fixture::empty();
        assert_eq!(render(&record).lines().count(), 1);
    }
}
