//! Divides the CPUs into interrupt CPUs and compute CPUs.

mod notes;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use super::Options;
use crate::machine::{Machine, Topology};

/// How the CPUs are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Chosen by the number of cores and threads.
    #[default]
    Auto,
    /// Interrupts and compute share all CPUs.
    Mq,
    /// One hardware thread takes the interrupts.
    Sq,
    /// One core, with all its threads, takes the interrupts.
    SqSplit,
    /// Interrupts stay where they are.
    None,
}

/// The division of the CPUs. `irq` and `compute` are equal or disjoint; together they are
/// `universe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSets {
    /// All CPUs that the database and its interrupts use.
    pub universe: CpuSet,
    pub irq: CpuSet,
    pub compute: CpuSet,
    /// The rule that produced them, with this machine's figures.
    pub why: String,
}

impl CpuSets {
    /// Returns the interrupt CPUs if nothing computes there.
    pub fn interrupts_alone(&self) -> Option<CpuSet> {
        (!self.irq.is_empty() && self.irq.is_disjoint(&self.compute)).then(|| self.irq.clone())
    }

    /// Returns the whole cores that a kubelet should reserve: those that take interrupts, or the
    /// first one if interrupts share all cores.
    ///
    /// Whole cores, because with `full-pcpus-only` no pod gets a core with one reserved thread; at
    /// least one, because the static policy refuses to start without a reservation.
    pub fn reserved_cores(&self, topology: &Topology) -> CpuSet {
        let part = topology.restrict(&self.universe);
        let mut cores = part.cores().map(|core| &core.cpus);
        if self.irq == self.compute || self.irq.is_empty() {
            return cores.next().cloned().unwrap_or_default();
        }
        let touched = cores.filter(|core| !core.is_disjoint(&self.irq));
        touched.fold(CpuSet::new(), |all, core| all.union(core))
    }
}

/// The default number of cores per interrupt core.
pub const RATIO: u32 = 16;

/// The smallest accepted ratio: below it, interrupts would take a fifth of the machine.
pub const RATIO_MIN: u32 = 5;

/// With at most this many hardware threads, interrupts and compute share all of them.
const SHARED_THREADS_MAX: usize = 4;

/// With at most this many cores, one hardware thread takes the interrupts.
const SINGLE_CORES_MAX: usize = 4;

/// Why the CPUs cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetsError {
    #[error("no CPU is left for the plan: {reason}; name some with --cpus")]
    NoUniverse { reason: String },
    #[error("CPUs {missing} of --cpus are {state}; online are {online}")]
    NotOnline { missing: CpuSet, state: &'static str, online: CpuSet },
    #[error(
        "CPUs {outside} of --irq-cpus are not among the usable CPUs {universe}; leave them out or add them to --cpus"
    )]
    IrqOutside { outside: CpuSet, universe: CpuSet },
    #[error(
        "--irq-cpus names no CPU; name at least one, or use --mode none to leave interrupts where they are"
    )]
    NoIrq,
    #[error("--irq-cpus and --mode {} both choose the interrupt CPUs; give only one", .mode.name())]
    TwoRules { mode: Mode },
    #[error(
        "no CPU of {universe} is left to compute with interrupts on CPUs {irq}; give more --cpus or fewer --irq-cpus"
    )]
    NoCompute { irq: CpuSet, universe: CpuSet },
    #[error("a ratio of {ratio} is too small; give at least {RATIO_MIN} cores per interrupt core")]
    Ratio { ratio: u32 },
    #[error(
        "the automatic rule does not divide uneven NUMA nodes ({nodes}); name the interrupt CPUs, such as --irq-cpus {suggestion}"
    )]
    Uneven { nodes: String, suggestion: CpuSet },
    #[error(
        "all CPUs {cpus} run without a scheduler tick (nohz_full), which interrupts would defeat; add a housekeeping CPU to --cpus, or choose interrupt CPUs with --irq-cpus"
    )]
    OnlyTickless { cpus: CpuSet },
}

impl Mode {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mq => "mq",
            Self::Sq => "sq",
            Self::SqSplit => "sq_split",
            Self::None => "none",
        }
    }
}

/// Divides the CPUs of a machine.
///
/// The automatic rule is perftune.py's (seastar, since 2023-02): nodes must be even; up to 4
/// threads are all shared; up to 4 cores give one thread to interrupts; up to `ratio` cores give
/// one core; above that, each node gives one core for each `ratio` of its own. Without
/// `like_perftune` Tare differs: isolated CPUs are left out of the universe, and interrupts go to
/// efficiency cores, isolated CPUs and CPUs without a tick only on request.
///
/// # Errors
/// When the options name CPUs that do not exist, leave none to compute, or leave NUMA nodes uneven.
pub fn choose(machine: &Machine, options: &Options) -> Result<CpuSets, CpuSetsError> {
    let ratio = options.ratio.unwrap_or(RATIO);
    if ratio < RATIO_MIN {
        return Err(CpuSetsError::Ratio { ratio });
    }
    let topology = &machine.topology;
    let universe = universe(topology, options)?;
    let part = topology.restrict(&universe);
    let (irq, why) = match (&options.irq_cpus, options.mode) {
        (Some(_), mode) if mode != Mode::Auto => return Err(CpuSetsError::TwoRules { mode }),
        (Some(irq), _) => (checked_irq_cpus(irq, &universe)?, "chosen with --irq-cpus".to_string()),
        (None, Mode::Auto) => auto(&part, options, ratio as usize)?,
        (None, Mode::Mq) => {
            (universe.clone(), "mode mq: interrupts and compute share all CPUs".into())
        }
        (None, Mode::None) => {
            (universe.clone(), "mode none: interrupts stay where they are".into())
        }
        (None, Mode::Sq) => {
            let cpu = first_core(&part).iter().take(1).collect();
            (cpu, "mode sq: the first hardware thread takes the interrupts".into())
        }
        (None, Mode::SqSplit) => {
            (first_core(&part), "mode sq_split: the first core takes the interrupts".into())
        }
    };
    // Modes that reserve CPUs for interrupts do not share them on a machine that is too small.
    let alone = matches!(options.mode, Mode::Sq | Mode::SqSplit);
    let compute = match irq == universe && !alone {
        true => universe.clone(),
        false => universe.difference(&irq),
    };
    if compute.is_empty() {
        return Err(CpuSetsError::NoCompute { irq, universe });
    }
    Ok(CpuSets { universe, irq, compute, why })
}

fn universe(topology: &Topology, options: &Options) -> Result<CpuSet, CpuSetsError> {
    let online = topology.cpus();
    let Some(requested) = &options.cpus else {
        if options.like_perftune {
            return Ok(online);
        }
        let universe = online.difference(&reserved(topology));
        return match universe.is_empty() {
            true => Err(CpuSetsError::NoUniverse {
                reason: format!("all of {online} are isolated (isolcpus= or a cpuset partition)"),
            }),
            false => Ok(universe),
        };
    };
    let missing = requested.difference(&online);
    if requested.is_empty() {
        return Err(CpuSetsError::NoUniverse { reason: "--cpus is empty".into() });
    }
    if !missing.is_empty() {
        let off = missing.is_subset(&topology.offline);
        let state = if off { "offline" } else { "not on this machine" };
        return Err(CpuSetsError::NotOnline { missing, state, online });
    }
    Ok(requested.clone())
}

/// Returns the CPUs that an administrator reserved for pinned tasks.
fn reserved(topology: &Topology) -> CpuSet {
    topology.isolated.union(&topology.partitioned)
}

fn checked_irq_cpus(irq: &CpuSet, universe: &CpuSet) -> Result<CpuSet, CpuSetsError> {
    let outside = irq.difference(universe);
    if irq.is_empty() {
        return Err(CpuSetsError::NoIrq);
    }
    match outside.is_empty() {
        true => Ok(irq.clone()),
        false => Err(CpuSetsError::IrqOutside { outside, universe: universe.clone() }),
    }
}

/// Applies the automatic rule. Returns the interrupt CPUs and the reason.
fn auto(
    part: &Topology,
    options: &Options,
    ratio: usize,
) -> Result<(CpuSet, String), CpuSetsError> {
    let all = part.cpus();
    let threads = all.len();
    let cores = part.cores().count();
    let candidates = match options.like_perftune {
        true => part.clone(),
        false => part.restrict(&irq_candidates(part)?),
    };
    if !is_even(part) {
        let nodes = part.nodes.iter().map(|node| {
            format!("node {}: {}", node.id, shape(node.cores.len(), node.cpus().len()))
        });
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        return Err(CpuSetsError::Uneven { nodes, suggestion: by_node(part, &candidates, ratio) });
    }
    let shape = shape(cores, threads);
    if threads <= SHARED_THREADS_MAX {
        let irq = candidates.cpus();
        let why = match irq == all {
            true => format!("{shape}: too few to reserve some for interrupts"),
            false => format!("{shape}: interrupts go to those with a scheduler tick"),
        };
        return Ok((irq, why));
    }
    if cores <= SINGLE_CORES_MAX {
        let irq = first_core(&candidates).iter().take(1).collect();
        return Ok((irq, format!("{shape}: one thread takes the interrupts")));
    }
    if cores <= ratio {
        let why = format!(
            "{shape}: one core takes the interrupts; up to {ratio} cores need no second one"
        );
        return Ok((first_core(&candidates), why));
    }
    let irq = by_node(part, &candidates, ratio);
    let of_each = part.nodes.first().map_or(0, |node| node.cores.len().div_ceil(ratio));
    let noun = if of_each == 1 { "core takes" } else { "cores take" };
    let whose = match part.nodes.len() {
        1 => String::new(),
        nodes => format!("in each of the {nodes} NUMA nodes "),
    };
    let why =
        format!("{shape}: {whose}{of_each} {noun} the interrupts, one for each {ratio} cores");
    Ok((irq, why))
}

/// Returns the CPUs that may take interrupts by default: those with a tick, and among these, if
/// there are any, those that are neither isolated nor efficiency cores.
fn irq_candidates(part: &Topology) -> Result<CpuSet, CpuSetsError> {
    let all = part.cpus();
    let mut candidates = all.difference(&part.nohz_full);
    if candidates.is_empty() {
        return Err(CpuSetsError::OnlyTickless { cpus: all });
    }
    // Where all CPUs are shared, efficiency cores are too.
    let efficiency =
        if all.len() <= SHARED_THREADS_MAX { CpuSet::new() } else { part.efficiency.clone() };
    for avoided in [reserved(part), efficiency] {
        let rest = candidates.difference(&avoided);
        if !rest.is_empty() {
            candidates = rest;
        }
    }
    Ok(candidates)
}

/// Returns, in every node, one core for each `ratio` of the node's cores: the first cores that may
/// take interrupts.
fn by_node(part: &Topology, candidates: &Topology, ratio: usize) -> CpuSet {
    let nodes = candidates.nodes.iter().flat_map(|node| {
        let whole = part.nodes.iter().find(|whole| whole.id == node.id);
        let count = whole.map_or(0, |whole| whole.cores.len().div_ceil(ratio));
        node.cores.iter().take(count)
    });
    nodes.flat_map(|core| core.cpus.iter()).collect()
}

fn first_core(topology: &Topology) -> CpuSet {
    topology.cores().next().map(|core| core.cpus.clone()).unwrap_or_default()
}

fn is_even(topology: &Topology) -> bool {
    let mut shapes = topology.nodes.iter().map(|node| (node.cores.len(), node.cpus().len()));
    let first = shapes.next();
    shapes.all(|shape| Some(shape) == first)
}

/// Formats a size as `16 cores with 32 threads`.
fn shape(cores: usize, threads: usize) -> String {
    let noun = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    match cores == threads {
        true => noun(cores, "core"),
        false => format!("{} with {}", noun(cores, "core"), noun(threads, "thread")),
    }
}

/// Returns notes about the division for the user.
pub fn notes(machine: &Machine, options: &Options, cpus: &CpuSets) -> Vec<String> {
    notes::notes(&machine.topology, options, cpus)
}
