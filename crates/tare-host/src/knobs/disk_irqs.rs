//! CPUs of disk interrupts.
//!
//! What: `/proc/irq/N/smp_affinity` of each disk controller's interrupts. Disks with few queues get
//! theirs spread over the CPUs of interrupts. NVMe queues belong to CPUs each: the kernel places and
//! manages their interrupts, and a write is refused. They are left to it, except where it does not
//! manage them (guests of Xen such as AWS i3), where they are spread over all CPUs.
//! Why: a completion that interrupts a polling shard stalls every request of that shard.
//! Source: the kernel's Documentation/core-api/irq/managed_irq.rst and kernel/irq/proc.c (a managed
//! interrupt refuses with EIO or EPERM); seastar #3003 for virtio-blk.
//! Risk: interrupts move to fewer CPUs, which then need the time for them.

use tare_std::cpus::CpuSet;

use crate::machine::{Disk, Irq, Owner};
use crate::plan::spread::spread;
use crate::plan::{Action, Context, Form, Group, Identity, Item, Key, Mode, Need};

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
        "a completion that interrupts a busy compute CPU stalls every request of its shard"
    }

    fn risk(&self) -> &'static str {
        "the CPUs of interrupts need the time for them; a busy disk can fill one"
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
        let all = interrupts(context.disks());
        let (nvme, other): (Vec<_>, Vec<_>) = all.into_iter().partition(|(disk, _)| disk.nvme);
        let cpus = context.cpus;
        let (managed, free): (Vec<_>, Vec<_>) =
            other.into_iter().partition(|(_, irq)| irq.managed == Some(true) && !perftune);
        let mut items = self.place(context, &free, &cpus.irq);
        items.extend(managed.iter().filter_map(|(disk, irq)| self.left(context, disk, irq)));
        // Guests of Xen have event channels instead of MSI vectors that the kernel could manage.
        let xen = context.snapshot.read("/sys/hypervisor/type") == Some("xen");
        let (free, managed): (Vec<_>, Vec<_>) = nvme.into_iter().partition(|(_, irq)| match xen {
            true => is_queue_of(irq, cpus.universe.len()),
            false => perftune || irq.managed == Some(false),
        });
        items.extend(self.place(context, &free, &cpus.universe));
        if !perftune {
            items.extend(managed.iter().filter_map(|(disk, irq)| self.left(context, disk, irq)));
        }
        items
    }
}

impl DiskIrqs {
    /// Spreads interrupts over CPUs.
    fn place(&self, context: &Context<'_>, irqs: &[(&Disk, &Irq)], cpus: &CpuSet) -> Vec<Item> {
        let slots = spread(&context.machine.topology, cpus, irqs.len());
        let mut items = Vec::new();
        for ((disk, irq), cpu) in irqs.iter().zip(slots) {
            let wanted = CpuSet::from_iter([cpu]).to_kernel_mask();
            let key = Key::file(affinity(irq));
            let Some(mut item) =
                context.item(self, &disk.name, &what(irq), key, Form::Mask, &wanted)
            else {
                continue;
            };
            let over = if disk.nvme { "all CPUs" } else { "the CPUs of interrupts" };
            item.why = format!(
                "the {} disk interrupts of this kind are spread over {over} ({cpus}); {}",
                irqs.len(),
                Knob::why(self)
            );
            if let Action::Change(change) = &mut item.action {
                // Whether the kernel manages it is often known only from its refusal.
                change.need = Need::Try;
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

    /// The line of an interrupt that the kernel places.
    fn left(&self, context: &Context<'_>, disk: &Disk, irq: &Irq) -> Option<Item> {
        let now = context.snapshot.read(&affinity(irq))?;
        let action = Action::Leave {
            now: Form::Mask.tidy(now),
            reason: "the kernel gave this queue to CPUs of its own and moves it with them".into(),
        };
        let mut item = context.line(self, &disk.name, &what(irq), action);
        item.why = "each CPU completes what it submitted, so no other CPU is disturbed".into();
        item.risk = String::new();
        item.owner = Some(Owner {
            name: "the kernel".into(),
            evidence: match irq.managed {
                Some(true) => "its affinity is managed (debugfs, irq/irqs)".into(),
                _ => "the NVMe driver asks for managed affinity".into(),
            },
            effect: "refuses writes to smp_affinity".into(),
        });
        Some(item)
    }
}

/// Every interrupt with its disk, each once: disks of one controller share theirs.
fn interrupts(disks: &[Disk]) -> Vec<(&Disk, &Irq)> {
    let mut seen = std::collections::BTreeSet::new();
    let all = disks.iter().flat_map(|disk| disk.irqs.iter().map(move |irq| (disk, irq)));
    all.filter(|(_, irq)| seen.insert(irq.number)).collect()
}

/// True for `nvme0q1` to `nvme0qN` on N CPUs: not the admin queue 0, nor queues beyond the CPUs, which
/// a driver may name without using them.
fn is_queue_of(irq: &Irq, cpus: usize) -> bool {
    let queue = irq.name.rsplit_once('q').and_then(|(_, queue)| queue.parse::<usize>().ok());
    queue.is_some_and(|queue| (1..=cpus).contains(&queue))
}

fn affinity(irq: &Irq) -> String {
    format!("/proc/irq/{}/smp_affinity", irq.number)
}

fn what(irq: &Irq) -> String {
    format!("CPUs of interrupt {} ({})", irq.number, irq.name)
}
