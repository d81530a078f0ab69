//! Merging of requests.
//!
//! What: `queue/nomerges` of each physical disk: 2, no attempt at all.
//! Why: before it queues a request, the kernel searches for one to merge it with. Random I/O of a
//! database finds none and pays for the search on every request.
//! Source: the kernel's Documentation/ABI/stable/sysfs-block (`nomerges`); seastar's perftune.py.
//! Risk: neighbouring small requests of buffered I/O reach the disk one by one, which costs more on
//! a slow disk or one billed by operations. Rotational disks are left alone.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;
use super::disk_scheduler::with_disk_identity;

#[derive(Debug)]
pub(super) struct DiskNomerges;

impl Knob for DiskNomerges {
    fn name(&self) -> &'static str {
        "disk_nomerges"
    }

    fn group(&self) -> Group {
        Group::Disk
    }

    fn help(&self) -> &'static str {
        "no search for requests to merge"
    }

    fn why(&self) -> &'static str {
        "the search costs CPU time on every request, and random I/O finds nothing to merge"
    }

    fn risk(&self) -> &'static str {
        "small neighbouring requests of buffered I/O reach the disk one by one, which costs on a disk \
         with a quota of operations"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/ABI/stable/sysfs-block (nomerges); seastar's perftune.py"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for disk in context.disks() {
            let Some(path) = disk.setting(context.snapshot, "queue/nomerges") else { continue };
            if !context.options.like_perftune && disk.is_rotational(context.snapshot) {
                let now = context.snapshot.read(&path).unwrap_or_default().to_string();
                let reason =
                    "rotational disk: one large request is cheaper than two small ones".into();
                let action = Action::Leave { now, reason };
                items.push(context.line(self, &disk.name, "nomerges", action));
                continue;
            }
            let key = Key::file(path);
            let item = context.item(self, &disk.name, "nomerges", key, ValueFormat::Text, "2");
            items.extend(item.map(|item| with_disk_identity(context, disk, item)));
        }
        items
    }
}
