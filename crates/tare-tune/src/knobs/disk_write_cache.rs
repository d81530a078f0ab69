//! Whether the kernel assumes that a disk has a volatile write cache.
//!
//! What: `queue/write_cache` of each physical disk, only on request.
//! Why: with `write through` the kernel sends no flushes. That is right for a disk that cannot lose
//! acknowledged writes (battery, capacitors, most cloud disks) but reports a volatile cache.
//! Source: the kernel's Documentation/ABI/stable/sysfs-block (`write_cache`): changing it does not
//! change the device, only whether flushes are sent.
//! Risk: `write through` on a disk with a volatile cache loses acknowledged data on power failure.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;
use super::disk_scheduler::with_disk_identity;

#[derive(Debug)]
pub(super) struct DiskWriteCache;

impl Knob for DiskWriteCache {
    fn name(&self) -> &'static str {
        "disk_write_cache"
    }

    fn group(&self) -> Group {
        Group::Disk
    }

    fn help(&self) -> &'static str {
        "whether flushes are sent to disks (changed only on request)"
    }

    fn why(&self) -> &'static str {
        "every sync waits for a flush, which a disk without a volatile cache does not need"
    }

    fn risk(&self) -> &'static str {
        "acknowledged data is lost on power failure with write through on a disk with a volatile cache"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/ABI/stable/sysfs-block (write_cache)"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        for disk in context.disks() {
            let Some(path) = disk.setting(context.snapshot, "queue/write_cache") else { continue };
            let what = "write cache";
            match context.options.write_back_cache {
                Some(back) => {
                    let wanted = if back { "write back" } else { "write through" };
                    let key = Key::file(path);
                    let item = context.item(self, &disk.name, what, key, ValueFormat::Text, wanted);
                    items.extend(item.map(|item| with_disk_identity(context, disk, item)));
                }
                None if context.options.like_perftune => {}
                None => {
                    let now = context.snapshot.read(&path).unwrap_or_default().to_string();
                    let reason =
                        "only someone who knows the disk can decide; changed on request".into();
                    let action = Action::Leave { now, reason };
                    items.push(context.line(self, &disk.name, what, action));
                }
            }
        }
        items
    }
}
