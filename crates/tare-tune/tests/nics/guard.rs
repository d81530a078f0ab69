//! The guard against more queues on an interrupt CPU than it can serve.

use tare_tune::plan::{self, GuardError, Options, PlanError};
use tare_tune::planner;
use tare_tune::snapshot::{Node, Snapshot};

use super::{host, options, planned};

/// Returns 32 CPUs with a device of 32 queues whose channels cannot be set.
fn fixed_queues() -> Snapshot {
    let mut snapshot = host(16, "gve", 32).build();
    snapshot.remove("/tare/ethtool/eth0/channels");
    snapshot
}

fn refused(snapshot: &Snapshot, options: &Options) -> GuardError {
    match planner::plan(snapshot, options) {
        Err(PlanError::Guard(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// Adds two readings of /proc/stat, between which every CPU spent `hundredths` of 100 in softirqs.
fn measured(snapshot: &mut Snapshot, cpus: u32, hundredths: u32) {
    let stat = |part: u32| -> String {
        let of_softirq = part * hundredths;
        let idle = part * (100 - hundredths);
        let lines = (0..cpus).map(|cpu| format!("cpu{cpu} 0 0 0 {idle} 0 0 {of_softirq} 0 0 0"));
        lines.collect::<Vec<_>>().join("\n")
    };
    snapshot.insert("/tare/load/stat-0", Node::File(stat(1)));
    snapshot.insert("/tare/load/stat-1", Node::File(stat(2)));
}

#[test]
fn seastar_2350_refuses_all_queues_on_one_cpu() {
    let one = Options { irq_cpus: Some("0".parse().unwrap()), ..options() };
    let error = refused(&fixed_queues(), &one);
    let GuardError::Queues { queues, cpus, .. } = &error else { panic!("{error}") };
    assert_eq!((*queues, *cpus), (32, 1));
    let text = error.to_string();
    assert!(text.contains("eth0: 32") && text.contains("--mode mq"), "{text}");
    assert!(text.contains("--irq-cpus") && !text.contains("--ratio"), "{text}");
    // If its channels can be set it gets one queue, but as many packets: 31 CPUs compute.
    let error = refused(&host(16, "ena", 32).build(), &one);
    assert!(matches!(error, GuardError::Compute { compute: 31, cpus: 1, .. }), "{error}");
    // The smaller machine is planned.
    planned(&host(15, "ena", 32).build(), &one);
    // Nothing is refused if the interrupts are not changed.
    planned(&fixed_queues(), &Options { except: vec!["interrupts".into()], ..one.clone() });
    // The plan of perftune.py is shown with a warning.
    let like = planned(&fixed_queues(), &Options { like_perftune: true, ..one });
    assert!(like.notes.iter().any(|note| note.contains("would be refused")), "{:?}", like.notes);
}

#[test]
fn advice_names_ratio_that_passes() {
    // 32 queues on one core's two threads; with a ratio of 8 they go to two cores' four.
    let error = refused(&fixed_queues(), &options()).to_string();
    assert!(error.contains("16 each") && error.contains("--ratio 15 or less"), "{error}");
    planned(&fixed_queues(), &Options { ratio: Some(15), ..options() });
    // Four cores give one thread with any ratio.
    let mut small = host(4, "ena", 16).build();
    small.remove("/tare/ethtool/eth0/channels");
    let error = refused(&small, &options()).to_string();
    assert!(error.contains("no --ratio suffices"), "{error}");
    planned(&small, &Options { mode: plan::Mode::Mq, ..options() });
}

#[test]
fn measured_load_overrides_policy() {
    let snapshot = |hundredths| {
        let mut snapshot = host(16, "ena", 8).build();
        measured(&mut snapshot, 32, hundredths);
        snapshot
    };
    // 32 CPUs, each 6 % in softirqs: the time of 1.92 CPUs on two CPUs.
    let error = refused(&snapshot(6), &options());
    let GuardError::Load { share, .. } = &error else { panic!("{error}") };
    assert!((share - 0.96).abs() < 1e-9, "{share}");
    assert!(error.to_string().contains("--ratio"), "{error}");
    let noted = planned(&snapshot(4), &options());
    assert!(noted.notes.iter().any(|note| note.contains("0.64 of each")), "{:?}", noted.notes);
    let calm = planned(&snapshot(2), &options());
    assert!(calm.notes.iter().all(|note| !note.contains("of each")), "{:?}", calm.notes);
    // 32 queues on two CPUs: the policy refuses on an idle host, a measured light load does not.
    let mut fixed = fixed_queues();
    refused(&fixed, &options());
    measured(&mut fixed, 32, 1);
    planned(&fixed, &options());
}
