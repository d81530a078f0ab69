//! Idle states of the CPUs.
//!
//! What: a line that reports how deep the CPUs sleep. Tare prevents deep states through
//! /dev/cpu_dma_latency while a study runs (`tare_tune::idle`); there is no setting to write.
//! Why: waking from a deep state takes 50 to 200 µs. That is a large part of the latency of a read
//! from memory, and makes every measurement depend on the load before it.
//! Source: the kernel's Documentation/admin-guide/pm/cpuidle.rst and power/pm_qos_interface.rst.
//! Risk: more power and heat; less turbo.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item};

use super::Knob;

#[derive(Debug)]
pub(super) struct IdleStates;

/// Exit latency above which a state adds noticeable delay, in µs. On servers C1 has 1 to 2, C1E 10.
const LATENCY_US_MAX: u64 = 10;

impl Knob for IdleStates {
    fn name(&self) -> &'static str {
        "idle_states"
    }

    fn group(&self) -> Group {
        Group::Cpu
    }

    fn help(&self) -> &'static str {
        "how deep CPUs sleep (kept shallow while a study runs)"
    }

    fn why(&self) -> &'static str {
        "a request can wait tens to hundreds of microseconds for a CPU to wake from a deep idle state"
    }

    fn risk(&self) -> &'static str {
        "more power and heat; less room for turbo on other cores"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/pm/cpuidle.rst, power/pm_qos_interface.rst"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let snapshot = context.snapshot;
        let mut deepest: Option<(u64, String)> = None;
        for cpu in context.cpus.universe.iter() {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
            for state in snapshot.names(&folder) {
                let state = format!("{folder}/{state}");
                if snapshot.read(&format!("{state}/disable")) == Some("1") {
                    continue;
                }
                let Some(latency) = snapshot.read_number::<u64>(&format!("{state}/latency")) else {
                    continue;
                };
                if deepest.as_ref().is_none_or(|(deepest, _)| latency > *deepest) {
                    let name = snapshot.read(&format!("{state}/name")).unwrap_or("?").to_string();
                    deepest = Some((latency, name));
                }
            }
        }
        let Some((latency, name)) = deepest else { return Vec::new() };
        let now = format!("down to {name}, {latency} µs to wake");
        let action = match latency <= LATENCY_US_MAX {
            true => Action::AlreadySet { now },
            false => Action::Advise {
                now,
                wanted: format!("no state of more than {LATENCY_US_MAX} µs"),
                how: "Tare holds /dev/cpu_dma_latency while a study runs; for a service, use tuned's \
                      latency-performance, or boot with a limit on idle states"
                    .into(),
            },
        };
        vec![context.line(self, "host", "idle states", action)]
    }
}
