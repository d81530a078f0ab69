//! `tare explain`: attributes a cost to layers, by adding them one at a time in every order.

mod attach;
mod derive;

use std::fs;
use std::io::Write;
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
use crate::campaign::{CampaignConfig, attached, cold, cpu_plan, derived, run, space, study};
use crate::cli::Explain;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::place_loaders;
use crate::study_plan::{StudyPlan, check_writes};
use crate::terminal::style;
use crate::{cleanup, inside, live, serve, signals, studies};

pub(crate) fn run(arguments: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(target) = &arguments.attach {
        return attach::run(target, arguments, out);
    }
    match report::is_record(Path::new(arguments.what())) {
        true => from_record(arguments, out),
        false => from_study(arguments, state, out),
    }
}

/// Explains the costs in a record, without measuring.
fn from_record(arguments: &Explain, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = Path::new(arguments.what());
    if arguments.dry_run {
        let file = path.display();
        return Err(anyhow!(
            "{file} is a record, which is explained without measuring; leave out --dry-run"
        ))
        .exit_with(Exit::Usage);
    }
    let record = report::read(path)?;
    let matches = |own: &String, name: &Option<String>| name.as_ref().is_none_or(|n| n == own);
    let own = Plan::of_record(&record);
    let plan =
        match own.filter(|p| matches(&p.from, &arguments.from) && matches(&p.to, &arguments.to)) {
            Some(plan) => plan,
            None => plan_over(&record, arguments).exit_with(Exit::Input)?,
        };
    let stacks = report::stacks(path)?;
    present(&record, &plan, &stacks, arguments, out)?;
    Ok(Exit::Success)
}

/// Returns a plan over the environments of a record.
fn plan_over(record: &Record, arguments: &Explain) -> anyhow::Result<Plan> {
    let study = &record.study;
    let (from, to) = derive::ends(study, arguments.from.as_deref(), arguments.to.as_deref())?;
    // These environments are measured already, so all orders are used.
    let (plan, specs) =
        Plan::new(from, to, &derive::are_compatible, usize::MAX, record.header.seed)?;
    let ran = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    let known: Vec<&EnvironmentSpec> = ran.map(|one| &one.spec).collect();
    plan.resolve_environments(&specs, &known).map_err(|error| {
        let name = match studies::find(&study.name) {
            Some(_) => study.name.clone(),
            None => "STUDY".to_string(),
        };
        let (from, to) = (&from.name, &to.name);
        anyhow!("{error}; to measure them: tare explain {name} --from {from:?} --to {to:?}")
    })
}

/// Weighs the environments between the two compared ones, and explains the cost.
fn from_study(arguments: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag_with(live::restore)?;
    let (mut study, original) = study::read(arguments.what(), arguments.quick)?;
    place_loaders(&mut study, &[])?;
    attached::refuse(&study, "tare explain")?;
    cold::choose_rows(&mut study, &tare_tune::plan::Options::default(), state)?;
    let seed = study::seed(arguments.seed, &mut study);
    inside::check(&arguments.inside, arguments.show.page)?;
    let guest = inside::current_guest(&arguments.inside);
    let mut destroy = arguments.destroy.destroy_data_on.clone();
    destroy.extend(guest.iter().flat_map(|guest| guest.devices.clone()));
    let mut config = CampaignConfig {
        study_text: String::new(),
        resume: None,
        record: arguments.output.clone().unwrap_or_default(),
        seed,
        plan_options: tare_tune::plan::Options::default(),
        facts: Vec::new(),
        samples: None,
        destroy,
        progress: arguments.show.progress,
        goal: None,
        image: arguments.on.image.get(),
        page: serve::listen(arguments.show.page.serve)?,
        study,
    };
    let (from, to) =
        derive::ends(&config.study, arguments.from.as_deref(), arguments.to.as_deref())
            .exit_with(Exit::Input)?;
    let limit = environments_max(&config, state)?.min(arguments.environments as usize);
    let (plan, specs) =
        Plan::new(from, to, &derive::are_compatible, limit, seed).or_else(|error| {
            let exit = match error {
                PlanError::TooMany { .. } => Exit::Host,
                PlanError::Same { .. }
                | PlanError::TooManyLayers { .. }
                | PlanError::Missing { .. } => Exit::Input,
            };
            Err(error).exit_with(exit)
        })?;
    let mut study = derive::derive(&config.study, &plan, specs);
    study::limit(&mut study, arguments.rounds, arguments.budget);
    config.study_text = derived::text("tare explain", &study, &config.study.name, &original);
    if guest.is_some() {
        config.record = inside::record(None)?;
    } else if arguments.output.is_none() {
        config.record = free_path(Path::new(&format!("{}.tare", study.name)));
    }
    config.facts = vec![plan.fact()];
    config.study = study;
    if arguments.dry_run {
        // Nothing is left out for a budget: the shares need every environment.
        let whole = config.study.clone();
        return StudyPlan::of(&mut config, &whole, None, state)?.print(arguments.json, out);
    }
    check_writes(&config.study, arguments.writes.yes)?;
    if inside::must_boot(&arguments.inside) {
        config.check_output()?;
        let mut has_record = false;
        let exit = inside::run(&arguments.inside, state, out, &stop, |folder| {
            has_record = inside::fetch_record(folder, &config.record)?;
            Ok(())
        })?;
        if has_record {
            conclude(&config.record, arguments, out)?;
        }
        return Ok(exit);
    }
    let state = inside::state_directory(&arguments.inside, state);
    let (ending, left) = run::measure(&config, state, &stop)?;
    cleanup::warn_left(&left);
    // The process on the host presents the record of a guest.
    if guest.is_none() {
        conclude(&config.record, arguments, out)?;
    }
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Explains a record that was just measured, and writes its page.
fn conclude(path: &Path, arguments: &Explain, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = Record::read(path)?;
    let plan = Plan::of_record(&record).context("the record holds no explanation plan")?;
    let page = path.with_extension("html");
    let stacks = report::stacks(path)?;
    fs::write(&page, tare_report::html::page(&record, &analyse(&record), &stacks)).with_context(
        || format!("the record is complete, but cannot write the page {}", page.display()),
    )?;
    present(&record, &plan, &stacks, arguments, out)?;
    if !arguments.json && !arguments.csv {
        writeln!(out, "\nrecord: {}\npage:   {}", path.display(), page.display())?;
    }
    Ok(())
}

/// Returns how many environments fit into memory at once, the control not counted.
fn environments_max(config: &CampaignConfig, state: &Path) -> anyhow::Result<usize> {
    let all = usize::MAX;
    if config.is_fake()? || config.study.schedule.kind == ScheduleKind::Trials {
        return Ok(all);
    }
    let Some(available) = space::memory_available_bytes() else { return Ok(all) };
    let plan = cpu_plan::of_study(&config.study, &config.plan_options, state)?;
    let fit = available / config.memory_per_environment(&plan).max(1);
    Ok(usize::try_from(fit).unwrap_or(all).saturating_sub(1))
}

fn present(
    record: &Record,
    plan: &Plan,
    stacks: &[StackSlice],
    arguments: &Explain,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let analysis = analyse(record);
    let text = match (arguments.json, arguments.csv) {
        (true, _) => tare_report::explain::json(record, &analysis, plan, stacks) + "\n",
        (_, true) => tare_report::explain::csv(record, plan),
        _ => tare_report::explain::render(record, &analysis, plan, stacks, style()),
    };
    write!(out, "{text}")?;
    Ok(())
}
