//! `tare explain`: attributes a cost to layers, by adding them one at a time in every order.

mod derive;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use tare_lab::ablation::{Plan, PlanError};
use tare_lab::analysis::analyse;
use tare_lab::campaign::Ending;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::record::{Record, free_path};
use tare_lab::stacks::StackSlice;
use tare_lab::study::ScheduleKind;

use super::report;
use crate::campaign::{CampaignConfig, derived, run, study};
use crate::cli::Explain;
use crate::exit::{Exit, ExitWith};
use crate::terminal::style;
use crate::{cleanup, inside, live, serve, signals, studies};

pub(crate) fn run(typed: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match is_record(Path::new(&typed.what)) {
        true => from_record(typed, out),
        false => from_study(typed, state, out),
    }
}

/// Returns whether a file is a SQLite database, by its first bytes, or has the name of a record.
/// Source: <https://www.sqlite.org/fileformat2.html>, "Magic Header String".
fn is_record(path: &Path) -> bool {
    let mut head = [0u8; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    (read.is_ok() && head == *b"SQLite format 3\0") || path.extension().is_some_and(|e| e == "tare")
}

/// Explains the costs in a record, without measuring.
fn from_record(typed: &Explain, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = Path::new(&typed.what);
    let record = report::read(path)?;
    let matches = |own: &String, name: &Option<String>| name.as_ref().is_none_or(|n| n == own);
    let own = Plan::of_record(&record);
    let plan = match own.filter(|p| matches(&p.from, &typed.from) && matches(&p.to, &typed.to)) {
        Some(plan) => plan,
        None => plan_over(&record, typed).exit_with(Exit::Input)?,
    };
    let stacks = report::stacks(path)?;
    present(&record, &plan, &stacks, typed, out)?;
    Ok(Exit::Success)
}

/// Returns a plan over the environments of a record.
fn plan_over(record: &Record, typed: &Explain) -> anyhow::Result<Plan> {
    let study = &record.study;
    let (from, to) = derive::ends(study, typed.from.as_deref(), typed.to.as_deref())?;
    // These environments are measured already, so all orders are used.
    let (plan, specs) =
        Plan::new(from, to, &derive::are_compatible, usize::MAX, record.header.seed)?;
    let ran = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    let known: Vec<&EnvironmentSpec> = ran.map(|one| &one.spec).collect();
    plan.found_among(&specs, &known).map_err(|error| {
        let name = match studies::find(&study.name) {
            Some(_) => study.name.clone(),
            None => "STUDY".to_string(),
        };
        let (from, to) = (&from.name, &to.name);
        anyhow!("{error}; to measure them: tare explain {name} --from {from:?} --to {to:?}")
    })
}

/// Weighs the environments between the two compared ones, and explains the cost.
fn from_study(typed: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag_with(live::restore)?;
    let (study, original) = study::read(&typed.what, typed.quick)?;
    let seed = study::seed(typed.seed, &study);
    inside::check(&typed.inside, typed.show.page)?;
    let guest = inside::current_guest(&typed.inside);
    let mut destroy = typed.destroy.destroy_data_on.clone();
    destroy.extend(guest.iter().flat_map(|guest| guest.devices.clone()));
    let mut config = CampaignConfig {
        study_text: String::new(),
        resume: None,
        record: typed.output.clone().unwrap_or_default(),
        seed,
        plan_options: tare_tune::plan::Options::default(),
        facts: Vec::new(),
        samples: None,
        destroy,
        progress: typed.show.progress,
        page: serve::listen(typed.show.page.serve)?,
        study,
    };
    let (from, to) = derive::ends(&config.study, typed.from.as_deref(), typed.to.as_deref())
        .exit_with(Exit::Input)?;
    let limit = environments_max(&config)?.min(typed.environments as usize);
    let (plan, specs) =
        Plan::new(from, to, &derive::are_compatible, limit, seed).or_else(|error| {
            let exit = match error {
                PlanError::TooMany { .. } => Exit::Host,
                PlanError::Same { .. } | PlanError::Missing { .. } => Exit::Input,
            };
            Err(error).exit_with(exit)
        })?;
    let mut study = derive::derive(&config.study, &plan, specs);
    study::limit(&mut study, typed.rounds, typed.budget);
    config.study_text = derived::text("tare explain", &study, &config.study.name, &original);
    if guest.is_some() {
        config.record = inside::record(None)?;
    } else if typed.output.is_none() {
        config.record = free_path(Path::new(&format!("{}.tare", study.name)));
    }
    config.facts = vec![plan.fact()];
    config.study = study;
    if inside::must_boot(&typed.inside) {
        config.check_output()?;
        let mut has_record = false;
        let exit = inside::run(&typed.inside, state, out, &stop, |folder| {
            has_record = inside::fetch_record(folder, &config.record)?;
            Ok(())
        })?;
        if has_record {
            conclude(&config.record, typed, out)?;
        }
        return Ok(exit);
    }
    let state = inside::state_directory(&typed.inside, state);
    let (ending, left) = run::measure(&config, state, &stop)?;
    cleanup::warn_left(&left);
    // The process on the host presents the record of a guest.
    if guest.is_none() {
        conclude(&config.record, typed, out)?;
    }
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Explains a record that was just measured, and writes its page.
fn conclude(path: &Path, typed: &Explain, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = Record::read(path)?;
    let plan = Plan::of_record(&record).context("the record holds no explanation plan")?;
    let page = path.with_extension("html");
    let stacks = report::stacks(path)?;
    fs::write(&page, tare_report::html::page(&record, &analyse(&record), &stacks)).with_context(
        || format!("the record is complete, but cannot write the page {}", page.display()),
    )?;
    present(&record, &plan, &stacks, typed, out)?;
    if !typed.json && !typed.csv {
        writeln!(out, "\nrecord: {}\npage:   {}", path.display(), page.display())?;
    }
    Ok(())
}

/// Returns how many environments fit into memory at once, the control not counted.
fn environments_max(config: &CampaignConfig) -> anyhow::Result<usize> {
    let all = usize::MAX;
    if config.is_fake()? || config.study.schedule.kind == ScheduleKind::Trials {
        return Ok(all);
    }
    let Some(available) = run::memory_available_bytes() else { return Ok(all) };
    let fit = available / config.memory_per_environment().max(1);
    Ok(usize::try_from(fit).unwrap_or(all).saturating_sub(1))
}

fn present(
    record: &Record,
    plan: &Plan,
    stacks: &[StackSlice],
    typed: &Explain,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let analysis = analyse(record);
    let text = match (typed.json, typed.csv) {
        (true, _) => tare_report::explain::json(record, &analysis, plan, stacks) + "\n",
        (_, true) => tare_report::explain::csv(record, plan),
        _ => tare_report::explain::render(record, &analysis, plan, stacks, style()),
    };
    write!(out, "{text}")?;
    Ok(())
}
