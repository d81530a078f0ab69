//! Interrupts by CPU over the rounds: for each environment a row of bars for each CPU.

use crate::figures::{rate, shorten};
use crate::html::svg::{Svg, TextAnchor};
use crate::interrupts::{CpuInterrupts, CpuRole, InterruptTable};

use super::as_f64;

/// Pixels of an environment's name, of a CPU's row, and of its bars.
const NAME: f64 = 26.0;
const ROW: f64 = 22.0;
const BARS: f64 = 17.0;
const AXIS: f64 = 22.0;
/// Where the bars begin and end, in percent of the width: labels are left, figures right.
const LEFT: f64 = 24.0;
const RIGHT: f64 = 84.0;
/// Most CPUs of an environment, those with the most interrupts.
pub(in crate::html) const CPUS_MAX: usize = 8;
/// Most bars of a CPU. More rounds share bars, which have their median.
const BARS_MAX: usize = 60;

/// Draws the interrupts of every environment under a workload. All bars have one scale.
pub(in crate::html) fn interrupts(tables: &[InterruptTable], id: &str) -> Option<String> {
    let shown: Vec<(&InterruptTable, Vec<&CpuInterrupts>)> =
        tables.iter().map(|table| (table, busiest(table))).collect();
    let cpus = || shown.iter().flat_map(|(_, cpus)| cpus);
    let rounds = cpus().flat_map(|cpu| &cpu.rounds);
    let most = rounds.map(|one| one.per_s).fold(0.0, f64::max);
    let last = cpus().filter_map(|cpu| cpu.rounds.last()).map(|one| one.round).max()?;
    if most <= 0.0 || last == 0 {
        return None;
    }
    let rows = cpus().count();
    let height = as_f64(shown.len()) * NAME + as_f64(rows) * ROW + AXIS;
    let texts = shown.iter().map(|(table, cpus)| {
        let cpu = |one: &&CpuInterrupts| {
            format!("CPU {} ({}) {} per second", one.cpu, one.role.word(), rate(one.per_s.median))
        };
        let cpus: Vec<String> = cpus.iter().map(cpu).collect();
        format!("{}: {}", table.environment, cpus.join(", "))
    });
    let description = texts.collect::<Vec<_>>().join(". ");
    let mut svg = Svg::new(id, height, "Interrupts by CPU over the rounds", &description);
    let mut top = 0.0;
    for (table, cpus) in &shown {
        svg.text(0.0, top + 18.0, TextAnchor::Start, "label", &shorten(&table.environment, 40));
        top += NAME;
        for cpu in cpus {
            row(&mut svg, cpu, top, (last, most));
            top += ROW;
        }
    }
    let ends = [(LEFT, TextAnchor::Start, "round 1"), (RIGHT, TextAnchor::End, "")];
    for (x, anchor, text) in ends {
        let last = format!("round {}", last + 1);
        let text = if text.is_empty() { &last } else { text };
        svg.text(x, top + 15.0, anchor, "tick", text);
    }
    svg.text(100.0, top + 15.0, TextAnchor::End, "tick", "median per second");
    Some(svg.finish())
}

/// Returns the CPUs that are drawn, in the order of their numbers: those kept for interrupts, and
/// then those with the most.
fn busiest(table: &InterruptTable) -> Vec<&CpuInterrupts> {
    let mut cpus: Vec<&CpuInterrupts> = table.cpus.iter().collect();
    let kept = |cpu: &CpuInterrupts| cpu.role == CpuRole::Interrupts;
    cpus.sort_by(|a, b| kept(b).cmp(&kept(a)).then(b.per_s.median.total_cmp(&a.per_s.median)));
    cpus.truncate(CPUS_MAX);
    cpus.sort_by_key(|one| one.cpu);
    cpus
}

fn row(svg: &mut Svg, cpu: &CpuInterrupts, top: f64, (last, most): (u32, f64)) {
    let floor = top + BARS;
    let label = format!("CPU {} {}", cpu.cpu, cpu.role.word());
    svg.text(0.0, floor - 3.0, TextAnchor::Start, "tick", &label);
    svg.line(LEFT, floor, RIGHT, floor, "grid");
    let count = (last as usize + 1).min(BARS_MAX);
    let per_bar = (last as usize + 1).div_ceil(count);
    let step = (RIGHT - LEFT) / as_f64((last as usize + 1).div_ceil(per_bar));
    let mut columns: std::collections::BTreeMap<usize, Vec<f64>> =
        std::collections::BTreeMap::new();
    for one in &cpu.rounds {
        columns.entry(one.round as usize / per_bar).or_default().push(one.per_s);
    }
    let bar = |(column, values): (usize, Vec<f64>)| {
        let value = tare_stats::median(values)?;
        let height = (value / most * (BARS - 1.0)).max(0.5);
        Some((LEFT + as_f64(column) * step, step * 0.85, height))
    };
    let bars: Vec<(f64, f64, f64)> = columns.into_iter().filter_map(bar).collect();
    svg.bars(&bars, floor, class(cpu.role));
    svg.text(100.0, floor - 3.0, TextAnchor::End, "figure", &rate(cpu.per_s.median));
}

/// Returns the class of the bars of a CPU.
pub(in crate::html) fn class(role: CpuRole) -> &'static str {
    match role {
        CpuRole::Interrupts => "cpu-interrupts",
        CpuRole::System | CpuRole::SystemAndClient => "cpu-system",
        CpuRole::Client | CpuRole::Other => "cpu-client",
    }
}
