//! `tare load`, and the load agent that `tare weigh` starts.

use std::io::{BufReader, Write};
use std::time::Duration;

use anyhow::Context;
use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_load::pacing::{Arrivals, Pace, Schedule, Step};
use tare_load::rows::KeyType;
use tare_load::{LoadConfig, LoadError, LoadReport, Recovered};
use tare_std::cpus::CpuSet;
use tare_std::units::{nanoseconds, significant, thousands};

use crate::cli::{Keys, Load, LoadAgent, Operation};
use crate::exit::{Exit, ExitWith};
use crate::signals;

/// How long to wait for the database to answer at all.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Load, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = config(options)?;
    let stop = signals::stop_flag()?;
    let mut progress = std::io::stderr();
    let report = tare_load::run(&config, &stop, &mut progress).map_err(|error| {
        let exit = match &error {
            LoadError::Connect { .. } => Exit::Host,
            _ => Exit::Failure,
        };
        (error, exit)
    });
    let report = match report {
        Ok(report) => report,
        Err((error, exit)) => return Err(error).exit_with(exit),
    };
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &report).context("cannot print the result")?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    let interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    Ok(match report.errors.is_empty() {
        _ if interrupted => Exit::Interrupted,
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn config(options: &Load) -> anyhow::Result<LoadConfig> {
    let cpus = match &options.cpus {
        Some(cpus) => cpus.clone(),
        None => first_cpu()?,
    };
    let write_share = match options.operation {
        Operation::Write => 1.0,
        Operation::Read => 0.0,
        Operation::Mixed => options.write_share,
    };
    let keys = match options.keys {
        Keys::Uniform => KeyDistribution::Uniform,
        Keys::Sequential => KeyDistribution::Sequential,
        Keys::Gaussian => KeyDistribution::Gaussian {
            mean_share: options.keys_mean,
            deviation_share: options.keys_deviation,
        },
    };
    let workload = WorkloadSpec {
        name: "load".into(),
        write_share,
        rows: options.rows,
        columns: options.columns,
        column_bytes: options.column_bytes,
        keys,
        connections: options.connections,
        in_flight: options.in_flight,
        latency_share: 0.0,
        rate_per_s: options.rate,
        options: Vec::new(),
    };
    let pace = match options.rate {
        None => Pace::Closed(options.duration),
        Some(rate_per_s) => {
            let steps = vec![Step::steady(rate_per_s, options.duration)];
            Pace::Open(Schedule::new(steps, Arrivals::Constant)?)
        }
    };
    Ok(LoadConfig {
        access: options.access.resolve()?,
        cpus,
        workload,
        key_type: KeyType::default(),
        pace,
        populate: options.populate,
        lead_in: options.lead_in,
        seed: options.seed,
        verify: options.verify,
        hdr_file: options.hdr_file.clone(),
        connect_deadline: CONNECT_DEADLINE,
    })
}

/// The lowest CPU that this process may use.
fn first_cpu() -> anyhow::Result<CpuSet> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    allowed
        .iter()
        .take(1)
        .map(|cpu| Ok(CpuSet::from_iter([cpu])))
        .next()
        .unwrap_or_else(|| anyhow::bail!("this process may use no CPU; look at its cpuset"))
}

fn print(report: &LoadReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let rate = report.rate_per_s.map(|rate| format!(" at {} op/s", significant(rate, 4)));
    writeln!(
        out,
        "{} loop{}: {} operations in {:.2} s, {} op/s",
        report.pacing,
        rate.unwrap_or_default(),
        thousands(report.operations),
        report.window_s,
        significant(report.throughput_per_s, 4),
    )?;
    let rows = [("response", report.response.as_ref()), ("service", Some(&report.service))];
    writeln!(
        out,
        "{:<9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "latency", "mean", "p50", "p95", "p99", "p99.9", "max"
    )?;
    for (name, quantiles) in rows.into_iter().filter_map(|(name, q)| q.map(|q| (name, q))) {
        write!(out, "{name:<9}{:>10}", nanoseconds(quantiles.mean_ns))?;
        for ns in [
            quantiles.p50_ns,
            quantiles.p95_ns,
            quantiles.p99_ns,
            quantiles.p999_ns,
            quantiles.max_ns,
        ] {
            write!(out, "{:>10}", nanoseconds(ns as f64))?;
        }
        writeln!(out)?;
    }
    if report.pacing == "closed" {
        writeln!(out, "closed loop: service time only; a stall hides the operations it delayed")?;
    }
    let cpu =
        report.client_cpu_us_per_operation.map_or_else(|| "-".into(), |us| significant(us, 3));
    writeln!(
        out,
        "client CPU {cpu} µs per operation, {:.0} % of its CPUs",
        100.0 * report.client_cpu_share
    )?;
    if report.client_cpu_share > 0.85 {
        writeln!(
            out,
            "doubt: the client was saturated; it may be what was measured; give it more --cpus"
        )?;
    }
    if report.dropped > 0 {
        writeln!(out, "{} operations were due and never sent", thousands(report.dropped))?;
    }
    print_recovery(&report.recovery, out)?;
    for error in &report.errors {
        writeln!(out, "errors: {} x {}: {}", thousands(error.count), error.kind, error.first)?;
    }
    Ok(())
}

/// What was done about failures, if anything.
fn print_recovery(recovery: &Recovered, out: &mut dyn Write) -> anyhow::Result<()> {
    let all = [
        (recovery.timeouts, "attempts timed out"),
        (recovery.retries, "sent again"),
        (recovery.speculative, "sent a second time"),
        (recovery.speculative_won, "of those answered first"),
        (recovery.unused_answers, "answers that came too late"),
        (recovery.reprepared, "statements prepared again"),
        (recovery.reconnects, "connections made again"),
    ];
    let happened = all.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> =
        happened.map(|(count, what)| format!("{} {what}", thousands(*count))).collect();
    if !parts.is_empty() {
        writeln!(out, "recovery: {}", parts.join(", "))?;
    }
    Ok(())
}

pub(crate) fn agent(options: &LoadAgent) -> anyhow::Result<Exit> {
    let orders = BufReader::new(std::io::stdin());
    tare_load::agent(&options.cpus, orders, std::io::stdout()).context("the load agent failed")?;
    Ok(Exit::Success)
}
