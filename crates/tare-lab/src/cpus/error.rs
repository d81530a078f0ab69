//! Why CPUs cannot be divided: one line each, with what to write instead.

use std::fmt;

use tare_std::cpus::CpuSet;

/// Why the CPUs cannot be divided as a study requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("[cpus] {key} = \"{wanted}\" names CPU {missing}, which {why}; name some of {usable}")]
    NotUsable { key: &'static str, wanted: CpuSet, missing: CpuSet, why: Unusable, usable: CpuSet },
    #[error("[cpus] {key} = \"{wanted}\" takes every CPU ({usable}); leave one for the {other}")]
    NothingLeft { key: &'static str, wanted: CpuSet, usable: CpuSet, other: &'static str },
    #[error(
        "[cpus] {key} = \"{wanted}\" names CPU {both}, which is kept for interrupts (by the study, \
         or by the tuning of this host: tare tune status); leave it out, or write interrupts = 0"
    )]
    TakesInterrupts { key: &'static str, wanted: CpuSet, both: CpuSet },
    #[error(
        "{wanted} of the CPUs {usable} for interrupts leave no core for each of system and client; \
         {}", interrupts_advice(*.most)
    )]
    InterruptsTakeAll { wanted: usize, usable: CpuSet, most: usize },
    #[error(
        "[cpus] system = {wanted} leaves no core for the client: {cores} cores with {cpus} CPUs may \
         be used here; {}", system_advice(*.most)
    )]
    TooMany { wanted: u32, cores: usize, cpus: usize, most: usize },
    #[error(
        "[cpus] node = {wanted}: no CPU of that NUMA node may be used here; there are nodes {nodes}"
    )]
    NoSuchNode { wanted: u32, nodes: String },
    #[error(
        "[cpus] node = {wanted}: that NUMA node has no memory, so that every access would go to \
         another node; write one of {with_memory}"
    )]
    NoMemory { wanted: u32, with_memory: CpuSet },
    #[error(
        "[cpus] smt = \"leave idle\": this kernel does not show which CPUs share a core \
         (/sys/devices/system/cpu/cpu0/topology); name the CPUs instead: system = \"...\", client = \
         \"...\""
    )]
    NoTopology,
    #[error("there is no CPU to use{}", isolated_advice(.isolated))]
    NoCpu { isolated: CpuSet },
}

/// Why a CPU cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    Offline,
    Isolated,
    NotAllowed,
    OtherNode,
    Missing,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offline => "is offline",
            Self::Isolated => {
                "is isolated (isolcpus= or a cpuset partition), where the kernel does not balance load"
            }
            Self::NotAllowed => "the affinity or cpuset of this process does not allow",
            Self::OtherNode => "is not on the node of [cpus] node",
            Self::Missing => "this host does not have",
        })
    }
}

fn interrupts_advice(most: usize) -> String {
    match most {
        0 => "leave out [cpus] interrupts, or write interrupts = 0".into(),
        most => format!("write [cpus] interrupts = {most} or less"),
    }
}

fn system_advice(most: usize) -> String {
    match most {
        0 => "leave out [cpus] system".into(),
        most => format!("write system = {most} or less"),
    }
}

fn isolated_advice(isolated: &CpuSet) -> String {
    match isolated.is_empty() {
        true => String::new(),
        false => format!(
            ": CPUs {isolated} are isolated (isolcpus= or a cpuset partition); run Tare where it may \
             use others, such as taskset -c 0"
        ),
    }
}
