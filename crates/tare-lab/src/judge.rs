//! Decides when a slice or an environment deserves a doubt. Pure: figures in, doubts out.

use std::net::SocketAddr;

use tare_stats::law;
use tare_std::cpus::CpuSet;

use crate::doubt::Doubt;
use crate::environment::{ACCELERATOR, CpuPlan, EnvironmentSpec, LayerState};
use crate::layer::{Layer, Neighbour, Placement};
use crate::loader::{LOCAL, Loader};
use crate::own_view;
use crate::probe::names;
use crate::record::Slice;
use crate::saturation::{self, SliceCpus};
use crate::study::Study;

/// Steal time above this share of the plan's CPUs is a doubt.
pub const STEAL_SHARE: f64 = law::STEAL_SHARE_MAX;
/// CPU time of processes outside the study above this share of the plan's CPUs is a doubt.
pub const STRANGERS_SHARE: f64 = law::STRANGERS_SHARE_MAX;
/// Throttling for more than this share of the window is a doubt.
pub const THROTTLED_SHARE: f64 = 0.01;
/// Fewer operations than this share of those due at the fixed rate are a doubt.
pub const RATE_REACHED_SHARE: f64 = 0.98;
/// More operations than this share that the client sent late are a doubt.
pub const SENT_LATE_SHARE: f64 = 0.01;
/// Reads from disk that differ from those of the study by more than this share are a doubt.
pub const DISK_READS_OFF: f64 = 0.05;
/// A node of a system that uses less than this share of the CPU time of the others is a doubt.
pub const NODE_BEHIND_SHARE: f64 = 2.0 / 3.0;
/// With less CPU time than this in ns, the shares of nodes are noise: a few scheduler ticks.
pub const NODE_CPU_NS_MIN: f64 = 2e7;
/// Accounts of a host that are read later than this share of the window are a doubt.
pub const NODE_LATE_SHARE: f64 = 0.01;
/// Name of the setting in which a system reports its I/O engine.
pub const IO_ENGINE: &str = "io_engine";

/// What precedes the list of CPUs in the cpu layer of an attached system as found.
pub const CPUS_ALLOWED: &str = "Cpus_allowed_list:";

/// The accelerator that runs a guest's instructions on the CPU itself.
const HARDWARE: &str = "kvm";

/// The accelerator that runs a guest's programs on the CPU itself, and its kernel as a process.
const USER_MODE: &str = "uml";

/// Facts that a slice's doubts need in addition to its figures.
#[derive(Clone, Copy, Debug)]
pub struct SliceContext<'a> {
    pub plan: &'a CpuPlan,
    /// The client's threads belong to the harness process, whose CPU time contains theirs.
    pub client_in_harness: bool,
    pub client: ClientCpus,
    /// CPUs that the system can use in this environment.
    pub system_cpus: f64,
    /// A climb before the rounds has shown that more load does not help.
    pub load_suffices: bool,
    /// The share of reads that the study wants from disk.
    pub reads_from_disk: Option<f64>,
    /// The CPUs of all hosts of the system, if it has hosts of its own.
    pub host_cpus: Option<usize>,
}

/// The CPUs that the client has in all, and its CPU time on this host.
#[derive(Clone, Copy, Debug)]
pub struct ClientCpus {
    pub count: usize,
    pub here_ns: u64,
}

impl ClientCpus {
    /// Returns those of the plan; of a study with loaders those of all that had a part of the
    /// slice.
    pub fn of(slice: &Slice, plan: &CpuPlan, loaders: &[Loader]) -> Self {
        if slice.loaders.is_empty() {
            return Self { count: plan.client.len(), here_ns: slice.client_cpu_ns };
        }
        let (mut count, mut here_ns) = (0, 0);
        for one in &slice.loaders {
            let known = usize::try_from(one.loader).ok().and_then(|at| loaders.get(at));
            let Some(loader) = known else { continue };
            count += loader.cpus.len();
            here_ns += if loader.host == LOCAL { one.cpu_ns } else { 0 };
        }
        Self { count, here_ns }
    }
}

/// Returns the doubts about one slice.
pub fn slice(slice: &Slice, context: SliceContext<'_>) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let window = slice.window_ns as f64;
    if window <= 0.0 {
        return doubts;
    }
    let counter = |name: &str| slice.counters.iter().find(|one| one.name == name).map(|c| c.value);
    let cpus = context.host_cpus.unwrap_or(context.plan.all.len());
    let plan_ns = window * cpus.max(1) as f64;
    if let Some(share) =
        counter(names::STEAL_NS).map(|ns| ns / plan_ns).filter(|s| *s > STEAL_SHARE)
    {
        doubts.push(Doubt::Steal { share });
    }
    if let Some(host) = counter(names::HOST_CPU_NS) {
        let harness = counter(names::HARNESS_CPU_NS).unwrap_or(0.0);
        let client = context.client.here_ns as f64;
        let own = if context.client_in_harness { harness.max(client) } else { harness + client };
        let layer: u64 = slice.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
        let neighbours = counter(names::NEIGHBOUR_CPU_NS).unwrap_or(0.0);
        let outside = host - own - slice.system_cpu_ns as f64 - layer as f64 - neighbours;
        // On a host so busy that the harness waits for a CPU, the edges of this account are
        // further apart than the window, and the account can exceed the CPU time in the window.
        let share = outside / plan_ns.max(host);
        if share > STRANGERS_SHARE {
            doubts.push(Doubt::Strangers { share });
        }
    }
    let cpus = SliceCpus { client: context.client.count, system: context.system_cpus };
    doubts.extend(saturation::client_saturated(slice, cpus));
    doubts.extend(nodes(slice, window));
    // The kernel adds up the times of all CPUs.
    let throttled = slice.throttled_ns.map(|ns| (ns as f64 / window).min(1.0));
    if let Some(share) = throttled.filter(|share| *share > THROTTLED_SHARE) {
        doubts.push(Doubt::Throttled { share });
    }
    if !context.load_suffices
        && let Some(doubt) = saturation::neither_saturated(slice, cpus, &doubts)
    {
        doubts.push(doubt);
    }
    if let Some((asked_share, found_share)) =
        context.reads_from_disk.zip(own_view::disk_share(slice))
        && (asked_share - found_share).abs() > DISK_READS_OFF
    {
        doubts.push(Doubt::ReadsNotFromDisk { asked_share, found_share });
    }
    if let Some(asked_per_s) = slice.rate_per_s {
        let reached_per_s = slice.operations as f64 * 1e9 / window;
        if reached_per_s < asked_per_s * RATE_REACHED_SHARE {
            doubts.push(Doubt::RateNotReached { asked_per_s, reached_per_s });
        }
    }
    let late_share = counter(names::CLIENT_SENT_LATE).map(|late| late / slice.operations as f64);
    if let Some(late_share) = late_share.filter(|share| *share > SENT_LATE_SHARE) {
        let threads_ns = window * context.client.count.max(1) as f64;
        let waited = counter(names::CLIENT_RUN_QUEUE_WAIT_NS);
        let waited_share = waited.map(|ns| (ns / threads_ns).min(1.0));
        let late_share = late_share.min(1.0);
        doubts.push(Doubt::SentLate { late_share, waited_share });
    }
    doubts.extend(slice.errors.iter().filter(|(_, count)| *count > 0).map(|(error, count)| {
        Doubt::OperationErrors { error: error.clone(), count: *count, operations: slice.operations }
    }));
    doubts
}

/// Returns the doubts about the hosts of a system: a node that works less than the others, and
/// accounts that were read late.
fn nodes(slice: &Slice, window_ns: f64) -> Vec<Doubt> {
    let counter = |name: &str| slice.counters.iter().find(|one| one.name == name).map(|c| c.value);
    let mut doubts = Vec::new();
    let cpu_ns: Vec<f64> = (0..).map_while(|number| counter(&names::node_cpu_ns(number))).collect();
    let sum: f64 = cpu_ns.iter().sum();
    for (number, ns) in cpu_ns.iter().enumerate() {
        let node = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let others = (sum - ns) / cpu_ns.len().saturating_sub(1).max(1) as f64;
        if cpu_ns.len() > 1 && others > NODE_CPU_NS_MIN && *ns < others * NODE_BEHIND_SHARE {
            doubts.push(Doubt::NodeBehind { node, share: ns / others });
        }
        let late_ns = counter(&names::node_late_ns(number)).unwrap_or(0.0);
        if late_ns > window_ns * NODE_LATE_SHARE {
            doubts.push(Doubt::NodeReadLate { node, share: late_ns / window_ns });
        }
    }
    doubts
}

/// Returns the CPUs that the neighbours on the CPUs of the system left to it in a slice.
pub(crate) fn cpus_left(slice: &Slice, spec: &EnvironmentSpec, system_cpus: f64) -> f64 {
    let beside =
        |one: &Neighbour| matches!(one.placement, Placement::SiblingThreads | Placement::SameNode);
    let taken = slice.counters.iter().find(|one| one.name == names::NEIGHBOUR_CPU_NS);
    match taken {
        Some(ns) if slice.window_ns > 0 && !spec.neighbours.iter().all(beside) => {
            (system_cpus - ns.value / slice.window_ns as f64).max(0.0)
        }
        _ => system_cpus,
    }
}

/// Returns the doubt that a neighbour of the environment used no CPU time in a slice, in which the
/// layer was therefore not in force.
pub fn idle_neighbour(slice: &Slice, spec: &EnvironmentSpec) -> Option<Doubt> {
    let counter = |name: &str| slice.counters.iter().find(|one| one.name == name).map(|c| c.value);
    let used_none = |number: usize| {
        let own = counter(&names::neighbour_cpu_ns(number));
        own.or_else(|| counter(names::NEIGHBOUR_CPU_NS)).unwrap_or(0.0) == 0.0
    };
    let idle = spec.neighbours.iter().enumerate().find(|(number, _)| used_none(*number));
    idle.map(|(_, neighbour)| Doubt::LayerNotInForce {
        layer: Layer::Neighbours.name().into(),
        wanted: neighbour.to_string(),
        found: "it used no CPU time in the slice".into(),
    })
}

/// Returns the CPUs of the cores that both use.
fn sibling_threads(cores: &[CpuSet], system: &CpuSet, client: &CpuSet) -> CpuSet {
    let used_by = |core: &CpuSet, cpus: &CpuSet| !core.is_disjoint(cpus);
    let shared = cores.iter().filter(|core| used_by(core, system) && used_by(core, client));
    shared.flat_map(CpuSet::iter).collect()
}

/// Returns the doubts about an environment that has started. For the baseline itself, pass its own
/// settings as `baseline_settings`.
pub fn environment(
    spec: &EnvironmentSpec,
    plan: &CpuPlan,
    layers: &[LayerState],
    settings: &[(String, String)],
    baseline_settings: &[(String, String)],
) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = not_in_force(layers).collect();
    let system = found_cpus(spec, layers).unwrap_or_else(|| spec.cpu.set(plan));
    let both = system.intersection(&plan.client);
    if !both.is_empty() {
        doubts.push(Doubt::ClientSharesCpus { cpus: both.to_string() });
    }
    let siblings = sibling_threads(&plan.cores, &system.difference(&both), &plan.client);
    if !siblings.is_empty() {
        doubts.push(Doubt::ClientSharesCores { cpus: siblings.to_string() });
    }
    let engine = |settings: &[(String, String)]| {
        settings.iter().find(|(key, _)| key == IO_ENGINE).map(|(_, value)| value.clone())
    };
    if let (Some(baseline), Some(here)) = (engine(baseline_settings), engine(settings))
        && baseline != here
    {
        doubts.push(Doubt::IoEngineDiffers { baseline, here });
    }
    let accelerator = layers.iter().find(|state| state.layer == ACCELERATOR);
    if let Some(state) = accelerator.filter(|state| !state.found.starts_with(HARDWARE)) {
        let accelerator = state.found.clone();
        doubts.push(match accelerator.starts_with(USER_MODE) {
            true => Doubt::UserModeKernel { accelerator },
            false => Doubt::Emulated { accelerator },
        });
    }
    doubts
}

/// Returns the CPUs on which an attached system may run, from its cpu layer as found.
pub(crate) fn found_cpus(spec: &EnvironmentSpec, layers: &[LayerState]) -> Option<CpuSet> {
    spec.attach.as_ref()?;
    let found = &layers.iter().find(|state| state.layer == Layer::Cpu.name())?.found;
    let list = found.strip_prefix(CPUS_ALLOWED)?.split(';').next()?;
    CpuSet::parse_list(list.trim()).ok()
}

/// Returns the doubt that systems are awake while another one is measured: attached ones cannot be
/// frozen. The second copy of a baseline is the same system.
pub(crate) fn all_awake(study: &Study) -> Option<Doubt> {
    let mut addresses: Vec<SocketAddr> = study.attached().map(|attach| attach.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let has_others = study.environments.iter().any(|spec| spec.attach.is_none());
    let is_alone = addresses.len() == 1 && !has_others;
    let systems = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    (systems > 0 && !is_alone).then_some(Doubt::NotFrozen { systems })
}

/// Returns one doubt for each layer that is not in force.
pub fn not_in_force(layers: &[LayerState]) -> impl Iterator<Item = Doubt> + '_ {
    layers.iter().filter(|state| !state.in_force).map(|state| Doubt::LayerNotInForce {
        layer: state.layer.clone(),
        wanted: state.wanted.clone(),
        found: state.found.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientCpus = ClientCpus { count: 1, here_ns: 50_000_000 };
    use crate::layer::Cpu;
    use crate::probe::Counter;
    use crate::record::Phase;

    fn plan(system: &str, client: &str) -> CpuPlan {
        let list = |text: &str| CpuSet::parse_list(text).unwrap();
        CpuPlan {
            all: list(system).union(&list(client)),
            system: list(system),
            client: list(client),
            cores: vec![list("2-3")],
            ..CpuPlan::default()
        }
    }

    /// 100 ms on 2 CPUs: 1,000 operations, system 90 ms, client 50 ms, nothing to doubt.
    fn quiet() -> Slice {
        let counter = |name: &str, value| Counter { name: name.into(), value };
        Slice {
            id: 0,
            round: 0,
            position: 0,
            environment: "native".into(),
            workload: "w".into(),
            phase: Phase::Latency,
            started_unix_ms: 0,
            window_ns: 100_000_000,
            operations: 1000,
            errors: vec![],
            unsent: 0,
            rate_per_s: Some(10_000.0),
            system_cpu_ns: 90_000_000,
            layer_cpu_ns: vec![("userland proxy".into(), 2_000_000)],
            busy_time: None,
            client_cpu_ns: 50_000_000,
            throttled_ns: Some(0),
            response: vec![],
            service: vec![],
            counters: vec![
                counter(names::STEAL_NS, 1_000_000.0),
                counter(names::HOST_CPU_NS, 150_000_000.0),
                counter(names::HARNESS_CPU_NS, 51_000_000.0),
            ],
            void: None,
            start: 0,
            account_ns: None,
            server: Vec::new(),
            loaders: Vec::new(),
            seconds: crate::seconds::Seconds::default(),
        }
    }

    fn kinds(change: impl FnOnce(&mut Slice)) -> Vec<&'static str> {
        let mut one = quiet();
        change(&mut one);
        let plan = plan("1", "0");
        let context = SliceContext {
            plan: &plan,
            client_in_harness: true,
            client: CLIENT,
            system_cpus: 1.0,
            load_suffices: false,
            reads_from_disk: None,
            host_cpus: None,
        };
        slice(&one, context).iter().map(Doubt::kind).collect()
    }

    #[test]
    fn doubts_another_share_of_reads_from_disk() {
        let plan = plan("1", "0");
        let check = |asked, reads, from_disk, expect: &[&str]| {
            let mut one = quiet();
            let counts = [(names::SYSTEM_READS, reads), (names::SYSTEM_DISK_READS, from_disk)];
            let counter = |(name, value): (&str, f64)| Counter { name: name.into(), value };
            one.counters.extend(counts.map(counter));
            let context = SliceContext {
                plan: &plan,
                client_in_harness: true,
                client: CLIENT,
                system_cpus: 1.0,
                load_suffices: false,
                reads_from_disk: asked,
                host_cpus: None,
            };
            let kinds: Vec<&str> = slice(&one, context).iter().map(Doubt::kind).collect();
            assert_eq!(kinds, expect, "{from_disk} of {reads}, asked {asked:?}");
        };
        check(Some(0.95), 1000.0, 905.0, &[]);
        check(Some(0.95), 1000.0, 995.0, &[]);
        check(Some(0.95), 1000.0, 890.0, &["reads_not_from_disk"]);
        check(Some(0.0), 1000.0, 200.0, &["reads_not_from_disk"]);
        check(Some(0.95), 90.0, 0.0, &[]);
        check(None, 1000.0, 0.0, &[]);
    }

    #[test]
    fn doubts_slices_beyond_thresholds() {
        assert!(kinds(|_| {}).is_empty());
        assert_eq!(kinds(|one| one.counters[0].value = 2_100_000.0), ["steal"]);
        // 150 - 90 - 2 - 51 = 7 ms of 200; with 11 ms more it is beyond 5 %.
        assert!(kinds(|one| one.counters[1].value += 2_900_000.0).is_empty());
        assert_eq!(kinds(|one| one.counters[1].value += 11_000_000.0), ["strangers"]);
        // The host's account covers more than the window here: still a share.
        let plan = plan("1", "0");
        let mut busy = quiet();
        busy.counters[1].value = 1e9;
        let context = SliceContext {
            plan: &plan,
            client_in_harness: true,
            client: CLIENT,
            system_cpus: 1.0,
            load_suffices: false,
            reads_from_disk: None,
            host_cpus: None,
        };
        let doubts = slice(&busy, context);
        assert!(matches!(doubts[..], [Doubt::Strangers { share }] if share < 1.0), "{doubts:?}");
        let closed = |one: &mut Slice| (one.client_cpu_ns, one.rate_per_s) = (86_000_000, None);
        assert_eq!(kinds(closed), ["client_saturated"]);
        assert!(kinds(|one| one.client_cpu_ns = 86_000_000).is_empty(), "an open loop polls");
        let thread = |share: f64| {
            let name = names::busiest_thread_share(names::CLIENT);
            move |one: &mut Slice| {
                one.rate_per_s = None;
                one.counters.push(Counter { name, value: share });
            }
        };
        assert_eq!(kinds(thread(0.99)), ["client_saturated"]);
        assert!(kinds(thread(0.84)).is_empty());
        let open = |one: &mut Slice| {
            thread(0.99)(one);
            one.rate_per_s = Some(10_000.0);
        };
        assert!(kinds(open).is_empty(), "an open loop polls");
        assert_eq!(kinds(|one| one.throttled_ns = Some(1_100_000)), ["throttled"]);
        assert!(kinds(|one| one.operations = 981).is_empty());
        assert_eq!(kinds(|one| one.operations = 979), ["rate_not_reached"]);
        assert_eq!(kinds(|one| one.errors = vec![("timeout".into(), 3)]), ["operation_errors"]);
        assert!(kinds(|one| one.window_ns = 0).is_empty());
    }

    #[test]
    fn neighbours_are_no_strangers() {
        let burn = |ns: f64| {
            move |one: &mut Slice| {
                one.counters[1].value += ns;
                let name = names::NEIGHBOUR_CPU_NS.to_string();
                one.counters.push(Counter { name, value: ns });
            }
        };
        assert!(kinds(burn(40_000_000.0)).is_empty());
        let plain = crate::fake::spec("native", "process");
        let mut spec = crate::fake::changed(Layer::Neighbours, &plain);
        let mut one = quiet();
        assert_eq!(idle_neighbour(&one, &plain), None);
        burn(40_000_000.0)(&mut one);
        assert_eq!(idle_neighbour(&one, &spec), None);
        assert_eq!(cpus_left(&one, &plain, 1.0), 1.0);
        assert!((cpus_left(&one, &spec, 1.0) - 0.6).abs() < 1e-9);
        spec.neighbours[0].placement = Placement::SiblingThreads;
        assert_eq!(cpus_left(&one, &spec, 1.0), 1.0);
        // One of two did nothing.
        spec.neighbours.push(Neighbour { name: "idler".into(), ..spec.neighbours[0].clone() });
        for (number, value) in [(0, 40_000_000.0), (1, 0.0)] {
            one.counters.push(Counter { name: names::neighbour_cpu_ns(number), value });
        }
        let doubt = idle_neighbour(&one, &spec).unwrap().text();
        let found = "found it used no CPU time in the slice";
        assert!(doubt.contains("idler (cpu") && doubt.ends_with(found), "{doubt}");
    }

    #[test]
    fn one_busy_thread_of_many_cpus_saturates_a_client() {
        let plan = plan("32-63", "0-31");
        let mut one = quiet();
        // One thread at 99 % of a CPU is 3 % of 32.
        (one.client_cpu_ns, one.rate_per_s) = (99_000_000, None);
        let name = names::busiest_thread_share(names::CLIENT);
        one.counters.push(Counter { name, value: 0.99 });
        let context = SliceContext {
            plan: &plan,
            client_in_harness: false,
            client: ClientCpus { count: 32, here_ns: one.client_cpu_ns },
            system_cpus: 32.0,
            load_suffices: false,
            reads_from_disk: None,
            host_cpus: None,
        };
        let doubts = slice(&one, context);
        let [Doubt::ClientSaturated { share, busiest_thread_share: Some(thread) }] = doubts[..]
        else {
            panic!("{doubts:?}")
        };
        assert!(share < 0.04 && thread > 0.98, "{share} {thread}");
        assert_eq!(
            doubts[0].text(),
            "99 % of a CPU went to the client's busiest thread, 3.1 % of its CPUs to all of it: \
             that thread may be the bottleneck"
        );
        // A record of an older version has no such field.
        let old = r#"{"kind":"client_saturated","share":0.9}"#;
        let old: Doubt = serde_json::from_str(old).unwrap();
        assert_eq!(old, Doubt::ClientSaturated { share: 0.9, busiest_thread_share: None });
    }

    #[test]
    fn doubts_environments_by_layers_and_settings() {
        let layer = |in_force| LayerState {
            layer: "cpu".into(),
            wanted: "1".into(),
            found: "Cpus_allowed_list: 0-1".into(),
            in_force,
        };
        let mut spec = crate::fake::spec("box", "fake");
        let engine = |name: &str| vec![(IO_ENGINE.to_string(), name.to_string())];
        let kinds = |spec: &EnvironmentSpec, plan: &CpuPlan, in_force, here: &str| {
            let layers = [layer(in_force)];
            let doubts = environment(spec, plan, &layers, &engine(here), &engine("io_uring"));
            doubts.iter().map(Doubt::kind).collect::<Vec<_>>()
        };
        spec.cpu = Cpu::Pinned;
        assert!(kinds(&spec, &plan("1", "0"), true, "io_uring").is_empty());
        assert_eq!(kinds(&spec, &plan("0", "0"), true, "io_uring"), ["client_shares_cpus"]);
        assert_eq!(kinds(&spec, &plan("3", "0,2"), true, "io_uring"), ["client_shares_cores"]);
        spec.cpu = Cpu::Shared;
        let all = ["layer_not_in_force", "client_shares_cpus", "io_engine_differs"];
        assert_eq!(kinds(&spec, &plan("1", "0"), false, "epoll"), all);
        let runs_on = |accelerator: &str| {
            let mut state = layer(true);
            (state.layer, state.found) = (ACCELERATOR.into(), accelerator.into());
            let mut spec = spec.clone();
            spec.cpu = Cpu::Pinned;
            let doubts = environment(&spec, &plan("1", "0"), &[state], &[], &[]);
            doubts.iter().map(Doubt::kind).collect::<Vec<_>>()
        };
        assert_eq!(runs_on("tcg: there is no /dev/kvm"), ["emulated"]);
        assert_eq!(runs_on("uml: a kernel in user mode"), ["user_mode_kernel"]);
        assert!(runs_on("kvm: a guest is up after 900 ms").is_empty());
    }

    #[test]
    fn texts_lead_with_the_figure() {
        let check = |doubt: Doubt, expect: &str| assert_eq!(doubt.text(), expect);
        check(
            Doubt::Strangers { share: 0.123 },
            "12 % of the CPUs was used by processes outside the study",
        );
        check(
            Doubt::RateNotReached { asked_per_s: 1000.0, reached_per_s: 900.4 },
            "900 of 1000 operations/s reached at the fixed rate",
        );
        check(
            Doubt::SentLate { late_share: 0.02, waited_share: Some(0.15) },
            "2.0 % of the operations left the client more than 1 ms late; its threads waited for a CPU 15 % of the time",
        );
        check(
            Doubt::ControlBeyondClaim { control_percent: 3.16, smallest_percent: 1.0 },
            "3.2 % between two copies of the baseline: as much as the smallest cost found (1.0 %)",
        );
        check(
            Doubt::ControlBeyondClaim { control_percent: -3.16, smallest_percent: 15.0 },
            "-3.2 % between two copies of the baseline: chance does not explain it (smallest cost found: 15 %)",
        );
    }

    #[test]
    fn clients_elsewhere_use_no_cpu_of_this_host() {
        let loader = |host: &str| Loader {
            host: host.into(),
            cpus: "0-3".parse().unwrap(),
            kernel: String::new(),
            architecture: String::new(),
        };
        let loaders = [loader("local"), loader("ssh:a"), loader("ssh:b")];
        let mut one = quiet();
        let part = |loader, cpu_ns| crate::loader::LoaderSlice { loader, cpu_ns, ..<_>::default() };
        one.loaders = vec![part(0, 7), part(1, 40)];
        let ClientCpus { count, here_ns } = ClientCpus::of(&one, &plan("1", "0"), &loaders);
        assert_eq!((count, here_ns), (8, 7));
        one.loaders.clear();
        let ClientCpus { count, here_ns } = ClientCpus::of(&one, &plan("1", "0"), &[]);
        assert_eq!((count, here_ns), (1, one.client_cpu_ns));
    }
}
