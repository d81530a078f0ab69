//! CPUs of disk interrupts.
//!
//! What: `/proc/irq/N/smp_affinity` of each disk controller's interrupts. The interrupts of disks
//! with few queues are spread over the interrupt CPUs. Each queue of an NVMe or virtio disk belongs
//! to certain CPUs: the kernel places and manages its interrupt and refuses writes, so Tare leaves
//! it alone. Where the kernel does not manage them (Xen guests such as AWS i3), NVMe interrupts are
//! spread over all CPUs.
//! Why: a completion that interrupts a polling shard stalls every request of that shard.
//! Source: the kernel's Documentation/core-api/irq/managed_irq.rst and kernel/irq/proc.c (a managed
//! interrupt refuses with EIO or EPERM); seastar #3003 for virtio-blk.
//! Risk: interrupts move to fewer CPUs, which need CPU time for them.

use tare_std::cpus::CpuSet;

use crate::knobs::Context;
use crate::machine::{Disk, Irq, Owner};
use crate::plan::spread::spread;
use crate::plan::{Action, Group, Identity, Item, Key, Mode, Requirement, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct DiskIrqs;

impl Knob for DiskIrqs {
    fn name(&self) -> &'static str {
        "disk_irqs"
    }

    fn group(&self) -> Group {
        Group::Disk
    }

    fn help(&self) -> &'static str {
        "which CPUs take the interrupts of disks"
    }

    fn why(&self) -> &'static str {
        "every request of a shard stalls while its compute CPU handles a completion interrupt"
    }

    fn risk(&self) -> &'static str {
        "a busy disk can use up an interrupt CPU"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/core-api/irq/managed_irq.rst, kernel/irq/proc.c; seastar #3003"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let perftune = context.options.like_perftune;
        if context.options.mode == Mode::None && !perftune {
            return Vec::new();
        }
        let cpus = context.cpus;
        // Xen guests have event channels, which the kernel does not manage, instead of vectors.
        let xen = context.snapshot.read("/sys/hypervisor/type") == Some("xen");
        let (mut few, mut nvme, mut managed) = (Vec::new(), Vec::new(), Vec::new());
        for (disk, irq) in interrupts(context.disks()) {
            let is_queue = !disk.nvme || is_queue_of(irq, cpus.universe.len());
            let is_managed = match irq.managed {
                Some(managed) => managed,
                None => !xen && (disk.nvme || is_virtio_request(irq)),
            };
            match (disk.nvme, perftune || !is_managed) {
                (false, true) => few.push((disk, irq)),
                (true, true) if is_queue || (perftune && !xen) => nvme.push((disk, irq)),
                (_, false) if is_queue => managed.push((disk, irq)),
                // An admin queue is idle while requests run.
                _ => {}
            }
        }
        let mut items = self.spread_over(context, &few, &cpus.irq);
        items.extend(self.spread_over(context, &nvme, &cpus.universe));
        for group in managed.chunk_by(|(a, _), (b, _)| a.path == b.path) {
            items.push(self.left_to_kernel(context, group));
        }
        items
    }
}

impl DiskIrqs {
    /// Spreads interrupts over CPUs.
    fn spread_over(
        &self,
        context: &Context<'_>,
        irqs: &[(&Disk, &Irq)],
        cpus: &CpuSet,
    ) -> Vec<Item> {
        let slots = spread(&context.machine.topology, cpus, irqs.len());
        let nvme = irqs.first().is_some_and(|(disk, _)| disk.nvme);
        let over = if nvme { "all CPUs" } else { "the interrupt CPUs" };
        let why = format!(
            "{} disk interrupts of this kind are spread over {over} ({cpus}); {}",
            irqs.len(),
            Knob::why(self)
        );
        let mut items = Vec::new();
        for ((disk, irq), cpu) in irqs.iter().zip(slots) {
            let wanted = CpuSet::from_iter([cpu]).to_kernel_mask();
            let key = Key::file(affinity(irq));
            let Some(mut item) =
                context.item(self, &disk.name, &what(irq), key, ValueFormat::Mask, &wanted)
            else {
                continue;
            };
            item.why.clone_from(&why);
            if let Action::Change(change) = &mut item.action {
                // Often only a refused write shows that the kernel manages the interrupt.
                change.requirement = Requirement::BestEffort;
                change.identity = Identity {
                    pci: irq.pci.clone(),
                    irq_name: Some(irq.name.clone()),
                    device: disk.number(context.snapshot).map(str::to_string),
                };
            }
            items.push(item);
        }
        items
    }

    /// Returns one item for all interrupts of a disk that the kernel places. There may be one
    /// interrupt per CPU.
    fn left_to_kernel(&self, context: &Context<'_>, group: &[(&Disk, &Irq)]) -> Item {
        let (disk, first) = group[0];
        let (_, last) = group[group.len() - 1];
        let action = Action::Leave {
            now: "where the kernel put them".into(),
            reason: "the kernel gave each queue its own CPUs and refuses to move them".into(),
        };
        let what = match group.len() {
            1 => what(first),
            count => format!("CPUs of {count} interrupts ({} to {})", first.name, last.name),
        };
        let mut item = context.line(self, &disk.name, &what, action);
        item.why =
            "no other CPU is disturbed: each completes the requests that it submitted".into();
        item.risk = String::new();
        item.owner = Some(Owner {
            name: "the kernel".into(),
            evidence: match first.managed {
                Some(true) => "debugfs shows managed affinity".into(),
                _ if disk.nvme => "the NVMe driver requests managed affinity".into(),
                _ => "the virtio driver requests managed affinity".into(),
            },
            effect: "refuses writes to smp_affinity".into(),
        });
        item
    }
}

/// Lists every interrupt once, with its disk. Disks of one controller share interrupts.
fn interrupts(disks: &[Disk]) -> Vec<(&Disk, &Irq)> {
    let mut seen = std::collections::BTreeSet::new();
    let all = disks.iter().flat_map(|disk| disk.irqs.iter().map(move |irq| (disk, irq)));
    all.filter(|(_, irq)| seen.insert(irq.number)).collect()
}

/// Returns true for `nvme0q1` to `nvme0qN` on N CPUs, but not for the admin queue 0 or for queues
/// beyond the number of CPUs, which a driver may name without using them.
fn is_queue_of(irq: &Irq, cpus: usize) -> bool {
    let queue = irq.name.rsplit_once('q').and_then(|(_, queue)| queue.parse::<usize>().ok());
    queue.is_some_and(|queue| (1..=cpus).contains(&queue))
}

/// Returns true for the request queues of virtio_blk (`virtio1-req.0`) and virtio_scsi
/// (`virtio1-request`). The kernel has placed them since Linux 4.11 (drivers/block/virtio_blk.c
/// `init_vq`, drivers/scsi/virtio_scsi.c `virtscsi_init`).
fn is_virtio_request(irq: &Irq) -> bool {
    let queue = irq.name.strip_prefix("virtio").and_then(|rest| rest.split_once('-'));
    queue.is_some_and(|(_, queue)| queue.starts_with("req.") || queue == "request")
}

fn affinity(irq: &Irq) -> String {
    format!("/proc/irq/{}/smp_affinity", irq.number)
}

fn what(irq: &Irq) -> String {
    format!("CPUs of interrupt {} ({})", irq.number, irq.name)
}
