//! The results of `tare load`.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use serde::Serialize;
use tare_load::histogram::Quantiles;
use tare_load::log::Merged;
use tare_load::report::{InKernelReport, StepReport, Verified};
use tare_load::search::{SearchReport, Slo};
use tare_load::{LoadReport, Recovered};
use tare_std::units::{nanoseconds, significant, thousands};

use crate::cli::Merge;
use crate::exit::{Exit, ExitWith};

pub(super) fn json(result: &impl Serialize, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, result).context("cannot print the result")?;
    writeln!(out)?;
    Ok(())
}

pub(super) fn report(report: &LoadReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let rate = report.rate_per_s.map(|rate| format!(" at {} op/s", significant(rate, 4)));
    let spread = if report.arrivals == Some("poisson") { ", at random" } else { "" };
    writeln!(
        out,
        "{} loop{}{spread}: {} operations in {:.2} s, {} op/s",
        report.pacing,
        rate.unwrap_or_default(),
        thousands(report.operations),
        report.window_s,
        significant(report.throughput_per_s, 4),
    )?;
    head("latency", out)?;
    if let Some(response) = &report.response {
        row("response", response, out)?;
    }
    row("service", &report.service, out)?;
    if let Some(InKernelReport { response, service, missing }) = &report.in_kernel {
        if let Some(response) = response {
            row("kernel response", response, out)?;
        }
        row("kernel service", service, out)?;
        if *missing > 0 {
            writeln!(out, "{} operations without times of the kernel", thousands(*missing))?;
        }
    }
    if report.by_operation.len() > 1 {
        for operation in &report.by_operation {
            let name = &operation.operation;
            if let Some(response) = &operation.response {
                row(&format!("{name} response"), response, out)?;
            }
            row(&format!("{name} service"), &operation.service, out)?;
        }
    }
    if report.pacing == "closed" {
        writeln!(
            out,
            "closed loop: service time only; operations that a stall delayed are hidden"
        )?;
    }
    steps(&report.steps, out)?;
    let cpu =
        report.client_cpu_us_per_operation.map_or_else(|| "-".into(), |us| significant(us, 3));
    writeln!(
        out,
        "client CPU {cpu} µs per operation, {:.0} % of its CPUs",
        100.0 * report.client_cpu_share
    )?;
    if let Some(late) = &report.late {
        writeln!(
            out,
            "sent later than due: p99 {}, max {}; {} by more than 1 ms, {} never sent",
            nanoseconds(late.p99_ns as f64),
            nanoseconds(late.max_ns as f64),
            thousands(report.late_count),
            thousands(report.dropped),
        )?;
    }
    let without = &report.without_service;
    if let Some(longest_at_s) = without.longest_at_s {
        writeln!(
            out,
            "without service: {} in {} times, the longest {} from {longest_at_s:.1} s on",
            nanoseconds(without.total_s * 1e9),
            without.count,
            nanoseconds(without.longest_s * 1e9),
        )?;
    }
    if report.not_found > 0 {
        let count = thousands(report.not_found);
        writeln!(out, "{count} operations found no row, as expected")?;
    }
    if let Some(Verified { checked, wrong, stale, lost }) = report.verify {
        let [checked, wrong, stale, lost] = [checked, wrong, stale, lost].map(thousands);
        writeln!(out, "verified: {checked} reads, {wrong} wrong, {stale} stale, {lost} lost")?;
    }
    print_recovery(&report.recovery, out)?;
    for error in &report.errors {
        writeln!(out, "errors: {} x {}: {}", thousands(error.count), error.kind, error.first)?;
    }
    for doubt in &report.doubts {
        writeln!(out, "doubt: {}; {}", doubt.text, doubt.advice)?;
    }
    Ok(())
}

/// Prints the retries and other reactions to failures, if there were any.
fn print_recovery(recovery: &Recovered, out: &mut dyn Write) -> std::io::Result<()> {
    let all = [
        (recovery.timeouts, "attempts timed out"),
        (recovery.retries, "sent again"),
        (recovery.speculative, "sent a second time"),
        (recovery.speculative_won, "of those with the first response"),
        (recovery.unused_answers, "responses that came too late"),
        (recovery.reprepared, "statements prepared again"),
        (recovery.reconnects, "connections reopened"),
    ];
    let happened = all.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> =
        happened.map(|(count, what)| format!("{} {what}", thousands(*count))).collect();
    if !parts.is_empty() {
        writeln!(out, "recovery: {}", parts.join(", "))?;
    }
    Ok(())
}

fn head(name: &str, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{name:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "mean", "p50", "p95", "p99", "p99.9", "max"
    )
}

fn row(name: &str, quantiles: &Quantiles, out: &mut dyn Write) -> std::io::Result<()> {
    write!(out, "{name:<16}{:>10}", nanoseconds(quantiles.mean_ns))?;
    for ns in
        [quantiles.p50_ns, quantiles.p95_ns, quantiles.p99_ns, quantiles.p999_ns, quantiles.max_ns]
    {
        write!(out, "{:>10}", nanoseconds(ns as f64))?;
    }
    writeln!(out)
}

/// Prints the steps of a schedule, with the response times of the operations that ended in each.
fn steps(steps: &[StepReport], out: &mut dyn Write) -> std::io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "step, op/s", "reached", "p50", "p99", "p99.9", "max", "late", "failed"
    )?;
    for step in steps {
        let mut planned = significant(step.from_per_s, 4);
        if step.from_per_s != step.to_per_s {
            planned = format!("{planned}..{}", significant(step.to_per_s, 4));
        }
        let response = &step.response;
        write!(out, "{planned:<16}{:>10}", significant(step.throughput_per_s, 4))?;
        for ns in [response.p50_ns, response.p99_ns, response.p999_ns, response.max_ns] {
            write!(out, "{:>10}", nanoseconds(ns as f64))?;
        }
        writeln!(out, "{:>10}{:>10}", thousands(step.late_count), thousands(step.failed))?;
    }
    Ok(())
}

/// Prints the result of a search in one line, below the latencies at each rate.
pub(super) fn search(slo: &Slo, found: &SearchReport, out: &mut dyn Write) -> anyhow::Result<()> {
    if !found.runs.is_empty() {
        write!(out, "{:<12}{:>12}{:>12}", "run", "rate, op/s", "reached")?;
        for limit in slo.limits() {
            write!(out, "{:>20}", limit.to_string())?;
        }
        writeln!(out)?;
    }
    let mut runs: Vec<_> = found.runs.iter().collect();
    runs.sort_by(|one, other| one.rate_per_s.total_cmp(&other.rate_per_s));
    for tried in runs {
        let kind = if tried.confirms { "confirming" } else { "bracketing" };
        let (rate, reached) =
            (significant(tried.rate_per_s, 4), significant(tried.throughput_per_s, 4));
        write!(out, "{kind:<12}{rate:>12}{reached:>12}")?;
        for latency in &tried.latencies_ns {
            let text = latency.map_or_else(|| "never".into(), |ns| nanoseconds(ns as f64));
            write!(out, "{text:>20}")?;
        }
        writeln!(out, "{}", if tried.holds { "  holds" } else { "  breaks" })?;
    }
    let rate = |rate: f64| format!("{} op/s", significant(rate, 4));
    match (found.rate_per_s, found.broken_per_s) {
        (Some(holds), broken) => {
            let broken = broken.map_or_else(
                || "no rate broke it in every run".to_string(),
                |broken| format!("from {} on it breaks in every run", rate(broken)),
            );
            writeln!(
                out,
                "{slo}: holds up to {} in each of {} runs; {broken}",
                rate(holds),
                found.confirmations
            )?;
        }
        (None, _) if found.is_unfinished => writeln!(out, "{slo}: the search was not completed")?,
        (None, _) => {
            let lowest = found.runs.iter().map(|tried| tried.rate_per_s);
            let lowest = lowest.fold(f64::INFINITY, f64::min);
            writeln!(out, "{slo}: not met, not even at {}", rate(lowest))?;
        }
    }
    if let (Some(_), true) = (found.rate_per_s, found.is_unfinished) {
        writeln!(out, "the search was not completed; the rate is the best known so far")?;
    }
    Ok(())
}

/// Runs `tare load merge`.
pub(super) fn merge(options: &Merge, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let to_stdout = options.output.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let merged = match &options.output {
        None => tare_load::log::merge(&options.logs, &mut std::io::sink()),
        Some(_) if to_stdout => tare_load::log::merge(&options.logs, out),
        Some(path) => {
            let file = File::create(path)
                .with_context(|| format!("cannot write the merged log {}", path.display()))?;
            tare_load::log::merge(&options.logs, &mut BufWriter::new(file))
        }
    };
    let merged = match merged {
        Ok(merged) => merged,
        Err(error) => {
            let exit = match &error {
                tare_load::log::MergeError::Write { .. } => Exit::Failure,
                _ => Exit::Input,
            };
            return Err(error).exit_with(exit);
        }
    };
    match (to_stdout, options.json) {
        (true, _) => {}
        (false, true) => json(&merged, out)?,
        (false, false) => table(&merged, out)?,
    }
    Ok(Exit::Success)
}

fn table(merged: &Merged, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{} logs, {} intervals, merged into {}",
        merged.logs, merged.intervals_read, merged.intervals_written
    )?;
    head("tag", out)?;
    for tag in &merged.tags {
        row(&tag.tag, &tag.quantiles, out)?;
    }
    let counts = merged.tags.iter().map(|tag| {
        let name = if tag.tag.is_empty() { "no tag" } else { &tag.tag };
        format!("{name} {}", thousands(tag.quantiles.count))
    });
    writeln!(out, "counts: {}", counts.collect::<Vec<_>>().join(", "))?;
    Ok(())
}
