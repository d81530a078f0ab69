//! The manifest of a user's pod: what `tare tune flags --for kubernetes` would change in it, as a
//! unified diff.
//!
//! Method: the file is parsed into nodes that know their bytes (`yaml`), the object and the
//! container are chosen (`choose`), what the container should have comes from the same settings as
//! the pods that Tare writes, and only the values that differ become changes (`yaml::edit`).
//! Amounts that the file has stay, except that CPUs become whole ones.
//!
//! Limits: volumes are the user's, so what is missing there is a note. Templates (`{{ }}`) are not
//! YAML and are refused.

mod amounts;
mod choose;

use serde::Serialize;
use tare_std::cpus::CpuSet;

use super::container::{self, Kind, Setting};
use super::yaml::edit::{Edits, Wanted};
use super::yaml::{self, Node};
use super::{
    Change, Context, Engine, Flag, FlagsError, Host, Instance, InstancesError, Layer, Request,
    change, instances, options,
};
use crate::machine::Topology;
use crate::machine::kubelet::quantity;
use crate::plan::CpuSets;
pub(super) use amounts::millis;
use amounts::{Amounts, ReadAmount, same_amount};
use choose::Workload;
pub(super) use choose::engine;

/// The manifest and what of it is meant.
#[derive(Clone, Copy, Debug)]
pub struct Manifest<'a> {
    /// The name of the file in the diff and in errors.
    pub file: &'a str,
    pub text: &'a str,
    /// `KIND/NAME`; `None`: the only object with pods.
    pub object: Option<&'a str>,
    /// The name of the container; `None`: the only one, or the only one of a known database.
    pub container: Option<&'a str>,
}

/// What would change in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManifestDiff {
    pub file: String,
    /// `StatefulSet/scylla`.
    pub object: String,
    pub container: String,
    pub changes: Vec<Change>,
    /// A unified diff of the file; empty if nothing changes.
    pub diff: String,
    /// Further advice for the user, one or two sentences each.
    pub notes: Vec<String>,
    /// Capabilities that the container gets in addition to the default ones, for a seccomp profile.
    #[serde(skip)]
    pub capabilities: Vec<&'static str>,
}

/// Why a manifest cannot be changed. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot read {file} as YAML: {reason}")]
    Yaml { file: String, reason: String },
    #[error("{file} has no object with pods (Pod, StatefulSet, Deployment, ...): it has {found}")]
    NoPods { file: String, found: String },
    #[error("{file} has several objects with pods: {found}; choose one with --object KIND/NAME")]
    SeveralObjects { file: String, found: String },
    #[error("{file} has no object {object}: it has {found}")]
    NoObject { file: String, object: String, found: String },
    #[error("{object} in {file} has no {place}")]
    NoSpec { file: String, object: String, place: String },
    #[error("{object} has no container {container}: it has {found}")]
    NoContainer { object: String, container: String, found: String },
    #[error("{object} has the containers {found}; choose the database's with --container NAME")]
    SeveralContainers { object: String, found: String },
    #[error("cannot read {place} of {object}: {text:?} is no amount")]
    Amount { object: String, place: &'static str, text: String },
    #[error(
        "{object} asks for {wanted} CPUs, but this node has {available} for pods; give the host \
         that it runs on with --snapshot"
    )]
    TooLarge { object: String, wanted: usize, available: usize },
    #[error("cannot change {file}: {reason}")]
    Edit { file: String, reason: String },
    #[error(transparent)]
    Flags(#[from] FlagsError),
}

/// Returns what would change in a manifest.
///
/// # Errors
/// When the file cannot be read, does not say which pod is meant, or shares what has to change
/// with other places; when the node has too few CPUs.
pub fn diff(
    manifest: &Manifest<'_>,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> Result<ManifestDiff, ManifestError> {
    // A control character would end the line of a diff.
    let file = manifest.file.replace(char::is_control, "?");
    let documents = yaml::parse(manifest.text)
        .map_err(|reason| ManifestError::Yaml { file: file.clone(), reason })?;
    let workload = choose::workload(&documents, &file, manifest.object)?;
    let (index, node) = choose::container(&workload, &file, manifest.container)?;
    let mut request = request.clone();
    request.image = node.at(&["image"]).and_then(Node::text).map(str::to_string);
    let engine = engine(node);
    let context = Context { request: &request, topology, cpus, host, engine };
    let sized = size(&context, &workload, node)?;
    let mut request = request.clone();
    request.memory_bytes = Some(sized.memory_bytes);
    let context = Context { request: &request, ..context };
    let mut pod = PodChanges {
        context,
        place: format!("{}.containers[{index}]", workload.place),
        workload: &workload,
        container: node,
        edits: Edits::new(manifest.text),
        spec: Vec::new(),
        own: Vec::new(),
        changes: Vec::new(),
        notes: Vec::new(),
    };
    pod.resources(&sized);
    pod.settings(&sized.instance)?;
    pod.options(&sized.instance)?;
    pod.others(index);
    pod.merge().map_err(|reason| ManifestError::Edit { file: file.clone(), reason })?;
    let text = pod.edits.apply();
    let diff = change::unified([manifest.text, &text], [&file, &file], false);
    let mut notes = pod.notes;
    notes.push(
        "The kubelet gives a pod CPUs of its own only with cpuManagerPolicy static: tare tune plan \
         checks that on the node."
            .into(),
    );
    Ok(ManifestDiff {
        capabilities: container::capabilities(&context),
        file,
        object: workload.name.clone(),
        container: choose::name(node).to_string(),
        diff,
        changes: pod.changes,
        notes,
    })
}

/// The size of the database's container.
#[derive(Debug)]
struct Size {
    instance: Instance,
    /// As it is written.
    cpu: String,
    memory: String,
    memory_bytes: u64,
}

/// Chooses the size: amounts of the file, CPUs rounded up to whole cores; what it lacks is an
/// instance's share of this host.
fn size(
    context: &Context<'_>,
    workload: &Workload<'_>,
    container: &Node,
) -> Result<Size, ManifestError> {
    let topology = context.topology;
    let exclusive = context.cpus.universe.difference(&context.cpus.reserved_cores(topology));
    if exclusive.is_empty() {
        return Err(FlagsError::from(InstancesError::NoCpus).into());
    }
    let Amounts { requests, limits } = Amounts::of(container);
    let mut largest: Option<u64> = None;
    for text in [&requests.cpu, &limits.cpu].into_iter().flatten() {
        let place = "resources (cpu)";
        let read = millis(text).ok_or_else(|| ManifestError::Amount {
            object: workload.name.clone(),
            place,
            text: text.clone(),
        })?;
        largest = largest.max(Some(read));
    }
    let count = match largest {
        Some(millis) => instances::cpus_of_millis(topology, millis),
        None => {
            let shares = instances::divide(topology, &exclusive, context.request.instances);
            let shares = shares.map_err(FlagsError::from)?;
            shares.iter().map(|share| share.cpus.len()).min().unwrap_or(1)
        }
    };
    if count > exclusive.len() {
        let available = exclusive.len();
        let object = workload.name.clone();
        return Err(ManifestError::TooLarge { object, wanted: count, available });
    }
    let set: CpuSet = exclusive.iter().take(count).collect();
    let instance = Instance { number: 1, nodes: instances::nodes_of(topology, &set), cpus: set };
    let own = limits.memory.or(requests.memory).filter(|_| context.request.memory_bytes.is_none());
    let (memory, memory_bytes) = match own {
        Some(text) => {
            let read = quantity::bytes(&text).ok_or_else(|| ManifestError::Amount {
                object: workload.name.clone(),
                place: "resources (memory)",
                text: text.clone(),
            })?;
            (text, read)
        }
        None => {
            let bytes = context.request.memory_bytes.or_else(|| context.memory_share());
            let bytes = bytes.ok_or(FlagsError::Memory)?;
            (bytes.to_string(), bytes)
        }
    };
    Ok(Size { instance, cpu: count.to_string(), memory, memory_bytes })
}

/// Collects the changes of one pod.
struct PodChanges<'a> {
    context: Context<'a>,
    /// Where the container is.
    place: String,
    workload: &'a Workload<'a>,
    container: &'a Node,
    edits: Edits<'a>,
    /// Wanted entries of the pod's specification, and of the container.
    spec: Vec<(&'static str, Wanted)>,
    own: Vec<(&'static str, Wanted)>,
    changes: Vec<Change>,
    notes: Vec<String>,
}

const GUARANTEED: &str = "Requests equal to limits, and whole CPUs: the pod is Guaranteed and gets \
                          CPUs of its own.";
const CPU_DOCS: &str = "kubernetes.io: control CPU management policies on the node";

impl<'a> PodChanges<'a> {
    /// Makes the container's amounts those of a Guaranteed pod. A request that is missing is the
    /// limit and stays away.
    fn resources(&mut self, size: &Size) {
        let Amounts { requests, limits } = Amounts::of(self.container);
        let flag = self.context.flag("", GUARANTEED, CPU_DOCS, Some(Layer::Cpu));
        let mut kinds = Vec::new();
        for (kind, has, needs) in [("requests", requests, false), ("limits", limits, true)] {
            let mut entries = Vec::new();
            let cpu = ("cpu", has.cpu, &size.cpu, millis as ReadAmount);
            let memory = ("memory", has.memory, &size.memory, quantity::bytes as ReadAmount);
            for (resource, now, wanted, read) in [cpu, memory] {
                let is_right = match &now {
                    Some(now) => same_amount(now, wanted, read),
                    None => !needs,
                };
                if is_right {
                    continue;
                }
                entries.push((resource, Wanted::quoted(wanted)));
                let place = format!("{}.resources.{kind}.{resource}", self.place);
                self.changes.push(Change::of(&place, now.as_deref(), wanted, &flag));
            }
            if !entries.is_empty() {
                kinds.push((kind, Wanted::Map(entries)));
            }
        }
        if !kinds.is_empty() {
            self.own.push(("resources", Wanted::Map(kinds)));
        }
    }

    /// Adds the settings of a container that a manifest has: network, capabilities, system calls.
    fn settings(&mut self, instance: &Instance) -> Result<(), ManifestError> {
        let privileged = self.container.at(&["securityContext", "privileged"]);
        let privileged = privileged.and_then(Node::text) == Some("true");
        let mut security = Vec::new();
        for (setting, flag) in container::settings(&self.context, instance, Kind::Nerdctl)? {
            let place = format!("{}.securityContext", self.place);
            match setting {
                Setting::HostNetwork => self.host_network(&flag),
                Setting::Capability(name) if !privileged => {
                    let path = ["securityContext", "capabilities", "add"];
                    let has = self.container.at(&path).map(Node::items).unwrap_or_default();
                    let is = |item: &Node| {
                        let text = item.text().unwrap_or_default();
                        [name, "ALL"].contains(&text.trim_start_matches("CAP_"))
                    };
                    if !has.iter().any(is) {
                        let add = Wanted::Items(vec![name.to_string()]);
                        security.push(("capabilities", Wanted::Map(vec![("add", add)])));
                        let place = format!("{place}.capabilities.add");
                        self.changes.push(Change::of(&place, None, name, &flag));
                    }
                }
                Setting::Seccomp(path) if !privileged => {
                    let name = path.rsplit('/').next().unwrap_or(&path);
                    let profile = format!("profiles/{name}");
                    let now = self
                        .container
                        .at(&["securityContext", "seccompProfile", "localhostProfile"])
                        .and_then(Node::text);
                    if now != Some(&profile) {
                        let wanted = vec![
                            ("type", Wanted::plain("Localhost")),
                            ("localhostProfile", Wanted::quoted(&profile)),
                        ];
                        security.push(("seccompProfile", Wanted::Map(wanted)));
                        let place = format!("{place}.seccompProfile");
                        self.changes.push(Change::of(&place, now, &profile, &flag));
                        self.notes.push(format!(
                            "Copy {path} to /var/lib/kubelet/seccomp/{profile} on every node."
                        ));
                    }
                }
                // Where another database has its data is not known.
                Setting::Volume { .. } | Setting::SharedMemory(_)
                    if self.context.engine == Engine::Other => {}
                Setting::Volume { inside, .. } => self.volume(
                    inside,
                    "so the data is in the container's own layer, which is lost with it and copies a \
                     whole file at its first write: mount a volume there.",
                ),
                Setting::SharedMemory(bytes) => self.volume(
                    "/dev/shm",
                    &format!(
                        "so it has 64 MiB, with which parallel queries fail: mount an emptyDir with \
                         medium: Memory and sizeLimit: {:?}.",
                        bytes.to_string()
                    ),
                ),
                _ => {}
            }
        }
        if !security.is_empty() {
            self.own.push(("securityContext", Wanted::Map(security)));
        }
        Ok(())
    }

    fn host_network(&mut self, flag: &Flag) {
        let spec = self.workload.spec;
        let now = spec.at(&["hostNetwork"]).and_then(Node::text);
        if now == Some("true") {
            return;
        }
        self.spec.push(("hostNetwork", Wanted::plain("true")));
        let place = format!("{}.hostNetwork", self.workload.place);
        self.changes.push(Change::of(&place, now, "true", flag));
        let policy = spec.at(&["dnsPolicy"]).and_then(Node::text);
        if matches!(policy, None | Some("ClusterFirst")) {
            let wanted = "ClusterFirstWithHostNet";
            self.spec.push(("dnsPolicy", Wanted::plain(wanted)));
            let place = format!("{}.dnsPolicy", self.workload.place);
            let flag = self.context.flag(
                "",
                "Names of the cluster still resolve on the host's network.",
                "kubernetes.io: DNS for Services and Pods",
                None,
            );
            self.changes.push(Change::of(&place, policy, wanted, &flag));
        }
        self.notes.push(
            "Pods on the host's network share its ports and have its address: run one per node, and \
             let clients and peers use that address. Without it: leave hostNetwork and dnsPolicy out."
                .into(),
        );
    }

    /// Adds a note if nothing is mounted at a path or above it.
    fn volume(&mut self, path: &str, why: &str) {
        let mounts = self.container.at(&["volumeMounts"]).map(Node::items).unwrap_or_default();
        let is_at = |mount: &Node| {
            let at = mount.at(&["mountPath"]).and_then(Node::text).unwrap_or_default();
            let at = at.trim_end_matches('/');
            path == at || path.strip_prefix(at).is_some_and(|below| below.starts_with('/'))
        };
        let below = |mount: &Node| {
            let at = mount.at(&["mountPath"]).and_then(Node::text).unwrap_or_default();
            at.strip_prefix(path).is_some_and(|below| below.starts_with('/'))
        };
        if !mounts.iter().any(|mount| is_at(mount) || below(mount)) {
            self.notes.push(format!("Nothing is mounted at {path}, {why}"));
        }
    }

    /// Adds the database's options to `args`.
    fn options(&mut self, instance: &Instance) -> Result<(), ManifestError> {
        let wanted = options::wanted(&self.context, instance, false)?;
        // The database of Tare's own image is an argument of its program, so its command stays.
        let command = self.container.at(&["command"]).map(Node::items).unwrap_or_default();
        let plain = command.iter().all(|word| word.text().is_some_and(|word| !word.contains("--")));
        let own = self.context.engine == Engine::TareDb && plain;
        if !command.is_empty() && !own && !wanted.is_empty() {
            let words: Vec<&str> = wanted.iter().map(|option| option.text.as_str()).collect();
            self.notes.push(format!(
                "The container has a command of its own, so its options are left alone: the \
                 database should get {}.",
                words.join(" ")
            ));
            return Ok(());
        }
        let items = self.container.at(&["args"]).map(Node::items).unwrap_or_default();
        let place = format!("{}.args", self.place);
        let missing = options::replace(items, wanted, &place, &mut self.edits, &mut self.changes);
        if !missing.is_empty() {
            self.own.push(("args", Wanted::Items(missing)));
        }
        Ok(())
    }

    /// Adds notes about the other containers, each of which can take the class from the pod.
    fn others(&mut self, index: usize) {
        let list = |key: &str| self.workload.spec.at(&[key]).map(Node::items).unwrap_or_default();
        let others = list("containers").iter().enumerate().filter(|(at, _)| *at != index);
        let others = others.map(|(_, container)| container).chain(list("initContainers"));
        let without: Vec<&str> = others
            .filter(|container| !Amounts::of(container).is_guaranteed())
            .map(choose::name)
            .collect();
        if !without.is_empty() {
            self.notes.push(format!(
                "The pod is not Guaranteed, and the database gets no CPUs of its own, until every \
                 container has limits of CPU and memory equal to its requests: {} has not, and only \
                 you know its amounts.",
                without.join(", ")
            ));
        }
    }

    /// Adds the wanted entries to the changes of the file.
    fn merge(&mut self) -> Result<(), String> {
        self.edits.merge(self.workload.spec, &self.spec, &self.workload.place)?;
        self.edits.merge(self.container, &self.own, &self.place)
    }
}

impl ManifestDiff {
    /// Returns the reasons as comments, and below them the diff. Programs that apply a diff skip
    /// what is above it.
    pub fn text(&self) -> String {
        let what = format!("{}, container {}, in {}", self.object, self.container, self.file);
        change::text(&what, &self.changes, &self.notes, &self.diff)
    }
}
