//! What a study needs of a host, from its file alone.

use std::path::Path;

use serde::Serialize;
use tare_env::layer::neighbour;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::fake;
use tare_lab::layer::{NeighbourKind, Rootfs};
use tare_lab::study::Study;

/// What a study needs, in words for a list.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Needs {
    /// Without these the study cannot run.
    pub(crate) always: Vec<String>,
    /// Without these, optional environments are left out.
    pub(crate) optional: Vec<String>,
}

impl Needs {
    /// Returns the needs of a study.
    pub(crate) fn of(study: &Study) -> Self {
        let mut needs = Self::default();
        if study.driver == fake::NAME {
            return needs;
        }
        needs.always.push("root".into());
        let system = tare_system::find(&study.system.name);
        let starts = study.environments.iter().any(|spec| spec.attach.is_none());
        if starts && system.is_some_and(|system| system.found.is_some()) {
            needs.always.push(study.system.name.clone());
        }
        let driver = tare_driver::find(&study.driver);
        needs.always.extend(driver.and_then(|one| one.program).map(|one| one.name.to_string()));
        for spec in study.environments.iter().filter(|spec| !spec.optional) {
            needs.always.extend(of_environment(spec));
        }
        for spec in study.environments.iter().filter(|spec| spec.optional) {
            needs.optional.extend(of_environment(spec));
        }
        let mut seen = Vec::new();
        needs.always.retain(|one| first(one, &mut seen));
        needs.optional.retain(|one| first(one, &mut seen));
        needs
    }

    /// Returns the needs on one line.
    pub(crate) fn text(&self) -> String {
        let always = match self.always.is_empty() {
            true => "nothing".to_string(),
            false => self.always.join(", "),
        };
        match self.optional.is_empty() {
            true => always,
            false => format!("{always}; for some environments {}", self.optional.join(", ")),
        }
    }
}

/// Returns whether a need was not seen before.
fn first(need: &str, seen: &mut Vec<String>) -> bool {
    let new = !seen.iter().any(|known| known == need);
    seen.push(need.to_string());
    new
}

fn of_environment(spec: &EnvironmentSpec) -> Vec<String> {
    let mut needs = Vec::new();
    match (spec.runtime.kind(), spec.runtime.as_str()) {
        ("process" | "attached", _) => {}
        (_, "vm:qemu") => needs.push("QEMU (with KVM, or slowly without)".into()),
        (_, "vm:uml") => needs.push("user-mode Linux".into()),
        (engine, word) => {
            let argument = word.split_once(':').map(|(_, argument)| argument);
            if engine != "oci" {
                needs.push(engine.to_string());
            }
            // A runtime may be given by its path.
            let name = argument.and_then(|path| Path::new(path).file_name());
            needs.extend(name.map(|name| name.to_string_lossy().into_owned()));
            if word.contains("kata") {
                needs.push("/dev/kvm".into());
            }
        }
    }
    let option = |name: &str| {
        let found = spec.storage.options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| *value != "loop")
    };
    match spec.storage.kind.as_str() {
        "directory" | "raw" | "volume" | "tmpfs" | "rootfs" if option("driver").is_none() => {}
        "rootfs" => needs.extend(option("driver").map(String::from)),
        kind if is_guest_storage(kind) => {}
        kind => needs.push(kind.to_string()),
    }
    needs.extend(option("filesystem").map(String::from));
    for name in ["device", "nqn"] {
        needs.extend(option(name).map(|device| format!("--destroy-data-on {device}")));
    }
    match &spec.rootfs {
        Rootfs::Image(image) => needs.push(format!("the image {image}")),
        Rootfs::None => {}
        other => needs.push(format!("root file system {other}")),
    }
    for one in &spec.neighbours {
        match (one.kind, &one.system) {
            (NeighbourKind::Command, _) => needs.extend(one.command.first().cloned()),
            (NeighbourKind::System, Some(other)) => {
                let system = tare_system::find(&other.name).filter(|one| one.found.is_some());
                needs.extend(system.map(|one| one.name.to_string()));
                let driver = tare_driver::find(&other.driver).and_then(|one| one.program);
                needs.extend(driver.map(|one| one.name.to_string()));
            }
            _ => needs.push(neighbour::PROGRAM.into()),
        }
    }
    if !spec.host.is_as_is() {
        needs.push("a host that may be tuned".into());
    }
    needs
}

/// Returns whether QEMU itself provides a kind of storage.
fn is_guest_storage(kind: &str) -> bool {
    let of_host = ["ext4", "xfs", "btrfs", "f2fs", "loop-lvm", "direct-lvm", "nvme-of"];
    !of_host.contains(&kind) && kind != "virtiofs"
}
