//! Which account the CPU time of a system that polls is: its own of its busy time, or none.

use tare_lab::analysis::Finding;
use tare_lab::doubt::Doubt;
use tare_lab::probe::names;
use tare_lab::record::Record;

const SUBTRACTED: &str = "The idle polling that a system reports is subtracted.";
const EVENT_LOOPS: &str = "Of a system that polls it is the busy time of its event loops (reactors), by its own metrics, for the \
     requests that it served; the CPU time of its process is that of polling.";
const NO_ACCOUNT: &str = "Where a system polls and its busy time is unknown, it is the CPU time of polling, and no cost is claimed.";

/// Returns what a reader has to know about the server CPU of these findings.
pub(crate) fn sentences(record: &Record, findings: &[&Finding]) -> Vec<&'static str> {
    let is_of = |workload: &str| findings.iter().any(|finding| finding.workload == workload);
    let mut slices = record.slices.iter().filter(|slice| is_of(&slice.workload));
    let event_loops =
        slices.any(|slice| slice.counters.iter().any(|one| names::is_loop_busy(&one.name)));
    let subtracted = findings.iter().any(|finding| finding.server_cpu_is_busy_time);
    let mut doubts = findings.iter().flat_map(|finding| &finding.doubts);
    let unknown = doubts.any(|(doubt, _)| matches!(doubt, Doubt::NoPollingAccount { .. }));
    let account = match (event_loops, subtracted) {
        (true, _) => Some(EVENT_LOOPS),
        (false, true) => Some(SUBTRACTED),
        (false, false) => None,
    };
    account.into_iter().chain(unknown.then_some(NO_ACCOUNT)).collect()
}
