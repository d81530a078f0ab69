//! systemd: a drop-in for the unit of a database that runs without a container.

use tare_std::cpus::CpuSet;

use super::{Consumer, Context, Engine, Flag, Flags, FlagsError, Instance, InstanceFlags, Layer};
use super::{Text, comment};

#[derive(Debug)]
pub(super) struct Systemd;

impl Consumer for Systemd {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn help(&self) -> &'static str {
        "a drop-in for the database's own unit"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let instances = context.instances()?;
        let each = instances.iter().map(|instance| one(context, instance)).collect();
        let mut notes = context.common_notes(&instances);
        notes.push(
            "After writing the file, run systemctl daemon-reload, then restart the unit. AllowedCPUs= \
             and AllowedMemoryNodes= need cgroup v2; CPUAffinity= and NUMAPolicy= work with both \
             versions."
                .into(),
        );
        notes.push(
            "Do not set CPUQuota= (it throttles) or SystemCallFilter= (every call would run a filter); \
             a unit has neither by default."
                .into(),
        );
        notes.push(
            "To keep other services off these CPUs, set AllowedCPUs= to the interrupt CPUs for \
             system.slice and user.slice, and Slice= to a separate slice for the database."
                .into(),
        );
        if context.engine == Engine::Scylla {
            notes.push("Scylla also needs its own options: tare tune flags --for scylla.".into());
        }
        Ok(Flags {
            consumer: self.name(),
            instances: each,
            shared: Vec::new(),
            capabilities: Vec::new(),
            notes,
        })
    }
}

/// Returns the unit of a database: an instance of a template if there are several.
fn unit(context: &Context<'_>, number: u32) -> String {
    let unit = match context.engine {
        Engine::Scylla => "scylla-server",
        Engine::Cassandra => "cassandra",
        Engine::TareDb => "tare-db",
        Engine::PostgreSql => "postgresql",
        Engine::Other => "db",
    };
    match context.request.instances {
        1 => format!("{unit}.service"),
        _ => format!("{unit}@{number}.service"),
    }
}

/// Lists CPUs or nodes separated by spaces, as in other systemd settings. Commas would work too.
fn list(set: &CpuSet) -> String {
    set.to_string().replace(',', " ")
}

/// Returns the settings of the section `[Service]`; one may have several lines.
pub(super) fn settings(context: &Context<'_>, instance: &Instance) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    let mut add = |text: String, buys: &str, source: &str, layer: Option<Layer>| {
        flags.push(context.flag(text, buys, source, layer));
    };
    let cpus = list(&instance.cpus);
    add(
        format!("AllowedCPUs={cpus}"),
        &format!("{} Its threads cannot leave them.", context.own_cpus()),
        "man 5 systemd.resource-control",
        Some(Layer::Cpu),
    );
    add(
        format!("CPUAffinity={cpus}"),
        "The same without the cpuset controller of cgroup v2, but a thread can widen this set.",
        "man 5 systemd.exec",
        None,
    );
    if context.topology.nodes.len() > 1 {
        let nodes = list(&instance.nodes);
        add(
            format!("AllowedMemoryNodes={nodes}"),
            "Memory only from the NUMA nodes of its CPUs.",
            "man 5 systemd.resource-control",
            None,
        );
        if context.engine != Engine::Scylla {
            let (policy, why) = match instance.nodes.len() {
                1 => ("bind", "The same without the cpuset controller of cgroup v2."),
                _ => (
                    "interleave",
                    "Threads of this engine run on any of its nodes, so memory is spread over the \
                     nodes instead of filling the first.",
                ),
            };
            let text = format!("NUMAPolicy={policy}\nNUMAMask={nodes}");
            add(text, why, "man 5 systemd.exec; man 2 set_mempolicy", None);
        }
    }
    let files = context.host.files();
    add(
        format!("LimitNOFILE={files}"),
        "Open files: one descriptor per SSTable component and connection.",
        "scylla-server.service: LimitNOFILE",
        None,
    );
    if context.engine.locks_memory() {
        let bytes = context.host.locked_max.map_or("infinity".into(), |bytes| bytes.to_string());
        add(
            format!("LimitMEMLOCK={bytes}"),
            "The database locks its memory, so that none of it is swapped out.",
            "man 2 mlockall; DataStax: recommended production settings",
            None,
        );
    }
    if !matches!(context.engine, Engine::Scylla | Engine::TareDb) {
        add(
            "TasksMax=32768".into(),
            "Threads or processes: one per connection needs more than systemd's default.",
            "man 5 systemd.resource-control; DataStax: nproc 32768",
            None,
        );
    }
    if let Some(bytes) = context.memory_bytes() {
        add(
            format!("MemoryMax={bytes}\nMemorySwapMax=0"),
            "All memory of the instance, page cache included, without swap.",
            "Documentation/admin-guide/cgroup-v2.rst: memory.max",
            Some(Layer::Memory),
        );
    }
    add(
        "Restart=on-failure".into(),
        "Restarts after a crash; these settings apply to every start.",
        "man 5 systemd.service",
        None,
    );
    flags
}

fn one(context: &Context<'_>, instance: &Instance) -> InstanceFlags {
    let flags = settings(context, instance);
    let mut body = String::from("[Service]\n");
    for flag in &flags {
        body += &format!("{}{}\n", comment(flag, ""), flag.text);
    }
    let unit = unit(context, instance.number);
    let heading = context.heading(instance);
    InstanceFlags::new(
        instance,
        context.name(instance.number),
        flags,
        vec![Text {
            title: format!("/etc/systemd/system/{unit}.d/10-tare.conf: {heading}"),
            language: "ini",
            body,
        }],
    )
}
