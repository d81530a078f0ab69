//! Doubts in reports: each kind has a number, which marks the affected figures, and one entry in a
//! list below. Text and advice come from [`Doubt::text`] and [`Doubt::advice`]; this module adds a
//! heading and a short form for the terminal.
//!
//! The order is by affected slices times gravity. A doubt about the whole record affects all
//! slices.

use tare_lab::analysis::Analysis;
use tare_lab::doubt::Doubt;
use tare_lab::record::Record;
use tare_std::units::significant;

use crate::figures::clean;

/// Most environments that one line names; it prints the number of the others.
const NAMED: usize = 3;

/// All doubts of one kind: number, texts and occurrences.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DoubtGroup {
    /// From 1, the gravest first.
    pub(crate) number: usize,
    /// The `kind` of the record's JSON.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) advice: String,
    pub(crate) short_advice: &'static str,
    /// Where the kind of doubt occurred.
    pub(crate) seen: Vec<DoubtOccurrence>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DoubtOccurrence {
    pub(crate) environment: Option<String>,
    pub(crate) workload: Option<String>,
    pub(crate) doubt: Doubt,
    /// Slices that it affects; 0 for a doubt about the whole record.
    pub(crate) slices: u32,
    /// Slices of this environment under this workload.
    of: u32,
}

impl DoubtGroup {
    /// One line for each text, with all environments that share it.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for seen in &self.seen {
            let text = seen.doubt.text();
            let detail = match seen.slices {
                0 => text,
                1 => format!("{text} (1 slice)"),
                slices => format!("{text} ({slices} slices)"),
            };
            let place = seen.environment.clone().unwrap_or_default();
            match lines.iter_mut().find(|(known, _)| *known == detail) {
                Some((_, places)) if places.contains(&place) => {}
                Some((_, places)) => places.push(place),
                None => lines.push((detail, vec![place])),
            }
        }
        let line = |(detail, places): (String, Vec<String>)| {
            let places: Vec<String> = places.into_iter().filter(|p| !p.is_empty()).collect();
            let text =
                if places.is_empty() { detail } else { format!("{}: {detail}", places.join(", ")) };
            clean(&text)
        };
        lines.into_iter().map(line).collect()
    }

    /// The short form: the worst doubt, then the environments by affected slices. Doubts that
    /// differ only in size share a line.
    pub(crate) fn brief(&self) -> Vec<String> {
        let mut groups: Vec<(&Doubt, Vec<&DoubtOccurrence>)> = Vec::new();
        for seen in &self.seen {
            let sized = size(&seen.doubt).is_some();
            let known = |d: &Doubt| sized || brief_text(d) == brief_text(&seen.doubt);
            match groups.iter_mut().find(|(doubt, _)| known(doubt)) {
                Some((worst, all)) => {
                    if size(&seen.doubt) > size(worst) {
                        *worst = &seen.doubt;
                    }
                    all.push(seen);
                }
                None => groups.push((&seen.doubt, vec![seen])),
            }
        }
        let line = |(worst, seen): (&Doubt, Vec<&DoubtOccurrence>)| {
            let text = brief_text(worst);
            let places = places(&seen);
            clean(&if places.is_empty() { text } else { format!("{text}: {places}") })
        };
        groups.into_iter().map(line).collect()
    }

    /// Affected slices times gravity. `all`: the number of slices in the record.
    fn weight(&self, all: u32) -> u64 {
        let touched =
            |seen: &DoubtOccurrence| u64::from(if seen.slices == 0 { all } else { seen.slices });
        let doubt = self.seen.first().map(|seen| &seen.doubt);
        self.seen.iter().map(touched).sum::<u64>() * doubt.map_or(0, gravity)
    }
}

/// `native 76, + no seccomp 75, native again 74, 4 more, of 76 slices`.
fn places(seen: &[&DoubtOccurrence]) -> String {
    // The same environment under several workloads is one place.
    let mut places: Vec<(&str, u32, u32)> = Vec::new();
    for seen in seen {
        let Some(name) = seen.environment.as_deref() else { continue };
        match places.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, slices, of)) => {
                *slices += seen.slices;
                *of += seen.of;
            }
            None => places.push((name, seen.slices, seen.of)),
        }
    }
    let Some(&(_, slices, of)) = places.first() else { return String::new() };
    let alike = places.iter().all(|place| place.1 == slices);
    let named = |(name, count, _): &(&str, u32, u32)| {
        if alike { (*name).to_string() } else { format!("{name} {count}") }
    };
    places.sort_by_key(|place| std::cmp::Reverse(place.1));
    let shown = if places.len() == NAMED + 1 { NAMED + 1 } else { NAMED };
    let mut text = places.iter().take(shown).map(named).collect::<Vec<_>>().join(", ");
    if places.len() > shown {
        text.push_str(&format!(", {} more", places.len() - shown));
    }
    let most = places.iter().map(|place| place.2).max().unwrap_or(of);
    match (slices, alike) {
        (0, true) => text,
        (slices, true) if places.len() > 1 => format!("{text}, {slices} of {most} slices each"),
        (slices, true) => format!("{text}, {slices} of {most} slices"),
        _ => format!("{text}, of {most} slices"),
    }
}

/// All doubts of an analysis by kind, the gravest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct DoubtGroups(pub(crate) Vec<DoubtGroup>);

impl DoubtGroups {
    pub(crate) fn of(record: &Record, analysis: &Analysis) -> DoubtGroups {
        let mut marks = DoubtGroups::default();
        let listed = |doubt: &Doubt| match doubt {
            // Reports list these separately, with the reasons.
            Doubt::EnvironmentLeftOut { environment, .. } => record
                .environments
                .iter()
                .any(|e| e.left_out.is_some() && e.spec.name == *environment),
            _ => false,
        };
        for doubt in analysis.doubts.iter().filter(|doubt| !listed(doubt)) {
            let doubt = doubt.clone();
            marks.add(DoubtOccurrence {
                environment: None,
                workload: None,
                doubt,
                slices: 0,
                of: 0,
            });
        }
        let mut all = 0;
        for finding in &analysis.findings {
            let of = finding.slices + finding.slices_void;
            all += of;
            for (doubt, slices) in &finding.doubts {
                marks.add(DoubtOccurrence {
                    environment: Some(finding.environment.clone()),
                    workload: Some(finding.workload.clone()),
                    doubt: doubt.clone(),
                    slices: *slices,
                    of,
                });
            }
        }
        marks.0.sort_by_key(|mark| std::cmp::Reverse(mark.weight(all)));
        for (index, mark) in marks.0.iter_mut().enumerate() {
            mark.number = index + 1;
        }
        marks
    }

    fn add(&mut self, seen: DoubtOccurrence) {
        match self.0.iter_mut().find(|mark| mark.kind == seen.doubt.kind()) {
            Some(mark) if mark.seen.contains(&seen) => {}
            Some(mark) => mark.seen.push(seen),
            None => self.0.push(DoubtGroup {
                number: 0,
                kind: seen.doubt.kind(),
                title: title(&seen.doubt),
                advice: sentence(seen.doubt.advice()),
                short_advice: short_advice(&seen.doubt),
                seen: vec![seen],
            }),
        }
    }

    /// Numbers of the doubts about one environment under one workload, ascending.
    pub(crate) fn numbers(&self, environment: &str, workload: &str) -> Vec<usize> {
        let about = |seen: &DoubtOccurrence| {
            seen.environment.as_deref() == Some(environment)
                && seen.workload.as_deref().is_none_or(|w| w == workload)
        };
        self.0.iter().filter(|mark| mark.seen.iter().any(about)).map(|mark| mark.number).collect()
    }
}

/// How much a doubt weakens the affected figures: 3, they may measure something else; 2, they are
/// biased; 1, they are noisier.
fn gravity(doubt: &Doubt) -> u64 {
    match doubt {
        Doubt::ClientSaturated { .. }
        | Doubt::NeitherSaturated { .. }
        | Doubt::OperationErrors { .. }
        | Doubt::LayerNotInForce { .. }
        | Doubt::LinkFilled { .. }
        | Doubt::ControlBeyondClaim { .. }
        | Doubt::BaselineNotClean { .. }
        | Doubt::Emulated { .. }
        | Doubt::NoPollingAccount { .. }
        | Doubt::UserModeKernel { .. }
        | Doubt::FewRounds { .. } => 3,
        Doubt::ClientSharesCpus { .. }
        | Doubt::ClientSharesCores { .. }
        | Doubt::Throttled { .. }
        | Doubt::RateNotReached { .. }
        | Doubt::ReadsNotFromDisk { .. }
        | Doubt::NodeBehind { .. }
        | Doubt::IoEngineDiffers { .. }
        | Doubt::SentLate { .. }
        | Doubt::NotSteady { .. }
        | Doubt::NotMadeSteady { .. }
        | Doubt::EmptySlices { .. }
        | Doubt::StillWarming { .. }
        | Doubt::LoaderSaturated { .. }
        | Doubt::CoordinatedOmission { .. } => 2,
        Doubt::Steal { .. }
        | Doubt::NoCardInPath { .. }
        | Doubt::Strangers { .. }
        | Doubt::BackgroundWork { .. }
        | Doubt::LatencyBeyondWindow { .. }
        | Doubt::NodeReadLate { .. }
        | Doubt::ProbeFailed { .. }
        | Doubt::LoaderLate { .. }
        | Doubt::LoaderClock { .. }
        | Doubt::EnvironmentLeftOut { .. }
        | Doubt::NotFrozen { .. }
        | Doubt::NoRuntimeControl { .. } => 1,
    }
}

/// The size by which doubts of one kind are compared; `None` if they differ in more than a size.
fn size(doubt: &Doubt) -> Option<f64> {
    match doubt {
        Doubt::Steal { share }
        | Doubt::Strangers { share }
        | Doubt::LinkFilled { share }
        | Doubt::Throttled { share } => Some(*share),
        Doubt::ClientSaturated { share, busiest_thread_share } => {
            Some(Doubt::client_use(*share, *busiest_thread_share))
        }
        Doubt::BackgroundWork { share, .. } => *share,
        Doubt::NeitherSaturated { system_share, .. } => Some(-*system_share),
        Doubt::NodeBehind { share, .. } => Some(-*share),
        Doubt::NodeReadLate { share, .. } => Some(*share),
        Doubt::RateNotReached { asked_per_s, reached_per_s } => {
            Some(1.0 - reached_per_s / asked_per_s)
        }
        Doubt::ReadsNotFromDisk { asked_share, found_share } => {
            Some((asked_share - found_share).abs())
        }
        Doubt::FewRounds { rounds: blocks } => Some(-f64::from(*blocks)),
        Doubt::EmptySlices { slices, of } => Some(f64::from(*slices) / f64::from((*of).max(1))),
        Doubt::SentLate { late_share, .. } => Some(*late_share),
        Doubt::StillWarming { percent, .. } => Some(*percent),
        _ => None,
    }
}

/// The doubt in the fewest words.
fn brief_text(doubt: &Doubt) -> String {
    let percent = |share: &f64| format!("{} %", significant(share * 100.0, 2));
    match doubt {
        Doubt::Steal { share } => format!("hypervisor took {} of the CPUs", percent(share)),
        Doubt::Strangers { share } => {
            format!("other processes used {} of the CPUs", percent(share))
        }
        Doubt::ClientSaturated { share, busiest_thread_share: None } => {
            format!("client saturated, {} of its CPUs", percent(share))
        }
        Doubt::ClientSaturated { busiest_thread_share: Some(thread), .. } => {
            format!("client saturated, {} of a CPU by its busiest thread", percent(thread))
        }
        Doubt::NeitherSaturated { system_share, client_share } => format!(
            "too little load: {} of the system's CPUs and {} of the client's busy",
            percent(system_share),
            percent(client_share)
        ),
        Doubt::LinkFilled { share } => format!("the load used {} of the link", percent(share)),
        Doubt::NoCardInPath { loader, what } => {
            format!("no network card in the path from {loader}, but a {what}")
        }
        Doubt::ClientSharesCpus { cpus } => format!("client and system share CPU {cpus}"),
        Doubt::ClientSharesCores { cpus } => {
            format!("client and system share cores, CPUs {cpus}")
        }
        Doubt::Throttled { share } => {
            format!("CPU quota throttled {} of the time", percent(share))
        }
        Doubt::BackgroundWork { work, share: None } => format!("background work: {work}"),
        Doubt::BackgroundWork { work, share: Some(share) } => {
            format!("background work, {work}, took {} of the time", percent(share))
        }
        Doubt::RateNotReached { asked_per_s, reached_per_s } => {
            format!("fixed rate not reached, {reached_per_s:.0} of {asked_per_s:.0} op/s")
        }
        Doubt::ReadsNotFromDisk { asked_share, found_share } => {
            format!("{} of reads from disk, asked {}", percent(found_share), percent(asked_share))
        }
        Doubt::NoPollingAccount { .. } => "polls without an account of its busy time".into(),
        Doubt::NodeBehind { node, share } => {
            format!("node {node} used {} of the CPU time of the others", percent(share))
        }
        Doubt::NodeReadLate { node, share } => {
            format!("node {node} read {} of the window late", percent(share))
        }
        Doubt::SentLate { late_share, .. } => {
            format!("client sent {} of the operations late", percent(late_share))
        }
        Doubt::OperationErrors { error, count, .. } => {
            format!("{count} operations failed ({error})")
        }
        Doubt::LayerNotInForce { layer, wanted, found } => {
            format!("layer {layer} not in force, wanted {wanted}, found {found}")
        }
        Doubt::IoEngineDiffers { baseline, here } => {
            format!("I/O by {here}, in the baseline by {baseline}")
        }
        Doubt::Emulated { accelerator } => {
            format!("CPU emulated, functional only, not a measurement ({accelerator})")
        }
        Doubt::UserModeKernel { .. } => {
            "user-mode kernel, its costs are not those of a virtual machine".into()
        }
        Doubt::NotSteady { workload, criterion, waited_s } => {
            format!("not steady under {workload} ({criterion}) after {waited_s} s")
        }
        Doubt::CoordinatedOmission { driver } => {
            format!("{driver} omits waiting from its latency at the fixed rate")
        }
        Doubt::LatencyBeyondWindow { driver } => {
            format!("{driver}'s latency covers its whole run")
        }
        Doubt::LoaderLate { loader, share } => {
            format!("window of {loader} away by {}", percent(share))
        }
        Doubt::LoaderClock { loader, share } => {
            format!("clock of {loader} known to {} of the window", percent(share))
        }
        Doubt::LoaderSaturated { loader, waited_share: Some(waited), .. } => {
            format!("loader {loader} waited for a CPU {} of the time", percent(waited))
        }
        Doubt::LoaderSaturated { loader, share, .. } => {
            format!("loader {loader} saturated, {} of its CPUs or of one", percent(share))
        }
        Doubt::EmptySlices { slices, of } => {
            format!("no operation ended in {slices} of {of} slices")
        }
        Doubt::StillWarming { percent, warm_up_s } => warming_text(*percent, *warm_up_s),
        Doubt::NoRuntimeControl { runtime, .. } => format!("no control of the runtime {runtime}"),
        Doubt::FewRounds { rounds: blocks } => format!("only {}", crate::figures::rounds(*blocks)),
        Doubt::ControlBeyondClaim { .. }
        | Doubt::BaselineNotClean { .. }
        | Doubt::ProbeFailed { .. }
        | Doubt::NotFrozen { .. }
        | Doubt::NotMadeSteady { .. }
        | Doubt::EnvironmentLeftOut { .. } => doubt.text(),
    }
}

fn warming_text(percent: f64, warm_up_s: Option<f64>) -> String {
    let after = warm_up_s.map(|s| format!(", after a warm_up of {} s", significant(s, 2)));
    format!("throughput rose by {percent:.0} % during the rounds{}", after.unwrap_or_default())
}

/// The advice in the fewest words.
fn short_advice(doubt: &Doubt) -> &'static str {
    match doubt {
        Doubt::Steal { .. } => "Trust CPU before throughput.",
        Doubt::Strangers { .. } => "Stop what else runs here and repeat.",
        Doubt::ClientSaturated { busiest_thread_share: None, .. } => {
            "Throughput is a lower bound; give it more CPUs."
        }
        Doubt::ClientSaturated { .. } => "Throughput is a lower bound; give it more threads.",
        Doubt::NeitherSaturated { .. } => "No capacity; use load = \"saturate\" or more clients.",
        Doubt::LinkFilled { .. } => "Throughput is the link's; compare CPU per operation.",
        Doubt::NoCardInPath { .. } => "Says nothing about cards and their interrupts.",
        Doubt::ClientSharesCpus { .. } => "The client causes part of the cost.",
        Doubt::ClientSharesCores { .. } => "Each slows the other down; give both whole cores.",
        Doubt::Throttled { .. } => "Raise the quota, or count this as its cost.",
        Doubt::BackgroundWork { .. } => "Part of these figures; compare how often it ran.",
        Doubt::RateNotReached { .. } => "Latency of an overloaded system; lower the rate.",
        Doubt::NoPollingAccount { .. } => "Its CPU time is that of polling; compare the rest.",
        Doubt::ReadsNotFromDisk { .. } => "Change the rows, or the memory of the system.",
        Doubt::NodeBehind { .. } => "The sum hides an uneven cluster; see its log.",
        Doubt::NodeReadLate { .. } => "Use a longer window, or a faster line.",
        Doubt::SentLate { .. } => "Latency is partly the client's; give it more CPUs.",
        Doubt::OperationErrors { .. } => "See the system's log.",
        Doubt::LayerNotInForce { .. } => "These slices do not count; see `tare doctor`.",
        Doubt::ControlBeyondClaim { .. } => "Claim no cost of that size; measure longer.",
        Doubt::BaselineNotClean { .. } => "Real costs are larger than shown.",
        Doubt::IoEngineDiffers { .. } => "security = \"default+io_uring\" separates its part.",
        Doubt::Emulated { .. } => "Read no cost from it; take a host with KVM.",
        Doubt::UserModeKernel { .. } => "Read no cost of a virtual machine from it.",
        Doubt::NotSteady { .. } => {
            "Figures may drift; raise steadystate_limit or steadystate_rounds."
        }
        Doubt::NotMadeSteady { .. } => "A worn disk may be slower; set steadystate = \"snia\".",
        Doubt::CoordinatedOmission { .. } => "Its percentiles are lower bounds.",
        Doubt::LatencyBeyondWindow { .. } => "Compare its percentiles between environments only.",
        Doubt::ProbeFailed { .. } => "Doubts that rest on this probe are missing.",
        Doubt::FewRounds { .. } => "Use a larger budget or more rounds.",
        Doubt::EnvironmentLeftOut { .. } => "See `tare doctor`.",
        Doubt::LoaderLate { .. } => "Use a longer window.",
        Doubt::LoaderClock { .. } => "Use a longer window or a shorter line.",
        Doubt::LoaderSaturated { .. } => "Throughput is a lower bound; add a [[loader]].",
        Doubt::EmptySlices { .. } => "Throughput is worse than shown; use a longer window.",
        Doubt::StillWarming { warm_up_s: None, .. } => {
            "Not the cost of a warm system; give the schedule a warm_up."
        }
        Doubt::StillWarming { .. } => {
            "Not the cost of a warm system; give the schedule a longer warm_up."
        }
        Doubt::NotFrozen { .. } => "Give each its own CPUs, or measure one alone.",
        Doubt::NoRuntimeControl { .. } => "Small differences may be the runtime's set-up.",
    }
}

/// The heading of a kind of doubt.
fn title(doubt: &Doubt) -> &'static str {
    match doubt {
        Doubt::Steal { .. } => "Steal time",
        Doubt::Strangers { .. } => "Other processes on the CPUs",
        Doubt::ClientSaturated { .. } => "Client saturated",
        Doubt::NeitherSaturated { .. } => "Too little load",
        Doubt::LinkFilled { .. } => "The load filled the link",
        Doubt::NoCardInPath { .. } => "No network card in the path",
        Doubt::ClientSharesCpus { .. } => "Client and system shared CPUs",
        Doubt::ClientSharesCores { .. } => "Client and system shared cores",
        Doubt::Throttled { .. } => "CPU quota throttled the system",
        Doubt::BackgroundWork { .. } => "The system worked in the background",
        Doubt::RateNotReached { .. } => "Fixed rate not reached",
        Doubt::NoPollingAccount { .. } => "No account of polling",
        Doubt::ReadsNotFromDisk { .. } => "Another share of reads from disk",
        Doubt::NodeBehind { .. } => "A node did less than the others",
        Doubt::NodeReadLate { .. } => "A node was read late",
        Doubt::SentLate { .. } => "Client sent operations late",
        Doubt::OperationErrors { .. } => "Operations failed",
        Doubt::LayerNotInForce { .. } => "Layer not in force",
        Doubt::ControlBeyondClaim { .. } => "Both copies of the baseline differ",
        Doubt::BaselineNotClean { .. } => "The host's network set-up slows the baseline",
        Doubt::IoEngineDiffers { .. } => "The system chose another I/O engine",
        Doubt::Emulated { .. } => "The guest's CPU is emulated",
        Doubt::UserModeKernel { .. } => "The guest's kernel runs in user mode",
        Doubt::NotSteady { .. } => "Not steady when measured",
        Doubt::NotMadeSteady { .. } => "Random writes on storage that was not made steady",
        Doubt::CoordinatedOmission { .. } => "Latency omits waiting",
        Doubt::LatencyBeyondWindow { .. } => "Latency covers more than the window",
        Doubt::ProbeFailed { .. } => "A probe could not read",
        Doubt::FewRounds { .. } => "Too few rounds",
        Doubt::EnvironmentLeftOut { .. } => "An environment was left out",
        Doubt::LoaderLate { .. } => "A loader's window was off",
        Doubt::LoaderClock { .. } => "A loader's clock is not known well",
        Doubt::LoaderSaturated { .. } => "A loader was saturated",
        Doubt::EmptySlices { .. } => "Slices without an operation",
        Doubt::StillWarming { .. } => "Still warming up",
        Doubt::NotFrozen { .. } => "Attached systems ran on",
        Doubt::NoRuntimeControl { .. } => "No control of the runtime",
    }
}

/// Adds a capital letter and a full stop.
fn sentence(words: &str) -> String {
    format!("{}.", crate::headline::capital(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SATURATED: Doubt = Doubt::ClientSaturated { share: 0.97, busiest_thread_share: None };

    #[test]
    fn kinds_are_numbered_and_texts_deduplicated() {
        let (record, analysis) = crate::fixture::quick();
        let marks = DoubtGroups::of(&record, &analysis);
        let kinds: Vec<&str> = marks.0.iter().map(|mark| mark.kind).collect();
        let engine = marks.0.iter().find(|mark| mark.kind == "io_engine_differs").unwrap();
        assert_eq!(kinds.iter().filter(|kind| **kind == engine.kind).count(), 1);
        assert_eq!(engine.seen.len(), 3);
        assert_eq!(engine.lines().len(), 1);
        assert_eq!(marks.numbers("+ cpuset", "write"), [engine.number]);
        assert!(engine.advice.ends_with('.'));
    }

    #[test]
    fn doubts_are_ordered_by_affected_slices() {
        let (record, mut analysis) = crate::fixture::quick();
        for finding in &mut analysis.findings {
            finding.doubts = vec![(Doubt::Steal { share: 0.03 }, 1)];
            let slices = if finding.baseline { 24 } else { 20 };
            finding.doubts.push((SATURATED, slices));
        }
        let marks = DoubtGroups::of(&record, &analysis);
        let kinds: Vec<&str> = marks.0.iter().map(|mark| mark.kind).collect();
        assert_eq!(kinds, ["client_saturated", "steal"]);
        assert_eq!(
            marks.0[0].brief(),
            [
                "client saturated, 97 % of its CPUs: native 24, native again 20, docker-default 20, 4 more, of 24 slices"
            ]
        );
        assert_eq!(
            marks.0[1].brief(),
            [
                "hypervisor took 3.0 % of the CPUs: native, native again, docker-default, 4 more, 1 of 24 slices each"
            ]
        );
    }

    #[test]
    fn left_out_environments_are_not_doubts() {
        let (record, analysis) = crate::fixture::quick();
        assert!(analysis.doubts.iter().any(|d| d.kind() == "environment_left_out"));
        assert!(
            DoubtGroups::of(&record, &analysis).0.iter().all(|m| m.kind != "environment_left_out")
        );
    }
}
