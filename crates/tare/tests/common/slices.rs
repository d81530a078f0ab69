//! The slices of a record that loaders have measured.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serde_json::Value;
use tare_lab::loader::VOID_SHARE;

/// Returns the slices of a record that were measured. Checks that two loaders have a part of each,
/// and that its operations are their sum.
pub(crate) fn summed(record: &Value) -> Vec<&Value> {
    let slices = record["slices"].as_array().unwrap();
    let measured: Vec<&Value> = slices.iter().filter(|one| is_measured(one)).collect();
    for slice in &measured {
        let parts = slice["loaders"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|one| one["operations"].as_u64().unwrap()).sum();
        assert_eq!((parts.len(), Some(sum)), (2, slice["operations"].as_u64()), "{slice}");
    }
    measured
}

/// Returns whether a slice was measured. That a busy machine let a loader begin late makes it void,
/// and its figures are there all the same. Checks that a loader was late then.
fn is_measured(slice: &Value) -> bool {
    let Some(why) = slice["void"].as_str() else { return true };
    if !why.contains("away from that of the accounts") {
        return false;
    }
    let least = VOID_SHARE * slice["window_ns"].as_f64().unwrap();
    let is_late = |loader: &Value| {
        let edges = ["begin_offset_ns", "end_offset_ns"];
        edges.iter().any(|edge| loader[*edge].as_f64().unwrap().abs() > least)
    };
    assert!(slice["loaders"].as_array().unwrap().iter().any(is_late), "{slice}");
    true
}
