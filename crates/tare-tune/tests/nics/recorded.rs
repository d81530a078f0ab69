//! The plan of a guest with a virtio-net card of four queues, as `tare host record` saved it there.

use std::fmt::Write;
use std::path::Path;

use super::*;

/// Formats each item of the card with its value and action.
fn lines(plan: &Plan) -> String {
    let mut text = String::new();
    for item in &plan.items {
        let action = match &item.action {
            Action::Change(change) => format!("{} -> {}", change.now, change.wanted),
            Action::AlreadySet { now } => format!("{now}, right already"),
            Action::Leave { now, reason } => format!("{now}, left: {reason}"),
            Action::Advise { now, wanted, .. } => format!("{now}, {wanted} by hand"),
        };
        let _ = writeln!(text, "{} {}: {}: {action}", item.knob, item.subject, item.what);
    }
    text
}

#[test]
fn recorded_guest_has_its_plan() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/recorded");
    let snapshot = Snapshot::load(&hosts.join("qemu-virtio-4")).unwrap();
    let only = vec!["interrupts".into(), "network".into()];
    let shared = Options { only: only.clone(), ..Options::default() };
    let apart =
        Options { irq_cpus: Some("0-1".parse().unwrap()), ring: Some(128), ..shared.clone() };
    let text = format!(
        "# Interrupts on all CPUs\n{}\n# Interrupts on CPUs 0-1, rings of 128\n{}",
        lines(&planned(&snapshot, &shared)),
        lines(&planned(&snapshot, &apart))
    );
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nics/qemu-virtio-4.txt");
    tare_testkit::golden(&golden, text);
}
