//! `tare explain`: says which layers a cost comes from, by adding them one at a time in every
//! order.

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

use super::{derived, inside, report, weigh};
use crate::cli::Explain;
use crate::exit::{Exit, ExitWith};
use crate::{live, serve, signals, studies};

pub(crate) fn run(typed: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match is_record(Path::new(&typed.what)) {
        true => from_record(typed, out),
        false => from_study(typed, state, out),
    }
}

/// Whether a file is a database of SQLite, by its first bytes.
/// Source: <https://www.sqlite.org/fileformat2.html>, "Magic Header String".
fn is_record(path: &Path) -> bool {
    let mut head = [0u8; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    (read.is_ok() && head == *b"SQLite format 3\0") || path.extension().is_some_and(|e| e == "tare")
}

/// Explains what a record holds already.
fn from_record(typed: &Explain, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = Path::new(&typed.what);
    let record = report::read(path)?;
    let asked = |own: &String, asked: &Option<String>| asked.as_ref().is_none_or(|a| a == own);
    let own = Plan::of_record(&record);
    let plan = match own.filter(|p| asked(&p.from, &typed.from) && asked(&p.to, &typed.to)) {
        Some(plan) => plan,
        None => plan_over(&record, typed).exit_with(Exit::Input)?,
    };
    let stacks = report::stacks(path)?;
    present(&record, &plan, &stacks, typed, out)?;
    Ok(Exit::Success)
}

/// A plan over the environments that a record has.
fn plan_over(record: &Record, typed: &Explain) -> anyhow::Result<Plan> {
    let study = &record.study;
    let (from, to) = derive::ends(study, typed.from.as_deref(), typed.to.as_deref())?;
    // What was measured costs nothing: all orders.
    let (plan, specs) = Plan::new(from, to, &derive::go_together, usize::MAX, record.header.seed)?;
    let ran = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    let known: Vec<&EnvironmentSpec> = ran.map(|one| &one.spec).collect();
    plan.resolve_environments(&specs, &known).map_err(|error| {
        let word = match studies::find(&study.name) {
            Some(_) => study.name.clone(),
            None => "STUDY".to_string(),
        };
        let (from, to) = (&from.name, &to.name);
        anyhow!("{error}; to measure them: tare explain {word} --from {from:?} --to {to:?}")
    })
}

/// Weighs the environments between the two ends, and explains what was found.
fn from_study(typed: &Explain, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag_with(live::restore)?;
    let (study, original) = weigh::read_study(&typed.what, typed.quick)?;
    let seed = weigh::seed(typed.seed, &study);
    inside::check(&typed.inside, typed.show.page)?;
    let arrived = inside::arrived(&typed.inside);
    let mut destroy = typed.give_up.destroy_data_on.clone();
    destroy.extend(arrived.iter().flat_map(|here| here.devices.clone()));
    let mut question = weigh::Question {
        text: String::new(),
        resume: None,
        path: typed.output.clone().unwrap_or_default(),
        seed,
        plan_options: tare_tune::plan::Options::default(),
        facts: Vec::new(),
        stacks: None,
        destroy,
        progress: typed.show.progress,
        page: serve::listen(typed.show.page.serve)?,
        study,
    };
    let (from, to) = derive::ends(&question.study, typed.from.as_deref(), typed.to.as_deref())
        .exit_with(Exit::Input)?;
    let limit = room(&question)?.min(typed.environments as usize);
    let (plan, specs) =
        Plan::new(from, to, &derive::go_together, limit, seed).or_else(|error| {
            let exit = match error {
                PlanError::TooMany { .. } => Exit::Host,
                PlanError::Same { .. } | PlanError::Missing { .. } => Exit::Input,
            };
            Err(error).exit_with(exit)
        })?;
    let mut study = derive::derive(&question.study, &plan, specs);
    weigh::limit(&mut study, typed.rounds, typed.budget);
    question.text = derived::text("tare explain", &study, &question.study.name, &original);
    if arrived.is_some() {
        question.path = inside::record(None)?;
    } else if typed.output.is_none() {
        question.path = free_path(Path::new(&format!("{}.tare", study.name)));
    }
    question.facts = vec![plan.fact()];
    question.study = study;
    if inside::is_asked(&typed.inside) {
        question.check_free()?;
        let mut came = false;
        let exit = inside::run(&typed.inside, state, out, &stop, |folder| {
            came = inside::take_record(folder, &question.path)?;
            Ok(())
        })?;
        if came {
            conclude(&question.path, typed, out)?;
        }
        return Ok(exit);
    }
    let state = inside::state(&typed.inside, state);
    let (ending, left) = weigh::measure(&question, state, &stop)?;
    weigh::tell_left(&left);
    // From inside a guest the record is presented by the host.
    if arrived.is_none() {
        conclude(&question.path, typed, out)?;
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
    let plan = Plan::of_record(&record).context("the record holds no plan of an explanation")?;
    let page = path.with_extension("html");
    let stacks = report::stacks(path)?;
    fs::write(&page, tare_report::html::page(&record, &analyse(&record), &stacks)).with_context(
        || format!("the record is whole, but cannot write the page {}", page.display()),
    )?;
    present(&record, &plan, &stacks, typed, out)?;
    if !typed.json && !typed.csv {
        writeln!(out, "\nrecord: {}\npage:   {}", path.display(), page.display())?;
    }
    Ok(())
}

/// How many environments may be up at once, the control not counted.
fn room(question: &weigh::Question) -> anyhow::Result<usize> {
    let all = usize::MAX;
    if question.is_fake()? || question.study.schedule.kind == ScheduleKind::Trials {
        return Ok(all);
    }
    let Some(available) = weigh::memory_available_bytes() else { return Ok(all) };
    let fit = available / question.memory_per_environment().max(1);
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
        _ => tare_report::explain::render(record, &analysis, plan, stacks, report::style()),
    };
    write!(out, "{text}")?;
    Ok(())
}
