//! What `tare doctor` and `tare clean` ask the tuner.

use std::path::Path;

use tare_host::clean::Outcome;
use tare_host::doctor::{Check, Verdict};
use tare_host::error_line;

use crate::status::brief;
use crate::{LiveHost, Reverted};

/// What `tare tune` has changed on this host.
pub fn checks(state: &Path) -> Vec<Check> {
    let check = |verdict, detail: String, remedy: &str| {
        vec![Check { what: "tuning".into(), verdict, detail, remedy: remedy.into() }]
    };
    match brief(state) {
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

/// Puts back the temporary tunings of dead runs, each with its id. Tunings that are to stay are
/// left alone.
pub fn clean(state: &Path) -> Vec<(String, Outcome)> {
    let reverted = match crate::clean(&mut LiveHost::new("/"), state) {
        Ok(reverted) => reverted,
        Err(error) => {
            return vec![(String::new(), Outcome::Failed { errors: vec![error_line(&error)] })];
        }
    };
    let outcome = |reverted: &Reverted| match reverted.is_whole() {
        true => Outcome::Cleaned { entries: reverted.settings.len() },
        false => Outcome::Failed { errors: reverted.left() },
    };
    reverted.iter().map(|reverted| (reverted.id.clone(), outcome(reverted))).collect()
}
