//! Groups doubts by environment and workload, or for the whole record, and adds the doubts that
//! need the analysis: about the control and the number of rounds.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::cells::{Cell, Series};
use super::claims::CostKind;
use crate::doubt::Doubt;
use crate::record::{EnvironmentRecord, Phase, Record, Slice};
use crate::study::ScheduleSpec;
use tare_stats::{ROUNDS_MIN, estimate};

/// The share of slices without an operation above which they are a doubt. What they lacked would
/// change a mean by as much.
const EMPTY_SHARE: f64 = 0.01;

/// The rise of throughput from the first third of the rounds to the last above which a system was
/// not warm, and the fewest rounds of a third. Hosts themselves drift by some percent.
const WARMING_SHARE: f64 = 0.15;
const WARMING_ROUNDS: u32 = 4;

/// Returns the doubts about an environment and its slices: each kind once, at its worst, with the
/// number of affected slices. A doubt about the environment affects all of them.
pub(super) fn about_environment(
    record: &Record,
    workload: &str,
    environment: &str,
) -> Vec<(Doubt, u32)> {
    // Traced slices supply no figures, so their doubts do not count.
    let slices = record.slices.iter().filter(|s| s.phase != Phase::Traced);
    let slices = slices.filter(|s| s.workload == workload && s.environment == environment);
    let ids: BTreeSet<i64> = slices.map(|slice| slice.id).collect();
    let mut kinds: Vec<(String, Doubt, BTreeSet<i64>)> = Vec::new();
    for entry in &record.doubts {
        let touched = match (entry.slice, &entry.environment) {
            (Some(slice), _) if ids.contains(&slice) => BTreeSet::from([slice]),
            (None, Some(name)) if name == environment => ids.clone(),
            _ => continue,
        };
        let kind = kind(&entry.doubt);
        match kinds.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, doubt, all)) => {
                worsen(doubt, &entry.doubt);
                all.extend(touched);
            }
            None => kinds.push((kind, entry.doubt.clone(), touched)),
        }
    }
    let count = |ids: BTreeSet<i64>| u32::try_from(ids.len()).unwrap_or(u32::MAX);
    kinds.into_iter().map(|(_, doubt, touched)| (doubt, count(touched))).collect()
}

/// Returns the key by which doubts are grouped.
fn kind(doubt: &Doubt) -> String {
    match doubt {
        Doubt::LayerNotInForce { layer, .. } => format!("layer {layer}"),
        Doubt::ProbeFailed { probe, .. } => format!("probe {probe}"),
        Doubt::LoaderLate { loader, .. }
        | Doubt::LoaderClock { loader, .. }
        | Doubt::LoaderSaturated { loader, .. } => format!("{} {loader}", doubt.kind()),
        Doubt::EnvironmentLeftOut { environment, .. } => format!("left out {environment}"),
        Doubt::BaselineNotClean { found } => format!("baseline {found}"),
        Doubt::BackgroundWork { work, .. } => format!("background {work}"),
        other => format!("{:?}", std::mem::discriminant(other)),
    }
}

/// Merges two doubts of one kind into the worse one; counts add up.
fn worsen(doubt: &mut Doubt, other: &Doubt) {
    match (doubt, other) {
        (Doubt::Steal { share }, Doubt::Steal { share: other })
        | (Doubt::Strangers { share }, Doubt::Strangers { share: other })
        | (Doubt::LoaderLate { share, .. }, Doubt::LoaderLate { share: other, .. })
        | (Doubt::LoaderClock { share, .. }, Doubt::LoaderClock { share: other, .. })
        | (Doubt::Throttled { share }, Doubt::Throttled { share: other }) => {
            *share = share.max(*other);
        }
        (
            Doubt::BackgroundWork { share: Some(share), .. },
            Doubt::BackgroundWork { share: Some(other), .. },
        ) => *share = share.max(*other),
        (
            Doubt::ClientSaturated { share, busiest_thread_share: thread },
            Doubt::ClientSaturated { share: other, busiest_thread_share: other_thread },
        ) if Doubt::client_use(*other, *other_thread) > Doubt::client_use(*share, *thread) => {
            (*share, *thread) = (*other, *other_thread);
        }
        (
            Doubt::LoaderSaturated { share, waited_share: waited, .. },
            Doubt::LoaderSaturated { share: other, waited_share: other_waited, .. },
        ) => {
            *share = share.max(*other);
            *waited = waited
                .map_or(*other_waited, |waited| Some(waited.max(other_waited.unwrap_or(0.0))));
        }
        (
            Doubt::NeitherSaturated { system_share, client_share },
            Doubt::NeitherSaturated { system_share: other, client_share: client },
        ) if other < system_share => {
            (*system_share, *client_share) = (*other, *client);
        }
        (
            Doubt::RateNotReached { asked_per_s, reached_per_s },
            Doubt::RateNotReached { asked_per_s: asked, reached_per_s: reached },
        ) if reached / asked < *reached_per_s / *asked_per_s => {
            (*asked_per_s, *reached_per_s) = (*asked, *reached);
        }
        (
            Doubt::OperationErrors { count, operations, .. },
            Doubt::OperationErrors { count: more, operations: of, .. },
        ) => {
            *count += more;
            *operations += of;
        }
        _ => {}
    }
}

/// Adds to each finding the doubts about its claims: a found cost that the control's cost of the
/// same kind reaches, and a cost with fewer rounds than the rest of the record.
pub(super) fn about_claims(findings: &mut [Finding], rounds: u32) {
    let controls: Vec<Finding> = findings.iter().filter(|f| f.control).cloned().collect();
    for finding in findings.iter_mut().filter(|f| !f.control && !f.baseline) {
        let reached = controls.iter().filter(|control| control.workload == finding.workload);
        let reached = reached
            .flat_map(|control| CostKind::ALL.map(|kind| (kind.cost(control), kind.cost(finding))));
        let reached = reached.filter_map(|costs| {
            let (control, claim) = (costs.0?, costs.1.filter(|cost| cost.found)?);
            let (control, claim) = (control.percent.value, claim.percent.value);
            (control.abs() >= claim.abs()).then_some((control, claim.abs()))
        });
        let worst = reached.max_by(|a, b| (a.0.abs() - a.1).total_cmp(&(b.0.abs() - b.1)));
        if let Some((control_percent, smallest_percent)) = worst {
            let doubt = Doubt::ControlBeyondClaim { control_percent, smallest_percent };
            finding.doubts.push((doubt, finding.slices));
        }
        let own = finding.cpu_cost().map_or(0, |cost| cost.percent.rounds);
        if own < ROUNDS_MIN && rounds >= ROUNDS_MIN {
            finding.doubts.push((Doubt::FewRounds { rounds: own }, finding.slices));
        }
    }
}

/// Returns the doubt about an environment whose runtime has a control that was left out.
pub(super) fn about_runtime(record: &Record, environment: &EnvironmentRecord) -> Option<Doubt> {
    let spec = &environment.spec;
    let control = super::runtime_control(record, spec, |one| one.left_out.is_some())?;
    let reason = control.left_out.clone()?;
    let reason = format!("\"{}\" was left out: {reason}", control.spec.name);
    Some(Doubt::NoRuntimeControl { runtime: spec.runtime.to_string(), reason })
}

/// Returns the doubt that an environment had many slices in which no operation ended.
pub(super) fn about_empty_slices(
    record: &Record,
    workload: &str,
    environment: &str,
) -> Option<(Doubt, u32)> {
    let slices = record.slices.iter().filter(|slice| slice.phase != Phase::Traced);
    let ours = slices.filter(|s| s.workload == workload && s.environment == environment);
    // A slice that could not be measured has no window.
    let is_empty = |slice: &&Slice| slice.void.is_some() && slice.operations == 0;
    let measured = ours.filter(|slice| slice.window_ns > 0);
    let (empty, all) =
        measured.fold((0, 0), |(empty, all), s| (empty + u32::from(is_empty(&s)), all + 1));
    let share = f64::from(empty) / f64::from(all.max(1));
    (share > EMPTY_SHARE).then_some((Doubt::EmptySlices { slices: empty, of: all }, empty))
}

/// Returns the doubt that an environment became much faster during the rounds.
pub(super) fn about_warming(capacity: &Series, schedule: &ScheduleSpec) -> Option<Doubt> {
    let logs = capacity.logs(Cell::throughput_per_s);
    let third = logs.len() / 3;
    let (first, last) = (estimate(&logs[..third])?, estimate(&logs[logs.len() - third..])?);
    let rose = last.centre - first.centre;
    let is_certain = first.rounds >= WARMING_ROUNDS && first.high < last.low;
    (is_certain && rose > (1.0 + WARMING_SHARE).ln()).then(|| Doubt::StillWarming {
        percent: 100.0 * rose.exp_m1(),
        warm_up_s: Some(schedule.warm_up.as_secs_f64()).filter(|s| *s > 0.0),
    })
}

/// Returns the doubts about the whole record.
pub(super) fn about_record(record: &Record, findings: &[Finding], rounds: u32) -> Vec<Doubt> {
    let left_out: BTreeMap<&str, &str> = record
        .environments
        .iter()
        .filter_map(|e| Some((e.spec.name.as_str(), e.left_out.as_deref()?)))
        .collect();
    let mut doubts: Vec<(String, Doubt)> = Vec::new();
    let mut add = |doubt: &Doubt| {
        let kind = kind(doubt);
        match doubts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, known)) => worsen(known, doubt),
            None => doubts.push((kind, doubt.clone())),
        }
    };
    for entry in &record.doubts {
        // Otherwise a doubt about an environment without a finding would be lost.
        let unassigned = match &entry.environment {
            None => true,
            Some(name) => left_out.contains_key(name.as_str()),
        };
        if entry.slice.is_none() && unassigned {
            add(&entry.doubt);
        }
    }
    for (environment, reason) in left_out {
        let (environment, reason) = (environment.to_string(), reason.to_string());
        add(&Doubt::EnvironmentLeftOut { environment, reason });
    }
    let compared = findings.iter().any(|finding| !finding.baseline && finding.slices > 0);
    if compared && rounds < ROUNDS_MIN {
        add(&Doubt::FewRounds { rounds });
    }
    if let Some(doubt) = control_beyond_claim(findings) {
        add(&doubt);
    }
    doubts.into_iter().map(|(_, doubt)| doubt).collect()
}

/// Returns a doubt if the interval of the A/A control's server CPU per operation excludes 0, or if
/// the control is larger than the smallest found cost under the same workload. Of several
/// workloads, it returns the one with the largest control.
fn control_beyond_claim(findings: &[Finding]) -> Option<Doubt> {
    let beyond = findings.iter().filter(|finding| finding.control).filter_map(|control| {
        let cost = control.cpu_cost()?;
        let others = findings.iter().filter(|f| !f.control && f.workload == control.workload);
        let claims = others.filter_map(Finding::cpu_cost).filter(|claim| claim.found);
        let smallest = claims.map(|claim| claim.percent.value.abs()).min_by(f64::total_cmp);
        let control_percent = cost.percent.value;
        let reached = smallest.is_some_and(|smallest| control_percent.abs() > smallest);
        (cost.found || reached).then_some((control_percent, smallest.unwrap_or(0.0)))
    });
    let (control_percent, smallest_percent) =
        beyond.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    Some(Doubt::ControlBeyondClaim { control_percent, smallest_percent })
}
