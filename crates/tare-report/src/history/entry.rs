//! One record of a history, and the facts that differ between two records.

use serde::Serialize;
use tare_lab::analysis::{Analysis, Cost, Finding};
use tare_lab::record::{Record, TUNING_FACTS};
use tare_stats::law::Verdict;

use super::figure::Figure;
use crate::compare::{Side, facts, host_name};
use crate::doubts::{DoubtGroup, DoubtGroups};
use crate::figures::{clean, shorten};

/// Characters of a value in a list of facts.
const VALUE: usize = 40;
/// Facts that differ in each record, or that a record has elsewhere.
const PASSING: [(&str, &str); 4] =
    [("study", "seed"), ("study", "name"), ("study", "baseline"), ("kernel", "host name")];
/// What a system chose at its start and that moves its figures. Its other settings are addresses,
/// sizes and times that differ at each start.
const CHOSEN: [&str; 4] = ["found io_engine", "found polling", "found shards", "found version"];
/// Sections in which a fact of only one record is a change. Elsewhere it is usually one that an
/// older Tare did not record.
const OPTIONAL: [&str; 3] = ["versions", TUNING_FACTS, "network"];

/// What a history shows of one record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Such as its file.
    pub name: String,
    pub study: String,
    /// Such as `redis`.
    pub system: String,
    pub baseline: String,
    pub host: Option<String>,
    pub started_unix_ms: u64,
    pub seed: u64,
    pub finished: bool,
    pub tare_version: String,
    pub kernel: Option<String>,
    /// Programs and their versions.
    pub versions: Vec<(String, String)>,
    /// `as found`, or what was tuned.
    pub tuning: String,
    #[serde(rename = "blocks")]
    pub rounds: u32,
    #[serde(skip)]
    pub(super) facts: Vec<(String, String, String)>,
    #[serde(skip)]
    pub(super) costs: Vec<EntryCost>,
    #[serde(skip)]
    doubts: Vec<EntryDoubt>,
}

/// The cost of an environment in one record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryCost {
    pub(super) workload: String,
    pub(super) environment: String,
    pub(super) metric: Figure,
    pub(super) control: bool,
    pub(super) cost: Cost,
    /// None for the control.
    pub(super) verdict: Option<Verdict>,
    /// The bound of the record's A/A control, in percent.
    pub(super) noise: Option<f64>,
}

/// A kind of doubt in one record.
#[derive(Clone, Debug, PartialEq)]
struct EntryDoubt {
    kind: &'static str,
    /// Environment and workload; `None` for a doubt about the whole record.
    about: Option<(String, String)>,
}

impl Entry {
    /// Takes what a history needs from a record.
    pub fn new(name: &str, record: &Record, analysis: &Analysis) -> Self {
        let side = Side { name, record, analysis };
        let facts = facts(&[side]).into_iter().filter_map(|mut fact| {
            let value = fact.values.pop()??;
            is_stable(&fact.section, &fact.key).then_some((fact.section, fact.key, value))
        });
        let of = |section: &'static str| {
            let facts = record.host.iter().filter(move |fact| fact.section == section);
            facts.map(|fact| (fact.key.clone(), fact.value.clone()))
        };
        let kernel = of("kernel").find(|(key, _)| key == "release").map(|(_, value)| value);
        let costs = analysis.findings.iter().filter(|finding| !finding.baseline);
        let costs = costs.flat_map(|finding| {
            Figure::ALL.map(|metric| EntryCost::new(analysis, finding, metric))
        });
        Self {
            name: name.to_string(),
            study: record.study.name.clone(),
            system: record.study.system.name.clone(),
            baseline: record.study.baseline.clone(),
            host: host_name(record).map(str::to_string),
            started_unix_ms: record.header.started_unix_ms,
            seed: record.header.seed,
            finished: record.header.ended_unix_ms.is_some(),
            tare_version: record.header.tare_version.clone(),
            kernel,
            versions: of("versions").collect(),
            tuning: tuning(record),
            rounds: analysis.rounds,
            facts: facts.collect(),
            costs: costs.flatten().collect(),
            doubts: doubts(record, analysis),
        }
    }

    /// The kinds of doubts about an environment under a workload, the gravest first.
    pub(super) fn doubts_about(&self, environment: &str, workload: &str) -> Vec<&'static str> {
        self.doubts_with(|about| {
            about.is_some_and(|(of, under)| of == environment && under == workload)
        })
    }

    /// The kinds of doubts about the whole record, the gravest first.
    pub(super) fn doubts_about_all(&self) -> Vec<&'static str> {
        self.doubts_with(|about| about.is_none())
    }

    fn doubts_with(&self, is: impl Fn(Option<&(String, String)>) -> bool) -> Vec<&'static str> {
        let found = self.doubts.iter().filter(|doubt| is(doubt.about.as_ref()));
        let mut kinds: Vec<&'static str> = found.map(|doubt| doubt.kind).collect();
        kinds.dedup();
        kinds
    }

    /// Whether both are copies of one run.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        self.started_unix_ms == other.started_unix_ms && self.seed == other.seed
    }
}

impl EntryCost {
    fn new(analysis: &Analysis, finding: &Finding, metric: Figure) -> Option<Self> {
        let (cost, verdict, noise) = metric.of(analysis, finding)?;
        Some(Self {
            workload: finding.workload.clone(),
            environment: finding.environment.clone(),
            metric,
            control: finding.control,
            cost,
            verdict,
            noise,
        })
    }
}

/// The doubts of a record, the gravest kind first.
fn doubts(record: &Record, analysis: &Analysis) -> Vec<EntryDoubt> {
    let groups = DoubtGroups::of(record, analysis).0.into_iter();
    let of = |group: DoubtGroup| {
        let kind = group.kind;
        group
            .seen
            .into_iter()
            .map(move |seen| EntryDoubt { kind, about: seen.environment.zip(seen.workload) })
    };
    groups.flat_map(of).collect()
}

/// Whether a fact is one of the host or the study that should stay the same.
fn is_stable(section: &str, key: &str) -> bool {
    let passing = PASSING.contains(&(section, key)) || section == "probes";
    let measured = section.starts_with("workload ") && key == "load";
    let found = key.starts_with("found ") && !CHOSEN.contains(&key);
    !passing && !measured && !found
}

/// How the host was tuned, in a few words.
fn tuning(record: &Record) -> String {
    let changes = record.host.iter().filter(|fact| fact.section == TUNING_FACTS);
    let groups: Vec<&str> =
        changes.filter_map(|fact| fact.key.strip_prefix("changes of ")).collect();
    let tuned = record.environments.iter().filter(|one| !one.spec.host.is_as_is()).count();
    if tuned == 0 {
        return "as found".to_string();
    }
    let plural = if tuned == 1 { "" } else { "s" };
    let of = if groups.is_empty() { String::new() } else { format!(": {}", groups.join(", ")) };
    format!("{tuned} environment{plural} tuned{of}")
}

/// A fact that differs between two records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FactChange {
    pub section: String,
    pub key: String,
    /// `None` if the older record has no such fact.
    pub from: Option<String>,
    pub to: Option<String>,
}

impl FactChange {
    /// `kernel release 6.1.0 → 6.6.0`
    pub(crate) fn text(&self) -> String {
        let value = |value: &Option<String>| {
            value.as_deref().map_or_else(|| "none".to_string(), |text| shorten(&clean(text), VALUE))
        };
        let (from, to) = (value(&self.from), value(&self.to));
        format!("{} {} {from} \u{2192} {to}", clean(&self.section), clean(&self.key))
    }
}

/// The changes before each record. The first has none.
pub(super) fn steps(records: &[Entry]) -> Vec<Vec<FactChange>> {
    let first = std::iter::once(Vec::new());
    first
        .chain(records.windows(2).map(|pair| between(&pair[0].facts, &pair[1].facts)))
        .take(records.len())
        .collect()
}

type FactRow = (String, String, String);

fn between(old: &[FactRow], new: &[FactRow]) -> Vec<FactChange> {
    let value = |facts: &[FactRow], (section, key, _): &FactRow| {
        let found = facts.iter().find(|(s, k, _)| s == section && k == key);
        found.map(|(_, _, value)| value.clone())
    };
    let gone = old.iter().filter(|fact| value(new, fact).is_none());
    let mut changes: Vec<FactChange> = new
        .iter()
        .chain(gone)
        .map(|fact| FactChange {
            section: fact.0.clone(),
            key: fact.1.clone(),
            from: value(old, fact),
            to: value(new, fact),
        })
        .filter(|change| change.from != change.to)
        .filter(|change| {
            let both = change.from.is_some() && change.to.is_some();
            both || OPTIONAL.contains(&change.section.as_str())
        })
        .collect();
    changes.sort_by_key(|change| (rank(&change.section), change.key != "release"));
    changes
}

/// What usually matters most comes first.
fn rank(section: &str) -> usize {
    const ORDER: [&str; 8] =
        ["kernel", "versions", "cpu", "mitigations", "sysctl", TUNING_FACTS, "network", "memory"];
    ORDER.iter().position(|known| *known == section).unwrap_or(ORDER.len())
}
