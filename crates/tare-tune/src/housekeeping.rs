//! The tuner's checks for `tare doctor` and cleanups for `tare clean`.

use std::path::Path;

use tare_host::clean::Outcome;
use tare_host::doctor::{Check, Verdict};
use tare_host::error_line;
use tare_host::housekeeping::{Cleaned, Cleanup, Housekeeping};

use crate::status::summaries;
use crate::{LiveHost, Reverted};

/// Checks whether `tare tune` has changed this host.
fn checks(state: &Path) -> Vec<Check> {
    let check = |verdict, detail: String, remedy: &str| {
        vec![Check { what: "tuning".into(), verdict, detail, remedy: remedy.into() }]
    };
    match summaries(state) {
        Ok(found) if found.is_empty() => check(Verdict::Ok, "none applied".into(), ""),
        Ok(found) => {
            let remedy = found.iter().filter_map(|(_, remedy)| *remedy).next();
            let lines: Vec<&str> = found.iter().map(|(line, _)| line.as_str()).collect();
            let verdict = if remedy.is_some() { Verdict::Limited } else { Verdict::Ok };
            check(verdict, lines.join(", "), remedy.unwrap_or_default())
        }
        Err(error) => check(Verdict::Limited, error_line(&error), "run as root"),
    }
}

/// Reverts the temporary tunings of dead runs. Permanent tunings stay.
fn clean(state: &Path) -> Vec<Cleaned> {
    let reverted = match crate::clean(&mut LiveHost::new("/"), state) {
        Ok(reverted) => reverted,
        Err(error) => {
            let errors = vec![error_line(&error)];
            return vec![cleaned(String::new(), Outcome::Failed { errors })];
        }
    };
    let outcome = |reverted: &Reverted| match reverted.is_whole() {
        true => Outcome::Cleaned { entries: reverted.settings.len() },
        false => Outcome::Failed { errors: reverted.left() },
    };
    reverted.iter().map(|reverted| cleaned(reverted.id.clone(), outcome(reverted))).collect()
}

fn cleaned(id: String, outcome: Outcome) -> Cleaned {
    let line = match &outcome {
        Outcome::Cleaned { entries } => {
            format!("tuning {id} of a dead run: reverted ({entries} settings)")
        }
        Outcome::Failed { errors } => format!("tuning {id}: not reverted: {}", errors.join("; ")),
        Outcome::Alive { pid } => format!("tuning {id}: alive (process {pid}); left alone"),
    };
    Cleaned { id, outcome, line }
}

/// The checks and cleanups of this crate.
pub const HOUSEKEEPING: Housekeeping = Housekeeping {
    checks,
    cleanups: &[Cleanup { what: "tunings", clean }],
    ..Housekeeping::NOTHING
};
