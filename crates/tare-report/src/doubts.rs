//! Doubts as a report shows them: each kind gets one number; its mark stands beside the figures and
//! its text once below them. What a doubt says and advises is the core's (`Doubt::text`,
//! `Doubt::advice`); here it gets a heading.

use tare_lab::analysis::Analysis;
use tare_lab::doubt::Doubt;

use crate::figures::clean;

/// Doubts of one kind: its number, its words, and where it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// From 1, in the order in which the report meets them.
    pub(crate) number: usize,
    /// The `kind` of the record's JSON.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) advice: String,
    /// One line each: environment (none: the record as a whole), workload, what was seen, slices.
    pub(crate) seen: Vec<Seen>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) environment: Option<String>,
    pub(crate) workload: Option<String>,
    pub(crate) detail: String,
    /// Slices that it touched; 0 where that means nothing.
    pub(crate) slices: u32,
}

impl Mark {
    /// What was seen, the same words about several environments said once.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for seen in &self.seen {
            let detail = match seen.slices {
                0 => seen.detail.clone(),
                1 => format!("{} (1 slice)", seen.detail),
                slices => format!("{} ({slices} slices)", seen.detail),
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
}

/// All doubts of an analysis, grouped by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(pub(crate) Vec<Mark>);

impl Marks {
    pub(crate) fn of(analysis: &Analysis) -> Marks {
        let mut marks = Marks::default();
        for doubt in &analysis.doubts {
            marks.add(doubt, None, None, 0);
        }
        for finding in &analysis.findings {
            for (doubt, slices) in &finding.doubts {
                marks.add(doubt, Some(&finding.environment), Some(&finding.workload), *slices);
            }
        }
        marks
    }

    fn add(
        &mut self,
        doubt: &Doubt,
        environment: Option<&str>,
        workload: Option<&str>,
        slices: u32,
    ) {
        let seen = Seen {
            environment: environment.map(String::from),
            workload: workload.map(String::from),
            detail: doubt.text(),
            slices,
        };
        match self.0.iter_mut().find(|mark| mark.kind == doubt.kind()) {
            Some(mark) if mark.seen.contains(&seen) => {}
            Some(mark) => mark.seen.push(seen),
            None => self.0.push(Mark {
                number: self.0.len() + 1,
                kind: doubt.kind(),
                title: title(doubt),
                advice: sentence(doubt.advice()),
                seen: vec![seen],
            }),
        }
    }

    /// Numbers of the doubts about one environment under one workload, ascending.
    pub(crate) fn numbers(&self, environment: &str, workload: &str) -> Vec<usize> {
        let about = |seen: &Seen| {
            seen.environment.as_deref() == Some(environment)
                && seen.workload.as_deref().is_none_or(|w| w == workload)
        };
        self.0.iter().filter(|mark| mark.seen.iter().any(about)).map(|mark| mark.number).collect()
    }
}

/// The heading of a kind of doubt.
fn title(doubt: &Doubt) -> &'static str {
    match doubt {
        Doubt::Steal { .. } => "The hypervisor took the CPUs away",
        Doubt::Strangers { .. } => "Other processes used the CPUs",
        Doubt::ClientSaturated { .. } => "The client was saturated",
        Doubt::ClientSharesCpus { .. } => "The client and the system shared CPUs",
        Doubt::Throttled { .. } => "The CPU quota held the system back",
        Doubt::RateNotReached { .. } => "The fixed rate was not reached",
        Doubt::OperationErrors { .. } => "Operations failed",
        Doubt::LayerNotInForce { .. } => "A layer was not in force",
        Doubt::ControlBeyondClaim { .. } => "The baseline differs from itself",
        Doubt::BaselineNotClean { .. } => "The baseline is taxed by the host's network set-up",
        Doubt::IoEngineDiffers { .. } => "The system chose another I/O engine",
        Doubt::ProbeFailed { .. } => "A probe could not read",
        Doubt::FewBlocks { .. } => "Too few blocks",
        Doubt::EnvironmentLeftOut { .. } => "An environment was left out",
    }
}

/// A sentence from the core's words: capital first, full stop last.
fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_has_one_number_and_says_equal_words_once() {
        let (_, analysis) = crate::fixture::quick();
        let marks = Marks::of(&analysis);
        let kinds: Vec<&str> = marks.0.iter().map(|mark| mark.kind).collect();
        let engine = marks.0.iter().find(|mark| mark.kind == "io_engine_differs").unwrap();
        assert_eq!(kinds.iter().filter(|kind| **kind == engine.kind).count(), 1);
        assert_eq!(engine.seen.len(), 3);
        assert_eq!(engine.lines().len(), 1);
        assert_eq!(marks.numbers("+ cpuset", "write"), [engine.number]);
        assert!(engine.advice.ends_with('.'));
    }
}
