//! A compose file of a user: what `tare tune flags` would change in one of its services, as a
//! unified diff.
//!
//! Method: the file is parsed into nodes that know their bytes (`yaml`), `compare` finds what the
//! service lacks, and `yaml::edit` changes only these bytes.
//!
//! Limits: one file, without those that it includes or extends. Values with variables (`${...}`)
//! are notes, because the file does not say what they are. Templates are not YAML.

use tare_std::cpus::CpuSet;

use super::change::{Change, Diff};
use super::compare::{
    self, Limit, Missing, Port, Present, PresentLog, PresentNetwork, PresentSeccomp, Step,
};
use super::container::{Kind, Setting};
use super::manifest::{engine, millis};
use super::yaml::edit::{self, Edits, Wanted};
use super::yaml::{self, Content, Node};
use super::{Context, Engine, Flag, FlagsError, Host, Request, options};
use crate::machine::Topology;
use crate::plan::CpuSets;

/// A compose file and which service of it is meant.
#[derive(Clone, Copy, Debug)]
pub struct ComposeFile<'a> {
    /// The name of the file in the diff and in errors.
    pub file: &'a str,
    pub text: &'a str,
    /// The name of the service; `None`: the only one, or the only one of a known database.
    pub service: Option<&'a str>,
}

/// Why a compose file cannot be changed. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    #[error("cannot read {file} as YAML: {reason}")]
    Yaml { file: String, reason: String },
    #[error("{file} has no services, so it is no compose file")]
    NoServices { file: String },
    #[error("{file} has no service {service}: it has {found}")]
    NoService { file: String, service: String, found: String },
    #[error("{file} has the services {found}; choose the database's with --object SERVICE")]
    SeveralServices { file: String, found: String },
    #[error("cannot read {place} of service {service}: {text:?} is no amount")]
    Amount { service: String, place: &'static str, text: String },
    #[error("cannot change {file}: {reason}")]
    Edit { file: String, reason: String },
    #[error("cannot write flags for service {service}")]
    Flags { service: String, source: FlagsError },
}

/// Keys of a service that cannot be beside `network_mode: host`.
const NETWORK_KEYS: [&str; 4] = ["ports", "networks", "links", "mac_address"];

/// Whether a text is a compose file: a map with services.
pub fn is_compose(text: &str) -> bool {
    let documents = yaml::parse(text).unwrap_or_default();
    documents.first().is_some_and(|document| document.entry("services").is_some())
}

/// Returns what would change in a compose file.
///
/// # Errors
/// When the file cannot be read, does not say which service is meant, or shares what has to change
/// with other places; when the host has too few CPUs.
pub fn diff(
    compose: &ComposeFile<'_>,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> Result<Diff, ComposeError> {
    let file = compose.file.replace(char::is_control, "?");
    let documents = yaml::parse(compose.text)
        .map_err(|reason| ComposeError::Yaml { file: file.clone(), reason })?;
    let services = documents.first().and_then(|document| document.at(&["services"]));
    let services = services.map(Node::entries).unwrap_or_default();
    let (name, service) = choose(services, &file, compose.service)?;
    let present = present(service, name, request)?;
    let mut request = request.clone();
    request.image = service.at(&["image"]).and_then(Node::text).map(str::to_string);
    request.memory_bytes = request.memory_bytes.or(present.memory);
    let context = Context { request: &request, topology, cpus, host, engine: engine(service) };
    let flags_error = |source| ComposeError::Flags { service: name.into(), source };
    let instance = compare::size(&context, &present).map_err(flags_error)?;
    let (missing, notes) =
        compare::missing(&context, &instance, Kind::Compose, &present).map_err(flags_error)?;
    let options = options::wanted(&context, &instance, true).map_err(flags_error)?;
    let place = format!("services.{name}");
    let mut changed = ServiceChanges {
        service,
        place: &place,
        edits: Edits::new(compose.text),
        wanted: Vec::new(),
        changes: Vec::new(),
        notes,
    };
    changed
        .settings(&missing, &present)
        .and_then(|()| {
            changed.options(options);
            changed.edits.merge(service, &changed.wanted, &place)
        })
        .map_err(|reason| ComposeError::Edit { file: file.clone(), reason })?;
    changed.copies();
    let ServiceChanges { edits, changes, notes, .. } = changed;
    let texts = [compose.text.to_string(), edits.apply()];
    let what = format!("service {name} in {file}");
    Ok(Diff::new(what, changes, notes, texts, [&file, &file], false))
}

/// Returns the service with this name; else the only one, or the only one with the image of a known
/// database.
fn choose<'a>(
    services: &'a [(Node, Node)],
    file: &str,
    wanted: Option<&str>,
) -> Result<(&'a str, &'a Node), ComposeError> {
    let named: Vec<(&str, &Node)> =
        services.iter().filter_map(|(key, service)| Some((key.text()?, service))).collect();
    if named.is_empty() {
        return Err(ComposeError::NoServices { file: file.into() });
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    let found = names.join(", ");
    let chosen: Vec<_> = match wanted {
        Some(wanted) => named.iter().filter(|(name, _)| *name == wanted).collect(),
        None if named.len() == 1 => named.iter().collect(),
        None => named.iter().filter(|(_, service)| engine(service) != Engine::Other).collect(),
    };
    match (chosen.as_slice(), wanted) {
        ([one], _) => Ok(**one),
        (_, Some(service)) => {
            Err(ComposeError::NoService { file: file.into(), service: service.into(), found })
        }
        (_, None) => Err(ComposeError::SeveralServices { file: file.into(), found }),
    }
}

/// Reads what a service has. Values with variables count as missing.
fn present(service: &Node, name: &str, request: &Request) -> Result<Present, ComposeError> {
    let text =
        |path: &[&str]| service.at(path).and_then(Node::text).filter(|text| !text.contains('$'));
    let amount = |place: &'static str, text: &str| ComposeError::Amount {
        service: name.into(),
        place,
        text: text.into(),
    };
    let bytes_of = |place: &'static str, path: &[&str]| match text(path) {
        Some("-1") | None => Ok(None),
        Some(text) => bytes(text).map(Some).ok_or_else(|| amount(place, text)),
    };
    let quota = match text(&["cpus"]).or(text(&["deploy", "resources", "limits", "cpus"])) {
        Some(text) => Some(millis(text).ok_or_else(|| amount("cpus", text))?).filter(|m| *m > 0),
        None => None,
    };
    let memory = match bytes_of("mem_limit", &["mem_limit"])? {
        Some(bytes) => Some(bytes),
        None => bytes_of(
            "deploy.resources.limits.memory",
            &["deploy", "resources", "limits", "memory"],
        )?,
    };
    let set = match text(&["cpuset"]) {
        Some(text) => Some(CpuSet::parse_list(text).map_err(|_| amount("cpuset", text))?),
        None => None,
    };
    let list = |key: &str| {
        let items = service.at(&[key]).map(Node::items).unwrap_or_default();
        items.iter().filter_map(Node::text)
    };
    let pids = text(&["pids_limit"]).or(text(&["deploy", "resources", "limits", "pids"]));
    let restart = text(&["restart"]).is_some_and(|policy| policy != "no" && policy != "false");
    Ok(Present {
        cpus: set,
        quota_millis: quota,
        nodes: None,
        network: network(service),
        limits: limits(service),
        capabilities: list("cap_add").map(|n| n.trim_start_matches("CAP_").to_string()).collect(),
        privileged: text(&["privileged"]) == Some("true"),
        seccomp: seccomp(list("security_opt"), request),
        pids: pids.and_then(|text| text.parse().ok()),
        shared_memory: bytes_of("shm_size", &["shm_size"])?,
        memory,
        memory_and_swap: bytes_of("memswap_limit", &["memswap_limit"])?,
        log: log(service),
        restarts: restart || service.at(&["deploy", "restart_policy"]).is_some(),
        removed: false,
        mounts: mounts(service),
    })
}

fn network(service: &Node) -> PresentNetwork {
    match service.at(&["network_mode"]).and_then(Node::text) {
        Some("host") => PresentNetwork::Host,
        Some("none") => PresentNetwork::Left("none, so that nobody reaches it".into()),
        Some(mode) if mode.starts_with("service:") || mode.starts_with("container:") => {
            PresentNetwork::Left(format!("that of {mode}"))
        }
        Some(mode) => PresentNetwork::Own(mode.into()),
        None => {
            let names = service.at(&["networks"]).map(Node::names).unwrap_or_default();
            match names.is_empty() {
                // Services find each other by name on it.
                true => PresentNetwork::Own("default".into()),
                false => PresentNetwork::Own(names.join(", ")),
            }
        }
    }
}

/// Reads `ulimits`: a number, or soft and hard.
fn limits(service: &Node) -> Vec<(String, Limit, Limit)> {
    let entries = service.at(&["ulimits"]).map(Node::entries).unwrap_or_default();
    let value = |node: Option<&Node>| {
        let number: i64 = node.and_then(Node::text)?.parse().ok()?;
        Some(u64::try_from(number).ok())
    };
    let limit = |(key, node): &(Node, Node)| {
        let (soft, hard) = match node.text() {
            Some(_) => (value(Some(node))?, value(Some(node))?),
            None => (value(node.at(&["soft"]))?, value(node.at(&["hard"]))?),
        };
        Some((key.text()?.to_string(), soft, hard))
    };
    entries.iter().filter_map(limit).collect()
}

fn seccomp<'a>(mut options: impl Iterator<Item = &'a str>, request: &Request) -> PresentSeccomp {
    let found = options.find_map(|option| option.strip_prefix("seccomp"));
    match found.map(|text| text.trim_start_matches([':', '='])) {
        None => PresentSeccomp::Default,
        Some("unconfined") => PresentSeccomp::Fits,
        Some(path) if request.seccomp.as_deref() == Some(path) => PresentSeccomp::Fits,
        Some(_) => PresentSeccomp::Own,
    }
}

fn log(service: &Node) -> PresentLog {
    let Some(logging) = service.at(&["logging"]) else { return PresentLog::Default };
    let driver = logging.at(&["driver"]).and_then(Node::text).unwrap_or("json-file");
    match driver == "json-file" && logging.at(&["options", "max-size"]).is_none() {
        true => PresentLog::Unlimited(driver.into()),
        false => PresentLog::Fits,
    }
}

fn mounts(service: &Node) -> Vec<String> {
    let list = |key: &str| service.at(&[key]).map(Node::items).unwrap_or_default();
    let volumes = list("volumes").iter().filter_map(|volume| match volume.text() {
        // `name:/inside:ro`, or only the directory inside.
        Some(text) => text
            .split(':')
            .find(|part| part.starts_with('/') && text.split(':').next() != Some(part))
            .or(Some(text)),
        None => volume.at(&["target"]).and_then(Node::text),
    });
    let memory = service.at(&["tmpfs"]).and_then(Node::text).into_iter();
    let memory = memory.chain(list("tmpfs").iter().filter_map(Node::text));
    volumes.chain(memory.filter_map(|text| text.split(':').next())).map(str::to_string).collect()
}

/// Reads the published ports, in the short and the long form.
fn ports(service: &Node) -> Vec<Port> {
    let items = service.at(&["ports"]).map(Node::items).unwrap_or_default();
    let port = |item: &Node| {
        let Some(text) = item.text() else {
            let field =
                |key: &str| item.at(&[key]).and_then(Node::text).unwrap_or_default().to_string();
            let (address, outside) = (field("host_ip"), field("published"));
            return Port { address, outside, inside: field("target") };
        };
        let text = text.split('/').next().unwrap_or(text);
        let (rest, inside) = text.rsplit_once(':').unwrap_or(("", text));
        let (address, outside) = rest.rsplit_once(':').unwrap_or(("", rest));
        let address = address.trim_matches(['[', ']']).to_string();
        Port { address, outside: outside.into(), inside: inside.into() }
    };
    items.iter().map(port).collect()
}

/// Parses an amount of memory: `512m`, `1gb`, `1073741824` (compose specification, byte values).
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.strip_prefix(digits)? {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    match digits.split_once('.') {
        None => digits.parse::<u64>().ok()?.checked_mul(1 << shift),
        // In thousandths, which are exact enough for a limit.
        Some(_) => Some(millis(digits)?.checked_mul(1 << shift)? / 1000),
    }
}

/// Collects the changes of one service.
struct ServiceChanges<'a> {
    service: &'a Node,
    /// `services.db`.
    place: &'a str,
    edits: Edits<'a>,
    /// Wanted entries of the service.
    wanted: Vec<(&'static str, Wanted)>,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl ServiceChanges<'_> {
    /// Adds an entry of the service, unless a variable is at its place.
    fn set(
        &mut self,
        key: &'static str,
        wanted: Wanted,
        shown: &str,
        now: Option<&str>,
        flag: &Flag,
    ) {
        let variable =
            self.service.at(&[key]).and_then(Node::text).filter(|text| text.contains('$'));
        if let Some(text) = variable {
            self.notes.push(format!(
                "{key} is {text}, which this file does not define: set it to {shown}."
            ));
            return;
        }
        self.changes.push(Change::of(&format!("{}.{key}", self.place), now, shown, flag));
        match self.wanted.iter_mut().find(|(found, _)| *found == key) {
            // Two limits share a key.
            Some((_, Wanted::Map(entries))) if key == "ulimits" => {
                if let Wanted::Map(more) = wanted {
                    entries.extend(more);
                }
            }
            _ => self.wanted.push((key, wanted)),
        }
    }

    /// Removes an entry of a map of the service.
    fn drop(&mut self, path: &[&str], key: &str, flag: &Flag) -> Result<(), String> {
        let Some(map) = self.service.at(path) else { return Ok(()) };
        let Some((_, value)) = map.entry(key) else { return Ok(()) };
        let below: String = path.iter().map(|key| format!(".{key}")).collect();
        let place = format!("{}{below}", self.place);
        let now = match value.text() {
            Some(text) => text.to_string(),
            None => value.names().join(", "),
        };
        let now = Some(now.as_str()).filter(|now| !now.is_empty());
        self.edits.remove(map, key, &place)?;
        self.changes.push(Change::of(&format!("{place}.{key}"), now, "none", flag));
        Ok(())
    }

    fn settings(&mut self, missing: &[Missing], present: &Present) -> Result<(), String> {
        for Missing { step, now, flag } in missing {
            let now = now.as_deref();
            let setting = match step {
                Step::Set(setting) => setting,
                Step::DropQuota => {
                    self.drop(&[], "cpus", flag)?;
                    self.drop(&["deploy", "resources", "limits"], "cpus", flag)?;
                    continue;
                }
            };
            match setting {
                Setting::Cpus(cpus) => {
                    let cpus = cpus.to_string();
                    self.set("cpuset", Wanted::quoted(&cpus), &cpus, now, flag);
                }
                Setting::HostNetwork => self.host_network(present, now, flag)?,
                Setting::Files(most) => self.limit("nofile", &most.to_string(), now, flag),
                Setting::Processes(most) => self.limit("nproc", &most.to_string(), now, flag),
                Setting::LockedMemory(most) => {
                    let most = most.map_or("-1".to_string(), |most| most.to_string());
                    self.limit("memlock", &most, now, flag);
                }
                Setting::Capability(name) => {
                    let wanted = Wanted::Items(vec![(*name).to_string()]);
                    self.set("cap_add", wanted, name, now, flag);
                }
                Setting::Seccomp(path) => {
                    let option = format!("seccomp:{}", path.replace('$', "$$"));
                    self.set(
                        "security_opt",
                        Wanted::Items(vec![option.clone()]),
                        &option,
                        now,
                        flag,
                    );
                }
                Setting::Pids(most) => {
                    let most = most.to_string();
                    self.drop(&["deploy", "resources", "limits"], "pids", flag)?;
                    self.set("pids_limit", Wanted::plain(&most), &most, now, flag);
                }
                Setting::SharedMemory(bytes) => {
                    let bytes = bytes.to_string();
                    self.set("shm_size", Wanted::plain(&bytes), &bytes, now, flag);
                }
                Setting::Memory(bytes) => self.memory(*bytes, present, now, flag),
                Setting::Log => {
                    let options = Wanted::Map(vec![("max-size", Wanted::quoted("100m"))]);
                    let driver = Wanted::plain("local");
                    let wanted = Wanted::Map(vec![("driver", driver), ("options", options)]);
                    self.set("logging", wanted, "local, max-size 100m", now, flag);
                }
                Setting::Restart => {
                    let policy = "unless-stopped";
                    self.set("restart", Wanted::plain(policy), policy, now, flag);
                }
                // Compose has no key for nodes, and a volume is a note.
                Setting::Nodes(_) | Setting::Volume { .. } => {}
            }
        }
        Ok(())
    }

    fn limit(&mut self, name: &'static str, most: &str, now: Option<&str>, flag: &Flag) {
        let is_number =
            self.service.at(&["ulimits", name]).is_some_and(|node| node.text().is_some());
        let both =
            || Wanted::Map(vec![("soft", Wanted::plain(most)), ("hard", Wanted::plain(most))]);
        let wanted = if is_number { Wanted::plain(most) } else { both() };
        let shown = format!("{name} {most}");
        self.set("ulimits", Wanted::Map(vec![(name, wanted)]), &shown, now, flag);
    }

    fn memory(&mut self, bytes: u64, present: &Present, now: Option<&str>, flag: &Flag) {
        let text = bytes.to_string();
        let deployed = self.service.at(&["deploy", "resources", "limits", "memory"]).is_some();
        if present.memory != Some(bytes) && deployed {
            let limits = Wanted::Map(vec![("memory", Wanted::quoted(&text))]);
            let wanted = Wanted::Map(vec![("resources", Wanted::Map(vec![("limits", limits)]))]);
            self.set("deploy", wanted, &text, now, flag);
        } else if present.memory != Some(bytes) {
            self.set("mem_limit", Wanted::plain(&text), &text, now, flag);
        }
        if present.memory_and_swap != Some(bytes) {
            let now = present.memory_and_swap.map(|both| both.to_string());
            self.set("memswap_limit", Wanted::plain(&text), &text, now.as_deref(), flag);
        }
    }

    fn host_network(
        &mut self,
        present: &Present,
        now: Option<&str>,
        flag: &Flag,
    ) -> Result<(), String> {
        self.set("network_mode", Wanted::plain("host"), "host", now, flag);
        for key in NETWORK_KEYS {
            self.drop(&[], key, flag)?;
        }
        self.notes.extend(compare::reached(&ports(self.service), &present.network));
        let Some(sysctls) = self.service.at(&["sysctls"]) else { return Ok(()) };
        let (net, others): (Vec<&str>, Vec<&str>) =
            sysctls.names().into_iter().partition(|name| name.starts_with("net."));
        if others.is_empty() && !net.is_empty() {
            self.drop(&[], "sysctls", flag)?;
        } else if !net.is_empty() {
            self.notes.push(format!(
                "Remove {} from its sysctls: a container on the host's network cannot set them.",
                net.join(", ")
            ));
        }
        Ok(())
    }

    /// Changes the options of the database, which are its command.
    fn options(&mut self, wanted: Vec<Flag>) {
        if wanted.is_empty() {
            return;
        }
        let command = self.service.at(&["command"]).filter(|node| !node.is_null());
        let entry = self.service.at(&["entrypoint"]).is_some();
        let line = command.and_then(Node::text);
        let simple = line.is_none_or(|line| !line.contains(['"', '\'', '\\', '$', '\n']));
        let shared = command.is_some_and(|node| node.anchored || node.content == Content::Alias);
        if entry || !simple || shared {
            let words: Vec<&str> = wanted.iter().map(|option| option.text.as_str()).collect();
            self.notes.push(format!(
                "Its command or entry point is left alone: the database should get {}.",
                words.join(" ")
            ));
            return;
        }
        match (line, command) {
            (Some(line), Some(node)) => self.line(line, node, wanted),
            _ => self.items(command.map(Node::items).unwrap_or_default(), wanted),
        }
    }

    /// Changes a command that is a list.
    fn items(&mut self, items: &[Node], wanted: Vec<Flag>) {
        let place = format!("{}.command", self.place);
        let missing = options::replace(items, wanted, &place, &mut self.edits, &mut self.changes);
        if !missing.is_empty() {
            self.wanted.push(("command", Wanted::Items(missing)));
        }
    }

    /// Changes a command that is one text.
    fn line(&mut self, line: &str, node: &Node, wanted: Vec<Flag>) {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let mut is_changed = false;
        for option in wanted {
            let known: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
            let Some(found) = options::compare(&known, &option.text) else { continue };
            let now = found.at.and_then(|at| known[at]).map(str::to_string);
            let place = format!("{}.command", self.place);
            self.changes.push(Change::of(&place, now.as_deref(), &option.text, &option));
            match found.at {
                Some(at) => words[at] = found.word,
                None => words.push(found.word),
            }
            is_changed = true;
        }
        if is_changed {
            self.edits.replace(node, edit::quote(&words.join(" ")));
        }
    }

    /// Adds a note if the service has several containers.
    fn copies(&mut self) {
        let number = self.service.at(&["scale"]).or(self.service.at(&["deploy", "replicas"]));
        let several = number.and_then(Node::text).filter(|text| !["0", "1"].contains(text));
        if let Some(number) = several {
            self.notes.push(format!(
                "The service has {number} containers, which would share these CPUs and ports: make a \
                 service for each."
            ));
        }
    }
}
