//! The section of instances: what each did, and figures over their number.

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::Analysis;
use tare_lab::record::Record;

use super::charts::{OverInstances, over_instances, stacked};
use crate::figures::clean;
use crate::instances::{HEAD, InstanceTables, SAME_CAPTION, SAME_HEAD, SCALING_HEAD, tables};

/// The instances under one workload.
#[derive(Serialize)]
pub(super) struct InstancesView {
    workload: String,
    stacked: Option<Value>,
    times: Option<Value>,
    cpu: Option<Value>,
    head: [&'static str; 6],
    rows: Vec<Vec<String>>,
    scaling_head: [&'static str; 6],
    scaling: Vec<Vec<Vec<String>>>,
    same_caption: &'static str,
    same_head: [&'static str; 5],
    same: Vec<Vec<String>>,
}

impl InstancesView {
    /// A view for each workload with several instances.
    pub(super) fn all(record: &Record, analysis: &Analysis) -> Vec<Self> {
        let all = tables(record, analysis);
        all.iter().enumerate().map(|(id, one)| Self::new(id, one, analysis)).collect()
    }

    fn new(id: usize, of: &InstanceTables, analysis: &Analysis) -> Self {
        let safe = |chart: Option<String>| chart.map(Value::from_safe_string);
        let over = |what, name: &str| over_instances(&of.scaling, what, &format!("{name}-{id}"));
        Self {
            workload: clean(&of.workload),
            stacked: safe(stacked(&of.instances, &format!("instances-stacked-{id}"))),
            times: safe(over(OverInstances::Times, "instances-times")),
            cpu: safe(over(OverInstances::Cpu, "instances-cpu")),
            head: HEAD,
            rows: of.instance_rows(),
            scaling_head: SCALING_HEAD,
            scaling: of.scaling_rows(),
            same_caption: SAME_CAPTION,
            same_head: SAME_HEAD,
            same: of.same_rows(analysis),
        }
    }
}
