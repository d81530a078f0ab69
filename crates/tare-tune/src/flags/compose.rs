//! Docker Compose: one file with a service for each instance.

use super::container::{self, Kind, Setting};
use super::{Consumer, Context, Flags, FlagsError, Instance, InstanceFlags, Text, comment, quote};

#[derive(Debug)]
pub(super) struct Compose;

impl Consumer for Compose {
    fn name(&self) -> &'static str {
        "compose"
    }

    fn help(&self) -> &'static str {
        "a compose file with a service for each instance"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let instances = context.instances()?;
        let each = instances.iter().map(|instance| one(context, instance));
        Ok(Flags {
            consumer: self.name(),
            instances: each.collect::<Result<_, _>>()?,
            shared: vec![Text {
                title: "compose.yaml".into(),
                language: "yaml",
                body: "services:\n".into(),
            }],
            capabilities: container::capabilities(context),
            notes: container::notes(context, &instances, Kind::Compose),
        })
    }
}

fn one(context: &Context<'_>, instance: &Instance) -> Result<InstanceFlags, FlagsError> {
    const INDENT: &str = "    ";
    let name = context.name(instance.number);
    let mut flags = Vec::new();
    let mut body = format!("  {name}:\n");
    body += &format!("    container_name: {name}\n    image: {}\n", context.image());
    let (mut limits, mut limits_open) = (String::new(), false);
    for (setting, mut flag) in container::settings(context, instance, Kind::Compose)? {
        flag.text = key(&setting);
        // All limits are under one key.
        let limit =
            matches!(setting, Setting::Files(_) | Setting::Processes(_) | Setting::LockedMemory(_));
        if limit {
            if !limits_open {
                limits += "    ulimits:\n";
                limits_open = true;
            }
            limits += &comment(&flag, "      ");
            limits += &indented(&flag.text, "      ");
        } else {
            body += &comment(&flag, INDENT);
            body += &indented(&flag.text, INDENT);
        }
        flags.push(flag);
    }
    body += &limits;
    let options = context.engine_options(instance, true)?;
    if !options.is_empty() {
        body += "    command:\n";
        let command = ["/tare", "db"].iter().filter(|_| context.engine == super::Engine::TareDb);
        for word in command {
            body += &format!("      - {}\n", quote::compose(word));
        }
        for option in &options {
            body += &comment(option, "      ");
            body += &format!("      - {}\n", quote::compose(&option.text));
        }
    }
    flags.extend(options);
    Ok(InstanceFlags::new(
        instance,
        name,
        flags,
        vec![Text { title: context.heading(instance), language: "yaml", body }],
    ))
}

/// Writes a setting as keys of a service.
fn key(setting: &Setting) -> String {
    let limit = |name: &str, soft: String| format!("{name}:\n  soft: {soft}\n  hard: {soft}");
    match setting {
        Setting::Cpus(cpus) => format!("cpuset: \"{cpus}\""),
        // Compose has no key for it (`container::settings` leaves it out).
        Setting::Nodes(_) => String::new(),
        Setting::HostNetwork => "network_mode: host".into(),
        Setting::Files(files) => limit("nofile", files.to_string()),
        Setting::Processes(most) => limit("nproc", most.to_string()),
        Setting::LockedMemory(bytes) => {
            limit("memlock", bytes.map_or("-1".to_string(), |bytes| bytes.to_string()))
        }
        Setting::Capability(name) => format!("cap_add:\n  - {name}"),
        Setting::Seccomp(path) => {
            format!("security_opt:\n  - {}", quote::compose(&format!("seccomp:{path}")))
        }
        Setting::Pids(pids) => format!("pids_limit: {pids}"),
        Setting::SharedMemory(bytes) => format!("shm_size: {bytes}"),
        Setting::Memory(bytes) => format!("mem_limit: {bytes}\nmemswap_limit: {bytes}"),
        Setting::Volume { host, inside } => {
            let (host, inside) = (quote::compose(host), quote::compose(inside));
            format!("volumes:\n  - type: bind\n    source: {host}\n    target: {inside}")
        }
        Setting::Log => "logging:\n  driver: local\n  options:\n    max-size: \"100m\"".into(),
        Setting::Restart => "restart: unless-stopped".into(),
    }
}

fn indented(text: &str, indent: &str) -> String {
    text.lines().map(|line| format!("{indent}{line}\n")).collect()
}
