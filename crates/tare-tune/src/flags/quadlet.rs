//! Quadlet: Podman's containers as systemd units. Written for Podman 5.
//!
//! Options without a key in old versions use PodmanArgs=.

use super::container::{self, Kind, Setting};
use super::{Consumer, Context, Flags, FlagsError, Instance, InstanceFlags, Text, comment};

#[derive(Debug)]
pub(super) struct Quadlet;

impl Consumer for Quadlet {
    fn name(&self) -> &'static str {
        "quadlet"
    }

    fn help(&self) -> &'static str {
        "a .container unit of Podman for each instance"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let instances = context.instances()?;
        let each = instances.iter().map(|instance| one(context, instance));
        let mut notes = container::notes(context, &instances, Kind::Quadlet);
        notes.push(
            "After writing the files, run systemctl daemon-reload, then systemctl start NAME.service."
                .into(),
        );
        Ok(Flags {
            consumer: self.name(),
            instances: each.collect::<Result<_, _>>()?,
            shared: Vec::new(),
            capabilities: container::capabilities(context),
            notes,
        })
    }
}

fn one(context: &Context<'_>, instance: &Instance) -> Result<InstanceFlags, FlagsError> {
    let name = context.name(instance.number);
    let mut flags = Vec::new();
    let mut body = format!("[Unit]\nDescription={name}\nWants=network-online.target\n");
    body += &format!("After=network-online.target\n\n[Container]\nImage={}\n", context.image());
    body += &format!("ContainerName={name}\n");
    let mut restart = String::new();
    for (setting, mut flag) in container::settings(context, instance, Kind::Quadlet)? {
        flag.text = key(&setting);
        let text = format!("{}{}\n", comment(&flag, ""), flag.text);
        match setting {
            Setting::Restart => restart = text,
            _ => body += &text,
        }
        flags.push(flag);
    }
    let options = context.engine_options(instance, true)?;
    if !options.is_empty() {
        for option in &options {
            body += &comment(option, "");
        }
        let command = if context.engine == super::Engine::TareDb { "/tare db " } else { "" };
        let words: Vec<&str> = options.iter().map(|option| option.text.as_str()).collect();
        body += &format!("Exec={command}{}\n", words.join(" "));
    }
    body += &format!("\n[Service]\n{restart}\n[Install]\nWantedBy=multi-user.target\n");
    flags.extend(options);
    let heading = context.heading(instance);
    let title = format!("/etc/containers/systemd/{name}.container: {heading}");
    let text = Text { title, language: "ini", body };
    Ok(InstanceFlags::new(instance, name, flags, vec![text]))
}

fn key(setting: &Setting) -> String {
    match setting {
        Setting::Cpus(cpus) => format!("PodmanArgs=--cpuset-cpus={cpus}"),
        Setting::Nodes(nodes) => format!("PodmanArgs=--cpuset-mems={nodes}"),
        Setting::HostNetwork => "Network=host".into(),
        Setting::Files(files) => format!("Ulimit=nofile={files}:{files}"),
        Setting::Processes(most) => format!("Ulimit=nproc={most}:{most}"),
        Setting::LockedMemory(None) => "Ulimit=memlock=-1:-1".into(),
        Setting::LockedMemory(Some(bytes)) => format!("Ulimit=memlock={bytes}:{bytes}"),
        Setting::Capability(name) => format!("AddCapability={name}"),
        Setting::Seccomp(path) => format!("SeccompProfile={path}"),
        Setting::Pids(pids) => format!("PidsLimit={pids}"),
        Setting::SharedMemory(bytes) => format!("ShmSize={bytes}"),
        Setting::Memory(bytes) => {
            format!("PodmanArgs=--memory={bytes} --memory-swap={bytes}")
        }
        Setting::Volume { host, inside } => format!("Volume={host}:{inside}"),
        Setting::Log => "LogDriver=journald".into(),
        Setting::Restart => "Restart=always".into(),
    }
}
