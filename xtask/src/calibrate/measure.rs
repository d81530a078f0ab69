//! Runs one campaign: the built program runs a study, and its record is compared with the truth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use tare_lab::analysis::claims::{CostKind, verdict};
use tare_lab::analysis::{Analysis, Cost, Finding, Interval, analyse, analyse_costs};
use tare_lab::doubt::Doubt;
use tare_lab::record::{Phase, Record};
use tare_lab::study::control_name;
use tare_stats::law::Verdict;

use super::burners::Burners;
use super::line::{Figure, Line};
use super::neighbour::Neighbour;
use super::studies::{self, BASELINE, FULL, Kind, KnownCost, QUESTIONS, Truth};

/// Runs campaigns with one program in one directory.
#[derive(Debug)]
pub(crate) struct CampaignRunner {
    program: PathBuf,
    /// A directory for studies, records and state. The caller removes it.
    folder: PathBuf,
    /// Server CPU per operation of the baseline without an injected cost, µs.
    pub(crate) baseline_us: f64,
    /// The CPUs that the program gives the system.
    system_cpus: String,
}

/// A campaign to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Campaign {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) seed: u64,
    pub(crate) budget: Duration,
}

impl CampaignRunner {
    /// Measures the baseline before any cost is injected.
    pub(crate) fn open(program: PathBuf, folder: PathBuf, seed: u64) -> anyhow::Result<Self> {
        let mut bench = Self { program, folder, baseline_us: 0.0, system_cpus: String::new() };
        let record = bench.weigh(&studies::baseline().text, seed)?;
        let analysis = analyse_costs(&record);
        let native = finding(&analysis, BASELINE)?.server_cpu_us;
        bench.baseline_us = native.context("the baseline gave no figure")?.value;
        bench.system_cpus = record.cpu_plan.system.to_string();
        Ok(bench)
    }

    /// Runs a campaign.
    pub(crate) fn run(&self, campaign: Campaign) -> anyhow::Result<Vec<Line>> {
        let load = load_average();
        let begun = Instant::now();
        let mut lines = match campaign.kind {
            Kind::Explain => self.explain(campaign)?,
            _ => self.costs(campaign)?,
        };
        let seconds = begun.elapsed().as_secs_f64();
        for line in &mut lines {
            (line.seconds, line.load) = (seconds, load);
        }
        Ok(lines.into_iter().map(Line::rounded).collect())
    }

    fn costs(&self, campaign: Campaign) -> anyhow::Result<Vec<Line>> {
        let planned = studies::plan(campaign.kind, self.baseline_us, campaign.budget);
        let neighbour = match campaign.kind {
            Kind::Noise => Some(Neighbour::start(&self.system_cpus)?),
            _ => None,
        };
        let burners = match campaign.kind.burners() {
            Some((count, place)) => Some(Burners::start(count, place)?),
            None => None,
        };
        let record = self.weigh(&planned.text, campaign.seed)?;
        drop((neighbour, burners));
        let analysis = analyse(&record);
        let mut lines = Vec::new();
        let control = KnownCost {
            name: control_name(BASELINE),
            inject: "nothing".to_string(),
            truth: match campaign.kind {
                Kind::Quota => Truth::ThroughputPercent(0.0),
                Kind::Delay => Truth::LatencyUs(0.0),
                _ => Truth::CpuNs(0),
            },
        };
        let rate = KnownCost { truth: Truth::ThroughputPercent(0.0), ..control.clone() };
        let rate = campaign.kind.has_same_layers().then_some(&rate);
        // Without an engine its environment is left out.
        let left_out = |name: &str| {
            record.environments.iter().any(|one| one.spec.name == name && one.left_out.is_some())
        };
        for known in std::iter::once(&control).chain(rate).chain(&planned.known) {
            if !left_out(&known.name) {
                lines.push(line(campaign, &record, &analysis, known)?);
            }
        }
        Ok(lines)
    }

    fn explain(&self, campaign: Campaign) -> anyhow::Result<Vec<Line>> {
        let question = &QUESTIONS[campaign.number as usize % QUESTIONS.len()];
        let text = studies::question(question, campaign.budget);
        let (study, record) = self.files(&text)?;
        let mut command = self.command(&["explain"], campaign.seed, &record);
        command.args(["--from", BASELINE, "--to", FULL, "--json"]).arg(&study);
        let output = command.stderr(Stdio::piped()).output().context("cannot start tare")?;
        if !output.status.success() {
            bail!("tare explain failed: {}", tail(&output.stderr));
        }
        let report: Value =
            serde_json::from_slice(&output.stdout).context("tare explain wrote no JSON")?;
        let found = &report["workloads"][0]["explanation"];
        let shares =
            found["shares"].as_array().context("no round was complete; give it a longer budget")?;
        let share = shares.iter().find(|share| share["name"] == "inject");
        let share = share.context("the injected layer has no share")?;
        let us: Interval =
            serde_json::from_value(share["us"].clone()).context("a share without interval")?;
        let claimed = share["verdict"] == "costs";
        let baseline = us.value * 100.0 / share["percent_of_from"].as_f64().unwrap_or(f64::NAN);
        let doubts = report["doubts"].as_array().into_iter().flatten();
        let doubts = doubts.filter_map(|doubt| Some((doubt["kind"].as_str()?.to_string(), 0)));
        Ok(vec![Line {
            figure: Figure::ShareUs,
            named: shares[0]["name"].as_str().map(str::to_string),
            doubts: doubts.collect(),
            ..new(
                campaign,
                question.name,
                question.inject,
                question.truth_us,
                us,
                claimed,
                baseline,
            )
        }])
    }

    /// Runs a study to its end and reads its record.
    fn weigh(&self, text: &str, seed: u64) -> anyhow::Result<Record> {
        let (study, record) = self.files(text)?;
        let mut command = self.command(&["weigh", "--progress", "lines"], seed, &record);
        let output = command.arg(&study).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.context("cannot start tare")?;
        if !output.status.success() {
            bail!("tare weigh failed: {}", tail(&output.stderr));
        }
        Ok(Record::read(&record)?)
    }

    fn files(&self, text: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let study = self.folder.join("study.toml");
        let record = self.folder.join("record.tare");
        fs::write(&study, text).with_context(|| format!("cannot write {}", study.display()))?;
        for old in ["record.tare", "record.html"] {
            match fs::remove_file(self.folder.join(old)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("cannot remove the last record");
                }
                _ => {}
            }
        }
        Ok((study, record))
    }

    fn command(&self, words: &[&str], seed: u64, record: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        command.arg("--state").arg(self.folder.join("state"));
        command.args(["--seed", &seed.to_string()]).arg("--output").arg(record);
        command
    }
}

fn finding<'a>(analysis: &'a Analysis, name: &str) -> anyhow::Result<&'a Finding> {
    let found = analysis.findings.iter().find(|finding| finding.environment == name);
    found.with_context(|| format!("the record has no finding about {name:?}"))
}

/// The line of results of one environment.
fn line(
    campaign: Campaign,
    record: &Record,
    analysis: &Analysis,
    known: &KnownCost,
) -> anyhow::Result<Line> {
    let here = finding(analysis, &known.name)?;
    let native = finding(analysis, BASELINE)?;
    let level = |interval: Option<Interval>| interval.map_or(f64::NAN, |one| one.value);
    let (figure, truth, percent, baseline, kind) = match known.truth {
        Truth::CpuNs(ns) => {
            let us = level(native.server_cpu_us);
            let truth = Some(ns as f64 / 10.0 / us);
            let cost = cost(here.server_cpu_cost.as_ref())?;
            (Figure::CpuPercent, truth, cost, us, Some(CostKind::ServerCpu))
        }
        Truth::Filter(_) => {
            let us = level(native.server_cpu_us);
            let cost = cost(here.server_cpu_cost.as_ref())?;
            (Figure::CpuPercent, None, cost, us, Some(CostKind::ServerCpu))
        }
        Truth::ThroughputPercent(percent) => {
            let rate = level(native.throughput_per_s);
            let lost = cost(here.throughput_cost.as_ref())?;
            let truth = lost_to_quota(100.0 - percent, used_percent(record));
            (Figure::ThroughputPercent, Some(truth), lost, rate, Some(CostKind::Throughput))
        }
        Truth::LatencyUs(us) => {
            let (later, median_us) = latency(here, native)?;
            (Figure::LatencyUs, Some(us), later, median_us, None)
        }
    };
    // No verdict is about the difference of two medians of service time.
    let claimed = match kind {
        Some(kind) => is_claimed(analysis, here, kind),
        None => (percent.low > 0.0 || percent.high < 0.0) && !control_reaches(here),
    };
    let claimed_after_s =
        kind.filter(|_| claimed).and_then(|kind| claimed_after(record, &known.name, kind));
    let doubts = here.doubts.iter().map(|(doubt, slices)| (doubt.kind().to_string(), *slices));
    Ok(Line {
        figure,
        claimed_after_s,
        doubts: doubts.collect(),
        slices: here.slices + here.slices_void,
        ..new(campaign, &known.name, &known.inject, truth, percent, claimed, baseline)
    })
}

/// Whether Tare claims a cost. The control has no verdict of its own: a difference that is found in
/// it counts as one, because it may be none.
fn is_claimed(analysis: &Analysis, finding: &Finding, kind: CostKind) -> bool {
    if finding.control {
        return kind.cost(finding).is_some_and(|cost| cost.found && cost.percent.is_bounded());
    }
    verdict(analysis, finding, kind).is_some_and(Verdict::is_claim)
}

/// Whether the control differs from the baseline by as much as the environment.
fn control_reaches(finding: &Finding) -> bool {
    finding.doubts.iter().any(|(doubt, _)| matches!(doubt, Doubt::ControlBeyondClaim { .. }))
}

fn new(
    campaign: Campaign,
    environment: &str,
    inject: &str,
    truth: Option<f64>,
    found: Interval,
    claimed: bool,
    baseline: f64,
) -> Line {
    let bound = |x: f64| x.is_finite().then_some(x);
    Line {
        kind: campaign.kind.name().to_string(),
        campaign: campaign.number,
        environment: environment.to_string(),
        inject: inject.to_string(),
        figure: Figure::CpuPercent,
        truth,
        value: found.value,
        low: bound(found.low),
        high: bound(found.high),
        blocks: found.rounds,
        contains: truth.map(|truth| (found.low..=found.high).contains(&truth)),
        claimed,
        claimed_after_s: None,
        named: None,
        doubts: Vec::new(),
        slices: 0,
        baseline,
        seconds: 0.0,
        seed: campaign.seed,
        load: 0.0,
    }
}

fn cost(cost: Option<&Cost>) -> anyhow::Result<Interval> {
    cost.map(|cost| cost.percent)
        .context("the campaign was too short for a cost; give it a longer budget")
}

/// How many times a record is cut to find when a cost was claimed.
const CUTS: u32 = 60;

/// The seconds from which on the cost was always claimed. The record is cut shorter and shorter to
/// find them.
fn claimed_after(record: &Record, name: &str, kind: CostKind) -> Option<f64> {
    let mut short = record.clone();
    for slice in &mut short.slices {
        (slice.response, slice.service) = (Vec::new(), Vec::new());
    }
    let rounds = short.slices.iter().map(|slice| slice.round).max()?;
    let mut since = None;
    for last in (0..=rounds).rev().step_by((rounds / CUTS).max(1) as usize) {
        short.slices.retain(|slice| slice.round <= last);
        let analysis = analyse_costs(&short);
        let here = analysis.findings.iter().find(|finding| finding.environment == name);
        if !here.is_some_and(|finding| is_claimed(&analysis, finding, kind)) {
            break;
        }
        since = short.slices.iter().map(|slice| slice.started_unix_ms).max();
    }
    Some(since?.saturating_sub(record.header.started_unix_ms) as f64 / 1000.0)
}

/// The percentage of throughput that a system loses under a quota of `quota` percent of the CPUs,
/// if it uses `used` percent of them without one.
fn lost_to_quota(quota: f64, used: f64) -> f64 {
    if used > quota { 100.0 * (1.0 - quota / used) } else { 0.0 }
}

/// The percentage of its CPUs that the baseline used at capacity: all but the time of interrupts
/// and kernel threads. The kernel counts it like a quota.
fn used_percent(record: &Record) -> f64 {
    let at_capacity = record.slices.iter().filter(|slice| {
        slice.phase == Phase::Capacity && slice.void.is_none() && slice.environment == BASELINE
    });
    let (used, had) = at_capacity.fold((0.0, 0.0), |(used, had), slice| {
        (used + slice.system_cpu_ns as f64, had + slice.window_ns as f64)
    });
    100.0 * used / (had * record.cpu_plan.system.len() as f64)
}

/// The difference of the median service time from the baseline's, counted from the send, and the
/// baseline's median. Both are in µs.
fn latency(here: &Finding, native: &Finding) -> anyhow::Result<(Interval, f64)> {
    let median = |finding: &Finding| finding.service.as_ref()?.percentile(50.0).cloned();
    let us = |ns: f64| ns / 1000.0;
    let level =
        median(native).and_then(|median| median.ns).context("the baseline has no latency")?;
    let later = match here.baseline {
        true => None,
        false => median(here).and_then(|median| median.over_baseline),
    };
    let later = later.context("the campaign was too short for a latency")?.difference_ns;
    let Interval { value, low, high, rounds } = later;
    Ok((Interval { value: us(value), low: us(low), high: us(high), rounds }, us(level.value)))
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// The last five lines of a program's output.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::lost_to_quota;

    #[test]
    fn quota_takes_only_used_cpu() {
        assert!((lost_to_quota(90.0, 100.0) - 10.0).abs() < 1e-9);
        assert!((lost_to_quota(90.0, 98.0) - 8.163).abs() < 1e-3);
        assert!(lost_to_quota(99.0, 98.5).abs() < 1e-9, "nothing is taken from what was not used");
        assert!(lost_to_quota(100.0, 99.0).abs() < 1e-9);
    }
}
