//! `tare tune verify`: checks whether the applied settings are in force and, with `--after`, where
//! interrupts arrived in between.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tare_tune::machine::kubelet::runs_kubelet;
use tare_tune::plan::{KubeletAdvice, Options};
use tare_tune::planner;
use tare_tune::{LiveHost, LoadCheck, SettingStore, interrupt_cpus, verify};

use super::{kubelet, outcome, tune_error};
use crate::cli::TuneVerify;
use crate::exit::Exit;
use crate::signals;
use crate::stream::Errors;
use crate::terminal::style;

pub(crate) fn run(
    arguments: &TuneVerify,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let store = LiveHost::new("/");
    let mut verification = verify(&store, state).map_err(tune_error)?;
    let mut load = None;
    if let Some(after) = arguments.after.filter(|_| !verification.tunings.is_empty()) {
        let before = store.snapshot();
        if !wait(after)? {
            return Ok(Exit::Interrupted);
        }
        verification = verify(&store, state).map_err(tune_error)?;
        load = Some(LoadCheck::between(&before, &store.snapshot(), &verification.irq_cpus()));
    }
    let advice = kubelet_advice(&store, state)?;
    let moved = load.as_ref().is_some_and(|load| !load.moved.is_empty());
    let in_force = verification.is_in_force() && !moved;
    if arguments.json {
        let mut all = json!({ "in_force": in_force, "now": verification, "load": load });
        if let Some(advice) = &advice {
            all["kubelet"] = json!({ "in_force": advice.is_in_force(), "advice": advice });
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", outcome::tunings(&verification.tunings, false, style()))?;
        if let Some(load) = &load {
            write!(out, "{}", outcome::load(load, &verification, style()))?;
        }
        if let Some(advice) = &advice {
            write!(out, "{}", kubelet::in_force(advice, style()))?;
        }
    }
    Ok(if in_force { Exit::Success } else { Exit::Failure })
}

/// Returns the advice about this host's kubelet, for the CPUs to which an applied tuning moved the
/// interrupts, or those that a plan would choose; `None` where no kubelet runs or no plan can be
/// made. It does not count for the exit code, because Tare did not set it.
fn kubelet_advice(store: &LiveHost, state: &Path) -> anyhow::Result<Option<KubeletAdvice>> {
    // A snapshot takes half a second, so it is not taken for hosts without a kubelet.
    if !runs_kubelet(Path::new("/")) {
        return Ok(None);
    }
    let irq_cpus = interrupt_cpus(store, state).map_err(tune_error)?;
    let options = Options { irq_cpus, ..Options::default() };
    Ok(planner::kubelet_advice(&store.snapshot(), &options).ok().flatten())
}

/// Waits, and shows the time left on a terminal. Returns false if interrupted.
fn wait(time: Duration) -> anyhow::Result<bool> {
    let stop = signals::stop_flag()?;
    let terminal = std::io::stderr().is_terminal();
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(false);
        }
        if terminal {
            // A failure to show the time left does not matter.
            let _ = write!(Errors, "\rchecking again in {} s \x1b[K", left.as_secs() + 1);
        }
        std::thread::sleep(left.min(Duration::from_millis(200)));
    }
    if terminal {
        let _ = write!(Errors, "\r\x1b[K");
    }
    Ok(true)
}
