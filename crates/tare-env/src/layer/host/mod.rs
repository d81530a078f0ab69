//! The host layer: whether the host around an environment is tuned while the environment runs.
//!
//! Method: all environments of a study run at once, and all but one are frozen. One with a tuned
//! host applies the changes when it thaws and puts them back once it is frozen again. Its slices
//! run on the tuned host, all other slices on the original one. Both alternate within every round,
//! and the pairs of a round are compared like those of any layer.
//!
//! Limits: only settings that affect a running system can be weighed. The caller names the others:
//! limits that are read once at the start, and channels, whose change takes a network device down.

mod journalled;

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};
use tare_tune::knobs;
use tare_tune::plan::{Change, EthtoolSetting, Item, Key};

use tare_lab::layer::{Host, Layer};

pub use journalled::{Journalled, JournalledError};

/// How many deviations a layer's state lists.
const DEVIATIONS_SHOWN: usize = 3;

/// Returns whether a value of the layer includes the change of this item.
fn wants(host: &Host, item: &Item) -> bool {
    match host {
        Host::AsIs => false,
        Host::Tuned => !knobs::is_on_request(&item.knob),
        Host::TunedGroups(names) => names.iter().any(|name| knobs::selects(name, item)),
    }
}

/// Returns whether a wanted change decides the value of a setting that the layer leaves alone:
/// another knob writes the same setting, or the driver adapts it.
fn is_decided_by(wanted: &Change, other: &Key) -> bool {
    let Key::Ethtool { nic, setting: EthtoolSetting::CoalesceRxUs } = other else {
        return wanted.key == *other;
    };
    let adaptive = EthtoolSetting::CoalesceAdaptiveRx;
    wanted.key == *other || wanted.key == Key::Ethtool { nic: nic.clone(), setting: adaptive }
}

/// Makes changes on a host and puts them back. It writes a journal from which `clean` can put them
/// back too.
pub trait Tuner: fmt::Debug + Send {
    /// Makes all of the changes.
    ///
    /// # Errors
    /// Names the first change that failed and why. The caller puts back the others.
    fn apply(&mut self, items: &[Item]) -> Result<(), PartError>;

    /// Puts all changes back. Idempotent.
    ///
    /// # Errors
    /// Names a change that could not be put back.
    fn revert(&mut self) -> Result<(), PartError>;

    /// Returns the current value of a setting.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, key: &Key) -> Result<String, PartError>;
}

/// Why a host could not be tuned for an environment.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("environment {environment:?} has host = \"{value}\", but this run has no plan")]
    NoPlan { environment: String, value: Host },
    #[error("the host is still tuned for another environment; run tare clean")]
    StillTuned,
    #[error(
        "the host is tuned already ({tunings}), so host = \"{value}\" would change nothing; to weigh \
         it, run tare tune revert first"
    )]
    TunedAlready { value: Host, tunings: String },
    #[error(
        "host = \"{value}\" would change nothing: {why}; optional = true leaves the environment out"
    )]
    NothingToChange { value: Host, why: String },
    #[error(
        "{knob} of host = \"{value}\" would change nothing: {why}; optional = true leaves the \
         environment out"
    )]
    NoAlternative { value: Host, knob: String, why: String },
}

/// The host of a run, shared by all environments: the possible changes, and whether they are made.
#[derive(Clone, Debug)]
pub struct TunedHost(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Items with a change.
    items: Vec<Item>,
    /// Changes that the plan has and a study does not make: the knob and the reason.
    left_out: Vec<(String, String)>,
    tuner: Box<dyn Tuner>,
    tuned: bool,
}

/// Why a layer changes nothing where the plan has no change for it.
const NO_CHANGE: &str =
    "the tuning plan of this host has no change that a study can make (tare tune plan)";

impl TunedHost {
    /// Creates it for these items. Those without a change are left out.
    pub fn new(items: &[Item], tuner: Box<dyn Tuner>) -> Self {
        let items = items.iter().filter(|item| item.change().is_some()).cloned().collect();
        Self(Arc::new(Mutex::new(State { items, left_out: Vec::new(), tuner, tuned: false })))
    }

    /// Names changes that the plan has and a study does not make, each by its knob and the reason.
    #[must_use]
    pub fn leaving_out(self, changes: Vec<(String, String)>) -> Self {
        self.state().left_out = changes;
        self
    }

    /// Returns why an environment with this value of the layer would not be what it says: nothing
    /// changes, or a knob that is planned only by name, as the alternative to others, does not.
    pub fn without_effect(&self, layer: &Host) -> Option<HostError> {
        let state = self.state();
        let value = layer.clone();
        if !state.items.iter().any(|item| wants(layer, item)) {
            let group = |knob: &str| knobs::find(knob).map_or("", |knob| knob.group().name());
            let why = state.why_left_out(|knob| match layer {
                Host::AsIs => false,
                Host::Tuned => !knobs::is_on_request(knob),
                Host::TunedGroups(names) => {
                    names.iter().any(|name| name == knob || name == group(knob))
                }
            });
            return Some(HostError::NothingToChange { value, why });
        }
        let mut alternatives = layer.groups().iter().filter(|name| knobs::is_on_request(name));
        let changes = |name: &String| state.items.iter().any(|item| item.knob == *name);
        let knob = alternatives.find(|name| !changes(name))?.clone();
        let why = state.why_left_out(|left_out| left_out == knob);
        Some(HostError::NoAlternative { value, knob, why })
    }

    /// Puts all changes back. Idempotent.
    ///
    /// # Errors
    /// Names a change that could not be put back.
    pub fn revert(&self) -> Result<(), PartError> {
        self.state().revert()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Returns the reason of the first of these changes that a study does not make.
    fn why_left_out(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let reason = self.left_out.iter().find(|(knob, _)| is_wanted(knob));
        reason.map_or(NO_CHANGE.into(), |(_, reason)| reason.clone())
    }

    fn apply(&mut self, layer: &Host) -> Result<(), PartError> {
        if self.tuned {
            // All other environments are frozen, so a revert must have failed earlier.
            self.revert().map_err(|_| HostError::StillTuned)?;
        }
        let items: Vec<Item> =
            self.items.iter().filter(|item| wants(layer, item)).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        self.tuned = true;
        let applied = self.tuner.apply(&items);
        if applied.is_err() {
            // The first error names the cause. The next environment reports a failed revert.
            let _ = self.revert();
        }
        applied
    }

    fn revert(&mut self) -> Result<(), PartError> {
        if self.tuned {
            self.tuner.revert()?;
            self.tuned = false;
        }
        Ok(())
    }

    /// Reads every setting: those of the layer must have the planned value, the others the
    /// original.
    fn read_back(&self, layer: &Host) -> LayerState {
        let mut deviations = Vec::new();
        let mut tuned = 0;
        for (item, change) in changes(&self.items) {
            let want = wants(layer, item);
            tuned += usize::from(want);
            let mut wanted = changes(&self.items).filter(|(other, _)| wants(layer, other));
            if !want && wanted.any(|(_, wanted)| is_decided_by(wanted, &change.key)) {
                continue;
            }
            let value = if want { &change.wanted } else { &change.now };
            match self.tuner.read(&change.key) {
                Ok(found) if change.form.same(&found, value) => {}
                Ok(found) => {
                    let found = change.form.normalize(&found);
                    deviations.push(format!("{} is {found}, not {value}", item.what));
                }
                Err(error) => deviations.push(format!("{}: {error}", item.what)),
            }
        }
        let all = self.items.len();
        let mut found = format!("{tuned} of {all} settings changed, the others as found");
        if !deviations.is_empty() {
            let more = deviations.len().saturating_sub(DEVIATIONS_SHOWN);
            deviations.truncate(DEVIATIONS_SHOWN);
            found = deviations.join("; ");
            if more > 0 {
                found += &format!("; and {more} more");
            }
        }
        let in_force = deviations.is_empty();
        LayerState { layer: Layer::Host.name().into(), wanted: layer.to_string(), found, in_force }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Callers that need the error call `revert`. The journal keeps the changes that are left.
        let _ = self.revert();
    }
}

fn changes(items: &[Item]) -> impl Iterator<Item = (&Item, &Change)> {
    items.iter().filter_map(|item| Some((item, item.change()?)))
}

/// An environment that sets the host for itself: tuned, or with all changes put back.
pub(crate) struct TunedEnvironment {
    inner: Box<dyn Environment>,
    layer: Host,
    host: TunedHost,
}

impl TunedEnvironment {
    pub(crate) fn new(inner: Box<dyn Environment>, layer: Host, host: TunedHost) -> Self {
        Self { inner, layer, host }
    }

    /// Runs `act` with the host set for this environment. If it fails, the host is put back.
    fn on_host<T>(
        &mut self,
        act: impl FnOnce(&mut dyn Environment) -> Result<T, PartError>,
    ) -> Result<T, PartError> {
        self.host.state().apply(&self.layer)?;
        let done = act(&mut *self.inner);
        if done.is_err() {
            // The first error names the cause. The next environment reports a failed revert.
            let _ = self.host.revert();
        }
        done
    }
}

impl Environment for TunedEnvironment {
    fn spec(&self) -> &EnvironmentSpec {
        self.inner.spec()
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.inner.start_from(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.inner.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.on_host(|inner| inner.start(launch))
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        self.on_host(|inner| inner.start_all(launches))
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let mut layers = self.inner.read_back()?;
        layers.push(self.host.state().read_back(&self.layer));
        Ok(layers)
    }

    fn lost(&self) -> Option<String> {
        self.inner.lost()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        let frozen = self.inner.freeze();
        let reverted = self.host.revert();
        frozen.and(reverted)
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.on_host(|inner| inner.thaw())
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.inner.usage()
    }

    fn processes(&mut self) -> Processes {
        self.inner.processes()
    }

    fn config(&self) -> Option<String> {
        self.inner.config()
    }

    fn log_tail(&self) -> String {
        self.inner.log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let stopped = self.inner.stop();
        // The changes in force may be another environment's, because frozen ones are stopped too.
        stopped.and(self.host.revert())
    }
}

#[cfg(test)]
mod tests;
