//! Properties of every plan of network devices.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tare_tune::fixture::{Cpus, Host, Nic, Numbering};
use tare_tune::machine::{Interrupts, nics};
use tare_tune::plan::{self, Mode, Options, PlanError};
use tare_tune::planner;

use super::{apply, placed, planned};

const DRIVERS: &[&str] =
    &["virtio_net", "ena", "ixgbe", "i40e", "mlx4_en", "mlx5_core", "gve", "mana", "vmxnet3"];

fn nic() -> impl Strategy<Value = (usize, u32, u32)> {
    (0..DRIVERS.len(), 1..20u32, 0..20u32)
}

fn hosts() -> impl Strategy<Value = Host> {
    let cpus = (1..3u32, 1..24u32, 1..3u32, any::<bool>());
    let nics = proptest::collection::vec(nic(), 1..4);
    (cpus, nics).prop_map(|((nodes, cores, threads, split), nics)| {
        let numbering = if split { Numbering::Split } else { Numbering::Adjacent };
        let nics = nics.iter().zip(0..).map(|((driver, queues, more), index)| Nic {
            channels_max: queues + more,
            ..Nic::new(&format!("eth{index}"), DRIVERS[*driver], *queues)
        });
        Host {
            nics: nics.collect(),
            cpus: Cpus { numbering, ..Cpus::new(nodes, cores, threads) },
            ..Host::default()
        }
    })
}

fn requested() -> impl Strategy<Value = Options> {
    let modes = [Mode::Auto, Mode::Mq, Mode::Sq, Mode::SqSplit, Mode::None];
    let mode = prop::sample::select(modes.to_vec());
    let part = prop::sample::select(vec![
        vec!["network".to_string(), "nic_irqs".into()],
        vec!["nic_irqs".into()],
        vec!["rps".into(), "rfs".into(), "xps".into()],
    ]);
    let queues = prop::option::of(1..16u32);
    (mode, any::<bool>(), queues, prop::option::of(any::<bool>()), part).prop_map(
        |(mode, like_perftune, rx_queues, arfs, only)| Options {
            mode,
            like_perftune,
            rx_queues,
            arfs,
            only,
            ..Options::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn applied_plan_leaves_no_changes(host in hosts(), options in requested()) {
        let mut snapshot = host.build();
        match planner::plan(&snapshot, &options) {
            Ok(_) => {}
            // One thread cannot be divided, and too many queues are refused.
            Err(PlanError::CpuSets(_) | PlanError::Guard(_)) => return Ok(()),
            Err(error) => panic!("{error}"),
        }
        apply(&mut snapshot, &options);
        let again = planned(&snapshot, &options);
        let left: Vec<_> = again.changes().map(|(item, _)| item).collect();
        prop_assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn interrupts_are_even_on_interrupt_cpus(host in hosts(), mut options in requested()) {
        options.only.clear();
        let snapshot = host.build();
        let Ok(plan) = planner::plan(&snapshot, &options) else { return Ok(()) };
        let changes = plan.changes().filter(|(item, _)| item.knob == "nic_irqs");
        let mut of_devices: BTreeMap<(&str, bool), BTreeMap<u32, usize>> = BTreeMap::new();
        let musts: Vec<_> = changes
            .map(|(item, change)| (item.subject.as_str(), change.requirement == plan::Requirement::Required))
            .collect();
        for ((_, cpu), key) in placed(&plan).into_iter().zip(musts) {
            prop_assert!(plan.cpus.irq.contains(cpu), "CPU {cpu} of {}", plan.cpus.irq);
            *of_devices.entry(key).or_default().entry(cpu).or_default() += 1;
        }
        // Interrupts that are already in place are no changes, so a CPU may seem to have fewer.
        let right = plan.items.iter().any(|item| {
            item.knob == "nic_irqs" && item.change().is_none()
        });
        for counts in of_devices.values().filter(|_| !right && host.cpus.nodes == 1) {
            let most = counts.values().max().copied().unwrap_or(0);
            let least = match counts.len() == plan.cpus.irq.len() {
                true => counts.values().min().copied().unwrap_or(0),
                false => 0,
            };
            prop_assert!(most - least <= 2, "{counts:?} over {}", plan.cpus.irq);
        }
    }

    #[test]
    fn every_queue_interrupt_belongs_to_one_device(host in hosts()) {
        let snapshot = host.build();
        let interrupts = Interrupts::read(&snapshot);
        let nics = nics::find(&snapshot, &interrupts, &[]).unwrap();
        let mut seen = BTreeMap::new();
        for nic in &nics {
            for irq in &nic.irqs {
                prop_assert_eq!(seen.insert(irq.number, &nic.name), None);
            }
            let queues: Vec<_> = nic.irqs[..nic.irqs_of_queues].iter().map(|i| nic.queue_of(i)).collect();
            prop_assert!(queues.is_sorted());
            prop_assert!(!nic.irqs.is_empty());
        }
    }
}
