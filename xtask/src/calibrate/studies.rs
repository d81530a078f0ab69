//! The kinds of campaigns. Each is a study whose environments have known costs.

use std::fmt::Write;
use std::time::Duration;

use super::burners::Place;

/// A kind of campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// CPU time per operation: 1 %, 3 % and 10 % of the baseline's, a large one, and the A/A
    /// control.
    Busy,
    /// Throughput of a CPU-bound server under a quota of 99, 97 and 90 %.
    Quota,
    /// Latency at a fixed rate behind a relay that delays.
    Delay,
    /// System call filters of growing length, whose true cost is a straight line.
    Filter,
    /// `Busy` beside a neighbour that burns half of the system's CPU.
    Noise,
    /// 5 % and 10 % of CPU time per operation beside two burners in another session.
    BusyTwo,
    /// `tare explain` with a known cost in one of several layers.
    Explain,
    /// The same layers under several runtimes, on a quiet host.
    Same,
    /// `Same` beside one, two and four burners in another session.
    SameOne,
    SameTwo,
    SameFour,
    /// `Same` beside two burners in another cgroup.
    SameCgroup,
    /// `Same` beside two burners at another nice value.
    SameNice,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Busy,
        Self::Quota,
        Self::Delay,
        Self::Filter,
        Self::Noise,
        Self::BusyTwo,
        Self::Explain,
        Self::Same,
        Self::SameOne,
        Self::SameTwo,
        Self::SameFour,
        Self::SameCgroup,
        Self::SameNice,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Quota => "quota",
            Self::Delay => "delay",
            Self::Filter => "filter",
            Self::Noise => "noise",
            Self::BusyTwo => "busy-2",
            Self::Explain => "explain",
            Self::Same => "same",
            Self::SameOne => "same-1",
            Self::SameTwo => "same-2",
            Self::SameFour => "same-4",
            Self::SameCgroup => "same-cgroup",
            Self::SameNice => "same-nice",
        }
    }

    /// Whether the environments cost shares of the baseline's CPU per operation.
    pub(crate) fn injects_shares(self) -> bool {
        matches!(self, Self::Busy | Self::Noise | Self::BusyTwo)
    }

    /// Whether all environments of the kind have the same layers.
    pub(crate) fn has_same_layers(self) -> bool {
        use Kind::{Same, SameCgroup, SameFour, SameNice, SameOne, SameTwo};
        matches!(self, Same | SameOne | SameTwo | SameFour | SameCgroup | SameNice)
    }

    /// Returns the number of burners beside a campaign of the kind, and their place; `None` for a
    /// kind that is not about them.
    pub(crate) fn burners(self) -> Option<(u32, Place)> {
        match self {
            Self::Same => Some((0, Place::Session)),
            Self::SameOne => Some((1, Place::Session)),
            Self::SameTwo | Self::BusyTwo => Some((2, Place::Session)),
            Self::SameFour => Some((4, Place::Session)),
            Self::SameCgroup => Some((2, Place::Cgroup)),
            Self::SameNice => Some((2, Place::Nice)),
            _ => None,
        }
    }

    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The known cost of an environment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Truth {
    /// Server CPU per operation, ns more than the baseline.
    CpuNs(u64),
    /// Throughput at capacity, percent less than the baseline.
    ThroughputPercent(f64),
    /// Latency at the fixed rate, µs more than the baseline.
    LatencyUs(f64),
    /// Server CPU in proportion to the filter's length.
    Filter(u16),
}

/// An environment with a known cost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownCost {
    pub(crate) name: String,
    pub(crate) inject: String,
    pub(crate) truth: Truth,
}

/// Environments with the baseline's layers, by name, runtime and cgroup layer. An engine puts every
/// container into a cgroup, so that one process has a cgroup too.
const SAME: [(&str, &str, &str); 5] = [
    ("process", "process", "none"),
    ("process, own cgroup", "process", "own"),
    ("runc", "oci:runc", "none"),
    ("crun", "oci:crun", "none"),
    ("docker", "docker", "own"),
];

/// The study of one campaign.
#[derive(Clone, Debug)]
pub(crate) struct CampaignStudy {
    pub(crate) text: String,
    pub(crate) known: Vec<KnownCost>,
}

/// The name of the baseline in every study.
pub(crate) const BASELINE: &str = "native";
/// The busy time of a server under a quota, so that the server and not the client is CPU-bound.
const HEAVY: &str = "busy=60us";
/// The busy time of every server whose injected cost is a share. With many operations in flight it
/// is never idle then, and finds the same number of requests at each turn whatever is added. A
/// server that is sometimes idle would find more of them, and serve several with one system call.
const NEVER_IDLE_NS: u64 = 2_000;
const MANY_IN_FLIGHT: &str = "connections = 16\nin_flight = 64\nlatency_share = 0.0\n";
/// Busy times as shares of the baseline's CPU per operation.
const SHARES: [(f64, &str); 3] = [(0.01, "busy 1 %"), (0.03, "busy 3 %"), (0.10, "busy 10 %")];
/// The delay of the baseline's relay. A relay without a delay would pay for waking up, which relays
/// with a delay do while they wait.
const RELAY_US: f64 = 200.0;
/// A server with one operation in flight is idle for half of its time. It burns a busy time then.
const ONE_AT_A_TIME: &str = "connections = 1\nin_flight = 1\nlatency_share = 0.0\n";
/// The same beside burners.
const SHARES_BESIDE_BURNERS: [(f64, &str); 2] = [(0.05, "busy 5 %"), (0.10, "busy 10 %")];
const LARGE_NS: u64 = 4_000;
const FILTERS: [u16; 3] = [1000, 2000, 4000];

/// Makes the study of a kind. `baseline_us` is the baseline's server CPU per operation, for
/// relative costs.
pub(crate) fn plan(kind: Kind, baseline_us: f64, budget: Duration) -> CampaignStudy {
    let busy = |name: &str, ns: u64| KnownCost {
        name: name.to_string(),
        inject: format!("busy={}ns", NEVER_IDLE_NS + ns),
        truth: Truth::CpuNs(ns),
    };
    let share = |(share, name): (f64, &str)| busy(name, share_ns(share, baseline_us));
    let known = match kind {
        Kind::Busy | Kind::Noise => {
            SHARES.map(share).into_iter().chain([busy("busy 4 us", LARGE_NS)]).collect()
        }
        Kind::BusyTwo => SHARES_BESIDE_BURNERS.map(share).to_vec(),
        Kind::Quota => [99.0, 97.0, 90.0]
            .map(|percent: f64| KnownCost {
                name: format!("quota {percent} %"),
                inject: format!("{HEAVY}+quota={percent}%"),
                truth: Truth::ThroughputPercent(100.0 - percent),
            })
            .to_vec(),
        Kind::Delay => [200.0, 1000.0]
            .map(|us: f64| KnownCost {
                name: format!("delay +{us} us"),
                inject: format!("delay={}us", RELAY_US + us),
                truth: Truth::LatencyUs(us),
            })
            .to_vec(),
        Kind::Filter => FILTERS
            .map(|length| KnownCost {
                name: format!("filter {length}"),
                inject: format!("filter={length}"),
                truth: Truth::Filter(length),
            })
            .to_vec(),
        Kind::Explain => Vec::new(),
        _ => return same_layers(kind, budget),
    };
    let baseline = match kind {
        Kind::Quota => HEAVY.to_string(),
        Kind::Delay => format!("delay={RELAY_US}us"),
        kind if kind.injects_shares() => never_idle(),
        _ => "none".to_string(),
    };
    let (system, window, lead_in, load) = match kind {
        // The window has whole periods of the quota (100 ms), after the one that the thaw has cut.
        Kind::Quota => ("", "400ms", "200ms", MANY_IN_FLIGHT),
        // A sleeping server leaves its CPU to the relay.
        Kind::Delay => (
            "overprovisioned = \"yes\"\n",
            "200ms",
            "50ms",
            "connections = 4\nin_flight = 64\nrate_per_s = 500\n",
        ),
        // Each operation uses its own system calls, and their number does not depend on the filter.
        // With many operations in flight, a slower server would find more of them waiting and serve
        // several with one call.
        Kind::Filter => ("io = \"epoll\"\n", "200ms", "50ms", ONE_AT_A_TIME),
        _ => ("", "50ms", "10ms", MANY_IN_FLIGHT),
    };
    let head = head(kind, budget, system, window, lead_in);
    let mut text = format!("{head}{}", environment(BASELINE, &baseline, ""));
    for one in &known {
        text += &environment(&one.name, &one.inject, "");
    }
    // Reads do without the log and its files, whose noise is another.
    let write_share = if kind.injects_shares() { 0.0 } else { 1.0 };
    text += &workload(write_share, load);
    CampaignStudy { text, known }
}

/// Makes a study whose environments all have the baseline's layers, so that every true cost is 0.
fn same_layers(kind: Kind, budget: Duration) -> CampaignStudy {
    let head = head(kind, budget, "", "50ms", "20ms");
    let mut text = head + &environment(BASELINE, "none", "");
    let mut known = Vec::new();
    for (name, runtime, cgroup) in SAME {
        let layers = format!("runtime = \"{runtime}\"\ncgroup = \"{cgroup}\"\noptional = true\n");
        text += &environment(name, "none", &layers);
        for truth in [Truth::CpuNs(0), Truth::ThroughputPercent(0.0)] {
            known.push(KnownCost { name: name.into(), inject: "nothing".into(), truth });
        }
    }
    text += &workload(1.0, MANY_IN_FLIGHT);
    CampaignStudy { text, known }
}

/// Makes the study that measures the baseline's CPU per operation before any cost is injected. It
/// has as many environments as a campaign, because they share the CPU's caches.
pub(crate) fn baseline() -> CampaignStudy {
    let budget = Duration::from_secs(15);
    let mut text =
        head(Kind::Busy, budget, "", "50ms", "10ms") + &environment(BASELINE, &never_idle(), "");
    for copy in ["copy 1", "copy 2", "copy 3", "copy 4"] {
        text += &environment(copy, &never_idle(), "");
    }
    text += &workload(0.0, MANY_IN_FLIGHT);
    CampaignStudy { text, known: Vec::new() }
}

/// A question to `tare explain`: the injected cost, and the other layers that differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) inject: &'static str,
    /// The CPU time per operation in µs, if it is known.
    pub(crate) truth_us: Option<f64>,
    layers: &'static str,
    system: &'static str,
}

/// The questions, which alternate. The decoys are real layers: a cgroup costs about nothing, and
/// shared CPUs and a bridge a few µs. The injected cost is larger.
pub(crate) const QUESTIONS: [Question; 4] = [
    Question {
        name: "20 us beside a bridge",
        inject: "busy=20us",
        truth_us: Some(20.0),
        layers: "network = \"bridge\"\n",
        system: "",
    },
    Question {
        name: "2 us beside cgroup",
        inject: "busy=2us",
        truth_us: Some(2.0),
        layers: "cgroup = \"own\"\n",
        system: "",
    },
    Question {
        name: "a filter of 4000 beside cgroup",
        inject: "filter=4000",
        truth_us: None,
        layers: "cgroup = \"own\"\n",
        system: "io = \"epoll\"\n",
    },
    Question {
        name: "20 us beside shared CPUs and a bridge",
        inject: "busy=20us",
        truth_us: Some(20.0),
        layers: "cpu = \"shared\"\nnetwork = \"bridge\"\n",
        system: "",
    },
];

/// The name of the environment to explain.
pub(crate) const FULL: &str = "full";

pub(crate) fn question(question: &Question, budget: Duration) -> String {
    head(Kind::Explain, budget, question.system, "200ms", "50ms")
        + &environment(BASELINE, "none", "")
        + &environment(FULL, question.inject, question.layers)
        + &workload(1.0, ONE_AT_A_TIME)
}

fn never_idle() -> String {
    format!("busy={NEVER_IDLE_NS}ns")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few µs in ns")]
fn share_ns(share: f64, baseline_us: f64) -> u64 {
    (share * baseline_us * 1000.0).round().max(1.0) as u64
}

fn head(kind: Kind, budget: Duration, system: &str, window: &str, lead_in: &str) -> String {
    format!(
        "name = \"calibrate-{}\"\ntitle = \"Is the instrument right?\"\nbaseline = \"{BASELINE}\"\n\n\
         [system]\nname = \"tare-db\"\n{system}\n\
         [schedule]\nkind = \"slices\"\nwindow = \"{window}\"\nlead_in = \"{lead_in}\"\n\
         rounds = 100000\nrounds_min = 100000\nbudget = \"{}s\"\n\n",
        kind.name(),
        budget.as_secs()
    )
}

fn environment(name: &str, inject: &str, layers: &str) -> String {
    let mut text = format!("[[environment]]\nname = \"{name}\"\n");
    if name == BASELINE {
        let cgroup = if inject.starts_with("busy") { "own" } else { "none" };
        text +=
            "runtime = \"process\"\nnetwork = \"host\"\ncpu = \"pinned\"\nsecurity = \"none\"\n";
        let _ = writeln!(text, "cgroup = \"{cgroup}\"");
    } else {
        let _ = writeln!(text, "extends = \"{BASELINE}\"");
    }
    let _ = writeln!(text, "{layers}inject = \"{inject}\"\n");
    text
}

fn workload(write_share: f64, load: &str) -> String {
    let name = if write_share > 0.0 { "write" } else { "read" };
    format!("[[workload]]\nname = \"{name}\"\nwrite_share = {write_share:.1}\nrows = 2000\n{load}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_costs_come_from_the_baseline() {
        let planned = plan(Kind::Busy, 12.5, Duration::from_secs(30));
        let injected: Vec<&str> = planned.known.iter().map(|one| one.inject.as_str()).collect();
        assert_eq!(injected, ["busy=2125ns", "busy=2375ns", "busy=3250ns", "busy=6000ns"]);
        assert!(planned.text.contains("inject = \"busy=2375ns\""));
    }
}
