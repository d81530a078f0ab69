//! A container that runs: the command that makes it again, and what `tare tune flags` would change
//! in that command.
//!
//! Method: `command` rebuilds the command from what the engine says (`inspection`), `secrets` keeps
//! values that look like secrets out of it, `compare` finds what the container lacks. No code here
//! does I/O, and nothing is started or stopped.
//!
//! Limits: which CPUs other containers use is not known. A container without a network of its own,
//! and a seccomp profile of the user, stay as they are.

mod command;
mod inspection;
mod secrets;

use serde_json::Value;
use tare_std::cpus::CpuSet;

use super::change::{Change, Diff};
use super::compare::{
    self, ENGINES_OWN, Limit, Missing, Port, Present, PresentLog, PresentNetwork, PresentSeccomp,
    Step,
};
use super::container::{Kind, Setting};
use super::host::process_limit;
use super::{Context, Engine, FlagsError, Host, Request, options, shell};
use crate::machine::Topology;
use crate::plan::CpuSets;
use command::{Command, Rebuilt};
pub use inspection::Inspection;
use inspection::Object;

/// Options that a container on the host's network cannot have, or that mean nothing there.
const NETWORK_OPTIONS: [&str; 8] = [
    "--publish=",
    "--publish-all",
    "--expose=",
    "--ip=",
    "--ip6=",
    "--network-alias=",
    "--link=",
    "--sysctl=net.",
];

/// Limits of a process as /proc names them.
const LIMITS: [(&str, &str); 3] =
    [("nofile", "Max open files"), ("nproc", "Max processes"), ("memlock", "Max locked memory")];

/// Returns what would change in the command of a container. `profile` is the content of the
/// requested seccomp profile.
///
/// # Errors
/// When the host has too few CPUs, or the memory is too little for the database.
pub fn diff(
    inspection: &Inspection,
    profile: Option<&Value>,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> Result<Diff, FlagsError> {
    let present = present(inspection, request, profile);
    let mut request = request.clone();
    request.image = Some(image(inspection));
    request.memory_bytes = request.memory_bytes.or(present.memory);
    let engine = request.image.as_deref().map_or(Engine::Other, Engine::of_image);
    let context = Context { request: &request, topology, cpus, host, engine };
    let instance = compare::size(&context, &present)?;
    let kind = if inspection.engine == "podman" { Kind::Podman } else { Kind::Docker };
    let (missing, notes) = compare::missing(&context, &instance, kind, &present)?;
    let mut rebuilt = command::rebuild(inspection);
    let now = rebuilt.command.text();
    let mut changed =
        Changes { inspection, present: &present, kind, changes: Vec::new(), notes: Vec::new() };
    for step in &missing {
        changed.take(&mut rebuilt.command, step);
    }
    changed.options(&mut rebuilt, options::wanted(&context, &instance, true)?, engine);
    let Changes { changes, notes: own, .. } = changed;
    let mut notes = [rebuilt.notes, notes, own].concat();
    if changes.iter().any(|change| change.place == "--cpuset-cpus") {
        notes.push(format!(
            "CPUs {} have to be free of other containers with CPUs of their own: choose others with \
             --cpus.",
            instance.cpus
        ));
    }
    if !changes.is_empty() {
        notes.push(format!(
            "Nothing has been changed. A container takes the options when it is made: stop it, remove \
             it ({} rm {}), and run the new command. What is in no volume or directory of the host is \
             lost with it.",
            inspection.engine, inspection.name
        ));
    }
    let name = format!("{}:{}", inspection.engine, inspection.name);
    let wanted = rebuilt.command.text();
    Ok(Diff::new(name.clone(), changes, notes, [now, wanted], [&name, &name], true))
}

/// Returns the name of the image, also of a container that was made from an image's id.
fn image(inspection: &Inspection) -> String {
    let name = Object(&inspection.container).text("Config/Image");
    let tags = Object(&inspection.image).texts("RepoTags");
    match (name.starts_with("sha256:"), tags.first()) {
        (true, Some(tag)) => (*tag).to_string(),
        _ => name.to_string(),
    }
}

fn present(inspection: &Inspection, request: &Request, profile: Option<&Value>) -> Present {
    let container = Object(&inspection.container);
    let info = Object(&inspection.info);
    let positive = |path: &str| u64::try_from(container.number(path)).ok().filter(|n| *n > 0);
    let set =
        |path: &str| CpuSet::parse_list(container.text(path)).ok().filter(|set| !set.is_empty());
    let quota = positive("HostConfig/CpuQuota")
        .map(|quota| quota * 1000 / positive("HostConfig/CpuPeriod").unwrap_or(100_000));
    let memory = positive("HostConfig/Memory");
    let counts_swap = info.at("SwapLimit").as_bool().unwrap_or(true);
    let added = container.texts("HostConfig/CapAdd").into_iter();
    let policy = container.text("HostConfig/RestartPolicy/Name");
    let inside = container.items("Mounts").iter().map(|mount| Object(mount).text("Destination"));
    let inside = inside.chain(container.pairs("HostConfig/Tmpfs").into_iter().map(|(at, _)| at));
    Present {
        cpus: set("HostConfig/CpusetCpus"),
        quota_millis: positive("HostConfig/NanoCpus")
            .map(|nano| nano.div_ceil(1_000_000))
            .or(quota),
        nodes: set("HostConfig/CpusetMems"),
        network: network(container, info),
        limits: limits(inspection),
        capabilities: added.map(|name| name.trim_start_matches("CAP_").to_string()).collect(),
        privileged: container.is_true("HostConfig/Privileged"),
        seccomp: seccomp(container, request, profile),
        pids: positive("HostConfig/PidsLimit"),
        shared_memory: positive("HostConfig/ShmSize"),
        memory,
        // Without an account of swap, the engine drops the option.
        memory_and_swap: match counts_swap {
            true => positive("HostConfig/MemorySwap"),
            false => request.memory_bytes.or(memory),
        },
        log: log(container, inspection.engine == "podman"),
        restarts: !["", "no"].contains(&policy),
        removed: container.is_true("HostConfig/AutoRemove"),
        mounts: inside.map(str::to_string).collect(),
    }
}

fn network(container: Object<'_>, info: Object<'_>) -> PresentNetwork {
    let mapped =
        info.texts("SecurityOptions").iter().any(|option| option.starts_with("name=userns"));
    match container.text("HostConfig/NetworkMode") {
        "host" => PresentNetwork::Host,
        "none" => PresentNetwork::Left("none, so that nobody reaches it".into()),
        mode if mode.starts_with("container:") => {
            PresentNetwork::Left("that of another container".into())
        }
        _ if mapped && container.text("HostConfig/UsernsMode") != "host" => PresentNetwork::Left(
            "the engine's, whose user namespaces (userns-remap) exclude the host's".into(),
        ),
        "" | "default" => PresentNetwork::Default,
        mode => {
            // Podman calls every network of its own a bridge.
            let names =
                container.entries("NetworkSettings/Networks").into_iter().map(|(name, _)| name);
            let names: Vec<&str> = names.filter(|name| !ENGINES_OWN.contains(name)).collect();
            let name = if names.is_empty() { mode.to_string() } else { names.join(", ") };
            PresentNetwork::Own(name)
        }
    }
}

fn ports(container: Object<'_>) -> Vec<Port> {
    let mut ports = Vec::new();
    for (port, bindings) in container.entries("HostConfig/PortBindings") {
        for binding in bindings.as_array().into_iter().flatten() {
            ports.push(Port {
                address: Object(binding).text("HostIp").into(),
                outside: Object(binding).text("HostPort").into(),
                inside: port.split('/').next().unwrap_or(port).into(),
            });
        }
    }
    ports
}

/// Returns the limits that the container was given, and those of its first process for the rest.
fn limits(inspection: &Inspection) -> Vec<(String, Limit, Limit)> {
    let given = Object(&inspection.container).items("HostConfig/Ulimits").iter().map(|limit| {
        let limit = Object(limit);
        let value = |key: &str| u64::try_from(limit.number(key)).ok();
        (command::limit_name(limit.text("Name")), value("Soft"), value("Hard"))
    });
    let mut limits: Vec<_> = given.collect();
    for (name, line) in LIMITS {
        let text = inspection.limits.as_deref().unwrap_or_default();
        if let Some((soft, hard)) = process_limit(text, line)
            && !limits.iter().any(|(known, ..)| known == name)
        {
            limits.push((name.to_string(), soft, hard));
        }
    }
    limits
}

fn seccomp(container: Object<'_>, request: &Request, profile: Option<&Value>) -> PresentSeccomp {
    let mut given = container.texts("HostConfig/SecurityOpt").into_iter();
    let text = given.find_map(|option| option.strip_prefix("seccomp"));
    match text.map(|text| text.trim_start_matches([':', '='])) {
        None | Some("builtin") => PresentSeccomp::Default,
        Some("unconfined") => PresentSeccomp::Fits,
        // Docker keeps the content of the file, Podman its path.
        Some(text) if request.seccomp.as_deref() == Some(text) => PresentSeccomp::Fits,
        Some(text) => match serde_json::from_str::<Value>(text).ok().as_ref() {
            found if found.is_some() && found == profile => PresentSeccomp::Fits,
            _ => PresentSeccomp::Own,
        },
    }
}

fn log(container: Object<'_>, is_podman: bool) -> PresentLog {
    let driver = container.text("HostConfig/LogConfig/Type");
    let limited = !container.text("HostConfig/LogConfig/Config/max-size").is_empty();
    match driver {
        // The API of Podman (4.3) tells no options.
        "json-file" | "k8s-file" if is_podman && !limited => PresentLog::Unknown,
        "json-file" if !limited => PresentLog::Unlimited(driver.to_string()),
        _ => PresentLog::Fits,
    }
}

/// Changes a command step by step.
struct Changes<'a> {
    inspection: &'a Inspection,
    present: &'a Present,
    kind: Kind,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl Changes<'_> {
    fn take(&mut self, command: &mut Command, missing: &Missing) {
        let setting = match &missing.step {
            Step::DropQuota => {
                return self.drop_options(
                    command,
                    &["--cpus=", "--cpu-quota=", "--cpu-period="],
                    missing,
                );
            }
            Step::Set(setting) => setting,
        };
        let option = shell::option(setting, self.kind);
        let starts: &[&str] = match setting {
            Setting::Cpus(_) => &["--cpuset-cpus="],
            Setting::Nodes(_) => &["--cpuset-mems="],
            Setting::HostNetwork => &["--network="],
            Setting::Files(_) => &["--ulimit=nofile="],
            Setting::Processes(_) => &["--ulimit=nproc="],
            Setting::LockedMemory(_) => &["--ulimit=memlock="],
            Setting::Capability(_) => &[],
            Setting::Seccomp(_) => &["--security-opt=seccomp="],
            Setting::Pids(_) => &["--pids-limit="],
            Setting::SharedMemory(_) => &["--shm-size="],
            Setting::Memory(_) => &["--memory=", "--memory-swap="],
            Setting::Log => &["--log-driver=", "--log-opt="],
            Setting::Restart => &["--restart="],
            // It is a note.
            Setting::Volume { .. } => return,
        };
        let parts: Vec<&str> = match starts.len() {
            0 | 1 => vec![&option],
            _ => option.split_whitespace().collect(),
        };
        for (index, part) in parts.iter().enumerate() {
            // An option without a start of its own never replaces another.
            let start = starts.get(index).copied().unwrap_or(part);
            let now = match index {
                0 => missing.now.as_deref(),
                _ => None,
            };
            let place = start.split('=').next().unwrap_or(start);
            let value = part.strip_prefix(place).unwrap_or(part).trim_start_matches('=');
            self.changes.push(Change::of(place, now, value, &missing.flag));
            command.set(start, (*part).to_string());
        }
        if *setting == Setting::HostNetwork {
            self.drop_options(command, &NETWORK_OPTIONS, missing);
            let ports = ports(Object(&self.inspection.container));
            self.notes.extend(compare::reached(&ports, &self.present.network));
        }
    }

    /// Removes options, each as a change with the reason of `missing`.
    fn drop_options(&mut self, command: &mut Command, starts: &[&str], missing: &Missing) {
        for start in starts {
            for option in command.options(start) {
                let (place, now) = option.split_once('=').unwrap_or((option, ""));
                let now = Some(now).filter(|now| !now.is_empty());
                self.changes.push(Change::of(place, now, "none", &missing.flag));
            }
        }
        command.remove(starts);
    }

    /// Changes the options of the database, which are words after the image.
    fn options(&mut self, rebuilt: &mut Rebuilt, wanted: Vec<super::Flag>, engine: Engine) {
        let Rebuilt { command, words, .. } = rebuilt;
        let own_entry = command.options("--entrypoint=").next().is_some();
        if own_entry && engine == Engine::Scylla {
            let words: Vec<&str> = wanted.iter().map(|option| option.text.as_str()).collect();
            self.notes.push(format!(
                "The container has an entry point of its own, so its options are left alone: the \
                 database should get {}.",
                words.join(" ")
            ));
            return;
        }
        let known: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
        let mut missing = Vec::new();
        for option in wanted {
            let Some(found) = options::compare(&known, &option.text) else { continue };
            let now = found.at.and_then(|at| known[at]);
            let place = options::name(&option.text);
            let value = option.text.strip_prefix(place).unwrap_or_default();
            let now = now.map(|now| now.trim_start_matches(place).trim_start_matches('='));
            self.changes.push(Change::of(place, now, value.trim_start_matches('='), &option));
            let quoted = super::quote::shell(&found.word);
            match found.at {
                Some(at) => command.words[at] = quoted,
                None => missing.push(quoted),
            }
        }
        if !missing.is_empty() && known.is_empty() {
            // Words replace those of the image.
            let own = Object(&self.inspection.image).texts("Config/Cmd");
            command.words.extend(own.iter().map(|word| super::quote::shell(word)));
        }
        command.words.extend(missing);
    }
}
