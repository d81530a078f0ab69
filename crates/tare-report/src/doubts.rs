//! Doubts in words: what was seen, what it means, what to do about it. Each kind of doubt gets one
//! number in a report; its mark stands beside the figures and its text once below them.

use tare_lab::analysis::Analysis;
use tare_lab::doubt::Doubt;
use tare_std::units::thousands;

use crate::figures::{clean, percent, rate, share};

/// Doubts of one kind: its number, its words, and where it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// From 1, in the order in which the report meets them.
    pub(crate) number: usize,
    /// The `kind` of the record's JSON.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) advice: &'static str,
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
        let words = words(doubt);
        let seen = Seen {
            environment: environment.map(String::from),
            workload: workload.map(String::from),
            detail: words.detail,
            slices,
        };
        match self.0.iter_mut().find(|mark| mark.kind == words.kind) {
            Some(mark) if mark.seen.contains(&seen) => {}
            Some(mark) => mark.seen.push(seen),
            None => self.0.push(Mark {
                number: self.0.len() + 1,
                kind: words.kind,
                title: words.title,
                advice: words.advice,
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

/// The words of one doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    pub(crate) advice: &'static str,
}

pub(crate) fn words(doubt: &Doubt) -> Words {
    let (kind, title, detail, advice) = match doubt {
        Doubt::Steal { share: s } => (
            "steal",
            "The hypervisor took the CPUs away",
            format!("up to {} of the CPU time of the plan was stolen", share(*s)),
            "Trust CPU per operation before throughput; run again on a dedicated host or at a quiet hour.",
        ),
        Doubt::Strangers { share: s } => (
            "strangers",
            "Other processes used the CPUs",
            format!(
                "up to {} of the CPU time of the plan went to processes outside the study",
                share(*s)
            ),
            "Stop what else runs (`top`), or give the study CPUs of its own in [cpus]; trust CPU per operation before throughput.",
        ),
        Doubt::ClientSaturated { share: s } => (
            "client_saturated",
            "The client was saturated",
            format!("the client used {} of its CPUs", share(*s)),
            "The throughput may be the client's, and a cost too small: give the client more CPUs ([cpus] client) or fewer requests in flight.",
        ),
        Doubt::ClientSharesCpus { cpus } => (
            "client_shares_cpus",
            "The client and the system shared CPUs",
            format!("shared: CPU {cpus}"),
            "Part of the throughput cost may be the client's own; on a larger host give each its own CPUs, or read CPU per operation.",
        ),
        Doubt::Throttled { share: s } => (
            "throttled",
            "The CPU quota held the system back",
            format!("throttled for up to {} of the time", share(*s)),
            "If the quota is the question, this is its cost; if not, raise it or pin CPUs instead.",
        ),
        Doubt::RateNotReached { asked_per_s, reached_per_s } => (
            "rate_not_reached",
            "The fixed rate was not reached",
            format!("asked {}/s, reached {}/s", rate(*asked_per_s), rate(*reached_per_s)),
            "Latency then measures a queue without end: lower the workload's latency_share or rate_per_s.",
        ),
        Doubt::OperationErrors { error, count, operations } => (
            "operation_errors",
            "Operations failed",
            format!("{} of {} operations: {error}", thousands(*count), thousands(*operations)),
            "A failed operation is often a cheap one: find the cause in the system's log before you believe the figures.",
        ),
        Doubt::LayerNotInForce { layer, wanted, found } => (
            "layer_not_in_force",
            "A layer was not in force",
            format!("{layer}: wanted {wanted}, found {found}"),
            "The slices are void, because they measured something else; see `tare doctor` for what this host can do.",
        ),
        Doubt::ControlBeyondClaim { control_percent, smallest_percent } => (
            "control_beyond_claim",
            "The baseline differs from itself",
            format!(
                "A/A differs by {} %, the smallest claimed cost is {} %",
                percent(*control_percent),
                percent(*smallest_percent)
            ),
            "Costs of that size are void: run more rounds, or on a quieter host.",
        ),
        Doubt::BaselineNotClean { found } => (
            "baseline_not_clean",
            "The baseline is taxed by the host's network set-up",
            found.clone(),
            "Connection tracking and bridges slow the native run too, so costs come out too small: remove the NAT rules or stop the container engine, and run again.",
        ),
        Doubt::IoEngineDiffers { baseline, here } => (
            "io_engine_differs",
            "The system chose another I/O engine",
            format!("baseline {baseline}, here {here}"),
            "The cost includes the loss of the engine: it is the layer's doing, usually its seccomp profile's; compare with security = \"default+io_uring\".",
        ),
        Doubt::ProbeFailed { probe, reason } => (
            "probe_failed",
            "A probe could not read",
            format!("{probe}: {reason}"),
            "Its figures are missing; other figures stand. `tare doctor` says what it needs.",
        ),
        Doubt::FewBlocks { blocks } => (
            "few_blocks",
            "Too few blocks",
            format!("{blocks} {}", if *blocks == 1 { "block" } else { "blocks" }),
            "Intervals from so few blocks are wide or missing: run more rounds (--rounds) or a longer --budget.",
        ),
        Doubt::EnvironmentLeftOut { environment, reason } => (
            "environment_left_out",
            "An environment was left out",
            format!("{environment}: {reason}"),
            "`tare doctor` says what this host lacks for it.",
        ),
    };
    Words { kind, title, detail, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_the_one_in_the_json() {
        let doubts = [
            Doubt::Steal { share: 0.1 },
            Doubt::ClientSharesCpus { cpus: "1".into() },
            Doubt::RateNotReached { asked_per_s: 2.0, reached_per_s: 1.0 },
            Doubt::IoEngineDiffers { baseline: "io_uring".into(), here: "epoll".into() },
            Doubt::FewBlocks { blocks: 1 },
        ];
        for doubt in doubts {
            let json = serde_json::to_value(&doubt).unwrap();
            assert_eq!(json["kind"], words(&doubt).kind);
        }
    }
}
