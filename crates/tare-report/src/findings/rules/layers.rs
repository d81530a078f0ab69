//! The cost of a single layer, if the record separates it from the others.

use tare_lab::analysis::Interval;

use super::super::effects::{Effect, Source};
use super::super::facts::Facts;
use super::super::{Confidence, Evidence, Kind, Rule, Statement, words};
use crate::figures::{clean, percent, percent_interval, rounds};
use crate::headline::{Metric, noise};

const DATA: &str = "two environments that differ in this layer alone, paired within the rounds; \
    where the record was explained, the layer's Shapley share; also stacks by subsystem and counters \
    of the same environments";
const DETAILS: &str = "{measured} ({where}).{beside}";
const EXPECTED: &str = "up to {back} ({how})";
const EXPECTED_FROM: &str = "the measured effect of this layer with its interval, no other figure";

/// The rule of one layer change: the figure, then the action in a few words.
macro_rules! cost {
    ($id:literal, $title:literal, $condition:literal, $action:literal, $advice:literal $(,)?) => {
        Rule {
            id: $id,
            title: $title,
            kind: Kind::Cost,
            data: DATA,
            condition: $condition,
            sentence: concat!($title, ": {cost}. ", $action),
            details: DETAILS,
            advice: $advice,
            expected: EXPECTED,
            expected_from: EXPECTED_FROM,
            apply: costs,
        }
    };
}

pub(super) const RULES: &[Rule] = &[
    cost!(
        "bridge",
        "Bridge network",
        "`network` goes from `host` to `bridge`, and the cost is a claim",
        "Use host networking.",
        "docker run --network host (Kubernetes: hostNetwork: true; Quadlet: Network=host). The database then listens on the \
         host's own ports.",
    ),
    cost!(
        "published_by_proxy",
        "Port published by a userland proxy",
        "`network` goes to `bridge+proxy`, and the cost is a claim",
        "Bypass the proxy.",
        "Connect to the container's or the host's address instead of 127.0.0.1, or set \"userland-proxy\": false in \
         /etc/docker/daemon.json. --network host has neither proxy nor bridge.",
    ),
    cost!(
        "io_uring_lost",
        "io_uring lost to the seccomp profile",
        "`security` goes from `default+io_uring` to `default`, the system reports another I/O engine, and the cost is a \
         claim",
        "Allow io_uring in the profile.",
        "Allow io_uring_setup, io_uring_enter and io_uring_register: docker run --security-opt seccomp=FILE. tare tune flags \
         --for docker --seccomp FILE writes the profile.",
    ),
    cost!(
        "seccomp_filter",
        "Seccomp filter",
        "`security` goes from `none` to a filter with the same I/O engine, and the cost is a claim",
        "Keep it unless other defences replace it.",
        "docker run --security-opt seccomp=unconfined removes the filter. First weigh what the filter keeps out against its \
         cost.",
    ),
    cost!(
        "seccomp_and_io_uring",
        "Seccomp profile and loss of io_uring",
        "`security` goes from `none` to a filter, the system reports another I/O engine, and the cost is a claim",
        "Allow io_uring in the profile.",
        "Keep the filter and allow io_uring in it (tare tune flags --for docker --seccomp FILE). An environment with security \
         = \"default+io_uring\" separates the two costs.",
    ),
    cost!(
        "no_capabilities",
        "No capabilities",
        "`security.capabilities` goes to `none`, and the cost is a claim",
        "Give back the capability that the database uses.",
        "docker run --cap-drop ALL --cap-add NAME; the log of the database names what it was refused, such as locking memory \
         (IPC_LOCK) or raising priorities (SYS_NICE).",
    ),
    cost!(
        "user_namespace",
        "User namespace",
        "`user` goes to `namespace`, and the cost is a claim",
        "Run the database as a plain user instead.",
        "docker run --user UID:GID is a user without rights too, and needs no mapping of the data's owners.",
    ),
    cost!(
        "apparmor",
        "AppArmor profile",
        "`apparmor` goes from `none` to a profile, and the cost is a claim",
        "Write a profile for the database.",
        "A profile with few rules matches faster than docker-default: docker run --security-opt apparmor=NAME.",
    ),
    cost!(
        "sidecar",
        "Sidecar",
        "`sidecar` goes from `none` to another value, and the cost is a claim",
        "Keep the proxy out of the database's path.",
        "Leave the pods of the database out of the mesh, or its port out of the proxy (Istio: \
         traffic.sidecar.istio.io/excludeInboundPorts; Linkerd: config.linkerd.io/skip-inbound-ports), and let the database \
         encrypt by itself.",
    ),
    cost!(
        "huge_pages",
        "Transparent huge pages",
        "`memory.pages` differs, and the cost is a claim",
        "Keep the setting of the baseline.",
        "/sys/kernel/mm/transparent_hugepage/enabled is of the whole host; the switch of one process is PR_SET_THP_DISABLE. The \
         knob transparent_hugepages of tare tune sets the host's.",
    ),
    cost!(
        "memory_node",
        "NUMA node of the memory",
        "`memory.node` is set, and the cost is a claim",
        "Bind the memory to the node of the CPUs.",
        "docker run --cpuset-mems NODE with the node of --cpuset-cpus; lscpu lists the CPUs of each node.",
    ),
    cost!(
        "cgroup",
        "Cgroup accounting",
        "`cgroup` goes from `none` to `own`, and the cost is a claim",
        "Disable it on a dedicated host only.",
        "podman run --cgroups=disabled runs without a cgroup; docker cannot. Without a cgroup nothing limits or counts the \
         database.",
    ),
    cost!(
        "shared_cpus",
        "Shared CPUs",
        "`cpu` goes from `pinned` to `shared`, and the cost is a claim",
        "Dedicate CPUs to the database.",
        "docker run --cpuset-cpus LIST (Kubernetes: Guaranteed and whole CPUs with the static CPU manager); tare tune flags \
         --for docker chooses the list. tare tune apply --only interrupts keeps interrupts off them.",
    ),
    cost!(
        "cpu_quota",
        "CPU quota",
        "`cpu` goes to `quota=N`, and the cost is a claim",
        "Assign whole CPUs instead.",
        "Replace --cpus N by docker run --cpuset-cpus LIST, or raise the quota above the database's peak use.",
    ),
    cost!(
        "memory_limit",
        "Memory limit",
        "`limits.memory` is set, and the cost is a claim",
        "Raise the limit.",
        "Raise docker run --memory, or configure the database for the memory it has, so that it does not work against \
         reclaim.",
    ),
    cost!(
        "resource_limits",
        "Limits of resources",
        "`limits` gets other keys than `memory` alone, and the cost is a claim",
        "Raise the limit that the load reaches.",
        "docker run --device-write-bps, --cpu-shares, --memory-swap; Kubernetes: limits. An environment for each key shows which \
         of them costs.",
    ),
    cost!(
        "sandbox",
        "Sandboxed runtime",
        "`runtime` goes to `runsc`, and the cost is a claim",
        "Use runc for the database.",
        "docker run --runtime runc. Keep the sandbox (gVisor's sentry) for code that is not trusted.",
    ),
    cost!(
        "virtual_machine",
        "Virtual machine",
        "`runtime` goes to `vm`, and the cost is a claim",
        "Dedicate CPUs to the guest.",
        "Set cpu = \"pinned\", memory in huge pages (vm option huge_pages = yes), a thread for the guest's disk (iothread = yes) and \
         KVM (accelerator = kvm); an environment for each shows its gain. Where no separate kernel is required, weigh a container \
         beside it.",
    ),
    cost!(
        "storage",
        "Storage",
        "`storage` goes from `directory` to another kind, and the cost is a claim",
        "Put the data on a volume.",
        "Use a volume or a bind mount (docker run -v /data:/data) of a file system on the device itself, not the image's file \
         system or a loop file.",
    ),
    cost!(
        "injected",
        "Injected cost",
        "`inject` is set, and the cost is a claim",
        "Compare it with the injected amount.",
        "The study injected this cost to test the instrument; there is nothing to change.",
    ),
    cost!(
        "engine",
        "Container engine",
        "`runtime` goes from an OCI runtime to an engine, and the cost is a claim",
        "Compare both configurations.",
        "The page lists what the engine adds. The usual part is the image's file system: put the data on a volume (-v).",
    ),
    cost!(
        "runtime",
        "Container (namespaces and mounts)",
        "`runtime` goes from a process to a container, and the cost is a claim",
        "No flag removes it.",
        "Compare the configurations on the page, and put data on a volume (-v), not on the image's file system.",
    ),
    Rule {
        id: "layer_gives_back",
        title: "Gain from a layer",
        kind: Kind::Gain,
        data: DATA,
        condition: "a layer's effect is a claimed gain in one figure and no claimed loss in the other",
        sentence: "{layer}: {cost}. Repeat before you rely on it.",
        details: "gains {measured} ({where}).{beside}",
        advice: "A layer rarely saves work. Repeat with another --seed on a quiet host. If the gain stays, look for another \
                 change that the layer brings (other CPUs, another I/O engine), and keep it.",
        expected: "",
        expected_from: "",
        apply: gives_back,
    },
    Rule {
        id: "layer_mixed",
        title: "Layer with a gain and a loss",
        kind: Kind::Caution,
        data: DATA,
        condition: "a layer's effect is a claimed loss in one figure and a claimed gain in the other",
        sentence: "{layer}: {cost}. Decide by the scarcer resource.",
        details: "{measured} ({where}).{beside}",
        advice: "CPU is taken from everything else on the host; throughput only from this database.",
        expected: "",
        expected_from: "",
        apply: mixed,
    },
];

fn costs(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let ours = |effect: &&Effect| effect.kind.rule == rule.id && effect.costs();
    facts.effects.iter().filter(ours).map(|effect| statement(rule, facts, effect)).collect()
}

fn gives_back(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let effects = facts.effects.iter().filter(|effect| effect.gives_back());
    effects.map(|effect| statement(rule, facts, effect)).collect()
}

fn mixed(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let effects = facts.effects.iter().filter(|effect| effect.mixed());
    effects.map(|effect| statement(rule, facts, effect)).collect()
}

fn statement(rule: &Rule, facts: &Facts<'_>, effect: &Effect) -> Statement {
    let (with, without) = (words::quoted(&effect.with), words::quoted(&effect.without));
    let place = match effect.source {
        Source::Pair => format!("{with} against {without}"),
        Source::Share { of_whole } => {
            let whole = of_whole.map_or(String::new(), |p| format!(", {p:.0} % of the difference"));
            format!("its share of {with} against {without}{whole}")
        }
    };
    let how = match effect.source {
        Source::Pair => "measured by removing this layer alone",
        Source::Share { .. } => "this layer's share, if it does not interact with other layers",
    };
    let (beside, mut evidence) = beside(facts, effect);
    let values = [
        ("layer", crate::headline::capital(effect.kind.name)),
        ("cost", cost(effect)),
        ("measured", measured(effect, effect.gives_back())),
        ("where", place),
        ("beside", beside),
        ("back", back(effect)),
        ("how", how.to_string()),
    ];
    evidence.insert(
        0,
        match effect.source {
            Source::Pair => {
                facts.costs_evidence(&effect.workload, &[&effect.with, &effect.without])
            }
            Source::Share { .. } => {
                facts.shares_evidence(&effect.workload, effect.kind.layer.name())
            }
        },
    );
    rule.statement(&values)
        .with_effect(&effect.workload, effect.size())
        .confidence(confidence(facts, effect))
        .with_evidence(evidence)
}

/// `+3.10 µs CPU per operation (+24.1 %), 11.7 % of throughput`: the claimed figures, without
/// intervals.
pub(super) fn cost(effect: &Effect) -> String {
    let mut parts = Vec::new();
    if effect.cpu_claimed {
        let ratio = effect.percent.as_ref().map(|figure| format!("{} %", percent(figure.value)));
        parts.push(match (&effect.us, ratio) {
            (Some(us), Some(ratio)) => {
                format!("{} CPU per operation ({ratio})", words::us_change(us.value))
            }
            (Some(us), None) => format!("{} CPU per operation", words::us_change(us.value)),
            (None, ratio) => format!("{} CPU per operation", ratio.unwrap_or_default()),
        });
    }
    let throughput = effect.throughput.as_ref().filter(|_| effect.throughput_claimed);
    parts.extend(throughput.map(|lost| words::throughput(lost.value, parts.is_empty())));
    parts.join(", ")
}

/// `3.10 µs [2.90, 3.31] of server CPU per operation (+24.1 % [22.0, 26.2])`, and the throughput.
/// `mirrored` writes a gain as a figure above 0.
pub(super) fn measured(effect: &Effect, mirrored: bool) -> String {
    let turn = |figure: &Interval| match mirrored {
        true => words::mirrored(figure),
        false => *figure,
    };
    let mut parts = Vec::new();
    if effect.cpu_claimed {
        let ratio = effect.percent.as_ref().map(turn).map(|figure| match effect.source {
            // The word "gains" carries the sign.
            Source::Pair if mirrored => words::loss(&figure),
            Source::Pair => percent_interval(&figure),
            Source::Share { .. } => {
                format!("{} % of {}'s", percent(figure.value), words::quoted(&effect.without))
            }
        });
        let ratio = ratio.unwrap_or_default();
        parts.push(match effect.us.as_ref().map(turn) {
            Some(us) => format!("{} of server CPU per operation ({ratio})", words::us(&us)),
            None => format!("{ratio} server CPU per operation"),
        });
    }
    if let Some(lost) = effect.throughput.as_ref().filter(|_| effect.throughput_claimed) {
        parts.push(match lost.value < 0.0 {
            true => format!("{} more throughput", words::loss(&words::mirrored(lost))),
            false => format!("{} of the throughput", words::loss(lost)),
        });
    }
    words::list(&parts)
}

/// The gain from removing the layer.
pub(super) fn back(effect: &Effect) -> String {
    let mut parts = Vec::new();
    if let Some(us) = effect.us.as_ref().filter(|_| effect.cpu_claimed) {
        parts.push(format!("{} of server CPU per operation", words::us(us)));
    }
    if let Some(lost) = effect.throughput.as_ref().filter(|_| effect.throughput_claimed) {
        let without = words::quoted(&effect.without);
        parts.push(format!("{} of the throughput that {without} has", words::loss(lost)));
    }
    words::list(&parts)
}

pub(super) fn confidence(facts: &Facts<'_>, effect: &Effect) -> Confidence {
    let doubts = match effect.source {
        Source::Pair => facts.doubts(&effect.workload, &[&effect.with, &effect.without]),
        Source::Share { .. } => facts.doubts_of_explanation(&effect.workload),
    };
    let (figure, unit, metric) = match (effect.cpu_claimed, &effect.us, &effect.throughput) {
        (true, Some(us), _) => (*us, ("us_per_operation", "\u{b5}s"), Metric::ServerCpu),
        (_, _, Some(lost)) => (*lost, ("percent", "%"), Metric::Throughput),
        _ => return words::without_interval("no interval", doubts),
    };
    let noise = match effect.source {
        Source::Share { .. } => {
            let found = facts.explanations.iter().find(|one| one.workload == effect.workload);
            let us = found.and_then(|found| found.noise_us);
            us.map(|us| format!("beyond the A/A control's {} \u{b5}s", crate::figures::micros(us)))
        }
        Source::Pair => noise(facts.analysis, &effect.workload, metric)
            .map(|noise| format!("beyond the A/A control's {noise:.1} %")),
    };
    words::confidence(&figure, unit, &rounds(figure.rounds), noise, doubts)
}

/// Stacks and counters that belong to an effect, as text and as evidence.
fn beside(facts: &Facts<'_>, effect: &Effect) -> (String, Vec<Evidence>) {
    let (with, without) = (effect.with.as_str(), effect.without.as_str());
    let (mut text, mut evidence) = (String::new(), Vec::new());
    if let Some(profile) = facts.profile(&effect.workload, without, with) {
        let rows = effect.kind.subsystems.iter();
        let rows: Vec<_> = rows.filter_map(|name| facts.subsystem(&profile, name)).collect();
        let words: Vec<String> = rows
            .iter()
            .map(|row| {
                let figure = super::super::facts::interval(&row.difference, profile.rounds());
                format!("{} in {}", words::signed_us(&figure), row.name)
            })
            .collect();
        if !words.is_empty() {
            text = format!(" In the stacks: {}.", words::list(&words));
            let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            evidence.push(facts.stacks_evidence(without, with, &names.join(", ")));
        }
    }
    let counters: Vec<(&str, Interval)> = effect
        .kind
        .counters
        .iter()
        .filter_map(|name| {
            let (found, difference) = facts.stands_out(&effect.workload, with, name)?;
            Some((found.name.as_str(), difference))
        })
        .collect();
    if !counters.is_empty() {
        let one = |(name, difference): &(&str, Interval)| {
            format!(
                "{} {} per operation",
                clean(name),
                crate::counters::difference_text(difference, true)
            )
        };
        let words: Vec<String> = counters.iter().map(one).collect();
        let baseline = words::quoted(&facts.record.study.baseline);
        text.push_str(&format!(" Counters against {baseline}: {}.", words::list(&words)));
        evidence.extend(counters.iter().map(|(name, _)| facts.counter_evidence(name)));
    }
    (text, evidence)
}
