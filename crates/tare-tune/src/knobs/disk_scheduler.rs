//! The I/O scheduler of disks.
//!
//! What: `queue/scheduler` of each physical disk: `none` (before blk-mq: `noop`).
//! Why: a scheduler takes a lock and sorts requests for a disk head, which solid-state and virtual
//! disks do not have; engines such as Seastar schedule their own I/O.
//! Source: the kernel's Documentation/block/switching-sched.rst; Oracle's installation guide
//! "Verifying the Disk I/O Scheduler" (none for SSD and NVMe, mq-deadline for rotational disks);
//! seastar's perftune.py.
//! Risk: nothing limits how long writes starve reads on a slow disk; `ionice` and BFQ's weights
//! have no effect. Rotational disks are left alone.

use crate::knobs::Context;
use crate::machine::Disk;
use crate::plan::{Action, Group, Identity, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct DiskScheduler;

/// Schedulers that do not sort, the preferred one first.
const NONE: &[&str] = &["none", "noop"];

impl Knob for DiskScheduler {
    fn name(&self) -> &'static str {
        "disk_scheduler"
    }

    fn group(&self) -> Group {
        Group::Disk
    }

    fn help(&self) -> &'static str {
        "no I/O scheduler on non-rotational disks"
    }

    fn why(&self) -> &'static str {
        "sorting requests costs CPU time and a lock, and a disk without a head gains nothing"
    }

    fn risk(&self) -> &'static str {
        "ionice and BFQ's per-cgroup I/O weights no longer work on this disk"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/block/switching-sched.rst; Oracle Database installation guide, \
         \"Verifying the Disk I/O Scheduler\""
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for disk in context.disks() {
            let Some(path) = disk.setting(context.snapshot, "queue/scheduler") else { continue };
            let Some(now) = context.snapshot.read(&path) else { continue };
            if !context.options.like_perftune && disk.is_rotational(context.snapshot) {
                let action = Action::Leave {
                    now: ValueFormat::Choice.normalize(now),
                    reason: "rotational disk: sorting requests saves seeks".into(),
                };
                items.push(context.line(self, &disk.name, "I/O scheduler", action));
                continue;
            }
            let offered = |name: &&&str| {
                now.split_whitespace().any(|word| word.trim_matches(['[', ']']) == **name)
            };
            let Some(wanted) = NONE.iter().find(offered) else { continue };
            let item = context.item(
                self,
                &disk.name,
                "I/O scheduler",
                Key::file(path),
                ValueFormat::Choice,
                wanted,
            );
            items.extend(item.map(|item| with_disk_identity(context, disk, item)));
        }
        items
    }
}

/// Adds the identity of the disk to a change. It stays the same when the disk gets another name.
pub(super) fn with_disk_identity(context: &Context<'_>, disk: &Disk, mut item: Item) -> Item {
    if let Action::Change(change) = &mut item.action {
        change.identity = Identity {
            pci: disk.pci.clone(),
            irq_name: None,
            device: disk.number(context.snapshot).map(str::to_string),
        };
    }
    item
}
