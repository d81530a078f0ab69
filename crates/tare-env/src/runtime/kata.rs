//! Kata Containers: a container in its own virtual machine, as a runtime of a container engine
//! (`docker:kata`, `docker:io.containerd.kata.v2`) or, before Kata 2, as an OCI runtime
//! (`oci:kata-runtime`).
//!
//! The host's administrator configures Kata's guests. Tare reads the configuration and records the
//! settings that a cost depends on. Its paths and keys are documented by Kata
//! (src/runtime/README.md and src/runtime/config/configuration-qemu.toml.in of
//! kata-containers/kata-containers).
//!
//! Limits: not yet tried on a host with KVM and Kata. Options that a container's annotations or the
//! engine's runtime change are not read.

use std::fs;
use std::path::{Path, PathBuf};

use tare_host::doctor::{Check, Verdict};
use tare_host::{exec, facts};
use tare_lab::environment::LayerState;
use toml::{Table, Value};

use super::vm;
use crate::system::state;
use crate::unavailable::Unavailable;

/// The shim that engines start, and Kata's command-line tool.
const SHIM: &str = "containerd-shim-kata-v2";
const TOOL: &str = "kata-runtime";

/// Where Kata's own packages install their programs.
const PROGRAMS: &str = "/opt/kata/bin";

/// The directories of the configuration; the first existing one counts.
const CONFIGURATIONS: &[&str] = &[
    "/etc/kata-containers",
    "/opt/kata/share/defaults/kata-containers",
    "/usr/share/defaults/kata-containers",
];

/// The settings of a hypervisor that a cost depends on.
const SETTINGS: &[&str] = &[
    "default_vcpus",
    "default_maxvcpus",
    "default_memory",
    "shared_fs",
    "virtio_fs_cache",
    "enable_iothreads",
    "block_device_driver",
    "block_device_aio",
    "enable_hugepages",
    "machine_type",
    "path",
    "kernel",
    "image",
    "initrd",
];

const REMEDY: &str = "install Kata Containers (katacontainers.io) and name it as a runtime of the engine; it \
                      needs /dev/kvm";

/// Returns whether a runtime's name or path is Kata's.
pub(crate) fn is_kata(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(['.', '-', '_']).any(|part| part == "kata")
}

/// Checks that this host has what Kata needs.
pub(super) fn needs(what: String) -> Result<(), Unavailable> {
    let missing = |why: String| Unavailable { what: what.clone(), why, remedy: REMEDY.into() };
    if find(SHIM).is_none() && find(TOOL).is_none() {
        return Err(missing(format!("there is neither {SHIM} nor {TOOL}")));
    }
    match vm::kvm_obstacle() {
        Some(obstacle) => Err(missing(obstacle)),
        None => Ok(()),
    }
}

/// Checks that `kata-runtime` is an OCI runtime, which it was before version 2.
pub(super) fn needs_oci(program: &str) -> Result<(), Unavailable> {
    let reported = facts::version(program, "--version").unwrap_or_default();
    if major(&reported).is_none_or(|major| major < 2) {
        return Ok(());
    }
    Err(Unavailable {
        what: format!("oci:{program}"),
        why: format!("{reported}: since version 2 Kata is a shim of containerd and no OCI runtime"),
        remedy: "write runtime = \"docker:io.containerd.kata.v2\"".into(),
    })
}

/// Returns the first number of a version such as `kata-runtime  : 3.2.0`.
fn major(reported: &str) -> Option<u32> {
    let number = reported.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
    number.and_then(|number| number.parse().ok())
}

fn find(program: &str) -> Option<PathBuf> {
    exec::find(program).or_else(|| exec::find(&format!("{PROGRAMS}/{program}")))
}

/// Returns the hypervisor in a runtime's name: `clh` for `kata-clh` and
/// `io.containerd.kata-clh.v2`.
fn asked_hypervisor(name: &str) -> Option<&str> {
    let rest = name.split_once("kata-")?.1;
    let word = rest.split(['.', '-']).next()?;
    (!word.is_empty() && !matches!(word, "runtime" | "v2")).then_some(word)
}

/// Returns the path and the text of the configuration for a runtime of this name.
fn configuration(folders: &[PathBuf], name: &str) -> Option<(PathBuf, String)> {
    let named = asked_hypervisor(name).map(|word| format!("configuration-{word}.toml"));
    let names = named.into_iter().chain(["configuration.toml".into()]);
    let paths = names.flat_map(|name| folders.iter().map(move |folder| folder.join(&name)));
    paths.into_iter().find_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)))
}

fn folders() -> Vec<PathBuf> {
    CONFIGURATIONS.iter().map(PathBuf::from).collect()
}

/// Returns the settings of a configuration: (`hypervisor`, `qemu`), (`default_vcpus`, `1`) ... An
/// absent setting has Kata's default.
fn settings(text: &str) -> Result<Vec<(String, String)>, String> {
    let all: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let hypervisors = all.get("hypervisor").and_then(Value::as_table);
    let Some((name, table)) = hypervisors.and_then(|tables| tables.iter().next()) else {
        return Err("it names no hypervisor".into());
    };
    let mut found = vec![("hypervisor".to_string(), name.clone())];
    for key in SETTINGS {
        let value = match table.get(*key) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => continue,
        };
        found.push(((*key).to_string(), value));
    }
    Ok(found)
}

/// Returns one state for each setting in Kata's configuration of an environment's guest.
pub(crate) fn states(name: &str) -> Vec<LayerState> {
    states_in(&folders(), name)
}

fn states_in(folders: &[PathBuf], name: &str) -> Vec<LayerState> {
    const WANTED: &str = "as configured";
    let whole = |found: String, ok| vec![state("kata.configuration", WANTED, found, ok)];
    let Some((path, text)) = configuration(folders, name) else {
        return whole("none in Kata's directories".into(), false);
    };
    match settings(&text) {
        Err(why) => whole(format!("{}: {why}", path.display()), false),
        Ok(settings) => {
            let mut states = whole(path.display().to_string(), true);
            let one =
                |(key, value): (String, String)| state(&format!("kata.{key}"), WANTED, value, true);
            states.extend(settings.into_iter().map(one));
            states
        }
    }
}

/// Returns the check of `tare doctor`.
pub fn check() -> Check {
    let what = "Kata Containers";
    let check = |verdict, detail: String, remedy: &str| Check {
        what: what.into(),
        verdict,
        detail,
        remedy: remedy.into(),
    };
    let Some(program) = find(SHIM).or_else(|| find(TOOL)) else {
        return check(Verdict::Missing, "not installed".into(), REMEDY);
    };
    judge(&program, &folders(), vm::kvm_obstacle(), check)
}

fn judge(
    program: &Path,
    folders: &[PathBuf],
    obstacle: Option<String>,
    check: impl Fn(Verdict, String, &str) -> Check,
) -> Check {
    let program = program.display();
    let Some((path, text)) = configuration(folders, "kata") else {
        let detail = format!("{program}, but no configuration.toml in its directories");
        return check(Verdict::Limited, detail, "copy one to /etc/kata-containers");
    };
    let path = path.display();
    match (settings(&text), obstacle) {
        (Err(why), _) => {
            let detail = format!("{program}; {path} cannot be read: {why}");
            check(Verdict::Limited, detail, "correct it, or replace it by Kata's own")
        }
        (Ok(_), Some(obstacle)) => {
            let detail = format!("{program}; {obstacle}");
            check(Verdict::Limited, detail, "Kata's guests need KVM")
        }
        (Ok(settings), None) => {
            let pairs: Vec<String> =
                settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            check(Verdict::Ok, format!("{program}; {path}: {}", pairs.join(", ")), "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../../fixtures/kata/configuration-qemu.toml");

    #[test]
    fn kata_is_recognised_by_its_name() {
        for (name, hypervisor) in [
            ("kata", None),
            ("kata-runtime", None),
            ("/opt/kata/bin/kata-runtime", None),
            ("io.containerd.kata.v2", None),
            ("kata-clh", Some("clh")),
            ("io.containerd.kata-fc.v2", Some("fc")),
        ] {
            assert!(is_kata(name), "{name}");
            assert_eq!(asked_hypervisor(name), hypervisor, "{name}");
        }
        for name in ["runc", "/opt/kata/bin/qemu", "katana", "runsc"] {
            assert!(!is_kata(name), "{name}");
        }
        assert_eq!(major("kata-runtime  : 3.2.0"), Some(3));
        assert_eq!(major(""), None);
    }

    #[test]
    fn settings_are_read() {
        let found = settings(FIXTURE).unwrap();
        let value = |key: &str| {
            let pair = found.iter().find(|(name, _)| name == key);
            pair.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("hypervisor"), Some("qemu"));
        assert_eq!(value("default_vcpus"), Some("2"));
        assert_eq!(value("default_memory"), Some("2048"));
        assert_eq!(value("shared_fs"), Some("virtio-fs"));
        assert_eq!(value("enable_iothreads"), Some("true"));
        assert_eq!(value("enable_hugepages"), None, "a comment is no setting");
        assert!(settings("[runtime]\n").unwrap_err().contains("no hypervisor"));
        assert!(settings("[hypervisor.qemu\n").is_err());
    }

    #[test]
    fn configuration_of_the_hypervisor_precedes_the_first_general_one() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["etc", "usr"].map(|name| root.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        assert!(!states_in(&folders, "kata")[0].in_force);
        fs::write(folders[1].join("configuration.toml"), FIXTURE).unwrap();
        let states = states_in(&folders, "kata");
        assert!(states.iter().all(|state| state.in_force));
        assert!(states[0].found.ends_with("usr/configuration.toml"), "{states:?}");
        assert!(states.iter().any(|s| s.layer == "kata.default_vcpus" && s.found == "2"));
        fs::write(folders[0].join("configuration.toml"), "broken").unwrap();
        assert!(!states_in(&folders, "kata")[0].in_force);
        let clh = "[hypervisor.clh]\ndefault_vcpus = 4\n";
        fs::write(folders[1].join("configuration-clh.toml"), clh).unwrap();
        let states = states_in(&folders, "io.containerd.kata-clh.v2");
        assert!(states.iter().any(|s| s.layer == "kata.hypervisor" && s.found == "clh"));
    }

    #[test]
    fn missing_parts_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let folders = [root.path().to_path_buf()];
        let judged = |obstacle: Option<&str>| {
            let check = |verdict, detail: String, remedy: &str| Check {
                what: "Kata".into(),
                verdict,
                detail,
                remedy: remedy.into(),
            };
            judge(Path::new("/x/kata-runtime"), &folders, obstacle.map(String::from), check)
        };
        assert!(judged(None).detail.contains("no configuration.toml"));
        fs::write(root.path().join("configuration.toml"), FIXTURE).unwrap();
        assert!(judged(None).verdict == Verdict::Ok);
        assert!(judged(None).detail.contains("default_vcpus = 2, "));
        let limited = judged(Some("there is no /dev/kvm"));
        assert!(limited.verdict == Verdict::Limited && limited.detail.contains("/dev/kvm"));
    }
}
