//! Bans the interrupts that Tare places in irqbalance, so that it does not move them again.

use super::Knob;
use crate::irqbalance::options_file::OptionsFile;
use crate::irqbalance::{fits_in_message, numbers};
use crate::knobs::Context;
use crate::plan::{Action, Change, Group, Identity, Item, Key, Mode, Requirement, ValueFormat};

/// The pseudo file of a snapshot with the process id of the running irqbalance.
const PID: &str = "/tare/irqbalance/pid";

#[derive(Debug)]
pub(super) struct Irqbalance;

impl Knob for Irqbalance {
    fn name(&self) -> &'static str {
        "irqbalance"
    }

    fn group(&self) -> Group {
        Group::Interrupts
    }

    fn help(&self) -> &'static str {
        "interrupts that irqbalance must not move"
    }

    fn why(&self) -> &'static str {
        "every 10 s irqbalance moves all interrupts that are not banned, also those that Tare placed"
    }

    fn risk(&self) -> &'static str {
        "banned interrupts stay on their CPUs under any load; a restart of irqbalance loses the bans"
    }

    fn source(&self) -> &'static str {
        "irqbalance(1), section API"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let snapshot = context.snapshot;
        let Some(pid) = snapshot.read(PID) else { return Vec::new() };
        let ours = placed(context);
        if ours.is_empty() {
            return Vec::new();
        }
        let action = match Key::IrqbalanceBans.read_from(snapshot) {
            _ if context.options.like_perftune => like_perftune(context, &ours),
            Some(now) => live(context, &now, &ours),
            None => by_file(context, pid, &ours),
        };
        let what = "interrupts that irqbalance leaves alone";
        let mut item = context.line(self, "host", what, action);
        item.survives_reboot = matches!(&item.action, Action::Advise { .. });
        vec![item]
    }
}

/// Lists the interrupts that the plan places, ascending: those of the tuned devices, without those
/// that the kernel manages, which irqbalance cannot move either.
fn placed(context: &Context<'_>) -> Vec<u32> {
    let options = context.options;
    if options.mode == Mode::None {
        return Vec::new();
    }
    let left_out = |knob: &str| {
        let group = super::ALL.iter().find(|other| other.name() == knob).map(|k| k.group().name());
        options.except.iter().any(|name| name == knob || Some(name.as_str()) == group)
    };
    let nics = context.nics().iter().filter(|_| !left_out("nic_irqs"));
    let disks = context.disks().iter().filter(|_| !left_out("disk_irqs"));
    let irqs = nics.flat_map(|nic| &nic.irqs).chain(disks.flat_map(|disk| &disk.irqs));
    let mut irqs: Vec<u32> =
        irqs.filter(|irq| irq.managed != Some(true)).map(|irq| irq.number).collect();
    irqs.sort_unstable();
    irqs.dedup();
    irqs
}

/// Plans the bans through the socket. Bans set by other programs stay, except those of interrupts
/// that this host no longer has.
fn live(context: &Context<'_>, now: &str, ours: &[u32]) -> Action {
    let banned: Vec<u32> = now.split_whitespace().filter_map(|irq| irq.parse().ok()).collect();
    if ours.iter().all(|irq| banned.contains(irq)) {
        return Action::AlreadySet { now: numbers(&banned) };
    }
    let here = |irq: &&u32| context.machine.interrupts.irqs.contains_key(irq);
    let mut wanted: Vec<u32> = banned.iter().filter(here).chain(ours).copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    if !fits_in_message(&wanted) {
        let why = format!("{} interrupts do not fit in one message to its socket", wanted.len());
        return advise(context, &numbers(&banned), ours, &why);
    }
    Action::Change(Change {
        key: Key::IrqbalanceBans,
        form: ValueFormat::Words,
        now: numbers(&banned),
        wanted: numbers(&wanted),
        requirement: Requirement::Required,
        identity: Identity::default(),
        stage: 1,
    })
}

/// Plans the bans when irqbalance runs but could not be queried.
fn by_file(context: &Context<'_>, pid: &str, ours: &[u32]) -> Action {
    let trouble = context.snapshot.read("/tare/irqbalance/trouble");
    match trouble {
        // It has a socket, but only root can use it.
        Some(trouble) if trouble.contains("root") || trouble.contains("denied") => Action::Advise {
            now: "unknown".into(),
            wanted: numbers(ours),
            how: format!("run as root: Tare bans them through irqbalance's socket ({trouble})"),
        },
        trouble => {
            let no_socket = format!("irqbalance (process {pid}) has no socket");
            advise(context, "unknown", ours, trouble.unwrap_or(&no_socket))
        }
    }
}

/// Returns advice with the line for irqbalance's options file.
fn advise(context: &Context<'_>, now: &str, ours: &[u32], why: &str) -> Action {
    let exists = |irq| context.machine.interrupts.irqs.contains_key(&irq);
    let how = match OptionsFile::find(context.snapshot) {
        Some(file) => format!(
            "{why}; replace {key} in {path} with these lines, then run: {restart}\n{lines}",
            key = file.key,
            path = file.path,
            restart = file.restart,
            lines = file.lines(ours, exists),
        ),
        None => format!(
            "{why}, and no options file was found; start irqbalance with {}",
            ours.iter().map(|irq| format!("--banirq={irq}")).collect::<Vec<_>>().join(" "),
        ),
    };
    Action::Advise { now: now.into(), wanted: numbers(ours), how }
}

/// Plans what perftune.py does: it copies the file once, appends missing bans and restarts the
/// daemon.
fn like_perftune(context: &Context<'_>, ours: &[u32]) -> Action {
    let Some(file) = OptionsFile::find(context.snapshot) else {
        return Action::Leave {
            now: "unknown".into(),
            reason: "perftune.py finds no options file of irqbalance here".into(),
        };
    };
    let now = file.bans();
    if ours.iter().all(|irq| now.contains(irq)) {
        return Action::AlreadySet { now: numbers(&now) };
    }
    let path = &file.path;
    let saved = format!("{path}.scylla.orig");
    let save = match crate::machine::owners::is_present(context.snapshot, &saved) {
        true => String::new(),
        false => format!("cp {path} {saved}; "),
    };
    Action::Advise {
        now: numbers(&now),
        wanted: numbers(ours),
        how: format!("{save}in {path}: {}; {}", file.line_of_perftune(ours), file.restart),
    }
}

#[cfg(test)]
mod tests;
