//! The programs of OCI runtimes as engines: `create`, `start`, `state`, `delete`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tare_host::cgroup::{Layout, Version};
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::{RUN_VARIABLE, error_line};
use tare_lab::PartError;

use super::OciError;
use super::engine::{Creation, Engine, Place};
use crate::runtime::gvisor;
use crate::undo::ContainerEntry;

/// Hides the v2 tree of a hybrid host and starts a runtime: `$0` is the mount point of the tree,
/// `$@` the runtime's command line.
const WITHOUT_UNIFIED: &str = "umount \"$0\" && exec \"$@\"";

/// How long gVisor may take to execute a program in a running sandbox.
const INSIDE_LIMIT: Duration = Duration::from_secs(10);

/// An OCI runtime that is a program.
pub(super) struct Program {
    name: String,
    /// The command line up to `--root`.
    command: Vec<String>,
}

impl Program {
    /// Returns a runtime by its name or path, with options before the verb.
    pub(super) fn new(name: &str, cgroups: &Layout, options: Vec<String>) -> Self {
        let mut command = command(name, cgroups);
        command.extend(options);
        Self { name: name.into(), command }
    }

    /// Returns the runtime's command line up to the verb.
    fn runtime(&self, at: &Place<'_>) -> Command {
        // The command is never empty: it contains the program.
        let (program, options) = self.command.split_first().unwrap_or((&self.name, &[]));
        Command::new(program)
            .args(options)
            .arg("--root")
            .arg(at.state_folder())
            .variable(RUN_VARIABLE, at.context.run())
    }
}

/// Returns the words before `--root`: the runtime with its wrapper, if it needs one.
fn command(program: &str, cgroups: &Layout) -> Vec<String> {
    let mut words = Vec::new();
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    if let (true, Version::Hybrid, Some(unified)) =
        (name.contains("crun"), cgroups.version(), cgroups.unified())
    {
        let unified = unified.to_string_lossy().into_owned();
        words.extend(["unshare", "--mount", "sh", "-c", WITHOUT_UNIFIED].map(String::from));
        words.push(unified);
    }
    let found = gvisor::find(program).map(|path| path.to_string_lossy().into_owned());
    words.push(found.unwrap_or_else(|| program.into()));
    words
}

impl Engine for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn entry(&self, at: &Place<'_>) -> Entry {
        let (command, root, id) = (self.command.clone(), at.state_folder(), at.id.clone());
        ContainerEntry::OciContainer { command, root, id }.into()
    }

    fn create(&self, at: &Place<'_>, how: Creation<'_>) -> Result<u32, PartError> {
        let pid_file = at.folder.join("pid");
        let [out, err] = how.outputs;
        let create = self.runtime(at).arg("create").arg("--bundle").arg(&at.folder);
        let create = create.arg("--pid-file").arg(&pid_file).arg(&at.id);
        let mut create = create.on_cpus(how.cpus).output_to(out, err);
        if let Some(nodes) = how.nodes {
            create = create.on_nodes(nodes);
        }
        create.run()?;
        let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        let no_pid = || OciError::NoPid { runtime: self.name.clone(), path: pid_file };
        Ok(pid.ok_or_else(no_pid)?)
    }

    fn start(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.runtime(at).args(["start", &at.id]).run().map(drop)?)
    }

    fn state(&self, at: &Place<'_>, pid: u32) -> String {
        match self.runtime(at).args(["state", &at.id]).run() {
            Ok(output) => {
                let state: serde_json::Value =
                    serde_json::from_str(&output.stdout).unwrap_or_default();
                let status = state["status"].as_str().unwrap_or("unreadable");
                match state["pid"].as_u64() == Some(pid.into()) {
                    true => status.to_string(),
                    false => format!("{status}, but as process {}", state["pid"]),
                }
            }
            Err(error) => error.to_string(),
        }
    }

    fn pause(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.runtime(at).args(["pause", &at.id]).run().map(drop)?)
    }

    fn resume(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.runtime(at).args(["resume", &at.id]).run().map(drop)?)
    }

    fn exec(&self, at: &Place<'_>, words: &[&str]) -> Result<String, String> {
        let exec = self.runtime(at).args(["exec", &at.id]).args(words).time_limit(INSIDE_LIMIT);
        exec.run().map(|output| output.stdout).map_err(|error| error_line(&error))
    }
}
