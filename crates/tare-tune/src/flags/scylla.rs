//! Scylla: the engine's own options, for a container's command line and for a package's files.

use super::{Consumer, Context, Engine, Flags, FlagsError, Instance, InstanceFlags, Text};
use super::{comment, quote, wrap};

#[derive(Debug)]
pub(super) struct Scylla;

impl Consumer for Scylla {
    fn name(&self) -> &'static str {
        "scylla"
    }

    fn help(&self) -> &'static str {
        "the options of Scylla itself"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let context = &Context { engine: Engine::Scylla, ..*context };
        let instances = context.instances()?;
        let each = instances.iter().map(|instance| one(context, instance));
        let mut notes = context.common_notes(&instances);
        notes.push(
            "iotune (scylla_io_setup) comes after the host is tuned, and never inside a cgroup that is \
             throttled: what it measures is kept in io_properties.yaml and bounds the disk for good."
                .into(),
        );
        notes.push(
            "Seastar reads cpuset and memory limits of its cgroup, but not the CPU quota: under a quota \
             it makes a shard for every CPU and is throttled."
                .into(),
        );
        Ok(Flags {
            consumer: self.name(),
            instances: each.collect::<Result<_, _>>()?,
            shared: Vec::new(),
            capabilities: Vec::new(),
            notes,
        })
    }
}

fn one(context: &Context<'_>, instance: &Instance) -> Result<InstanceFlags, FlagsError> {
    let heading = context.heading(instance);
    let flags = context.scylla_options(instance, true)?;
    let mut options = String::from("options=(\n");
    for flag in &flags {
        options += &format!("{}  {}\n", comment(flag, "  "), quote::shell(&flag.text));
    }
    options += ")\n";
    let mut package = wrap(
        "The binary takes --overprovisioned without a value, so it is just left out here; the package \
         is never in developer mode unless told so.",
        "# ",
    );
    package += &format!("CPUSET=\"--cpuset {} --smp {}\"\n", instance.cpus, instance.cpus.len());
    let several = match context.ask.instances {
        1 => "",
        _ => " (packages run one instance: give the others a file and a unit of their own)",
    };
    Ok(InstanceFlags::new(
        instance,
        context.name(instance.number),
        flags,
        vec![
            Text {
                title: format!(
                    "The image's options (bash), after its name: docker run ... \"${{options[@]}}\"; \
                     {heading}"
                ),
                language: "bash",
                body: options,
            },
            Text {
                title: format!("A package's /etc/scylla.d/cpuset.conf{several}"),
                language: "bash",
                body: package,
            },
        ],
    ))
}
