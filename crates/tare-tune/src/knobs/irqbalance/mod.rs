//! irqbalance: the interrupts that Tare places are banned in it, so that they stay placed.

use super::Knob;
use crate::irqbalance::options_file::OptionsFile;
use crate::irqbalance::{fits, numbers};
use crate::knobs::Context;
use crate::plan::{Action, Change, Form, Group, Identity, Item, Key, Mode, Need};

/// Where the living irqbalance's facts stand in a snapshot.
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
        "interrupts that irqbalance leaves where they are"
    }

    fn why(&self) -> &'static str {
        "irqbalance moves every interrupt that is not banned in it, every 10 s, so those that are \
         placed have to be banned first."
    }

    fn risk(&self) -> &'static str {
        "Banned interrupts stay on their CPUs whatever the load; the bans are gone when irqbalance \
         is started again."
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

/// Interrupts that the plan places: those of the tuned devices, without the ones that the kernel
/// manages, which irqbalance cannot move either. Ascending.
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

/// Through the socket. Bans of others stay, except those of interrupts that this host no longer
/// has.
fn live(context: &Context<'_>, now: &str, ours: &[u32]) -> Action {
    let banned: Vec<u32> = now.split_whitespace().filter_map(|irq| irq.parse().ok()).collect();
    if ours.iter().all(|irq| banned.contains(irq)) {
        return Action::Right { now: numbers(&banned) };
    }
    let here = |irq: &&u32| context.machine.interrupts.irqs.contains_key(irq);
    let mut wanted: Vec<u32> = banned.iter().filter(here).chain(ours).copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    if !fits(&wanted) {
        let why =
            format!("{} interrupts are more than one message to its socket holds", wanted.len());
        return advise(context, &numbers(&banned), ours, &why);
    }
    Action::Change(Change {
        key: Key::IrqbalanceBans,
        form: Form::Words,
        now: numbers(&banned),
        wanted: numbers(&wanted),
        need: Need::Must,
        identity: Identity::default(),
        stage: 1,
    })
}

/// irqbalance runs but could not be asked.
fn by_file(context: &Context<'_>, pid: &str, ours: &[u32]) -> Action {
    let trouble = context.snapshot.read("/tare/irqbalance/trouble");
    match trouble {
        // It has a socket, which root can use.
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

/// The line that the user should put into irqbalance's options file.
fn advise(context: &Context<'_>, now: &str, ours: &[u32], why: &str) -> Action {
    let exists = |irq| context.machine.interrupts.irqs.contains_key(&irq);
    let how = match OptionsFile::find(context.snapshot) {
        Some(file) => format!(
            "{why}; put these lines in place of {key} in {path}, then run: {restart}\n{lines}",
            key = file.key,
            path = file.path,
            restart = file.restart,
            lines = file.lines(ours, exists),
        ),
        None => format!(
            "{why} and no options file was found; start irqbalance with {}",
            ours.iter().map(|irq| format!("--banirq={irq}")).collect::<Vec<_>>().join(" "),
        ),
    };
    Action::Advise { now: now.into(), wanted: numbers(ours), how }
}

/// What perftune.py does: it keeps a copy of the file once, appends what is missing, restarts.
fn like_perftune(context: &Context<'_>, ours: &[u32]) -> Action {
    let Some(file) = OptionsFile::find(context.snapshot) else {
        return Action::Leave {
            now: "unknown".into(),
            reason: "perftune.py finds no options file of irqbalance here".into(),
        };
    };
    let now = file.bans();
    if ours.iter().all(|irq| now.contains(irq)) {
        return Action::Right { now: numbers(&now) };
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
