//! Reads the study that a campaign runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use tare_lab::study::{self, KnownWorkload, Study};
use tare_load::workload;
use tare_std::loader_address::LoaderAddress;

use crate::cli::Elsewhere;
use crate::exit::{Exit, ExitWith};
use crate::{registry, studies};

/// Reads and checks a study by its name or path, and returns it with its text. `quick`: only the
/// study's quick part.
pub(crate) fn read(name_or_path: &str, quick: bool) -> anyhow::Result<(Study, String)> {
    read_with(name_or_path, quick, &[])
}

/// Reads a study like [`read`], with more loaders.
pub(crate) fn read_with(
    name_or_path: &str,
    quick: bool,
    loaders: &[LoaderAddress],
) -> anyhow::Result<(Study, String)> {
    let mut text = text(name_or_path)?;
    for loader in loaders {
        // An address has no control characters, so Rust's quoting is TOML's.
        text += &format!("\n# --loader {loader}\n[[loader]]\nhost = {:?}\n", loader.to_string());
    }
    let parse = if quick { study::parse_quick } else { study::parse };
    let mut vocabulary = registry::vocabulary();
    let folder = Path::new(name_or_path).parent().unwrap_or(Path::new(""));
    vocabulary.workloads.extend(workloads(&text, folder).exit_with(Exit::Input)?);
    let study = parse(&text, name_or_path, &vocabulary).exit_with(Exit::Input)?;
    Ok((study, text))
}

/// Reads the workload files that a study names, which are beside it unless their paths say where.
fn workloads(study: &str, folder: &Path) -> anyhow::Result<Vec<KnownWorkload>> {
    let read = |name: String| {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read the workload {}", path.display()))?;
        let workload = workload::parse(&text, &path.to_string_lossy(), &name)?;
        Ok(KnownWorkload { name, text: Some(text), rows: workload.rows })
    };
    study::workload_files(study).into_iter().map(read).collect::<anyhow::Result<_>>()
}

/// Returns the text of a study: of a file, or of a shipped study.
fn text(name_or_path: &str) -> anyhow::Result<String> {
    let path = Path::new(name_or_path);
    if !path.exists()
        && let Some(text) = studies::find(name_or_path)
    {
        return Ok(text.to_string());
    }
    let text = fs::read_to_string(path).map_err(|error| {
        let names: Vec<&str> = studies::ALL.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        anyhow!(error)
            .context(format!("cannot read the study {name_or_path} (studies that ship: {names})"))
    });
    text.exit_with(Exit::Input)
}

/// Limits the rounds and the time of a study.
pub(crate) fn limit(study: &mut Study, rounds: Option<u32>, budget: Option<Duration>) {
    let schedule = &mut study.schedule;
    schedule.rounds = rounds.unwrap_or(schedule.rounds);
    schedule.rounds_min = schedule.rounds_min.min(schedule.rounds);
    schedule.budget = budget.unwrap_or(schedule.budget);
}

/// Replaces the hosts of a study's system by those of the command line.
pub(crate) fn place(study: &mut Study, elsewhere: &Elsewhere) -> anyhow::Result<()> {
    if !elsewhere.hosts.is_empty() {
        // Those of the hosts that the study names.
        study.system.options.retain(|(name, _)| study.hosts.is_empty() || name != "instances");
        study.system.on_hosts(&elsewhere.hosts).exit_with(Exit::Input)?;
        study.hosts.clone_from(&elsewhere.hosts);
    }
    Ok(())
}

/// Returns the seed of the command line, else that of the study, else a random one. The study gets
/// one that was asked for, which is then that of restored rows too.
pub(crate) fn seed(requested: Option<u64>, study: &mut Study) -> u64 {
    study.schedule.seed = requested.or(study.schedule.seed);
    study.schedule.seed.unwrap_or_else(random_seed)
}

fn random_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the ones that change")]
    let ns = since.as_nanos() as u64;
    // 32 bits are short to type, and JSON readers without 64-bit integers keep them.
    tare_std::rng::mix64(ns ^ u64::from(std::process::id())) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: &str = "name = \"s\"\nbaseline = \"native\"\n[[environment]]\nname = \"native\"\n\
                         runtime = \"process\"\n[[workload]]\nname = \"w\"\n\
                         workload = \"mine.toml\"\nrows = 70\n";

    #[test]
    fn workload_files_are_part_of_the_study() {
        let folder = tempfile::tempdir().unwrap();
        let study = folder.path().join("s.toml");
        fs::write(&study, STUDY).unwrap();
        let name = study.to_str().unwrap();
        let refused = |expect: &str| {
            let error = format!("{:#}", read(name, false).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        refused("mine.toml: No such file");
        let file = folder.path().join("mine.toml");
        fs::write(&file, "[table]\nkeyspace = \"k\"\n").unwrap();
        refused("mine.toml:1:");
        let mine = tare_load::workload::shipped::find("key-value-512").unwrap().text;
        fs::write(&file, mine).unwrap();
        let (study, _) = read(name, false).unwrap();
        let workload = &study.workloads[0];
        let found = (workload.workload.as_deref(), workload.workload_text.as_deref());
        assert_eq!(found, (Some("mine.toml"), Some(mine)));
        assert_eq!((workload.rows, super::super::space::row_bytes(workload)), (70, 512));
    }
}
