//! Writes the flags that run a container, a service or a database according to the plan. One file
//! per consumer; `ALL` drives `tare tune flags --for`.
//!
//! Method: the compute CPUs of the plan are divided among the instances ([`instances`]),
//! `container` lists the settings of a container in neutral form, and each consumer writes them in
//! its own syntax, each with a comment on its benefit and the source. No code here does I/O.
//!
//! Limits: settings that flags cannot express (host settings that containers do not have) become
//! notes.
//!
//! Modules for the other direction read what a user has and write what would change in it:
//! `manifest` a pod, `compose_file` a service, `running` a container, `unit_file` a unit.

mod cassandra;
mod change;
mod compare;
mod compose;
pub mod compose_file;
pub mod compose_labels;
mod container;
mod docker;
pub mod engine;
pub mod host;
pub mod instances;
mod kubernetes;
pub mod manifest;
mod nerdctl;
mod options;
mod podman;
mod quadlet;
mod quote;
pub mod running;
mod scylla;
mod shell;
mod systemd;
mod tare_db;
pub mod unit_file;
mod yaml;

use std::collections::BTreeMap;

use serde::Serialize;
use tare_std::cpus::CpuSet;

use crate::machine::Topology;
use crate::plan::CpuSets;
pub use change::{Change, Diff};
pub use engine::Engine;
pub use host::Host;
pub use instances::{Instance, InstancesError};

/// A layer of isolation that a flag switches. A study can measure its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Exclusive CPUs, compared with all CPUs or a quota.
    Cpu,
    /// The host's network, compared with a bridge.
    Network,
    /// The default seccomp filter with io_uring, compared with the default one.
    Security,
    /// No memory limit, compared with one.
    Memory,
}

/// The user's request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of instances of the database on this host, 1 or more.
    pub instances: u32,
    /// Memory of each instance in bytes, page cache included.
    pub memory_bytes: Option<u64>,
    /// Path on the host of the seccomp profile that allows io_uring.
    pub seccomp: Option<String>,
    /// The container image.
    pub image: Option<String>,
    /// The measured cost of each layer, one sentence each.
    pub measured: BTreeMap<Layer, Vec<String>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            instances: 1,
            memory_bytes: None,
            seccomp: None,
            image: None,
            measured: BTreeMap::new(),
        }
    }
}

/// The input of a consumer: the request, the machine and the plan's CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub request: &'a Request,
    pub topology: &'a Topology,
    pub cpus: &'a CpuSets,
    pub host: &'a Host,
    pub engine: Engine,
}

/// One flag, setting or option with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// In the syntax of the consumer, quoted: `--cpuset-cpus=1-15,17-31`. May have several lines.
    pub text: String,
    /// The benefit, in one or two sentences.
    pub buys: String,
    /// The source of that claim.
    pub source: String,
    /// The gain that a record shows; empty without one.
    pub measured: Vec<String>,
}

/// A text to paste.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Text {
    /// The content and its file, in one line.
    pub title: String,
    /// `bash`, `yaml`, `ini`, `text`.
    pub language: &'static str,
    pub body: String,
}

/// The flags and texts of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceFlags {
    /// From 1.
    pub number: u32,
    pub name: String,
    pub cpus: CpuSet,
    /// NUMA nodes of its CPUs.
    pub nodes: CpuSet,
    pub flags: Vec<Flag>,
    pub texts: Vec<Text>,
}

impl InstanceFlags {
    fn new(instance: &Instance, name: String, flags: Vec<Flag>, texts: Vec<Text>) -> Self {
        let Instance { number, cpus, nodes } = instance.clone();
        Self { number, name, cpus, nodes, flags, texts }
    }
}

/// Everything for one consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flags {
    pub consumer: &'static str,
    pub instances: Vec<InstanceFlags>,
    /// Texts that all instances share.
    pub shared: Vec<Text>,
    /// Capabilities that a container gets in addition to the default ones (`CAP_SYS_NICE`). A
    /// seccomp profile in OCI form is resolved for them.
    pub capabilities: Vec<&'static str>,
    /// Further advice for the user, one or two sentences each.
    pub notes: Vec<String>,
}

/// Why there are no flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagsError {
    #[error(transparent)]
    Instances(#[from] InstancesError),
    #[error(
        "{image:?} is not an image name; use only letters, digits and . _ - / : @, with a letter or \
         digit first"
    )]
    Image { image: String },
    #[error(
        "the path {path:?} has characters that cannot be quoted for {consumer}; use another path"
    )]
    Path { consumer: &'static str, path: String },
    #[error("the memory of this host is unknown, and a pod needs an amount; give --memory")]
    Memory,
    #[error(
        "{memory_bytes} bytes are too little for an instance of {cpus} CPUs, which reserves \
         {reserve_bytes} bytes; give --memory of at least {least_bytes}"
    )]
    MemoryTooLittle { memory_bytes: u64, cpus: usize, reserve_bytes: u64, least_bytes: u64 },
}

/// How a consumer reads a seccomp profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileForm {
    /// Moby's form, whose rules can depend on a capability or a kernel version.
    Moby,
    /// The form of the OCI runtime specification. Moby's conditions must be resolved first: readers
    /// of this form ignore conditions and would allow the calls that they guard.
    Oci,
}

/// A program that takes flags: a container engine, a service manager, a database.
pub trait Consumer: std::fmt::Debug + Sync {
    /// Returns its name for `--for`.
    fn name(&self) -> &'static str;

    /// Returns one line for `--help`.
    fn help(&self) -> &'static str;

    /// Returns the database to assume when no image names one.
    fn engine(&self) -> Engine {
        Engine::Scylla
    }

    /// Returns the form of the seccomp profiles that it reads.
    fn profile_form(&self) -> ProfileForm {
        ProfileForm::Moby
    }

    /// Returns texts, flags and notes.
    ///
    /// # Errors
    /// When there are more instances than cores, or a value cannot be written in its syntax.
    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError>;
}

/// Every consumer.
pub const ALL: &[&dyn Consumer] = &[
    &docker::Docker,
    &podman::Podman,
    &nerdctl::Nerdctl,
    &compose::Compose,
    &kubernetes::Kubernetes,
    &quadlet::Quadlet,
    &systemd::Systemd,
    &scylla::Scylla,
    &cassandra::Cassandra,
    &tare_db::TareDb,
];

/// Returns the consumer with a name.
pub fn consumer(name: &str) -> Option<&'static dyn Consumer> {
    ALL.iter().copied().find(|consumer| consumer.name() == name)
}

/// Writes the flags of a consumer.
///
/// # Errors
/// When the request cannot be met: see [`FlagsError`].
pub fn write(
    consumer: &dyn Consumer,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> Result<Flags, FlagsError> {
    if let Some(image) = &request.image {
        quote::check_image(image)?;
    }
    if let Some(path) = &request.seccomp {
        quote::check_path(consumer.name(), path)?;
    }
    let engine = request.image.as_deref().map_or(consumer.engine(), Engine::of_image);
    consumer.write(&Context { request, topology, cpus, host, engine })
}

impl Context<'_> {
    /// Divides the compute CPUs among the instances.
    pub(crate) fn instances(&self) -> Result<Vec<Instance>, FlagsError> {
        Ok(instances::divide(self.topology, &self.cpus.compute, self.request.instances)?)
    }

    /// Returns the name of an instance: `scylla`, or `scylla-2` if there are several.
    pub(crate) fn name(&self, number: u32) -> String {
        match self.request.instances {
            1 => self.engine.name().to_string(),
            _ => format!("{}-{number}", self.engine.name()),
        }
    }

    /// Returns the requested image, or the engine's default.
    pub(crate) fn image(&self) -> &str {
        self.request.image.as_deref().unwrap_or(self.engine.image())
    }

    /// Returns the memory of each instance: as requested, or a share if there are several
    /// instances.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let shared = self.request.instances > 1;
        self.request.memory_bytes.or_else(|| self.memory_share().filter(|_| shared))
    }

    /// Returns an equal share of the host's memory without the system's reserve, in whole MiB.
    pub(crate) fn memory_share(&self) -> Option<u64> {
        let total = self.host.memory_bytes?;
        let each =
            total.saturating_sub(engine::reserve_bytes(total)) / u64::from(self.request.instances);
        Some((each >> 20) << 20).filter(|bytes| *bytes > 0)
    }

    /// Returns a flag, with the measured cost of its layer if there is one.
    pub(crate) fn flag(
        &self,
        text: impl Into<String>,
        buys: impl Into<String>,
        source: &str,
        layer: Option<Layer>,
    ) -> Flag {
        let measured = layer.and_then(|layer| self.request.measured.get(&layer));
        Flag {
            text: text.into(),
            buys: buys.into(),
            source: source.into(),
            measured: measured.cloned().unwrap_or_default(),
        }
    }

    /// Returns the heading of an instance: `instance 1 of 2: CPUs 1-7 (7), NUMA node 0`.
    pub(crate) fn heading(&self, instance: &Instance) -> String {
        let nodes = match instance.nodes.len() {
            1 => format!("NUMA node {}", instance.nodes),
            _ => format!("NUMA nodes {}", instance.nodes),
        };
        let which = match self.request.instances {
            1 => String::new(),
            all => format!("instance {} of {all}: ", instance.number),
        };
        let irq = match self.cpus.irq == self.cpus.compute || self.cpus.irq.is_empty() {
            true => "interrupts share them".to_string(),
            false => format!("interrupts on {}", self.cpus.irq),
        };
        format!("{which}CPUs {} ({}), {nodes}; {irq}", instance.cpus, instance.cpus.len())
    }

    /// Returns a sentence about the CPUs of an instance.
    pub(crate) fn own_cpus(&self) -> &'static str {
        match self.cpus.irq == self.cpus.compute || self.cpus.irq.is_empty() {
            true => "Exclusive CPUs, except for interrupts, which share them.",
            false => "Exclusive CPUs, separate from the interrupt CPUs.",
        }
    }

    /// Returns the notes that apply to every consumer.
    pub(crate) fn common_notes(&self, instances: &[Instance]) -> Vec<String> {
        let mut notes = vec![
            "CPU numbers are valid for this boot and this hardware. Generate these texts again after a \
             change of either, or when you add an instance."
                .to_string(),
        ];
        let sizes: Vec<usize> = instances.iter().map(|instance| instance.cpus.len()).collect();
        if sizes.iter().min() != sizes.iter().max() {
            let list: Vec<String> = sizes.iter().map(usize::to_string).collect();
            notes.push(format!(
                "The instances have {} CPUs, because the cores do not divide evenly. Each has as many \
                 shards as CPUs.",
                list.join(", ")
            ));
        }
        if self.topology.nodes.len() > 1 && instances.iter().any(|i| i.nodes.len() > 1) {
            notes.push(
                "An instance that spans NUMA nodes pays for remote memory; with one instance per node \
                 (--instances) it does not."
                    .into(),
            );
        }
        notes
    }
}

/// Formats a flag's benefit and source as comment lines.
pub(crate) fn comment(flag: &Flag, indent: &str) -> String {
    let mut words = format!("{} [{}]", flag.buys, flag.source);
    for sentence in &flag.measured {
        words += &format!(" Measured: {sentence}");
    }
    wrap(&words, &format!("{indent}# "))
}

/// Wraps a text into lines of at most 100 characters, each with a prefix.
pub(crate) fn wrap(text: &str, prefix: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let used = prefix.chars().count() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && used > WIDTH {
            lines += &format!("{prefix}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        lines += &format!("{prefix}{line}\n");
    }
    lines
}

impl Flags {
    /// Returns all texts, one after the other. Everything between them is a comment in every
    /// language used, so that the output for a shell is a script, and for compose a valid file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in self.shared.iter().chain(self.instances.iter().flat_map(|i| &i.texts)) {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &wrap(&part.title, "# ");
            text += &part.body;
        }
        if !self.notes.is_empty() {
            text += "\n# Notes\n";
        }
        for note in &self.notes {
            // The first line of a note starts with a dash.
            let lines = wrap(note, "#   ");
            text += &lines.replacen("#   ", "# - ", 1);
        }
        text
    }
}

#[cfg(test)]
mod tests;
