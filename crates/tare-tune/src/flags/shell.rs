//! `docker run` and commands with the same options, as a bash script with arrays: an array can have
//! comments, a command continued over lines cannot.

use super::container::{self, Kind, Setting};
use super::quote;
use super::{Context, Flags, FlagsError, Instance, InstanceFlags, Text, comment};

/// Writes the flags of a consumer that takes the options of `docker run`.
pub(super) fn write(
    context: &Context<'_>,
    consumer: &'static str,
    kind: Kind,
) -> Result<Flags, FlagsError> {
    let instances = context.instances()?;
    let each = instances.iter().map(|instance| one(context, instance, consumer, kind));
    Ok(Flags {
        consumer,
        instances: each.collect::<Result<_, _>>()?,
        shared: Vec::new(),
        capabilities: container::capabilities(context),
        notes: container::notes(context, &instances, kind),
    })
}

fn one(
    context: &Context<'_>,
    instance: &Instance,
    consumer: &str,
    kind: Kind,
) -> Result<InstanceFlags, FlagsError> {
    let name = context.name(instance.number);
    let mut flags = Vec::new();
    for (setting, mut flag) in container::settings(context, instance, kind)? {
        flag.text = option(&setting, kind);
        flags.push(flag);
    }
    let options = context.engine_options(instance, true)?;
    let mut body = String::from("flags=(\n");
    body += &format!("  --detach\n  --name={name}\n");
    for flag in &flags {
        body += &comment(flag, "  ");
        body += &format!("  {}\n", flag.text);
    }
    body += ")\n";
    let mut command = format!("{consumer} run \"${{flags[@]}}\" {}", context.image());
    if context.engine == super::Engine::TareDb {
        command += " /tare db";
    }
    if !options.is_empty() {
        body += "options=(\n";
        for option in &options {
            body += &comment(option, "  ");
            body += &format!("  {}\n", quote::shell(&option.text));
        }
        body += ")\n";
        command += " \"${options[@]}\"";
    }
    body += &format!("{command}\n");
    flags.extend(options);
    Ok(InstanceFlags::new(
        instance,
        name,
        flags,
        vec![Text {
            title: format!("{consumer} (bash): {}", context.heading(instance)),
            language: "bash",
            body,
        }],
    ))
}

/// Writes a setting as a quoted option. The three commands differ only in logs and restarts.
pub(super) fn option(setting: &Setting, kind: Kind) -> String {
    match setting {
        Setting::Cpus(cpus) => format!("--cpuset-cpus={cpus}"),
        Setting::Nodes(nodes) => format!("--cpuset-mems={nodes}"),
        Setting::HostNetwork => "--network=host".into(),
        Setting::Files(files) => format!("--ulimit=nofile={files}:{files}"),
        Setting::Processes(most) => format!("--ulimit=nproc={most}:{most}"),
        Setting::LockedMemory(None) => "--ulimit=memlock=-1:-1".into(),
        Setting::LockedMemory(Some(bytes)) => format!("--ulimit=memlock={bytes}:{bytes}"),
        Setting::Capability(name) => format!("--cap-add={name}"),
        Setting::Seccomp(path) => {
            format!("--security-opt={}", quote::shell(&format!("seccomp={path}")))
        }
        Setting::Pids(pids) => format!("--pids-limit={pids}"),
        Setting::SharedMemory(bytes) => format!("--shm-size={bytes}"),
        Setting::Memory(bytes) => format!("--memory={bytes} --memory-swap={bytes}"),
        Setting::Volume { host, inside } => {
            format!("--volume={}", quote::shell(&format!("{host}:{inside}")))
        }
        Setting::Log => match kind {
            Kind::Docker => "--log-driver=local --log-opt=max-size=100m".into(),
            Kind::Podman => "--log-driver=k8s-file --log-opt=max-size=100m".into(),
            _ => "--log-driver=json-file --log-opt=max-size=100m --log-opt=max-file=3".into(),
        },
        Setting::Restart => match kind {
            // At boot podman-restart.service starts only containers with this policy.
            Kind::Podman => "--restart=always".into(),
            _ => "--restart=unless-stopped".into(),
        },
    }
}
