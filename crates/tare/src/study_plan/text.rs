//! Prints a plan for people.

use std::fmt::Write;
use std::time::Duration;

use tare_report::clean;
use tare_std::units::rough_duration;

use super::{EnvironmentPlan, Part, StudyPlan, WorkloadPlan};
use crate::campaign::space::amount;

/// Workloads that are listed by name; a study with sweeps has dozens.
const WORKLOADS_SHOWN: usize = 12;

/// Returns the plan as text. The figure comes first.
pub(super) fn render(plan: &StudyPlan) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(clean(line).trim_end());
        text.push('\n');
    };
    let time = &plan.time;
    line(&format!("{}: up to {}, {}", plan.name, rough_duration(time.time()), time.text()));
    if !plan.title.is_empty() {
        line(&plan.title);
    }
    section(&mut line, "Time", &times(plan));
    if time.rounds < time.rounds_min {
        line(&format!(
            "  The budget is too short for the least number of rounds, {}.",
            time.rounds_min
        ));
    }
    if plan.stop_width_percent > 0.0 {
        line(&format!(
            "  It ends earlier once every 95 % interval is narrower than {} points.",
            plan.stop_width_percent
        ));
    }
    section(&mut line, "CPUs", &cpus(plan));
    if !plan.loaders.is_empty() {
        let rows = [vec![plan.loaders.join(", ")]];
        section(&mut line, &format!("Loaders: {}", plan.loaders.len()), &rows);
    }
    if !plan.hosts.is_empty() {
        let rows = [vec![plan.hosts.join(", ")]];
        section(&mut line, &format!("Hosts of the system: {}", plan.hosts.len()), &rows);
    }
    let here = plan.environments.iter().filter(|one| one.role != "control");
    let (all, out) = (here.clone().count(), here.filter(|one| one.left_out.is_some()).count());
    let rows: Vec<Vec<String>> = plan.environments.iter().map(environment).collect();
    section(&mut line, &format!("Environments: {} of {all}", all - out), &rows);
    let runs = plan.workloads.iter().filter(|one| one.left_out.is_none()).count();
    let title = format!("Workloads: {runs} of {}", plan.workloads.len());
    section(&mut line, &title, &workloads(&plan.workloads));
    section(&mut line, "Resources", &resources(plan));
    if !plan.obstacles.is_empty() {
        let rows: Vec<Vec<String>> = plan.obstacles.iter().map(|one| vec![one.clone()]).collect();
        section(&mut line, "The study cannot start here", &rows);
    }
    if !plan.not_known.is_empty() {
        let rows: Vec<Vec<String>> = plan.not_known.iter().map(|one| vec![one.clone()]).collect();
        section(&mut line, "Not known before the study starts", &rows);
    }
    text
}

/// Prints a title and rows in columns.
fn section(line: &mut impl FnMut(&str), title: &str, rows: &[Vec<String>]) {
    line("");
    line(title);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // The last cell of a row may be long, and nothing follows it.
        let cells = rows.iter().filter(|row| row.len() > column + 1).map(|row| &row[column]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut text = String::from("  ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        line(&text);
    }
}

fn times(plan: &StudyPlan) -> Vec<Vec<String>> {
    let row = |part: &Part| vec![part.options.clone(), rough_duration(part.time()), rounds(part)];
    std::iter::once(&plan.time).chain(&plan.other_parts).map(row).collect()
}

/// Returns the rounds of a part with their time.
fn rounds(part: &Part) -> String {
    let round = Duration::from_secs_f64(part.round_s);
    let each = match part.round_s {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        _ => rough_duration(round),
    };
    let limits = match (part.rounds_min, part.rounds_max) {
        (min, max) if min == max => format!("{max} asked for"),
        (min, max) => format!("{min} to {max} asked for"),
    };
    format!("{} ({limits}), {each} a round", part.text())
}

fn cpus(plan: &StudyPlan) -> Vec<Vec<String>> {
    let head = ["", "CPUs", "number", "cores", "last-level caches", "NUMA nodes"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for group in &plan.cpus {
        let nodes: Vec<String> = group.nodes.iter().map(u32::to_string).collect();
        rows.push(vec![
            group.name.into(),
            group.cpus.clone(),
            group.count.to_string(),
            group.cores.to_string(),
            group.caches.to_string(),
            nodes.join(", "),
        ]);
    }
    rows
}

fn environment(one: &EnvironmentPlan) -> Vec<String> {
    let note = match (&one.left_out, one.role) {
        (Some(reason), _) => format!("left out: {reason}"),
        (None, "baseline") => "baseline".into(),
        (None, "control") => "A/A control: the baseline a second time".into(),
        (None, _) => one.note.as_ref().map_or("runs".into(), |note| format!("runs {note}")),
    };
    vec![one.name.clone(), one.runtime.clone(), note]
}

fn workloads(all: &[WorkloadPlan]) -> Vec<Vec<String>> {
    let (runs, out): (Vec<&WorkloadPlan>, Vec<&WorkloadPlan>) =
        all.iter().partition(|one| one.left_out.is_none());
    let shown = if runs.len() > WORKLOADS_SHOWN + 1 { WORKLOADS_SHOWN } else { runs.len() };
    let row = |one: &&WorkloadPlan| vec![one.name.clone(), one.measured.clone()];
    let mut rows: Vec<Vec<String>> = runs.iter().take(shown).map(row).collect();
    if shown < runs.len() {
        rows.push(vec![format!("and {} more (--json lists all)", runs.len() - shown)]);
    }
    if let Some(reason) = out.first().and_then(|one| one.left_out.as_ref()) {
        let names: Vec<&str> = out.iter().map(|one| one.name.as_str()).collect();
        rows.push(vec![format!("left out: {reason}: {}", names.join("; "))]);
    }
    rows
}

fn resources(plan: &StudyPlan) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    if let Some(memory) = &plan.memory {
        let up = match memory.at_once {
            1 => "one environment at a time".to_string(),
            count => format!("{count} environments up at once"),
        };
        let text = format!(
            "{} of {} available: {up}, {} each without a limit",
            amount(memory.needed_bytes),
            amount(memory.available_bytes),
            amount(memory.per_environment_bytes)
        );
        rows.push(vec!["memory".into(), text]);
    }
    if let Some(disk) = plan.disk.as_ref().filter(|_| plan.memory.is_some()) {
        let free = disk.free_bytes.map_or("unknown".into(), amount);
        let images = match disk.images_bytes {
            0 => String::new(),
            bytes => format!("; images that may grow to {}", amount(bytes)),
        };
        let (data, directory) = (amount(disk.data_bytes), disk.directory.display());
        let text = format!("at least {data} of {free} free in {directory}{images}");
        rows.push(vec!["disk".into(), text]);
    }
    if let Some(conditioning) = &plan.conditioning {
        rows.push(vec!["conditioning".into(), conditioning.text()]);
    }
    if let Some(data) = &plan.cached_data {
        let text = format!(
            "{} from the cache, loaded {} ago in {:.1} s",
            amount(data.bytes),
            rough_duration(Duration::from_secs_f64(data.age_s)),
            data.load_s
        );
        rows.push(vec!["data".into(), text]);
    }
    rows.push(vec!["needs".into(), plan.needs.text()]);
    rows.push(vec!["record".into(), plan.record.display().to_string()]);
    rows
}
