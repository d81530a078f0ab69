//! The arguments of this process for the same command on another host, and the files that they
//! name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory};
use tare_kube::AccountUse;
use tare_lab::record::logs_of;

use crate::cli::Arguments;
use crate::exit::{Exit, ExitWith};
use crate::run_server::Packer;

/// Arguments about this host.
const OURS: [&str; 5] = ["on", "detach", "state", "help", "version"];
/// Arguments that name a file to read, or something else.
const INPUTS: [&str; 5] = ["study", "what", "resume", "snapshot", "like"];
/// Arguments that name a file or a directory to write.
const OUTPUTS: [&str; 6] = ["output", "html", "directory", "io_properties", "map", "chart"];

/// A command for another host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The words after `tare`.
    pub(super) words: Vec<String>,
    /// Files to send: their names there, and their paths here.
    inputs: Vec<(PathBuf, PathBuf)>,
    /// Directories that must be there.
    directories: Vec<PathBuf>,
    /// Names that are taken here.
    taken: Vec<PathBuf>,
    pub(super) replace: Vec<PathBuf>,
    pub(super) outputs: Vec<(PathBuf, PathBuf)>,
    /// The account that a node of a cluster needs for the pods of its study.
    pub(super) account: Option<AccountUse>,
}

/// Returns the command of this process.
pub(super) fn of_this_process() -> anyhow::Result<CommandLine> {
    let mut line = of(std::env::args_os())?;
    let names = fs::read_dir(".").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let records = names.map(PathBuf::from).filter(|name| name.extension() == Some("tare".as_ref()));
    // So that a new record has a name that is free here.
    line.taken.extend(records);
    line.taken.retain(|name| !line.inputs.iter().any(|(sent, _)| sent == name));
    line.taken.sort();
    line.taken.dedup();
    Ok(line)
}

fn of(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<CommandLine> {
    let mut command = Arguments::command();
    command.build();
    let matches = command.clone().try_get_matches_from(arguments)?;
    let mut line = CommandLine::default();
    let (mut command, mut matches) = (&command, &matches);
    let mut last = Vec::new();
    loop {
        for argument in command.get_arguments() {
            line.add(argument, matches, &mut last)?;
        }
        let Some((name, below)) = matches.subcommand() else { break };
        line.words.push(name.into());
        let found = command.find_subcommand(name).context("a command without a definition")?;
        (command, matches) = (found, below);
    }
    if !last.is_empty() {
        line.words.push("--".into());
        line.words.append(&mut last);
    }
    Ok(line)
}

impl CommandLine {
    /// Adds an argument if the user gave it. Those without a name go to `last`.
    fn add(
        &mut self,
        argument: &clap::Arg,
        matches: &ArgMatches,
        last: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let id = argument.get_id().as_str();
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        if OURS.contains(&id) || !given {
            return Ok(());
        }
        if id == "serve" {
            return Err(anyhow!("--serve does not work with --on; leave out one of them"))
                .exit_with(Exit::Usage);
        }
        if matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
            let name = argument.get_long().context("a flag without a long name")?;
            self.words.push(format!("--{name}"));
            return Ok(());
        }
        let mut values = Vec::new();
        for value in matches.get_raw(id).into_iter().flatten() {
            values.push(self.value(id, value)?);
        }
        if let Some(delimiter) = argument.get_value_delimiter() {
            values = vec![values.join(&delimiter.to_string())];
        }
        match argument.get_long() {
            Some(name) => {
                self.words.extend(values.iter().map(|value| format!("--{name}={value}")));
            }
            None => last.append(&mut values),
        }
        Ok(())
    }

    /// Returns a value as the command there gets it.
    fn value(&mut self, id: &str, value: &OsStr) -> anyhow::Result<String> {
        let path = Path::new(value);
        let text = |path: &OsStr| {
            let text = path.to_str().map(String::from);
            text.with_context(|| format!("{} is no text", Path::new(path).display()))
                .exit_with(Exit::Usage)
        };
        if INPUTS.contains(&id) && path.exists() {
            let name = self.name(path, id == "resume")?;
            self.inputs.push((name.clone(), path.into()));
            self.workloads(&name, path)?;
            if id == "resume" {
                self.replace.push(name.clone());
                let logs = logs_of(&name).into_iter().zip(logs_of(path));
                self.inputs.extend(logs.filter(|(_, here)| here.exists()));
            }
            return text(name.as_os_str());
        }
        if OUTPUTS.contains(&id) && path != Path::new("-") {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                return Err(anyhow!(
                    "cannot write {}: no directory {}",
                    path.display(),
                    parent.display()
                ))
                .exit_with(Exit::Usage);
            }
            let name = self.name(path, true)?;
            // A picture or a page is replaced, as it is without --on.
            if path.is_dir() {
                self.directories.push(name.clone());
            } else if path.exists() && id == "output" {
                self.taken.push(name.clone());
            }
            return text(name.as_os_str());
        }
        text(value)
    }

    /// Adds the workload files that a study names.
    fn workloads(&mut self, there: &Path, here: &Path) -> anyhow::Result<()> {
        if here.extension() != Some("toml".as_ref()) {
            return Ok(());
        }
        // A study that cannot be read is refused there, with the reason.
        let text = fs::read_to_string(here).unwrap_or_default();
        for file in tare_lab::study::workload_files(&text) {
            let below = |part: Component<'_>| matches!(part, Component::Normal(_));
            if !Path::new(&file).components().all(below) {
                let why = format!(
                    "{} names the workload {file}, which is not beside it; copy it there for --on",
                    here.display()
                );
                return Err(anyhow!(why)).exit_with(Exit::Input);
            }
            let name = there.with_file_name(&file);
            self.directories.extend(name.parent().map(Path::to_path_buf));
            self.inputs.push((name, here.with_file_name(&file)));
        }
        Ok(())
    }

    /// Returns the name of a file there: the same if it is below this directory.
    fn name(&mut self, path: &Path, is_written: bool) -> anyhow::Result<PathBuf> {
        let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.components().all(below) {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.directories.extend(parent.map(Path::to_path_buf));
            return Ok(path.into());
        }
        let file = path.file_name().with_context(|| format!("{} has no name", path.display()));
        let file = file.exit_with(Exit::Usage)?;
        let directory = PathBuf::from(format!("files-{}", self.directories.len()));
        self.directories.push(directory.clone());
        if is_written && let Some(parent) = path.parent() {
            self.outputs.push((directory.clone(), std::path::absolute(parent)?));
        }
        Ok(directory.join(file))
    }

    /// Lets new records have names that are taken here, as they get others when they are brought.
    pub(super) fn free_names(mut self) -> Self {
        self.taken.clear();
        self
    }

    /// Adds the files of the command.
    pub(super) fn pack(&self, packer: &mut Packer) -> anyhow::Result<()> {
        for directory in &self.directories {
            packer.directory(directory)?;
        }
        for name in &self.taken {
            packer.take_name(name)?;
        }
        for (name, path) in &self.inputs {
            packer.add(name, path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> CommandLine {
        of(line.split(' ').map(OsString::from)).unwrap()
    }

    #[test]
    fn arguments_reach_the_other_host_as_they_were_given() {
        let line = words(
            "tare --state /tmp/s weigh quick --on db1 --rounds 3 --stacks --stack-kinds on-cpu,off-cpu",
        );
        assert_eq!(
            line.words,
            ["weigh", "--rounds=3", "--stacks", "--stack-kinds=on-cpu,off-cpu", "--", "quick"]
        );
        let line = words("tare tune plan --nic eth0 --nic eth1 --json --on root@db1:2222");
        assert_eq!(line.words, ["tune", "plan", "--nic=eth0", "--nic=eth1", "--json"]);
        let line = words("tare doctor --on db1,db2");
        assert_eq!(line.words, ["doctor"]);
        let line = words("tare disk /var/lib --on db1 --budget 5s");
        assert_eq!(line.words, ["disk", "--budget=5s", "--", "/var/lib"]);
        assert!(line.inputs.is_empty(), "a path there is none of this host");
    }

    #[test]
    fn files_elsewhere_get_a_directory_of_their_own() {
        let here = tempfile::tempdir().unwrap();
        let study = here.path().join("own.toml");
        fs::write(&study, "").unwrap();
        let output = here.path().join("out.tare");
        let line = words(&format!("tare weigh --on a -o {} {}", output.display(), study.display()));
        assert_eq!(line.words, ["weigh", "--output=files-1/out.tare", "--", "files-0/own.toml"]);
        assert_eq!(line.inputs, [(PathBuf::from("files-0/own.toml"), study)]);
        assert_eq!(line.outputs, [(PathBuf::from("files-1"), here.path().to_path_buf())]);
        let with = |workload: &str| {
            let text = format!("[[workload]]\nname = \"w\"\nworkload = \"{workload}\"\n");
            let study = here.path().join("other.toml");
            fs::write(&study, text).unwrap();
            of(["tare", "weigh", "--on=a", study.to_str().unwrap()].map(Into::into))
        };
        let line = with("loads/mine.toml").unwrap();
        let sent = (PathBuf::from("files-0/loads/mine.toml"), here.path().join("loads/mine.toml"));
        assert_eq!(line.inputs[1], sent);
        assert!(line.directories.contains(&PathBuf::from("files-0/loads")), "{line:?}");
        let refused = with("../mine.toml").unwrap_err().to_string();
        assert!(refused.contains("not beside it; copy it there for --on"), "{refused}");
        let refused = of(["tare", "weigh", "--on=a", "-o", "/no/such/x.tare"].map(Into::into));
        assert!(refused.unwrap_err().to_string().contains("no directory /no/such"));
        let refused = of(["tare", "weigh", "--on=a", "--serve"].map(Into::into));
        assert!(refused.unwrap_err().to_string().contains("--serve does not work with --on"));
    }
}
