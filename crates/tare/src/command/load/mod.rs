//! `tare load`, and the load agent for `tare weigh`.

use std::io::{BufReader, Write};
use std::time::Duration;

use anyhow::Context;
use tare_lab::study::WorkloadSpec;
use tare_load::load::LoadEvent;
use tare_load::pacing::{Pace, Schedule};
use tare_load::search::Search;
use tare_load::{LoadConfig, LoadError, LoadSpec};
use tare_std::cpus::CpuSet;

use crate::cli::{Load, LoadAgent, LoadTask, shipped_text};
use crate::command::doctor;
use crate::exit::{Exit, ExitWith};
use crate::live::LoadView;
use crate::signals;
use crate::stream::Output;

mod output;
mod spec;

/// How long to wait until the database accepts connections.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Load, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        Some(LoadTask::Merge(options)) => return output::merge(options, out),
        Some(LoadTask::Spec(options)) => return spec::run(options, out),
        None => {}
    }
    if let Some(name) = &options.workload.show {
        out.write_all(shipped_text(name)?.as_bytes())?;
        return Ok(Exit::Success);
    }
    options.pace.check().map_err(anyhow::Error::msg).exit_with(Exit::Usage)?;
    let config = config(options)?;
    let stop = signals::stop_flag()?;
    let is_interrupted = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let mut view = LoadView::new();
    let mut observe = |event: &LoadEvent<'_>| view.event(event);
    let exit = if let Some(slo) = options.pace.slo.clone() {
        let search = Search {
            slo,
            first_per_s: options.pace.rate.as_ref().and_then(|rates| Some(rates.0.first()?.0)),
            arrivals: options.pace.arrivals.into(),
            window: options.pace.duration,
            confirmations: options.pace.confirmations,
        };
        let found = tare_load::search::find_max(&config, &search, &stop, &mut observe);
        view.finish();
        let found = with_exit(found)?;
        match options.json {
            true => output::json(&found, out)?,
            false => output::search(&search.slo, &found, out)?,
        }
        if let Some(error) = &found.error {
            return Err(anyhow::anyhow!("the search failed: {error}"));
        }
        match found.rate_per_s {
            None if !found.is_unfinished => Exit::ObjectiveMissed,
            _ => Exit::Success,
        }
    } else {
        let report = tare_load::run(&config, &stop, &mut observe);
        view.finish();
        let report = with_exit(report)?;
        match options.json {
            true => output::json(&report, out)?,
            false => output::report(&report, out)?,
        }
        if let Some(error) = &report.log_error {
            return Err(anyhow::anyhow!("{error}; the log ends with its last complete interval"));
        }
        if report.errors.is_empty() { Exit::Success } else { Exit::Failure }
    };
    Ok(if is_interrupted() { Exit::Interrupted } else { exit })
}

/// Adds the exit code to an error of the load.
fn with_exit<T>(result: Result<T, LoadError>) -> anyhow::Result<T> {
    match result {
        Ok(found) => Ok(found),
        Err(error) => {
            let exit = match &error {
                LoadError::TlsAuthorities { .. } => Exit::Input,
                LoadError::Pin { .. } => Exit::Host,
                _ => Exit::Failure,
            };
            Err(error).exit_with(exit)
        }
    }
}

fn config(options: &Load) -> anyhow::Result<LoadConfig> {
    let cpus = match &options.cpus {
        Some(cpus) => cpus.clone(),
        None => first_cpu()?,
    };
    let asked = LoadSpec {
        workload: options.workload.resolve()?,
        part: options.workload.part,
        connections: options.connections,
        in_flight: options.in_flight,
    };
    let pace = match &options.pace.rate {
        None => Pace::Closed(options.pace.duration),
        Some(rates) => {
            let steps = rates.steps(options.pace.duration);
            Pace::Open(Schedule::new(steps, options.pace.arrivals.into())?)
        }
    };
    Ok(LoadConfig {
        access: options.access.resolve()?,
        cpus,
        spec: asked,
        pace,
        populate: options.workload.populate,
        lead_in: options.pace.lead_in,
        seed: options.seed,
        verify: options.workload.verify,
        hdr_file: options.hdr.clone(),
        connect_deadline: CONNECT_DEADLINE,
    })
}

/// Returns the lowest CPU that this process may use.
fn first_cpu() -> anyhow::Result<CpuSet> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    allowed
        .iter()
        .take(1)
        .map(|cpu| Ok(CpuSet::from_iter([cpu])))
        .next()
        .unwrap_or_else(|| anyhow::bail!("this process may use no CPU; check its cpuset"))
}

/// Returns the CPUs of a load agent. Refuses those that this process may not use.
fn agent_cpus(wanted: Option<&CpuSet>) -> anyhow::Result<CpuSet> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    let Some(wanted) = wanted else { return Ok(allowed) };
    let missing = wanted.difference(&allowed);
    if !missing.is_empty() {
        anyhow::bail!("CPU {missing} cannot be used here; this host lets it use CPU {allowed}");
    }
    Ok(wanted.clone())
}

pub(crate) fn agent(options: &LoadAgent) -> anyhow::Result<Exit> {
    if let Some(address) = options.reach {
        let limit = Duration::from_secs(5);
        std::net::TcpStream::connect_timeout(&address, limit)
            .with_context(|| format!("cannot connect to {address}"))?;
        return Ok(Exit::Success);
    }
    if let Some(parent) = options.parent {
        tare_driver::become_tool(parent, &options.tool)?;
    }
    if options.tools {
        serde_json::to_writer(Output, &doctor::load_tools())?;
        return Ok(Exit::Success);
    }
    if options.missing {
        let workloads: Vec<WorkloadSpec> = serde_json::from_reader(std::io::stdin())?;
        serde_json::to_writer(Output, &tare_driver::missing(&options.driver, &workloads))?;
        return Ok(Exit::Success);
    }
    let orders = BufReader::new(std::io::stdin());
    let agent = tare_driver::AgentOptions {
        driver: options.driver.clone(),
        cpus: agent_cpus(options.cpus.as_ref())?,
        silence: options.silence.map(Duration::from_secs),
        program: crate::own_program()?,
        speaks: options.speaks.clone(),
    };
    tare_driver::agent(&agent, orders, Output).context("the load agent failed")?;
    Ok(Exit::Success)
}
