//! Opens the samplers and tracers that run after the rounds of a campaign.

use std::error::Error;

use tare_lab::doubt::Doubt;
use tare_lab::stacks::{ExtraRounds, StackKind};
use tare_probe::stacks::Perf;
use tare_probe::{ProbeCpus, Roots};

use crate::cli::SampleStacks;
use crate::stream::warn;

/// Opens the requested samplers and tracers, marked with the id of the run. Each one that cannot
/// be opened becomes a doubt.
pub(super) fn extra_rounds(
    options: &SampleStacks,
    run: &str,
    cpus: &ProbeCpus,
) -> (ExtraRounds<'static>, Vec<Doubt>) {
    let mut extra = ExtraRounds {
        rounds: options.stack_rounds,
        window: options.stack_window,
        ..ExtraRounds::default()
    };
    let mut doubts = Vec::new();
    let mut missing = |probe: &str, error: &dyn Error| {
        let reason = tare_host::error_line(error);
        warn(&format!("no {probe} in this record: {reason}"));
        doubts.push(Doubt::ProbeFailed { probe: probe.into(), reason });
    };
    if options.stacks {
        let mark = (tare_host::RUN_VARIABLE, run);
        for kind in options.stack_kinds.iter().copied().map(StackKind::from) {
            let opened = match kind {
                // Most hosts keep no CPU for interrupts.
                StackKind::InterruptCpus if cpus.interrupts.is_empty() => continue,
                StackKind::InterruptCpus => Perf::open_on_cpus(&cpus.interrupts, mark),
                kind => Perf::open(kind, options.stacks_user.into(), mark),
            };
            match opened {
                Ok(perf) => extra.samplers.push(Box::new(perf)),
                Err(error) => missing(kind.probe(), &error),
            }
        }
    }
    let tracers = [(options.syscalls, "syscalls"), (options.pmu, "pmu")];
    let names: Vec<&str> =
        tracers.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        let (tracers, unread) = tare_probe::open_disturbing(&names, &Roots::default(), cpus);
        extra.tracers = tracers;
        unread.iter().for_each(|(probe, error)| missing(probe, error));
    }
    (extra, doubts)
}
