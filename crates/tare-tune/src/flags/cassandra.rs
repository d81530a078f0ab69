//! Cassandra: options of the JVM and cassandra-env.sh.
//!
//! bin/cassandra sets NUMACTL to `numactl --interleave=all` and reads cassandra-env.sh after that
//! (CASSANDRA-3245), so the file can override it.

use super::{Consumer, Context, Engine, Flag, Flags, FlagsError, Instance, InstanceFlags, Layer};
use super::{Text, comment};

#[derive(Debug)]
pub(super) struct Cassandra;

impl Consumer for Cassandra {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    fn help(&self) -> &'static str {
        "the options of Cassandra and its JVM"
    }

    fn engine(&self) -> Engine {
        Engine::Cassandra
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let context = &Context { engine: Engine::Cassandra, ..*context };
        let instances = context.instances()?;
        let each = instances.iter().map(|instance| one(context, instance)).collect();
        let mut notes = context.common_notes(&instances);
        notes.push(
            "In a container with a CPU set (tare tune flags --for docker --image cassandra) omit \
             numactl: the container is already bound, and set_mempolicy is refused there without \
             CAP_SYS_NICE."
                .into(),
        );
        notes.push(
            "numactl is a separate package; without it, use taskset --cpu-list or tare tune flags \
             --for systemd."
                .into(),
        );
        Ok(Flags {
            consumer: self.name(),
            instances: each,
            shared: Vec::new(),
            capabilities: Vec::new(),
            notes,
        })
    }
}

/// Returns the heap in MiB as cassandra-env.sh computes it from the machine's memory: the larger of
/// half, up to 1 GiB, and a quarter, up to 8 GiB.
fn heap_mib(memory: u64) -> u64 {
    let half = (memory / 2).min(1 << 30);
    let quarter = (memory / 4).min(8 << 30);
    half.max(quarter) >> 20
}

fn one(context: &Context<'_>, instance: &Instance) -> InstanceFlags {
    let mut jvm: Vec<Flag> = vec![context.flag(
        format!("-XX:ActiveProcessorCount={}", instance.cpus.len()),
        "Collector, compiler and Netty size their pools by this number of CPUs instead of by all CPUs \
         of the machine.",
        "java: the java command, Advanced Runtime Options",
        None,
    )];
    if let Some(bytes) = context.memory_bytes() {
        let heap = heap_mib(bytes);
        jvm.push(context.flag(
            format!("-Xms{heap}M\n-Xmx{heap}M"),
            "A heap for the instance's memory: cassandra-env.sh uses the machine's, even in a \
             container with a limit.",
            "cassandra-env.sh: calculate_heap_sizes",
            None,
        ));
    }
    let nodes = &instance.nodes;
    let policy = match (context.topology.nodes.len(), nodes.len()) {
        (1, _) => String::new(),
        (_, 1) => format!(" --membind={nodes}"),
        _ => format!(" --interleave={nodes}"),
    };
    let numactl = context.flag(
        format!("NUMACTL=\"numactl --physcpubind={}{policy}\"", instance.cpus),
        "Exclusive CPUs, separate from the interrupt CPUs, and memory from their NUMA nodes; by \
         default the script spreads memory over all nodes.",
        "bin/cassandra; CASSANDRA-3245; man 8 numactl",
        Some(Layer::Cpu),
    );
    let write = |flags: &[Flag]| -> String {
        flags.iter().map(|flag| format!("{}{}\n", comment(flag, ""), flag.text)).collect()
    };
    let heading = context.heading(instance);
    let texts = vec![
        Text {
            title: format!("Add to conf/jvm-server.options: {heading}"),
            language: "text",
            body: write(&jvm),
        },
        Text {
            title: "Add at the end of conf/cassandra-env.sh".into(),
            language: "bash",
            body: write(std::slice::from_ref(&numactl)),
        },
    ];
    jvm.push(numactl);
    InstanceFlags::new(instance, context.name(instance.number), jvm, texts)
}
