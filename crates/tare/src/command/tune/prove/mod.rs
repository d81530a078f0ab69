//! `tare tune prove`: weighs an environment as it comes, with its flags, and with the host tuned
//! too, in turns, and says what each group of knobs gains. The host is left as it was found, unless
//! what is proven is to be kept.

mod derive;

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tare_env::FactoryError;
use tare_lab::analysis::{analyse, tuning};
use tare_lab::campaign::Ending;
use tare_lab::cpus;
use tare_lab::record::{Record, free_path};
use tare_tune::plan::{Group, Item, Options};
use tare_tune::{LiveHost, Outcome, Purpose, Tuning};

use super::temporary::Temporary;
use crate::cli::TuneProve;
use crate::command::{clean, weigh};
use crate::exit::{Exit, ExitWith};
use crate::{live, signals};

pub(crate) fn run(typed: &TuneProve, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if !rustix::process::geteuid().is_root() {
        return Err(FactoryError::NoRoot).exit_with(Exit::Host);
    }
    let stop = signals::stop_flag_with(live::restore)?;
    let (study, original) = weigh::read_study(&typed.study, false)?;
    let seed = weigh::seed(typed.seed, &study);
    // What a killed run left behind would be in the way, and in the figures.
    clean::quietly(state);
    let options = Options::from(&typed.plan);
    let mut tuned = Temporary::prepare(state, &options, study.schedule.kind)?;
    let groups = tuned.choice.groups();
    let mut derived =
        derive::derive(&study, typed.environment.as_deref(), &groups).exit_with(Exit::Input)?;
    // The baseline, then the environment as it comes.
    tuned.proof_of = derived.environments.get(1).map(|spec| spec.name.clone());
    weigh::limit(&mut derived, typed.rounds, typed.budget);
    let text = derive::text(&derived, &study.name, &original);
    let path = match &typed.output {
        Some(path) => path.clone(),
        None => free_path(Path::new(&format!("{}.tare", derived.name))),
    };
    let topology = crate::topology::allowed_here()?;
    let plan = cpus::plan(&topology, &derived.cpus).exit_with(Exit::Input)?;
    let question = weigh::Question {
        study: derived,
        text,
        resume: None,
        path,
        seed,
        plan_options: options,
        facts: Vec::new(),
        stacks: None,
        destroy: typed.give_up.destroy_data_on.clone(),
        progress: typed.show.progress,
        page: crate::serve::listen(typed.show.page.serve)?,
    };
    if question.is_fake()? {
        return Err(anyhow::anyhow!(
            "the study {} is of the fake world, whose host cannot be tuned",
            study.name
        ))
        .exit_with(Exit::Input);
    }
    let (ending, left) = weigh::measure_here(&question, state, plan, Some(&tuned), &stop)?;
    weigh::tell_left(&left);
    let kept = match ending {
        Ending::Interrupted => Vec::new(),
        _ if typed.keep_only_proven => keep_proven(&question.path, &tuned, state)?,
        _ => Vec::new(),
    };
    tell(typed, &question.path, &tuned, &kept, out)?;
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Applies, to stay, the changes of the groups that were proven to help. Their names and how many
/// settings each has.
fn keep_proven(
    record: &Path,
    tuned: &Temporary,
    state: &Path,
) -> anyhow::Result<Vec<(String, usize)>> {
    let record = Record::read(record)?;
    let analysis = analyse(&record);
    let proven = tuning::proven(&tuning::gains(&record, &analysis));
    let groups = tuned.choice.groups();
    let items = to_keep(&tuned.choice.items, &groups, &proven);
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let mut store = LiveHost::new("/");
    let mut tuning = Tuning::begin(state, &store, Purpose::Keep)?;
    let applied = tuning.apply(&mut store, &items)?;
    let in_force: Vec<&Item> = applied
        .items
        .iter()
        .filter(|one| matches!(one.outcome, Outcome::Written { .. } | Outcome::Already))
        .map(|one| &one.item)
        .collect();
    let count = |group: &Group| {
        let count = in_force.iter().filter(|item| item.group == *group).count();
        (count > 0).then(|| (group.name().to_string(), count))
    };
    Ok(groups.iter().filter_map(count).collect())
}

/// The items of the groups that are proven. That all of them together help says nothing of each,
/// unless there is only one.
fn to_keep(items: &[Item], groups: &[Group], proven: &[String]) -> Vec<Item> {
    let named = |name: &str| proven.iter().any(|proven| proven == name);
    let whole = groups.len() == 1 && named("all");
    items.iter().filter(|item| whole || named(item.group.name())).cloned().collect()
}

/// Prints the result, and how the host was left.
fn tell(
    typed: &TuneProve,
    record: &Path,
    tuned: &Temporary,
    kept: &[(String, usize)],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let groups = tuned.choice.groups();
    let back: Vec<&str> = groups
        .iter()
        .map(|group| group.name())
        .filter(|name| kept.iter().all(|(kept, _)| kept != name))
        .collect();
    let mut printed = Vec::new();
    weigh::present(record, None, typed.json, &mut printed)?;
    if typed.json {
        let mut report: serde_json::Value = serde_json::from_slice(&printed)?;
        let kept: Vec<&str> = kept.iter().map(|(group, _)| group.as_str()).collect();
        report["host_tuning_left"] = json!({ "kept": kept, "put_back": back });
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    out.write_all(&printed)?;
    let mut lines = Vec::new();
    for (group, settings) in kept {
        lines.push(format!("kept: {group}, {settings} settings; tare tune revert undoes it"));
    }
    if !back.is_empty() {
        let why = if typed.keep_only_proven { ": not proven to help" } else { "" };
        lines.push(format!("put back: {}{why}", back.join(", ")));
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_tune::plan::Action;

    #[test]
    fn what_is_proven_by_itself_is_kept() {
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
        let keep = |groups: &[Group], proven: &[&str]| {
            let proven: Vec<String> = proven.iter().map(ToString::to_string).collect();
            to_keep(&both, groups, &proven)
        };
        let groups = [Group::Network, Group::Disk];
        assert_eq!(keep(&groups, &["all", "disk"]), std::slice::from_ref(&disk));
        assert!(keep(&groups, &["all"]).is_empty());
        assert!(keep(&groups, &[]).is_empty());
        let one = to_keep(std::slice::from_ref(&disk), &[Group::Disk], &["all".into()]);
        assert_eq!(one, [disk]);
        assert_eq!(keep(&groups, &["network", "disk"]).len(), 2);
    }
}
