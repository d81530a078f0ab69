//! What a study does with its storage before it measures: the time that it takes, and the bytes
//! that it writes. Flash wears with every byte, so much of it needs the user's consent.

use std::time::Duration;

use anyhow::anyhow;
use serde::Serialize;
use tare_driver::fio;
use tare_lab::study::{ScheduleKind, Study};
use tare_std::units::rough_duration;

use crate::exit::{Exit, ExitWith};

/// Expected speed of writing in order.
pub(super) const FILL_BYTES_PER_S: u64 = 500 << 20;
/// Bytes that a study writes without asking.
const WRITES_MAX: u64 = 100_000_000_000;

/// The conditioning of the storage of a study.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Conditioning {
    /// The number of starts of all environments, with the control. Each is followed by it.
    starts: u64,
    /// Bytes that are written in order after each start.
    fill_bytes: u64,
    /// The least and the most time after each start until all workloads are steady, in s.
    steady_least_s: f64,
    steady_most_s: f64,
    /// Bytes that all starts write, if workloads that write do so at 500 MiB/s and become steady at
    /// once.
    written_bytes: u64,
}

/// The sum over the workloads of a study: of each start.
fn of_start(study: &Study) -> (fio::Conditioning, u64) {
    let mut sum = fio::Conditioning::default();
    let mut writing = Duration::ZERO;
    if study.driver != "fio" {
        return (sum, 0);
    }
    for one in study.workloads.iter().map(fio::conditioning) {
        sum.fill_bytes = sum.fill_bytes.saturating_add(one.fill_bytes);
        sum.steady_least += one.steady_least;
        sum.steady_most += one.steady_most;
        if one.steady_writes {
            writing += one.steady_least;
        }
    }
    (sum, sum.fill_bytes.saturating_add(writing.as_secs().saturating_mul(FILL_BYTES_PER_S)))
}

impl Conditioning {
    /// `None` if the study does nothing with its storage but fill files.
    pub(super) fn of(study: &Study, absent: &[String]) -> Option<Self> {
        let (sum, written) = of_start(study);
        if sum == fio::Conditioning::default() {
            return None;
        }
        let runs = study.environments.iter().filter(|spec| !absent.contains(&spec.name));
        let members = runs.count() as u64 + 1;
        let each = match study.schedule.kind {
            ScheduleKind::Slices => 1 + u64::from(study.schedule.restarts),
            ScheduleKind::Trials => u64::from(study.schedule.rounds),
        };
        let starts = members * each;
        Some(Self {
            starts,
            fill_bytes: sum.fill_bytes,
            steady_least_s: sum.steady_least.as_secs_f64(),
            steady_most_s: sum.steady_most.as_secs_f64(),
            written_bytes: written.saturating_mul(starts),
        })
    }

    /// Returns the expected time after a start.
    pub(super) fn start_time(study: &Study) -> Duration {
        let (sum, _) = of_start(study);
        sum.steady_least + Duration::from_secs(sum.fill_bytes / FILL_BYTES_PER_S)
    }

    /// Returns it on one line.
    pub(super) fn text(&self) -> String {
        let rough = |seconds| rough_duration(Duration::from_secs_f64(seconds));
        let steady = match self.steady_most_s > 0.0 {
            true => {
                let (least, most) = (rough(self.steady_least_s), rough(self.steady_most_s));
                format!("{least} to {most} until steady, ")
            }
            false => String::new(),
        };
        format!(
            "{steady}{} written in order after each of {} starts; about {} written in all",
            amount(self.fill_bytes),
            self.starts,
            amount(self.written_bytes)
        )
    }
}

/// Returns an amount in units of 1,000, as disks are sold: `640 MB`, `1.2 TB`.
fn amount(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 1e9 => format!("{:.0} MB", b / 1e6),
        b if b < 1e12 => format!("{:.0} GB", b / 1e9),
        b => format!("{:.1} TB", b / 1e12),
    }
}

/// Refuses a study that writes more than 100 GB to condition its storage, unless the user agrees.
pub(crate) fn check_writes(study: &Study, yes: bool) -> anyhow::Result<()> {
    let conditioning = Conditioning::of(study, &[]);
    match conditioning.filter(|one| one.written_bytes > WRITES_MAX && !yes) {
        None => Ok(()),
        Some(one) => Err(anyhow!(
            "the study {} conditions its storage: {}; flash wears with every byte, so pass --yes, or \
             choose fewer rounds, environments or workloads (--dry-run shows the plan)",
            study.name,
            one.text()
        ))
        .exit_with(Exit::Input),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn study(options: &str, schedule: &str) -> Study {
        let text = format!(
            "name = \"s\"\nbaseline = \"a\"\ndriver = \"fio\"\n[system]\nname = \"fio\"\n\
             [schedule]\n{schedule}\n[[environment]]\nname = \"a\"\nruntime = \"process\"\n\
             [[environment]]\nname = \"b\"\nextends = \"a\"\n\
             [[workload]]\nname = \"w\"\nfio = {{ rw = \"randwrite\", size = \"1G\", numjobs = 4{options} }}\n"
        );
        tare_lab::study::parse(&text, "s", &registry::vocabulary()).unwrap()
    }

    #[test]
    fn every_start_is_conditioned() {
        let slices = "kind = \"slices\"";
        assert_eq!(Conditioning::of(&study("", slices), &[]), None);
        let filled = Conditioning::of(&study(", precondition = 2", slices), &[]).unwrap();
        assert_eq!((filled.starts, filled.fill_bytes), (3, 8 << 30));
        assert_eq!(filled.written_bytes, 3 * (8 << 30));
        let trials = study(", precondition = 2", "kind = \"trials\"\nrounds = 10");
        assert_eq!(Conditioning::of(&trials, &["b".into()]).unwrap().starts, 20);
        let steady = study(", steadystate = \"snia\", steadystate_round = 2", slices);
        let steady = Conditioning::of(&steady, &[]).unwrap();
        assert_eq!((steady.steady_least_s, steady.steady_most_s), (10.0, 50.0));
        assert_eq!(steady.written_bytes, 3 * 10 * FILL_BYTES_PER_S);
        let text = steady.text();
        assert!(text.contains("10 s to 50 s until steady"), "{text}");
    }

    #[test]
    fn much_needs_consent() {
        let slices = "kind = \"slices\"";
        let little = study(", precondition = 2", slices);
        check_writes(&little, false).unwrap();
        let much = study(", precondition = 9", "kind = \"trials\"\nrounds = 10");
        check_writes(&much, true).unwrap();
        let error = check_writes(&much, false).unwrap_err().to_string();
        assert!(error.contains("1.2 TB") && error.contains("--yes"), "{error}");
    }
}
