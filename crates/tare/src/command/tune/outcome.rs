//! Texts about applied tunings: settings written, restored and changed since, and where interrupts
//! arrive.

use tare_report::terminal::{Style, grid};
use tare_report::utc;
use tare_tune::{
    Applied, InterruptCheck, LoadCheck, MisroutedInterrupt, MovedInterrupt, Outcome, RevertOutcome,
    Reverted, SettingState, SettingStatus, TuningStatus, Verification,
};

use super::table::place;

/// Returns the outcome of applying a plan: a line for each failure, and the number of the others.
pub(super) fn applied(applied: &Applied, style: Style) -> String {
    let written = applied.written().count();
    if applied.items.is_empty() {
        return "nothing to change: every setting is right already\n".into();
    }
    let mut text = String::new();
    let rows: Vec<Vec<String>> = applied
        .items
        .iter()
        .filter_map(|applied| {
            let (outcome, error) = match &applied.outcome {
                Outcome::Failed { error } => ("failed", error),
                Outcome::Refused { error } => ("refused, as expected", error),
                _ => return None,
            };
            let item = &applied.item;
            let what = vec![
                item.knob.clone(),
                place(&item.subject, &item.what),
                outcome.into(),
                error.text.clone(),
            ];
            Some(what)
        })
        .collect();
    if !rows.is_empty() {
        text += &grid(&["knob", "what", "outcome", "why"], &rows, style);
    }
    let settings = if written == 1 { "setting" } else { "settings" };
    text += &format!("{written} {settings} written and read back");
    match applied.id.as_str() {
        "" => text.push('\n'),
        id => text += &format!(" as tuning {id}; tare tune revert restores them\n"),
    }
    text
}

/// Returns the outcome of a revert: a line for each drift or failure, and the number of the others.
pub(super) fn reverted(reverted: &[Reverted], style: Style) -> String {
    if reverted.is_empty() {
        return "nothing to revert: no tuning is applied\n".into();
    }
    let mut text = String::new();
    for tuning in reverted {
        let mut counts = [0; 4];
        let mut rows = Vec::new();
        for setting in &tuning.settings {
            let why = match &setting.outcome {
                RevertOutcome::Restored { .. } => {
                    counts[0] += 1;
                    continue;
                }
                RevertOutcome::Already => {
                    counts[1] += 1;
                    continue;
                }
                RevertOutcome::Rebooted => {
                    counts[2] += 1;
                    continue;
                }
                RevertOutcome::Gone => {
                    counts[3] += 1;
                    continue;
                }
                RevertOutcome::Drift { now, written, old } => format!(
                    "left alone: changed from {written} to {now} since the tuning; \
                     it was {old} before"
                ),
                RevertOutcome::Failed { error, old } => {
                    format!("cannot restore {old}: {}", error.text)
                }
            };
            rows.push(vec![setting.knob.clone(), setting.place.clone(), why]);
        }
        if !rows.is_empty() {
            text += &grid(&["knob", "setting", "outcome"], &rows, style);
        }
        let words =
            ["restored", "restored already", "undone by the reboot", "gone with the device"];
        let mut parts: Vec<String> = counts
            .iter()
            .zip(words)
            .filter(|(count, _)| **count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if !rows.is_empty() {
            parts.push(format!("{} not restored", rows.len()));
        }
        text += &format!("tuning {}: {}\n", tuning.id, parts.join(", "));
    }
    text
}

/// Returns the applied tunings. `all`: a line for every setting, otherwise only for those that are
/// not in force.
pub(super) fn tunings(tunings: &[TuningStatus], all: bool, style: Style) -> String {
    if tunings.is_empty() {
        return "no tuning is applied\n".into();
    }
    let mut text = String::new();
    for tuning in tunings {
        let is_good = |setting: &&SettingStatus| {
            matches!(setting.state, SettingState::InForce | SettingState::Superseded { .. })
        };
        let in_force = tuning.settings.iter().filter(is_good).count();
        let state = match (tuning.interrupted, tuning.alive) {
            (true, _) => "; interrupted: tare tune revert restores what it wrote",
            (_, true) => "; a process is working on it",
            _ => "",
        };
        text += &format!(
            "tuning {} of {}: {in_force} of {} settings in force{state}\n  {}\n",
            tuning.id,
            utc(tuning.started_unix_s.saturating_mul(1000)),
            tuning.settings.len(),
            tuning.command
        );
        let rows: Vec<Vec<String>> = tuning
            .settings
            .iter()
            .filter(|setting| all || !is_good(setting))
            .map(|setting| {
                let SettingStatus { knob, subject, what, old, written, .. } = setting;
                let what = place(subject, what);
                vec![knob.clone(), what, old.clone(), written.clone(), state_of(setting)]
            })
            .collect();
        if !rows.is_empty() {
            text += &grid(&["knob", "setting", "before", "written", "now"], &rows, style);
        }
    }
    text
}

fn state_of(setting: &SettingStatus) -> String {
    match &setting.state {
        SettingState::InForce => "in force".into(),
        SettingState::Undone => "restored by another process".into(),
        SettingState::Drifted { now } => format!("{now}: changed by another process"),
        SettingState::Superseded { by } => format!("written again by {by}"),
        SettingState::Gone => "its device is gone".into(),
        SettingState::Rebooted => "undone by the reboot".into(),
        SettingState::Unreadable { reason } => format!("cannot be read: {reason}"),
    }
}

/// Returns where interrupts arrived between two checks.
pub(super) fn load(load: &LoadCheck, now: &Verification, style: Style) -> String {
    let mut text = String::new();
    let rows: Vec<Vec<String>> = load
        .cpus
        .iter()
        .map(|cpu| {
            let takes = if cpu.takes_interrupts { "yes" } else { "" };
            vec![cpu.cpu.to_string(), takes.into(), format!("{:.1} %", cpu.share * 100.0)]
        })
        .collect();
    text += &grid(&["CPU", "takes interrupts", "time in interrupts and softirqs"], &rows, style);
    let lagging = now.interrupts.iter().filter(|interrupt| !interrupt.is_right());
    for interrupt in lagging {
        let InterruptCheck { number, name, wanted, effective } = interrupt;
        let effective = effective.as_ref().map(ToString::to_string).unwrap_or_default();
        text += &format!(
            "interrupt {number} ({name}) still goes to CPU {effective}, not {wanted}: \
             it moves when it arrives next\n"
        );
    }
    for moved in &load.moved {
        let MovedInterrupt { number, name, from, to } = moved;
        text += &format!(
            "interrupt {number} ({name}) moved from CPU {from} to {to} between the checks\n"
        );
    }
    let strays: Vec<Vec<String>> = load
        .misrouted
        .iter()
        .map(|stray| {
            let MisroutedInterrupt { number, name, cpu, count, of } = stray;
            vec![format!("{number} ({name})"), cpu.to_string(), format!("{count} of {of}")]
        })
        .collect();
    if now.interrupts.is_empty() {
        text += "no tuning moved interrupts\n";
    } else if strays.is_empty() {
        text += "no device interrupt arrived outside the CPUs that take interrupts\n";
    } else {
        text += "\nInterrupts that arrived outside the CPUs that take interrupts\n";
        text += &grid(&["interrupt", "on CPU", "how many"], &strays, style);
    }
    text
}
