//! Scylla: the engine's own options, for the command line of a container and the files of a
//! package.

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
            "Run iotune (scylla_io_setup) after tuning the host, and never in a throttled cgroup: its \
             results stay in io_properties.yaml and limit the disk permanently."
                .into(),
        );
        notes.push(
            "Seastar reads the cpuset and memory limits of its cgroup, but not the CPU quota: under a \
             quota it runs a shard on every CPU and is throttled."
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
        "The binary takes --overprovisioned without a value, so it is omitted here; the package runs \
         in developer mode only if configured.",
        "# ",
    );
    package += &format!("CPUSET=\"--cpuset {} --smp {}\"\n", instance.cpus, instance.cpus.len());
    let several = match context.request.instances {
        1 => "",
        _ => " (packages run one instance: give each other instance its own file and unit)",
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
