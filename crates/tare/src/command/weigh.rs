//! `tare weigh`: runs a study and reports it.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tare_lab::campaign::Ending;
use tare_lab::record::free_path;
use tare_lab::study::Study;
use tare_trace::Trace;
use tare_tune::plan::Options;

use super::report;
use crate::campaign::{CampaignConfig, cold, like, run, study, tuning};
use crate::cli::Weigh;
use crate::exit::Exit;
use crate::remote_run::place_loaders;
use crate::study_plan::{self, StudyPlan};
use crate::{cleanup, inside, live, serve, signals};

pub(crate) fn run(options: &Weigh, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let trace = options.like.as_deref().map(like::read).transpose()?;
    let mut config = config(options, trace.as_ref())?;
    if let Some(trace) = &trace {
        like::announce(trace);
    }
    if options.resume.is_none() {
        cold::choose_rows(&mut config.study, &config.plan_options, state)?;
    }
    if options.dry_run {
        return dry_run(config, options, trace.as_ref(), state, out);
    }
    study_plan::check_writes(&config.study, options.writes.yes)?;
    let stop = signals::stop_flag_with(live::restore)?;
    if inside::must_boot(&options.inside) {
        return run_in_guest(&config, options, state, out, &stop);
    }
    if options.resume.is_none() {
        study_plan::fit_budget(&mut config, options.budget.is_some(), state)?;
    }
    let state = inside::state_directory(&options.inside, state);
    let (ending, left) = run::measure(&config, state, &stop)?;
    cleanup::warn_left(&left);
    // The process on the host presents the record of a guest.
    if inside::current_guest(&options.inside).is_none() {
        report::present(&config.record, options.html.as_deref(), options.json, out)?;
    }
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Prints the plan of the study.
fn dry_run(
    mut config: CampaignConfig,
    options: &Weigh,
    trace: Option<&Trace>,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut whole = read_study(options, options.quick, trace)?.0;
    has_loaders_of(&mut whole, &config.study);
    whole.add_runtime_controls();
    study::limit(&mut whole, options.rounds, None);
    cold::choose_rows(&mut whole, &config.plan_options, state)?;
    // A study without a quick part is an error only for --quick.
    let mut quick = read_study(options, true, trace).ok().map(|(part, _)| part);
    if let Some(part) = &mut quick {
        has_loaders_of(part, &config.study);
    }
    StudyPlan::of(&mut config, &whole, quick.as_ref(), state)?.print(options.json, out)
}

/// Gives a part of a study the loaders that the study has on the nodes of its selectors.
fn has_loaders_of(part: &mut Study, study: &Study) {
    part.loaders.clone_from(&study.loaders);
    part.loader_selectors.clear();
}

/// Runs the study inside a guest, and presents its record.
fn run_in_guest(
    config: &CampaignConfig,
    options: &Weigh,
    state: &Path,
    out: &mut dyn Write,
    stop: &AtomicBool,
) -> anyhow::Result<Exit> {
    config.check_output()?;
    let mut has_record = false;
    let exit = inside::run(&options.inside, state, out, stop, |folder| {
        has_record = inside::fetch_record(folder, &config.record)?;
        Ok(())
    })?;
    if has_record {
        report::present(&config.record, options.html.as_deref(), options.json, out)?;
    }
    Ok(exit)
}

/// Reads the study of a command line, with its loaders and the load of a trace.
fn read_study(
    options: &Weigh,
    quick: bool,
    trace: Option<&Trace>,
) -> anyhow::Result<(Study, String)> {
    let loaders = options.loaders.all();
    let (mut study, mut text) = study::read_with(&options.study, quick, &loaders)?;
    if let Some(trace) = trace {
        like::replace(&mut study, &mut text, trace)?;
    }
    Ok((study, text))
}

/// Returns the campaign of a command line.
fn config(options: &Weigh, trace: Option<&Trace>) -> anyhow::Result<CampaignConfig> {
    let (mut study, study_text, seed, plan_options) = match &options.resume {
        Some(path) => {
            let record = report::read(path)?;
            let plan_options = tuning::plan_options_of(&record.host);
            (record.study, record.study_text, record.header.seed, plan_options)
        }
        None => {
            let (mut study, text) = read_study(options, options.quick, trace)?;
            study::place(&mut study, &options.elsewhere)?;
            place_loaders(&mut study, &[])?;
            study.add_runtime_controls();
            let seed = study::seed(options.seed, &mut study);
            (study, text, seed, Options::default())
        }
    };
    study::limit(&mut study, options.rounds, options.budget);
    let mut record = match (&options.resume, &options.output) {
        (Some(path), _) | (None, Some(path)) => path.clone(),
        (None, None) => free_path(Path::new(&format!("{}.tare", study.name))),
    };
    inside::check(&options.inside, options.show.page)?;
    let mut destroy = options.destroy.destroy_data_on.clone();
    let mut resume = options.resume.clone();
    if let Some(guest) = inside::current_guest(&options.inside) {
        record = inside::record(resume.as_deref())?;
        resume = resume.map(|_| record.clone());
        destroy.extend(guest.devices);
    }
    Ok(CampaignConfig {
        study,
        study_text,
        resume,
        record,
        seed,
        plan_options,
        facts: trace.map(like::facts).unwrap_or_default(),
        samples: Some(options.stacks.clone()),
        destroy,
        progress: options.show.progress,
        goal: None,
        image: options.on.image.get(),
        page: serve::listen(options.show.page.serve)?,
    })
}
