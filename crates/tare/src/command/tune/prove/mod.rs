//! `tare tune prove`: weighs an environment as it is, with its flags, and with a tuned host,
//! interleaved, and reports what each group of knobs gains. The host is left as it was found,
//! unless `--keep-only-proven` keeps the proven groups.

mod derive;

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_env::FactoryError;
use tare_lab::analysis::{self, analyse};
use tare_lab::campaign::Ending;
use tare_lab::record::{Record, free_path};
use tare_tune::knobs;
use tare_tune::plan::{Item, Options};
use tare_tune::{LiveHost, Outcome, Purpose, Tuning};

use crate::campaign::loaders::ConnectedLoaders;
use crate::campaign::tuning::StudyTuning;
use crate::campaign::{CampaignConfig, attached, cold, cpu_plan, run, study};
use crate::cli::TuneProve;
use crate::command::report;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::place_loaders;
use crate::{cleanup, live, serve, signals};

pub(crate) fn run(
    arguments: &TuneProve,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if !rustix::process::geteuid().is_root() {
        return Err(FactoryError::NoRoot).exit_with(Exit::Host);
    }
    let stop = signals::stop_flag_with(live::restore)?;
    let asked = arguments.loaders.all();
    let (mut study, original) = study::read_with(&arguments.study, false, &asked)?;
    place_loaders(&mut study, &[])?;
    attached::refuse(&study, "tare tune prove")?;
    let seed = study::seed(arguments.seed, &mut study);
    // What a killed run left behind would disturb the measurement.
    cleanup::before_run(state);
    let options = Options::from(&arguments.plan);
    cold::choose_rows(&mut study, &options, state)?;
    let image = arguments.on.image.get();
    let loaders = ConnectedLoaders::connect(&study, state, image.as_ref())?;
    let mut tuning = StudyTuning::prepare(state, &options, &study, loaders.as_ref())?;
    let names = tuning.choice.names(arguments.each_knob);
    let mut derived =
        derive::derive(&study, arguments.environment.as_deref(), &names).exit_with(Exit::Input)?;
    // The first environment is the baseline, the second the one to tune.
    tuning.proof_of = derived.environments.get(1).map(|spec| spec.name.clone());
    study::limit(&mut derived, arguments.rounds, arguments.budget);
    let text = derive::text(&derived, &study.name, &original);
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => free_path(Path::new(&format!("{}.tare", derived.name))),
    };
    let plan = cpu_plan::of_study(&derived, &options, state)?;
    let config = CampaignConfig {
        study: derived,
        study_text: text,
        resume: None,
        record: path,
        seed,
        plan_options: options,
        facts: Vec::new(),
        samples: None,
        destroy: arguments.destroy.destroy_data_on.clone(),
        progress: arguments.show.progress,
        goal: None,
        image,
        page: serve::listen(arguments.show.page.serve)?,
    };
    if config.is_fake()? {
        return Err(anyhow::anyhow!(
            "the study {} runs on the fake host, which cannot be tuned",
            study.name
        ))
        .exit_with(Exit::Input);
    }
    run::check(&config, &plan, state)?;
    let (ending, left) = run::measure_on_host(&config, state, plan, Some(&tuning), loaders, &stop)?;
    cleanup::warn_left(&left);
    let kept = match ending {
        Ending::Interrupted => Vec::new(),
        _ if arguments.keep_only_proven => keep_proven(&config.record, &tuning, &names, state)?,
        _ => Vec::new(),
    };
    print(arguments, &config.record, &names, &kept, out)?;
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Applies the changes of the groups or knobs that were proven to help, to stay. Returns their
/// names with their numbers of settings.
fn keep_proven(
    record: &Path,
    tuning: &StudyTuning,
    names: &[String],
    state: &Path,
) -> anyhow::Result<Vec<(String, usize)>> {
    let record = Record::read(record)?;
    let analysed = analyse(&record);
    let proven = analysis::tuning::proven(&analysis::tuning::gains(&record, &analysed));
    let items = to_keep(&tuning.choice.items, names, &proven);
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let mut store = LiveHost::new("/");
    let mut kept = Tuning::begin(state, &store, Purpose::Keep)?;
    kept.keep_for_interrupts(tuning.choice.interrupt_cpus.clone());
    let applied = kept.apply(&mut store, &items)?;
    let in_force: Vec<&Item> = applied
        .items
        .iter()
        .filter(|one| matches!(one.outcome, Outcome::Written { .. } | Outcome::Already))
        .map(|one| &one.item)
        .collect();
    let count = |name: &String| {
        let count = in_force.iter().filter(|item| knobs::selects(name, item)).count();
        (count > 0).then(|| (name.clone(), count))
    };
    Ok(names.iter().filter_map(count).collect())
}

/// Returns the items of the proven groups or knobs. A proof of all together proves none of them,
/// unless there is only one.
fn to_keep(items: &[Item], names: &[String], proven: &[String]) -> Vec<Item> {
    let whole = names.len() == 1 && proven.iter().any(|proven| proven == "all");
    let named = |item: &Item| proven.iter().any(|name| knobs::selects(name, item));
    items.iter().filter(|item| whole || named(item)).cloned().collect()
}

/// Prints the result, and which changes were kept and restored.
fn print(
    arguments: &TuneProve,
    record: &Path,
    names: &[String],
    kept: &[(String, usize)],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let restored: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| kept.iter().all(|(kept, _)| kept != name))
        .collect();
    let mut printed = Vec::new();
    report::present(record, None, arguments.json, &mut printed)?;
    if arguments.json {
        let mut json: serde_json::Value = serde_json::from_slice(&printed)?;
        let kept: Vec<&str> = kept.iter().map(|(group, _)| group.as_str()).collect();
        json["host_tuning_left"] = json!({ "kept": kept, "put_back": restored });
        writeln!(out, "{}", serde_json::to_string_pretty(&json)?)?;
        return Ok(());
    }
    out.write_all(&printed)?;
    let mut lines = Vec::new();
    for (group, settings) in kept {
        lines.push(format!("kept: {group}, {settings} settings; tare tune revert undoes them"));
    }
    if !restored.is_empty() {
        let why = if arguments.keep_only_proven { ": not proven to help" } else { "" };
        lines.push(format!("restored: {}{why}", restored.join(", ")));
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_tune::plan::{Action, Group};

    #[test]
    fn only_groups_proven_alone_are_kept() {
        let item = |group: Group| Item {
            knob: group.name().into(),
            group,
            subject: "host".into(),
            what: String::new(),
            action: Action::AlreadySet { now: String::new() },
            why: String::new(),
            risk: String::new(),
            owner: None,
            survives_reboot: false,
        };
        let (disk, network) = (item(Group::Disk), item(Group::Network));
        let both = [disk.clone(), network.clone()];
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
        let keep = |names: &[String], proven: &[&str]| to_keep(&both, names, &list(proven));
        let groups = list(&["network", "disk"]);
        assert_eq!(keep(&groups, &["all", "disk"]), std::slice::from_ref(&disk));
        assert!(keep(&groups, &["all"]).is_empty());
        assert!(keep(&groups, &[]).is_empty());
        let one = to_keep(std::slice::from_ref(&disk), &list(&["disk"]), &["all".into()]);
        assert_eq!(one, [disk]);
        assert_eq!(keep(&groups, &["network", "disk"]).len(), 2);
    }
}
