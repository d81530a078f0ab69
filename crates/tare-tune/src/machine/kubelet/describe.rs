//! Finds the kubelet of a live host and reads its files.
//!
//! Files are opened in the kubelet's own mount namespace (`/proc/PID/root`), because a kubelet may
//! run in a container; without the rights for that, at the same path of the host. Only processes
//! of root and of this user count: any user can call a program kubelet.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tare_host::exec::Command;

use super::flags::Flags;
use super::{Kubelet, Settings, configuration};

/// The default of `--root-dir`.
const ROOT_DIR: &str = "/var/lib/kubelet";

/// The time that the kubelet's program has to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// The largest configuration file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Returns the kubelet of the host below `root` as JSON; `None` where none runs. The version is
/// known only of a live host (`/`), where its program can be asked.
pub(crate) fn describe(root: &Path) -> Option<String> {
    let processes = processes(root);
    let process = *processes.first()?;
    let host = KubeletFiles { root, process };
    let command = fs::read(host.proc("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split_terminator('\0').collect();
    let mut kubelet = read(&host, Flags::parse(&words));
    if root == Path::new("/") {
        kubelet.version = version(process);
    }
    if processes.len() > 1 {
        let list: Vec<String> = processes.iter().map(u32::to_string).collect();
        kubelet.troubles.push(format!(
            "{} kubelets run on this host (processes {}): only process {process} is read",
            processes.len(),
            list.join(", ")
        ));
    }
    serde_json::to_string(&kubelet).ok()
}

/// Whether a kubelet of root or of this user runs on the host below `root`. Reads only names of
/// processes.
pub fn runs_kubelet(root: &Path) -> bool {
    !processes(root).is_empty()
}

/// Returns the kubelets of root and of this user, ascending.
fn processes(root: &Path) -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_kubelet = |process: &u32| {
        let folder = root.join(format!("proc/{process}"));
        fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim_end() == "kubelet")
            && fs::metadata(&folder).is_ok_and(|owner| [0, own].contains(&owner.uid()))
    };
    let mut processes: Vec<u32> = numbers.filter(is_kubelet).collect();
    processes.sort_unstable();
    processes
}

/// The files of a kubelet's process.
struct KubeletFiles<'a> {
    root: &'a Path,
    process: u32,
}

impl KubeletFiles<'_> {
    fn proc(&self, name: &str) -> PathBuf {
        self.root.join(format!("proc/{}/{name}", self.process))
    }

    /// Returns where a path of the kubelet may be found. Relative paths of flags are below its
    /// working directory.
    fn places(&self, path: &str) -> Vec<PathBuf> {
        match path.strip_prefix('/') {
            Some(below) => vec![self.proc("root").join(below), self.root.join(below)],
            None => vec![self.proc("cwd").join(path)],
        }
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let read = |place: &PathBuf| match fs::metadata(place)?.len() {
            0..=FILE_MAX => fs::read_to_string(place),
            _ => Err(io::Error::other("it is larger than 1 MiB")),
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in self.places(path) {
            match read(&place) {
                Ok(text) => return Ok(text),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Lists the drop-in files of a folder, by their names.
    fn drop_ins(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in self.places(folder) {
            match fs::read_dir(&place) {
                Ok(entries) => {
                    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
                    let mut names: Vec<String> = names.filter(|n| n.ends_with(".conf")).collect();
                    names.sort();
                    let folder = folder.trim_end_matches('/');
                    return Ok(names.iter().map(|name| format!("{folder}/{name}")).collect());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn read(host: &KubeletFiles<'_>, flags: Flags) -> Kubelet {
    let mut troubles = Vec::new();
    let mut files: Vec<String> = flags.config.iter().cloned().collect();
    if let Some(folder) = &flags.config_dir {
        match host.drop_ins(folder) {
            Ok(drop_ins) => files.extend(drop_ins),
            Err(error) => troubles.push(cannot_read(folder, &error)),
        }
    }
    let mut configuration = Value::Null;
    for file in &files {
        let text = host.read(file).map_err(|error| cannot_read(file, &error));
        match text.and_then(|text| configuration::parse(file, &text)) {
            Ok(parsed) => configuration::merge(&mut configuration, parsed),
            Err(trouble) => troubles.push(trouble),
        }
    }
    // Feature gates of flags and files are merged; every other flag replaces the whole setting.
    for (setting, value) in flags.settings {
        let wrapped = Value::Object([(setting.clone(), value)].into_iter().collect());
        if setting != "featureGates"
            && let Some(settings) = configuration.as_object_mut()
        {
            settings.remove(&setting);
        }
        configuration::merge(&mut configuration, wrapped);
    }
    let root_dir = flags.root_dir.unwrap_or_else(|| ROOT_DIR.into());
    let checkpoint = host.read(&format!("{root_dir}/cpu_manager_state")).ok();
    let checkpoint = checkpoint.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let policy = checkpoint.and_then(|state| Some(state.get("policyName")?.as_str()?.to_string()));
    Kubelet {
        process: host.process,
        version: None,
        config: flags.config,
        config_dir: flags.config_dir,
        root_dir,
        settings: Settings::of(&configuration),
        flags: flags.names,
        running_policy: policy,
        incomplete: !troubles.is_empty(),
        troubles,
    }
}

fn cannot_read(path: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        _ => "",
    };
    format!("cannot read {path} of the kubelet: {error}{hint}, so its settings are unknown")
}

/// Asks the running program, through its process, for its version: `Kubernetes v1.34.1`.
fn version(process: u32) -> Option<String> {
    let program = format!("/proc/{process}/exe");
    let output = Command::new(program).arg("--version").time_limit(VERSION_LIMIT).run().ok()?;
    let version = output.stdout.trim().strip_prefix("Kubernetes ")?;
    version.starts_with('v').then(|| version.to_string())
}
