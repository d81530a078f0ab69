//! Reads `/proc/stat`: CPU time by CPU and use, in ticks.
//! Source: proc_stat(5).

use tare_std::cpus::CpuSet;

/// Columns after the CPU's name.
pub(crate) const USER: usize = 0;
pub(crate) const NICE: usize = 1;
pub(crate) const SYSTEM: usize = 2;
pub(crate) const IRQ: usize = 5;
pub(crate) const SOFTIRQ: usize = 6;
pub(crate) const STEAL: usize = 7;

/// The length of a tick of `/proc/stat`, in ns.
pub(crate) fn tick_ns() -> f64 {
    1e9 / rustix::param::clock_ticks_per_second() as f64
}

fn column(line: &str, index: usize) -> Option<u64> {
    line.split_ascii_whitespace().nth(index + 1)?.parse().ok()
}

/// The sum of one column over some CPUs, in ticks. An offline CPU has no line and adds nothing.
/// `None` if none of the CPUs has a line.
pub(crate) fn over_cpus(text: &str, cpus: &CpuSet, index: usize) -> Option<u64> {
    let mut sum = None;
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let name = line.split_ascii_whitespace().next()?;
        let number = name.trim_start_matches("cpu").parse();
        if number.is_ok_and(|cpu| cpus.contains(cpu)) {
            sum = Some(sum.unwrap_or(0) + column(line, index)?);
        }
    }
    sum
}

/// The busy time of the host's CPUs, in ticks, without idle time and steal. Guest time is part of
/// user time.
pub(crate) fn worked(text: &str) -> Option<u64> {
    let line = text.lines().next()?;
    [USER, NICE, SYSTEM, IRQ, SOFTIRQ].into_iter().map(|index| column(line, index)).sum()
}

/// Context switches since the host started.
pub(crate) fn context_switches(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("ctxt "))?.trim().parse().ok()
}

/// The first columns of each of some CPUs, in ticks.
pub(crate) fn by_cpu<const N: usize>(
    text: &str,
    cpus: &CpuSet,
) -> impl Iterator<Item = (u32, [u64; N])> {
    let lines = text.lines().take_while(|line| line.starts_with("cpu"));
    lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let mut columns = [0; N];
        for column in &mut columns {
            *column = words.next()?.parse().ok()?;
        }
        cpus.contains(cpu).then_some((cpu, columns))
    })
}
