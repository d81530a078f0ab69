//! `tare init study`: writes a commented study of a database that this host has, to start from.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use tare_lab::study::Hint;
use tare_system::SystemInfo;

use crate::cli::{Init, InitStudy, InitWhat};
use crate::exit::{Exit, ExitWith};

mod running;
mod systems;

use running::RunningSystem;
use systems::{ALL, Proposal};

const ENVIRONMENTS: &str = include_str!("environments.toml");

pub(crate) fn run(options: &Init, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.what {
        InitWhat::Study(options) => study(options, out),
    }
}

fn study(options: &InitStudy, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let running = RunningSystem::all();
    let proposal = match &options.system {
        Some(name) => named(name)?,
        None => found(&running)?,
    };
    let file = options.output.display().to_string();
    let text = text(proposal, &running, &file);
    if file == "-" {
        out.write_all(text.as_bytes())?;
        return Ok(Exit::Success);
    }
    write_new(&options.output, &text)?;
    writeln!(out, "{file}: {} with {}", proposal.name, proposal.driver)?;
    for (word, what) in commands(&file) {
        writeln!(out, "  {word:<40} {what}")?;
    }
    Ok(Exit::Success)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.exists() {
        let why = format!("{} exists; name another file with --output", path.display());
        return Err(anyhow!(why)).exit_with(Exit::Input);
    }
    fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .exit_with(Exit::Input)
}

/// Returns the proposal for a system that the user names.
fn named(name: &str) -> anyhow::Result<&'static Proposal> {
    let known = ALL.iter().find(|proposal| proposal.system == name);
    known.map_or_else(
        || {
            let names: Vec<&str> = ALL.iter().map(|proposal| proposal.system).collect();
            let hint = Hint::new(name, &names);
            let names = names.join(", ");
            Err(anyhow!("no study can be written for the system {name:?}{hint}; known: {names}"))
                .exit_with(Exit::Usage)
        },
        Ok,
    )
}

/// Returns the proposal for the system that runs here, or else the first that is installed.
fn found(running: &[RunningSystem]) -> anyhow::Result<&'static Proposal> {
    let runs = |proposal: &&Proposal| running.iter().any(|one| one.system == proposal.system);
    let installed = |proposal: &&Proposal| place(proposal.system).is_ok_and(|at| at.is_some());
    let found = ALL.iter().find(runs).or_else(|| ALL.iter().find(installed));
    found.map_or_else(|| named("tare-db"), Ok)
}

/// Returns where a system is installed (`None`: it is part of Tare), or how to install it.
fn place(system: &str) -> Result<Option<String>, &'static str> {
    let info: Option<&SystemInfo> = tare_system::find(system);
    info.and_then(|info| info.found).map(|found| found()).transpose()
}

/// The commands that use a study, and what they do.
fn commands(file: &str) -> [(String, &'static str); 3] {
    [
        (format!("tare weigh {file} --dry-run"), "says how long it takes and what this host lacks"),
        (format!("tare weigh {file} --quick"), "a first answer, in minutes"),
        (format!("tare weigh {file}"), "the whole study"),
    ]
}

/// Returns the text of the study.
fn text(proposal: &Proposal, running: &[RunningSystem], file: &str) -> String {
    let Proposal { system, name, driver, .. } = *proposal;
    let file = if file == "-" { "study.toml" } else { file };
    let mut text = format!(
        "# What does a container cost {name} here? Written by `tare init study`; change whatever you want to know.\n\
         # All keys, their values and defaults: docs/guides/study.md.\n#\n"
    );
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing into a text cannot fail.
        let _ = writeln!(text, "{words}");
    };
    for (word, what) in commands(file) {
        line(format_args!("#   {word:<40} {what}"));
    }
    line(format_args!("#"));
    match place(system) {
        Ok(Some(at)) => line(format_args!("# Found: {name} at {at}.")),
        Ok(None) => line(format_args!("# {name} is part of Tare.")),
        Err(get) => line(format_args!("# {name} is not installed here: {get}")),
    }
    for one in running.iter().filter(|one| one.system == system) {
        line(format_args!(
            "# One runs here ({one}). The study starts others beside it, with data of their own, and leaves it alone; \
             \n# it is better stopped while figures are taken, since it uses the same CPUs. To weigh the running one \
             itself:\n# docs/guides/attach.md."
        ));
    }
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy());
    let study = stem.filter(|stem| stem != "study").unwrap_or_else(|| system.into());
    line(format_args!(
        "name = {study:?}\ntitle = \"What does each layer of a container cost {name} here?\"\n\
         baseline = \"native\"\n# What loads it (`tare list drivers`).\ndriver = \"{driver}\"\n"
    ));
    let Proposal { options, schedule, workloads, .. } = *proposal;
    line(format_args!(
        "[system]\nname = \"{system}\"\n{options}\n[schedule]\n{schedule}\n{ENVIRONMENTS}\n{}",
        workloads.trim_end()
    ));
    line(format_args!(
        "\n# What --quick runs.\n[quick]\n\
         environments = [\"native\", \"container default\", \"+ cpuset\", \"+ host network\"]\n\
         workloads = [{:?}]\nschedule = {{ {} }}",
        proposal.quick_workload, proposal.quick_schedule
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_is_valid() {
        for proposal in ALL {
            let text = text(proposal, &[], "mine.toml");
            let vocabulary = crate::registry::vocabulary();
            let study = tare_lab::study::parse(&text, "mine.toml", &vocabulary)
                .unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!((study.name.as_str(), study.environments.len()), ("mine", 6));
            let quick = tare_lab::study::parse_quick(&text, "mine.toml", &vocabulary).unwrap();
            assert_eq!(quick.environments.len(), 4);
            let info = tare_system::find(proposal.system).unwrap();
            tare_driver::of(&study, &info.speaks(&study.system)).unwrap();
            assert!(text.lines().all(|line| line.len() <= 130), "{text}");
        }
    }

    #[test]
    fn files_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        write_new(&path, "a").unwrap();
        let error = write_new(&path, "b").unwrap_err().to_string();
        assert!(error.ends_with("s.toml exists; name another file with --output"), "{error}");
        assert_eq!(fs::read_to_string(path).unwrap(), "a");
    }
}
