//! A plan as a table: settings of several queues with the same change share a line.

use super::kubelet;
use super::remarks::{explained, noted};
use tare_report::terminal::{Style, paragraph, rows_apart};
use tare_std::cpus::CpuSet;
use tare_tune::plan::{Action, Change, CpuSets, Item, Key, Plan, ValueFormat};

/// Most values in a line; the others are counted.
const VALUES_MAX: usize = 3;

/// Returns a plan as text. `long`: a line for every setting, also for those that are right.
pub(super) fn plan(plan: &Plan, long: bool, style: Style) -> String {
    let mut text = String::new();
    let mut say = |line: &str, indent: &str| {
        for line in paragraph(line, indent, style.width) {
            text.push_str(&line);
            text.push('\n');
        }
    };
    let cpus = &plan.cpus;
    match cpus.irq == cpus.compute {
        true => say(&format!("CPUs {}: interrupts and compute share them", cpus.universe), ""),
        false => {
            let CpuSets { universe, irq, compute, .. } = cpus;
            say(&format!("CPUs {universe}: interrupts on {irq}, compute on {compute}"), "");
        }
    }
    say(&cpus.why, "");
    for section in Section::ALL {
        let items = plan.items.iter().filter(|item| Section::of(item) == *section);
        let lines: Vec<Line> = grouped(items, long).iter().map(|group| Line::of(group)).collect();
        if lines.is_empty() || (*section == Section::Right && !long) {
            continue;
        }
        text.push('\n');
        text += &draw(section.title(), &lines, style);
    }
    let changes = plan.changes().count();
    let right = plan.items.iter().filter(|item| Section::of(item) == Section::Right).count();
    text.push('\n');
    text += &summary(changes, right);
    for note in &plan.notes {
        text += &noted(note, style);
    }
    if let Some(advice) = &plan.kubelet {
        text += &kubelet::advised(advice, style);
    }
    text
}

/// A section of the table, by the action for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Change,
    Advise,
    Leave,
    Right,
}

impl Section {
    const ALL: &[Self] = &[Self::Change, Self::Advise, Self::Leave, Self::Right];

    fn of(item: &Item) -> Self {
        match item.action {
            Action::Change(_) => Self::Change,
            Action::Advise { .. } => Self::Advise,
            Action::Leave { .. } => Self::Leave,
            Action::AlreadySet { .. } => Self::Right,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Change => "To change",
            Self::Advise => "To do by hand",
            Self::Leave => "Left unchanged",
            Self::Right => "Right already",
        }
    }
}

/// One line of the table, with the explanations below it.
struct Line {
    knob: String,
    setting: String,
    now: String,
    wanted: String,
    reboot: &'static str,
    /// Labels and sentences.
    words: Vec<(&'static str, String)>,
}

impl Line {
    fn of(group: &[&Item]) -> Self {
        let first = group[0];
        let setting = match group {
            [one, .., last] => {
                format!(
                    "{} ... {} ({} settings)",
                    place(&one.subject, &one.what),
                    last.what,
                    group.len()
                )
            }
            _ => place(&first.subject, &first.what),
        };
        let (now, wanted): (Vec<_>, Vec<_>) = group.iter().map(|item| values(item)).unzip();
        let mut words = Vec::new();
        match &first.action {
            Action::Leave { reason, .. } => words.push(("why", reason.clone())),
            Action::Advise { how, .. } => {
                words.push(("why", first.why.clone()));
                words.push(("do", how.clone()));
            }
            Action::Change(_) => {
                words.push(("why", first.why.clone()));
                if !first.risk.is_empty() {
                    words.push(("cost", first.risk.clone()));
                }
            }
            Action::AlreadySet { .. } => {}
        }
        if let Some(owner) = &first.owner {
            words.push(("also", format!("{}: {} ({})", owner.name, owner.effect, owner.evidence)));
        }
        Self {
            knob: first.knob.clone(),
            setting,
            now: few(&now),
            wanted: few(&wanted),
            reboot: if first.survives_reboot { "survives" } else { "lost" },
            words,
        }
    }
}

/// Returns a section: a table with the reasons below its lines.
fn draw(title: &str, lines: &[Line], style: Style) -> String {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            let Line { knob, setting, now, wanted, reboot, .. } = line;
            vec![knob.clone(), setting.clone(), now.clone(), wanted.clone(), (*reboot).into()]
        })
        .collect();
    let head = [title, "", "now", "wanted", "at a reboot"];
    let drawn = rows_apart(&head, &rows, style);
    let mut text = drawn.head;
    for (index, (row, line)) in drawn.rows.iter().zip(lines).enumerate() {
        text += row;
        // Reasons that several successive lines share are printed once, below the last.
        if lines.get(index + 1).is_some_and(|next| next.words == line.words) {
            continue;
        }
        for (label, sentence) in &line.words {
            text += &explained(label, sentence, style);
        }
    }
    text
}

fn summary(changes: usize, right: usize) -> String {
    let settings = |count: usize| format!("{count} setting{}", if count == 1 { "" } else { "s" });
    match (changes, right) {
        (0, 0) => "nothing to change\n".into(),
        (0, right) => format!("nothing to change: {} right already\n", settings(right)),
        (changes, right) => {
            format!("{} to change, {right} right already\n", settings(changes))
        }
    }
}

/// Groups items into lines. Without `long`, successive items that differ only in queue and value
/// share a line.
fn grouped<'a>(items: impl Iterator<Item = &'a Item>, long: bool) -> Vec<Vec<&'a Item>> {
    let mut groups: Vec<Vec<&Item>> = Vec::new();
    for item in items {
        match groups.last_mut() {
            Some(group) if !long && share_line(group[0], item) => group.push(item),
            _ => groups.push(vec![item]),
        }
    }
    groups
}

fn share_line(a: &Item, b: &Item) -> bool {
    let kind = |item: &Item| std::mem::discriminant(&item.action);
    let advice = |item: &Item| match &item.action {
        Action::Leave { reason, .. } => reason.clone(),
        Action::Advise { how, .. } => how.clone(),
        _ => String::new(),
    };
    a.knob == b.knob
        && a.subject == b.subject
        && kind(a) == kind(b)
        && advice(a) == advice(b)
        && a.why == b.why
        && a.risk == b.risk
        && a.owner == b.owner
}

/// Returns the current and the wanted value: masks as lists of CPUs, numbers of interrupts as
/// ranges.
fn values(item: &Item) -> (String, String) {
    let (now, wanted, form) = match &item.action {
        Action::Change(Change { key: Key::IrqbalanceBans, now, wanted, .. }) => {
            return (ranges(now), ranges(wanted));
        }
        Action::Change(change) => (&change.now, change.wanted.as_str(), Some(change.form)),
        Action::AlreadySet { now } | Action::Leave { now, .. } => (now, "", None),
        Action::Advise { now, wanted, .. } => (now, wanted.as_str(), None),
    };
    let show = |value: &str| match form {
        Some(ValueFormat::Mask) => match CpuSet::parse_mask(value) {
            Ok(cpus) if cpus.is_empty() => "no CPU".into(),
            Ok(cpus) => format!("CPU {cpus}"),
            Err(_) => value.to_string(),
        },
        _ => value.to_string(),
    };
    (show(now), show(wanted))
}

/// Returns `24 25 26 30` as `24-26,30`. Numbers of 4,096 or more, which few hosts have, stay as
/// they are.
fn ranges(numbers: &str) -> String {
    match CpuSet::parse_list(&numbers.split_whitespace().collect::<Vec<_>>().join(",")) {
        Ok(set) if set.is_empty() => "none".into(),
        Ok(set) => set.to_string(),
        Err(_) => numbers.to_string(),
    }
}

/// Returns each value once, in the order of appearance; if there are many, the first ones.
fn few(values: &[String]) -> String {
    let mut different: Vec<&str> = Vec::new();
    for value in values {
        if !different.contains(&value.as_str()) {
            different.push(value);
        }
    }
    let shown = different.iter().take(VALUES_MAX).copied().collect::<Vec<_>>().join(", ");
    match different.len().saturating_sub(VALUES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the setting with its device.
pub(super) fn place(subject: &str, what: &str) -> String {
    match subject {
        "host" => what.to_string(),
        device => format!("{device}: {what}"),
    }
}
