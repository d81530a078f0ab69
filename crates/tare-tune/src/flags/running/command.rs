//! The command that makes a container again: `docker run` with its options, from what the engine
//! says about it. One option is one line.
//!
//! Method: what the image sets by itself, and what the engine sets by default, is left out.
//!
//! Limits: parts of the configuration that no option of the command has are notes.

use serde_json::Value;

use super::inspection::{Inspection, Object, is_empty};
use super::secrets::{Secrets, is_secret};
use crate::flags::compare::ENGINES_OWN;
use crate::flags::compose_labels;

/// Parts of `HostConfig` that options are made of, or that say nothing about a container of Linux.
const KNOWN: [&str; 63] = [
    "AutoRemove",
    "Binds",
    "BlkioDeviceReadBps",
    "BlkioDeviceReadIOps",
    "BlkioDeviceWriteBps",
    "BlkioDeviceWriteIOps",
    "BlkioWeight",
    "CapAdd",
    "CapDrop",
    "Cgroup",
    "CgroupConf",
    "CgroupManager",
    "CgroupMode",
    "CgroupParent",
    "Cgroups",
    "CgroupnsMode",
    "ConsoleSize",
    "ContainerIDFile",
    "CpuPeriod",
    "CpuQuota",
    "CpuShares",
    "CpusetCpus",
    "CpusetMems",
    "DeviceCgroupRules",
    "Devices",
    "Dns",
    "DnsOptions",
    "DnsSearch",
    "ExtraHosts",
    "GroupAdd",
    "Init",
    "IntelRdtClosID",
    "IpcMode",
    "Isolation",
    "Links",
    "LogConfig",
    "MaskedPaths",
    "Memory",
    "MemoryReservation",
    "MemorySwap",
    "MemorySwappiness",
    "Mounts",
    "NanoCpus",
    "NetworkMode",
    "OomKillDisable",
    "OomScoreAdj",
    "PidMode",
    "PidsLimit",
    "PortBindings",
    "Privileged",
    "PublishAllPorts",
    "ReadonlyPaths",
    "ReadonlyRootfs",
    "RestartPolicy",
    "Runtime",
    "SecurityOpt",
    "ShmSize",
    "Sysctls",
    "Tmpfs",
    "UTSMode",
    "Ulimits",
    "UsernsMode",
    "VolumesFrom",
];

/// Variables that Podman sets in every container.
const PODMAN_VARIABLES: [&str; 4] = ["container", "HOME", "HOSTNAME", "TERM"];

/// Capabilities that Podman does not give, and lists as dropped.
const PODMAN_WITHOUT: [&str; 3] = ["AUDIT_WRITE", "MKNOD", "NET_RAW"];

/// `--shm-size` of Docker and of Podman.
const SHARED_MEMORY: [i64; 2] = [64 << 20, 65_536_000];
/// `--pids-limit` of Podman.
const PODMAN_PIDS: i64 = 2048;

/// A command in parts, each quoted for a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    program: String,
    options: Vec<String>,
    image: String,
    pub(super) words: Vec<String>,
}

impl Command {
    /// Removes the options that begin with one of these texts.
    pub(super) fn remove(&mut self, starts: &[&str]) {
        self.options.retain(|option| !starts.iter().any(|start| option.starts_with(start)));
    }

    /// Replaces the first option that begins with `start` and removes the others, or adds the
    /// option at the end.
    pub(super) fn set(&mut self, start: &str, option: String) {
        match self.options.iter().position(|found| found.starts_with(start)) {
            Some(at) => {
                self.remove(&[start]);
                self.options.insert(at, option);
            }
            None => self.options.push(option),
        }
    }

    /// Returns the options that begin with a text.
    pub(super) fn options<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().map(String::as_str).filter(move |option| option.starts_with(start))
    }

    /// Returns the command, continued over lines.
    pub(super) fn text(&self) -> String {
        let mut text = self.program.clone();
        for part in self.options.iter().chain([&self.image]).chain(&self.words) {
            text += " \\\n  ";
            text += part;
        }
        text + "\n"
    }
}

/// A command, and what is said beside it.
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) command: Command,
    /// The words after the image as they are, for the options of the database in them.
    pub(super) words: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Rebuilds the command of a container.
pub(super) fn rebuild(inspection: &Inspection) -> Rebuilt {
    let container = Object(&inspection.container);
    let image = Object(&inspection.image);
    let secrets = secrets(container);
    let mut builder = Builder {
        inspection,
        container,
        image,
        info: Object(&inspection.info),
        secrets,
        options: vec!["--detach".into()],
        used: Vec::new(),
        notes: Vec::new(),
    };
    builder.add_identity();
    builder.add_variables();
    builder.add_network();
    builder.add_mounts();
    builder.add_resources();
    builder.add_devices();
    builder.add_security();
    builder.add_life();
    builder.add_unknown();
    builder.finish()
}

fn secrets(container: Object<'_>) -> Secrets {
    let variables = container.texts("Config/Env").into_iter();
    let variables = variables.filter_map(|variable| variable.split_once('='));
    let pairs = variables.chain(container.pairs("Config/Labels"));
    let lists = ["Config/Entrypoint", "Config/Cmd", "Config/Healthcheck/Test"];
    let words: Vec<&str> = lists.iter().flat_map(|path| container.texts(path)).collect();
    Secrets::find(pairs, &words)
}

struct Builder<'a> {
    inspection: &'a Inspection,
    container: Object<'a>,
    image: Object<'a>,
    info: Object<'a>,
    secrets: Secrets,
    options: Vec<String>,
    /// Variables of the shell in the command.
    used: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Builder<'a> {
    fn add(&mut self, name: &str, value: &str) {
        let quoted = self.secrets.quoted(value, &mut self.used);
        self.options.push(format!("--{name}={quoted}"));
    }

    /// Adds an option whose value is a text of the container, if there is one.
    fn add_text(&mut self, name: &str, path: &str) {
        let text = self.container.text(path);
        if !text.is_empty() {
            self.add(name, text);
        }
    }

    /// Adds an option for a number that is not zero.
    fn add_number(&mut self, name: &str, path: &str) {
        let number = self.container.number(path);
        if number != 0 {
            self.add(name, &number.to_string());
        }
    }

    fn add_flag(&mut self, name: &str, path: &str) {
        if self.container.is_true(path) {
            self.options.push(format!("--{name}"));
        }
    }

    /// Adds an option for each text of a list.
    fn add_list(&mut self, name: &str, path: &str) {
        for text in self.container.texts(path) {
            self.add(name, text);
        }
    }

    /// Adds an option for each pair of a map.
    fn add_pairs(&mut self, name: &str, path: &str) {
        for (key, value) in self.container.pairs(path) {
            self.add(name, &format!("{key}={value}"));
        }
    }

    fn is_podman(&self) -> bool {
        self.inspection.engine == "podman"
    }

    /// Whether the container has the network of the host, or of another container.
    fn has_foreign_network(&self) -> bool {
        let mode = self.container.text("HostConfig/NetworkMode");
        mode == "host" || mode.starts_with("container:")
    }

    fn add_identity(&mut self) {
        let name = self.container.text("Name").trim_start_matches('/');
        self.add("name", if name.is_empty() { &self.inspection.name } else { name });
        let hostname = self.container.text("Config/Hostname");
        let is_own = self.container.text("Id").starts_with(hostname);
        if !hostname.is_empty() && !is_own && !self.has_foreign_network() {
            self.add("hostname", hostname);
        }
        self.add_text("domainname", "Config/Domainname");
        for (option, path) in [
            ("user", "Config/User"),
            ("workdir", "Config/WorkingDir"),
            ("stop-signal", "Config/StopSignal"),
        ] {
            let text = self.container.text(path);
            // Podman writes the default signal.
            let usual = ["", "SIGTERM", "15"].contains(&text) && option == "stop-signal";
            if text != self.image.text(path) && !usual && !(option == "workdir" && text == "/") {
                self.add_text(option, path);
            }
        }
        if !(self.is_podman() && self.container.number("Config/StopTimeout") == 10) {
            self.add_number("stop-timeout", "Config/StopTimeout");
        }
        self.add_flag("tty", "Config/Tty");
        self.add_flag("interactive", "Config/OpenStdin");
    }

    fn add_variables(&mut self) {
        let image = self.image.texts("Config/Env");
        let mut hidden = Vec::new();
        for variable in self.container.texts("Config/Env") {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            let is_usual = self.is_podman() && PODMAN_VARIABLES.contains(&name);
            if image.contains(&variable) || is_usual {
                continue;
            }
            if is_secret(name) || self.secrets.are_in(value) {
                hidden.push(name.to_string());
                self.options.push(format!("--env={}", crate::flags::quote::shell(name)));
            } else {
                self.add("env", variable);
            }
        }
        if !hidden.is_empty() {
            self.notes.push(format!(
                "Values that look like secrets are not printed: set {} in the environment of the \
                 command.",
                hidden.join(", ")
            ));
        }
        let labels = self.image.pairs("Config/Labels");
        for (key, value) in self.container.pairs("Config/Labels") {
            if !labels.contains(&(key, value)) {
                self.add("label", &format!("{key}={value}"));
            }
        }
    }

    fn add_network(&mut self) {
        let mode = self.container.text("HostConfig/NetworkMode");
        let is_usual = ["", "default", "bridge", "slirp4netns", "pasta"].contains(&mode);
        if !is_usual {
            self.add("network", mode);
        }
        if !self.has_foreign_network() && mode != "none" {
            self.add_endpoints(mode);
            self.add_ports();
        }
        self.add_list("dns", "HostConfig/Dns");
        self.add_list("dns-option", "HostConfig/DnsOptions");
        self.add_list("dns-search", "HostConfig/DnsSearch");
        self.add_list("add-host", "HostConfig/ExtraHosts");
        for link in self.container.texts("HostConfig/Links") {
            // `/other:/own/alias`.
            let (other, alias) = link.split_once(':').unwrap_or((link, ""));
            let alias = alias.rsplit('/').next().unwrap_or_default();
            self.add("link", &format!("{}:{alias}", other.trim_start_matches('/')));
        }
    }

    fn add_endpoints(&mut self, mode: &str) {
        let id = self.container.text("Id");
        let name = self.container.text("Name").trim_start_matches('/');
        for (network, endpoint) in self.container.entries("NetworkSettings/Networks") {
            let endpoint = Object(endpoint);
            let is_first =
                network == mode || ["", "default"].contains(&mode) && network == "bridge";
            if !is_first && mode != "default" && !ENGINES_OWN.contains(&network) {
                self.add("network", network);
            }
            for (option, path) in
                [("ip", "IPAMConfig/IPv4Address"), ("ip6", "IPAMConfig/IPv6Address")]
            {
                let text = endpoint.text(path);
                if !text.is_empty() {
                    self.add(option, text);
                }
            }
            for alias in endpoint.texts("Aliases") {
                if alias != name && !(alias.len() >= 12 && id.starts_with(alias)) {
                    self.add("network-alias", alias);
                }
            }
        }
    }

    fn add_ports(&mut self) {
        let mut published = Vec::new();
        for (port, bindings) in self.container.entries("HostConfig/PortBindings") {
            published.push(port);
            let inside = port.strip_suffix("/tcp").unwrap_or(port);
            for binding in bindings.as_array().into_iter().flatten() {
                let binding = Object(binding);
                let address = match binding.text("HostIp") {
                    "" | "0.0.0.0" => String::new(),
                    six if six.contains(':') => format!("[{six}]:"),
                    address => format!("{address}:"),
                };
                let outside = match binding.text("HostPort") {
                    // The engine chooses one.
                    "" | "0" if address.is_empty() => String::new(),
                    "" | "0" => ":".into(),
                    port => format!("{port}:"),
                };
                self.add("publish", &format!("{address}{outside}{inside}"));
            }
        }
        self.add_flag("publish-all", "HostConfig/PublishAllPorts");
        let image: Vec<&str> =
            self.image.entries("Config/ExposedPorts").into_iter().map(|(port, _)| port).collect();
        for (port, _) in self.container.entries("Config/ExposedPorts") {
            if !image.contains(&port) && !published.contains(&port) {
                self.add("expose", port);
            }
        }
    }

    fn add_mounts(&mut self) {
        self.add_list("volume", "HostConfig/Binds");
        let mut known: Vec<String> = self
            .container
            .texts("HostConfig/Binds")
            .iter()
            .filter_map(|bind| bind.split(':').nth(1).map(str::to_string))
            .collect();
        for mount in self.container.items("HostConfig/Mounts") {
            let mount = Object(mount);
            known.push(mount.text("Target").to_string());
            let text = mount_option(mount);
            self.add("mount", &text);
        }
        let mut kept = Vec::new();
        for mount in self.container.items("Mounts") {
            let mount = Object(mount);
            let at = mount.text("Destination");
            if mount.text("Type") == "volume" && !known.iter().any(|known| known == at) {
                let name = mount.text("Name");
                self.add("volume", &format!("{name}:{at}"));
                kept.push(at.to_string());
            }
        }
        let removed = self.container.is_true("HostConfig/AutoRemove");
        if !kept.is_empty() && removed {
            self.notes.push(format!(
                "The volume at {} has no name of yours and is removed with the container (--rm): copy \
                 its data before you stop it.",
                kept.join(", ")
            ));
        } else if !kept.is_empty() {
            self.notes.push(format!(
                "The volume at {} has no name of yours. The command names it, so that the new \
                 container has its data: remove the old one without --volumes.",
                kept.join(", ")
            ));
        }
        for (at, options) in self.container.pairs("HostConfig/Tmpfs") {
            let text = if options.is_empty() { at.to_string() } else { format!("{at}:{options}") };
            self.add("tmpfs", &text);
        }
        self.add_list("volumes-from", "HostConfig/VolumesFrom");
        self.add_flag("read-only", "HostConfig/ReadonlyRootfs");
    }

    fn add_resources(&mut self) {
        self.add_text("cpuset-cpus", "HostConfig/CpusetCpus");
        self.add_text("cpuset-mems", "HostConfig/CpusetMems");
        let nano = self.container.number("HostConfig/NanoCpus");
        if nano > 0 {
            self.add("cpus", &(nano as f64 / 1e9).to_string());
        } else {
            if self.container.number("HostConfig/CpuQuota") > 0 {
                self.add_number("cpu-period", "HostConfig/CpuPeriod");
            }
            self.add_number("cpu-quota", "HostConfig/CpuQuota");
        }
        self.add_number("cpu-shares", "HostConfig/CpuShares");
        self.add_number("memory", "HostConfig/Memory");
        let memory = self.container.number("HostConfig/Memory");
        let swap = self.container.number("HostConfig/MemorySwap");
        // Twice the memory is the default.
        if swap != 0 && swap != memory * 2 && !(memory == 0 && swap == -1) {
            self.add_number("memory-swap", "HostConfig/MemorySwap");
        }
        self.add_number("memory-reservation", "HostConfig/MemoryReservation");
        if let Some(swappiness) = self.container.at("HostConfig/MemorySwappiness").as_i64()
            && swappiness >= 0
            && !(self.is_podman() && swappiness == 0)
        {
            self.add("memory-swappiness", &swappiness.to_string());
        }
        self.add_flag("oom-kill-disable", "HostConfig/OomKillDisable");
        self.add_number("oom-score-adj", "HostConfig/OomScoreAdj");
        let pids = self.container.number("HostConfig/PidsLimit");
        if pids != 0 && !(self.is_podman() && pids == PODMAN_PIDS) && pids != -1 {
            self.add_number("pids-limit", "HostConfig/PidsLimit");
        }
        if !SHARED_MEMORY.contains(&self.container.number("HostConfig/ShmSize")) {
            self.add_number("shm-size", "HostConfig/ShmSize");
        }
        for limit in self.container.items("HostConfig/Ulimits") {
            let limit = Object(limit);
            let (soft, hard) = (limit.number("Soft"), limit.number("Hard"));
            self.add("ulimit", &format!("{}={soft}:{hard}", limit_name(limit.text("Name"))));
        }
        for (option, key) in [
            ("device-read-bps", "BlkioDeviceReadBps"),
            ("device-write-bps", "BlkioDeviceWriteBps"),
            ("device-read-iops", "BlkioDeviceReadIOps"),
            ("device-write-iops", "BlkioDeviceWriteIOps"),
        ] {
            for rate in self.container.items(&format!("HostConfig/{key}")) {
                let rate = Object(rate);
                self.add(option, &format!("{}:{}", rate.text("Path"), rate.number("Rate")));
            }
        }
        self.add_number("blkio-weight", "HostConfig/BlkioWeight");
        self.add_text("cgroup-parent", "HostConfig/CgroupParent");
    }

    fn add_devices(&mut self) {
        for device in self.container.items("HostConfig/Devices") {
            let device = Object(device);
            let (host, inside) = (device.text("PathOnHost"), device.text("PathInContainer"));
            let rights = match device.text("CgroupPermissions") {
                "" | "rwm" => String::new(),
                rights => format!(":{rights}"),
            };
            self.add("device", &format!("{host}:{inside}{rights}"));
        }
        self.add_list("device-cgroup-rule", "HostConfig/DeviceCgroupRules");
        self.add_list("group-add", "HostConfig/GroupAdd");
        self.add_pairs("sysctl", "HostConfig/Sysctls");
        if self.is_podman() {
            // Its inspection has no field for them (4.3).
            self.notes.push(
                "Podman does not tell which sysctls a container was given: if it has any, add --sysctl \
                 to the command."
                    .into(),
            );
        }
    }

    fn add_security(&mut self) {
        self.add_flag("privileged", "HostConfig/Privileged");
        self.add_list("cap-add", "HostConfig/CapAdd");
        for name in self.container.texts("HostConfig/CapDrop") {
            if !(self.is_podman() && PODMAN_WITHOUT.contains(&name.trim_start_matches("CAP_"))) {
                self.add("cap-drop", name);
            }
        }
        for option in self.container.texts("HostConfig/SecurityOpt") {
            if profile(option).is_some() {
                self.options.push("--security-opt=seccomp=seccomp.json".into());
                self.notes.push(
                    "The engine keeps the content of the seccomp profile, not its file: the command \
                     names it seccomp.json."
                        .into(),
                );
            } else {
                self.add("security-opt", option);
            }
        }
        let privileged = self.container.is_true("HostConfig/Privileged");
        let masked = self.container.at("HostConfig/MaskedPaths").as_array();
        if !privileged && masked.is_some_and(Vec::is_empty) {
            self.add("security-opt", "systempaths=unconfined");
        }
        let two = self.info.text("CgroupVersion") == "2";
        for (option, key, usual) in [
            ("ipc", "IpcMode", ["", "private", "shareable"]),
            ("pid", "PidMode", ["", "private", "private"]),
            ("uts", "UTSMode", ["", "private", "private"]),
            ("userns", "UsernsMode", ["", "", ""]),
            ("cgroupns", "CgroupnsMode", ["", "", if two { "private" } else { "host" }]),
        ] {
            let path = format!("HostConfig/{key}");
            if !usual.contains(&self.container.text(&path)) {
                self.add_text(option, &path);
            }
        }
    }

    fn add_life(&mut self) {
        let runtime = self.container.text("HostConfig/Runtime");
        let usual = self.info.text("DefaultRuntime");
        if !self.is_podman() && !runtime.is_empty() && runtime != usual {
            self.add("runtime", runtime);
        }
        self.add_flag("init", "HostConfig/Init");
        self.add_flag("rm", "HostConfig/AutoRemove");
        let (policy, retries) = (
            self.container.text("HostConfig/RestartPolicy/Name"),
            self.container.number("HostConfig/RestartPolicy/MaximumRetryCount"),
        );
        match policy {
            "" | "no" => {}
            "on-failure" if retries > 0 => self.add("restart", &format!("on-failure:{retries}")),
            policy => self.add("restart", policy),
        }
        let driver = self.container.text("HostConfig/LogConfig/Type");
        let usual = match self.is_podman() {
            true => "json-file",
            false => self.info.text("LoggingDriver"),
        };
        if !driver.is_empty() && driver != usual {
            self.add("log-driver", driver);
        }
        self.add_pairs("log-opt", "HostConfig/LogConfig/Config");
        self.add_health();
    }

    fn add_health(&mut self) {
        let check = self.container.at("Config/Healthcheck");
        if is_empty(check) || check == self.image.at("Config/Healthcheck") {
            return;
        }
        let test = self.container.texts("Config/Healthcheck/Test");
        match test.split_first() {
            Some((&"NONE", _)) => return self.options.push("--no-healthcheck".into()),
            Some((&"CMD-SHELL", words)) => self.add("health-cmd", &words.join(" ")),
            Some((&"CMD", words)) => {
                let quoted: Vec<String> =
                    words.iter().map(|word| crate::flags::quote::shell(word)).collect();
                self.add("health-cmd", &quoted.join(" "));
            }
            _ => {}
        }
        for (option, key) in [
            ("health-interval", "Interval"),
            ("health-timeout", "Timeout"),
            ("health-start-period", "StartPeriod"),
        ] {
            let ns = self.container.number(&format!("Config/Healthcheck/{key}"));
            if ns > 0 {
                self.add(option, &format!("{}ms", ns / 1_000_000));
            }
        }
        self.add_number("health-retries", "Config/Healthcheck/Retries");
    }

    /// Adds a note about parts of the configuration that are in no option.
    fn add_unknown(&mut self) {
        let entries = self.container.entries("HostConfig").into_iter();
        let unknown: Vec<&str> = entries
            .filter(|(key, value)| !KNOWN.contains(key) && !is_empty(value))
            .map(|(key, _)| key)
            .collect();
        if !unknown.is_empty() {
            self.notes.push(format!(
                "These parts of its configuration are in no option of the command, so add them \
                 yourself: {}.",
                unknown.join(", ")
            ));
        }
        let labels = self.container.pairs("Config/Labels");
        let label = |name: &str| labels.iter().find(|(key, _)| *key == name).map(|(_, text)| *text);
        if let Some(service) = label(compose_labels::SERVICE) {
            // The last file overrides those before it.
            let file =
                compose_labels::files(label).pop().and_then(|places| places.into_iter().next());
            let file = file.map_or("compose.yaml".into(), |file| file.display().to_string());
            let file = crate::flags::quote::shell(&file);
            self.notes.push(format!(
                "Compose made this container: tare tune flags --from {file} --object {service} \
                 prints the diff of its file."
            ));
        }
    }

    fn finish(mut self) -> Rebuilt {
        let entry = self.container.texts("Config/Entrypoint");
        let own_entry = entry != self.image.texts("Config/Entrypoint");
        let command = self.container.texts("Config/Cmd");
        let mut words: Vec<String> = Vec::new();
        if own_entry {
            // The option takes one word; the others come before the command.
            let (first, rest) = entry.split_first().unwrap_or((&"", &[]));
            self.add("entrypoint", first);
            words.extend(rest.iter().map(|word| (*word).to_string()));
        }
        if own_entry || command != self.image.texts("Config/Cmd") {
            words.extend(command.iter().map(|word| (*word).to_string()));
        }
        let quoted: Vec<String> =
            words.iter().map(|word| self.secrets.quoted(word, &mut self.used)).collect();
        if !self.used.is_empty() {
            self.notes.push(format!(
                "Words that look like secrets are variables of the shell here: set {} before the \
                 command.",
                self.used.join(", ")
            ));
        }
        let image = self.container.text("Config/Image");
        let command = Command {
            program: format!("{} run", self.inspection.engine),
            options: self.options,
            image: crate::flags::quote::shell(image),
            words: quoted,
        };
        Rebuilt { command, words, notes: self.notes }
    }
}

/// Returns the seccomp profile in a security option, which the engine keeps as JSON.
fn profile(option: &str) -> Option<Value> {
    let text = option.strip_prefix("seccomp=").or_else(|| option.strip_prefix("seccomp:"))?;
    serde_json::from_str(text).ok().filter(Value::is_object)
}

/// Returns the name of a limit as the option takes it: `nofile`, for Podman's `RLIMIT_NOFILE`.
pub(super) fn limit_name(name: &str) -> String {
    name.trim_start_matches("RLIMIT_").to_ascii_lowercase()
}

/// Writes a mount as the option `--mount` takes it: fields with commas are quoted as in CSV.
fn mount_option(mount: Object<'_>) -> String {
    let mut fields = vec![format!("type={}", mount.text("Type"))];
    for (name, key) in [
        ("source", "Source"),
        ("target", "Target"),
        ("bind-propagation", "BindOptions/Propagation"),
        ("volume-driver", "VolumeOptions/DriverConfig/Name"),
        ("volume-subpath", "VolumeOptions/Subpath"),
    ] {
        let text = mount.text(key);
        if !text.is_empty() {
            fields.push(format!("{name}={text}"));
        }
    }
    for (key, value) in mount.pairs("VolumeOptions/DriverConfig/Options") {
        fields.push(format!("volume-opt={key}={value}"));
    }
    if mount.number("TmpfsOptions/SizeBytes") > 0 {
        fields.push(format!("tmpfs-size={}", mount.number("TmpfsOptions/SizeBytes")));
    }
    if mount.number("TmpfsOptions/Mode") > 0 {
        fields.push(format!("tmpfs-mode={:o}", mount.number("TmpfsOptions/Mode")));
    }
    for (name, key) in [("readonly", "ReadOnly"), ("volume-nocopy", "VolumeOptions/NoCopy")] {
        if mount.is_true(key) {
            fields.push(name.into());
        }
    }
    let quoted = fields.iter().map(|field| match field.contains([',', '"']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.clone(),
    });
    quoted.collect::<Vec<_>>().join(",")
}
