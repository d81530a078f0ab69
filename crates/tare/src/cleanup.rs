//! Removes what ended runs left on the host, for `tare clean` and before a run.

use std::path::Path;

use tare_host::UndoError;
use tare_host::clean::{Outcome, Report, clean};
use tare_host::housekeeping::Cleaned;

use crate::registry::{HOUSEKEEPING, KINDS};
use crate::stream::{say, warn};

/// Cleans up before a run starts, and prints only what was removed or failed.
pub(crate) fn before_run(state: &Path) {
    let Ok(Report { runs }) = clean(state, KINDS) else { return };
    for (run, outcome) in
        runs.iter().filter(|(_, outcome)| !matches!(outcome, Outcome::Alive { .. }))
    {
        say(&line(run, outcome));
    }
    for one in remove_unjournalled(state).iter().flat_map(|(_, cleaned)| cleaned) {
        say(&one.line);
    }
}

/// Removes what the journals of runs do not hold. Returns the outcomes by sort.
pub(crate) fn remove_unjournalled(state: &Path) -> Vec<(&'static str, Vec<Cleaned>)> {
    let cleanups = HOUSEKEEPING.iter().flat_map(|one| one.cleanups);
    cleanups.map(|cleanup| (cleanup.what, (cleanup.clean)(state))).collect()
}

/// Returns the outcome of cleaning up after a run in one line.
pub(crate) fn line(run: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Alive { pid } => format!("run {run}: alive (process {pid}); left alone"),
        Outcome::Cleaned { entries } => {
            format!("run {run}: cleaned ({entries} journal entries undone)")
        }
        Outcome::Failed { errors } => format!("run {run}: not clean: {}", errors.join("; ")),
    }
}

/// Prints what this run could not remove.
pub(crate) fn warn_left(left: &[UndoError]) {
    for error in left {
        warn(&format!("left behind: {}; run tare clean", tare_host::error_line(error)));
    }
}
