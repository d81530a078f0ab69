//! The checks of `tare doctor` for probes: which can read this host, and how long a reading takes.

use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::error_line;
use tare_host::housekeeping::Housekeeping;
use tare_lab::stacks::{StackKind, StackSampler};

use crate::stacks::{Perf, UserFrames};
use crate::{ALL, ProbeKind, Roots, cost};

/// The checks that this crate adds to `tare doctor`.
pub const HOUSEKEEPING: Housekeeping = Housekeeping { checks, ..Housekeeping::NOTHING };

/// The mark of the perf processes that `tare doctor` starts. They belong to no run.
const OWN_MARK: (&str, &str) = (tare_host::RUN_VARIABLE, "doctor");

fn checks(_state: &Path) -> Vec<Check> {
    stacks().into_iter().chain(probes()).collect()
}

/// Checks by which events perf can sample stacks on this host.
fn stacks() -> Vec<Check> {
    let check = |kind: StackKind, option: &str| {
        let what = kind.probe().to_string();
        match Perf::open(kind, UserFrames::Auto, OWN_MARK) {
            Ok(perf) => {
                let detail = format!("perf samples {} (tare weigh {option})", perf.event());
                Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
            }
            Err(error) => {
                let remedy =
                    "apt-get install linux-perf (Ubuntu: linux-tools-generic), and run as root";
                let detail = error_line(&error);
                Check { what, verdict: Verdict::Missing, detail, remedy: remedy.into() }
            }
        }
    };
    let off_cpu = "--stacks --stack-kinds off-cpu";
    vec![check(StackKind::OnCpu, "--stacks"), check(StackKind::OffCpu, off_cpu)]
}

/// Checks how long each probe takes to read on this host, or why it cannot be read.
fn probes() -> Vec<Check> {
    let cpus = tare_host::process::cpus_of_this_thread().unwrap_or_default().into();
    let roots = Roots::default();
    let check = |kind: &ProbeKind| {
        let what = format!("probe {}", kind.name);
        let missing = |detail: String, verdict| {
            let remedy = format!("it needs {}", kind.needs);
            Check { what: what.clone(), verdict, detail, remedy }
        };
        let mut probe = match kind.open(&roots, &cpus) {
            Ok(probe) => probe,
            Err(_) if kind.optional => return None,
            Err(error) => return Some(missing(error_line(&error), Verdict::Missing)),
        };
        let detail = match cost(&mut *probe) {
            Ok(cost) => cost.with_method(&*probe),
            Err(error) => {
                return Some(missing(error_line(&*error), Verdict::Limited));
            }
        };
        Some(Check { what: what.clone(), verdict: Verdict::Ok, detail, remedy: String::new() })
    };
    ALL.iter().filter_map(check).collect()
}
