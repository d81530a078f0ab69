//! `kvm`: how often guests of this host exited to the hypervisor.
//! Source: `/sys/kernel/debug/kvm/exits`, virt/kvm/kvm_main.c, the sum over all guests.

use crate::source::GrowthProbe;
use crate::{CounterKind, ProbeKind};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "kvm",
    help: "exits of all guests on this host",
    needs: "/sys/kernel/debug/kvm/exits (the KVM module, and debugfs mounted)",
    limits: "guests outside the study count too; a host without KVM has no such counter",
    optional: true,
    disturbs: false,
    counters: &[CounterKind {
        name: "kvm_exits",
        help: "exits of a guest's CPU to the hypervisor",
    }],
    open: |roots, _| {
        let path = roots.sys.join("kernel/debug/kvm/exits");
        GrowthProbe::open(&KIND, &path, "number", 1.0, |text| text.trim().parse().ok())
    },
};
