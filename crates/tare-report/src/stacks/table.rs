//! The figures of stacks as terminal text and JSON.

use serde_json::{Value, json};
use tare_lab::stacks::{KERNEL_SUFFIX, StackKind, StackSlice};

use super::figures::{Figure, Profile, Row, Side};
use crate::figures::clean;
use crate::layout::{Style, grid, paragraph};

/// Functions in the terminal's table.
const FUNCTIONS_MAX: usize = 25;
/// The limit of subtracting idle polling.
const IDLE: &str = "One of the two polls. The idle polling that it reports is subtracted in proportion \
    from its own code and its calls of epoll that do not wait, because samples do not show which \
    polls found work. Differences in \"database\", \"epoll\", \"seccomp\" and \"system call entry\" \
    depend on that report; the other rows do not.";
/// Smaller functions are left out: the timer sampled them a few times only.
const FUNCTION_US_MIN: f64 = 0.005;

fn us(value: f64) -> String {
    let digits = if value.abs() < 0.1 { 3 } else { 2 };
    format!("{value:.digits$}")
}

fn with_error(figure: &Figure) -> String {
    match figure.half_width() {
        Some(half) => format!("{} \u{b1}{}", us(figure.us), us(half)),
        None => us(figure.us),
    }
}

/// A difference with its interval, or `none found`.
fn difference(figure: &Figure) -> String {
    match (figure.found(), figure.low, figure.high) {
        (true, Some(low), Some(high)) => {
            format!("{:+.3} [{low:+.3}, {high:+.3}]", figure.us)
        }
        (false, Some(low), Some(high)) => {
            format!("none found (within {})", us(low.abs().max(high.abs())))
        }
        _ => format!("{:+.3} (one round: no interval)", figure.us),
    }
}

/// `gone` or `new` for a row that only one of both has.
pub(crate) fn change(row: &Row) -> &'static str {
    match (row.from.us > 0.0, row.to.us > 0.0, row.difference.found()) {
        (true, false, true) => "gone",
        (false, true, true) => "new",
        _ => "",
    }
}

/// The method behind the figures in a sentence.
pub(crate) fn method(
    slices: &[StackSlice],
    kind: StackKind,
    workload: &str,
    rounds: usize,
) -> String {
    let first = first(slices, kind, workload);
    let (rate, window, event) = first.map_or((0.0, 0.0, ""), |slice| {
        (slice.rate_per_s, slice.window_ns as f64 / 1e9, slice.event.as_str())
    });
    let workload = clean(workload);
    let of = match kind {
        StackKind::OnCpu => {
            "CPU time in \u{b5}s per operation, of system, client and what the layer adds, in the \
             program and in the kernel"
        }
        StackKind::InterruptCpus => {
            "CPU time in \u{b5}s per operation of everything that runs on the CPUs kept for \
             interrupts"
        }
        StackKind::OffCpu => {
            "Waiting in \u{b5}s per operation, over all threads of system, client and what the \
             layer adds, from leaving a CPU to having one again; threads that wait for work wait, \
             too"
        }
    };
    format!(
        "{of}; \"{workload}\" at {rate:.0} operations/s in every environment, \
         {rounds} rounds of {window:.1} s, {event}. Mean over rounds, 95 % interval (Student's t)."
    )
}

pub(crate) fn environments(slices: &[StackSlice], workload: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for slice in slices.iter().filter(|slice| slice.workload == workload) {
        if !names.contains(&slice.environment) {
            names.push(slice.environment.clone());
        }
    }
    names
}

fn first<'s>(slices: &'s [StackSlice], kind: StackKind, workload: &str) -> Option<&'s StackSlice> {
    let ours = |slice: &&StackSlice| slice.workload == workload && slice.kind == kind;
    slices.iter().filter(ours).find(|slice| slice.void.is_none())
}

/// Subsystems by environment, the `baseline` first.
pub fn overview(
    slices: &[StackSlice],
    kind: StackKind,
    workload: &str,
    baseline: &str,
    style: Style,
) -> String {
    let mut names = environments(slices, workload);
    names.sort_by_key(|name| name != baseline);
    let sides: Vec<Side> =
        names.iter().map(|name| Side::of(slices, kind, workload, name)).collect();
    let sides: Vec<&Side> = sides.iter().filter(|side| side.rounds() > 0).collect();
    let Some(first) = sides.first() else {
        return format!("no stack slice of \"{}\" counts\n", clean(workload));
    };
    let mut subsystems: Vec<&str> = sides.iter().flat_map(|side| side.subsystems()).collect();
    subsystems.sort_unstable();
    subsystems.dedup();
    subsystems.sort_by(|a, b| first.subsystem(b).us.total_cmp(&first.subsystem(a).us));
    let mut head = vec!["subsystem"];
    head.extend(sides.iter().map(|side| side.environment.as_str()));
    let line = |name: &str, figure: &dyn Fn(&Side) -> Figure| {
        let cells = sides.iter().map(|side| with_error(&figure(side)));
        std::iter::once(name.to_string()).chain(cells).collect::<Vec<String>>()
    };
    let mut rows: Vec<Vec<String>> =
        subsystems.iter().map(|name| line(name, &|side| side.subsystem(name))).collect();
    rows.push(line("sum", &Side::total));
    if sides.iter().any(|side| side.idle().us > 0.0) {
        rows.push(line("(idle polling, not in the sum)", &Side::idle));
    }
    let text = method(slices, kind, workload, first.rounds());
    let mut out = paragraph(&text, "", style.width).join("\n") + "\n";
    out += &grid(&head, &rows, style);
    out += "--from A --to B shows functions and differences; --flamegraph FILE draws them.\n";
    out
}

fn name_of(function: &str) -> String {
    function.strip_suffix(KERNEL_SUFFIX).unwrap_or(function).to_string()
}

/// Two environments: subsystems and functions with their differences.
pub fn pair(
    slices: &[StackSlice],
    kind: StackKind,
    workload: &str,
    profile: &Profile,
    style: Style,
) -> String {
    let (from, to) = (&clean(&profile.from.environment), &clean(&profile.to.environment));
    let mut out =
        paragraph(&method(slices, kind, workload, profile.rounds()), "", style.width).join("\n");
    out.push('\n');
    if kind != StackKind::OffCpu {
        let (one, other) = (profile.from.samples, profile.to.samples);
        out += &format!("{one} samples in \"{from}\", {other} in \"{to}\".\n");
    }
    out.push('\n');
    let title = "difference [95 %]";
    let line = |row: &Row| {
        let (name, gone) = (row.name.clone(), change(row).to_string());
        vec![name, with_error(&row.from), with_error(&row.to), difference(&row.difference), gone]
    };
    let mut rows: Vec<Vec<String>> = profile.subsystems().iter().map(line).collect();
    rows.push(line(&profile.total()));
    let idle = profile.idle();
    if idle.from.us > 0.0 || idle.to.us > 0.0 {
        rows.push(line(&Row { name: "(idle polling, not in the sum)".into(), ..idle.clone() }));
    }
    out += &grid(&["subsystem", from, to, title, ""], &rows, style);
    if idle.difference.found() {
        out += &paragraph(IDLE, "", style.width).join("\n");
        out.push('\n');
    }
    let (found, noise): (Vec<Row>, Vec<Row>) = profile
        .functions()
        .into_iter()
        .filter(|row| row.from.us.max(row.to.us) >= FUNCTION_US_MIN)
        .partition(|row| row.difference.found());
    let functions: Vec<Vec<String>> = found
        .iter()
        .take(FUNCTIONS_MAX)
        .map(|row| {
            let mut cells = line(row);
            cells[0] = name_of(&row.name);
            cells.insert(1, row.subsystem.clone().unwrap_or_default());
            let all = row.difference_with_callees.map(|figure| format!("{:+.3}", figure.us));
            cells.insert(5, all.unwrap_or_default());
            cells
        })
        .collect();
    let head = ["function", "counted for", from, to, title, "with callees", ""];
    out += &format!(
        "\nFunctions by their own time whose difference is found, the largest {} of {}; {} more are within the noise.\n",
        functions.len(),
        found.len(),
        noise.len()
    );
    out += &grid(&head, &functions, style);
    out
}

/// Two environments as JSON.
pub fn as_json(slices: &[StackSlice], kind: StackKind, workload: &str, profile: &Profile) -> Value {
    let first = first(slices, kind, workload);
    json!({
        "workload": workload,
        "from": profile.from.environment,
        "to": profile.to.environment,
        "rounds": profile.rounds(),
        "samples": { "from": profile.from.samples, "to": profile.to.samples },
        "rate_per_s": first.map(|slice| slice.rate_per_s),
        "event": first.map(|slice| slice.event.as_str()),
        "kind": kind,
        "unit": match kind {
            StackKind::OnCpu | StackKind::InterruptCpus => "us of CPU per operation",
            StackKind::OffCpu => "us of waiting per operation",
        },
        "sum": profile.total(),
        "idle_polling": profile.idle(),
        "subsystems": profile.subsystems(),
        "functions": profile.functions(),
    })
}
