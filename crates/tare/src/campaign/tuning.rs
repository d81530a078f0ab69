//! Host tuning during a study: the changes that its tuned environments make while they run.

use std::path::Path;

use anyhow::{Context, anyhow};
use tare_env::EnvironmentFactory;
use tare_env::layer::host::{HostError, Journalled, TunedHost};
use tare_lab::analysis::CARDS_OF_LOAD_FACT;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::record::HostFact;
use tare_lab::study::Study;
use tare_report::prove::{FACT_NOT_WEIGHED, FACT_OF, FACT_TUNED_ALREADY, FACTS};
use tare_tune::plan::Options;
use tare_tune::{LiveHost, SettingState, SettingStore, TuningStatus};

use super::card_path::CardPath;
use super::choice::{Choice, choose, merge_reasons};
use super::interrupts;
use super::loaders::ConnectedLoaders;
use crate::exit::{Exit, ExitWith, plan_error};

/// Key of the fact that holds the options of the planner.
const FACT_OPTIONS: &str = "options";

/// Changes that were planned for this host and rehearsed on it.
#[derive(Debug)]
pub(crate) struct StudyTuning {
    pub(crate) choice: Choice,
    options: Options,
    /// The network cards that the load crosses.
    cards: Vec<String>,
    /// The environment that `tare tune prove` proves the tuning of.
    pub(crate) proof_of: Option<String>,
    /// The tunings that are in force on this host already, so that nothing is planned.
    tuned_already: Option<String>,
}

/// Returns the options of the planner that a record holds, or the defaults.
pub(crate) fn plan_options_of(host: &[HostFact]) -> Options {
    let fact = host.iter().find(|fact| fact.section == FACTS && fact.key == FACT_OPTIONS);
    fact.and_then(|fact| serde_json::from_str(&fact.value).ok()).unwrap_or_default()
}

/// Returns why environments of the study that tune the host cannot do so: the host is tuned.
pub(crate) fn refused_here(study: &Study, state: &Path) -> anyhow::Result<Vec<(String, String)>> {
    // Only root tunes hosts and measures on them; others may not be allowed to read the journals.
    if !study.tunes_host() || !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let Some(tunings) = tunings_in_force(&LiveHost::new("/"), state)? else {
        return Ok(Vec::new());
    };
    let refused = study.environments.iter().filter(|spec| !spec.host.is_as_is()).map(|spec| {
        let (value, tunings) = (spec.host.clone(), tunings.clone());
        (spec.name.clone(), HostError::TunedAlready { value, tunings }.to_string())
    });
    Ok(refused.collect())
}

impl StudyTuning {
    /// Prepares the tuning of a study. On a host that is tuned already, the study runs without its
    /// environments that tune it, if all of them are optional.
    ///
    /// # Errors
    /// If an environment that is not optional cannot be tuned, or the host cannot be planned for or
    /// cannot be changed.
    pub(crate) fn of_study(
        state: &Path,
        options: &Options,
        study: &Study,
        loaders: Option<&ConnectedLoaders>,
    ) -> anyhow::Result<Self> {
        let optional = |spec: &EnvironmentSpec| spec.host.is_as_is() || spec.optional;
        let tunings = tunings_in_force(&LiveHost::new("/"), state)?;
        let Some(tunings) = tunings.filter(|_| study.environments.iter().all(optional)) else {
            return Self::prepare(state, options, study, loaders);
        };
        Ok(Self {
            choice: Choice::default(),
            options: options.clone(),
            cards: Vec::new(),
            proof_of: None,
            tuned_already: Some(tunings),
        })
    }

    /// Plans the changes for this host, and makes and reverts each once to drop those that the host
    /// refuses.
    ///
    /// # Errors
    /// If the host is tuned already, cannot be planned for or cannot be changed.
    pub(crate) fn prepare(
        state: &Path,
        options: &Options,
        study: &Study,
        loaders: Option<&ConnectedLoaders>,
    ) -> anyhow::Result<Self> {
        let store = LiveHost::new("/");
        refuse_if_tuned(&store, state)?;
        let options = &interrupts::plan_options(study, options)?;
        let snapshot = store.snapshot();
        let path = CardPath::find(study, &snapshot, loaders)?;
        let mut choice = choose(&snapshot, options, study, &path).map_err(plan_error)?;
        if !choice.items.is_empty() {
            let refused = Journalled::begin(state, store, "rehearsal")
                .and_then(|mut tuner| tuner.rehearse(&choice.items))
                .context("cannot try the plan on this host")
                .exit_with(Exit::Host)?;
            choice.drop_refused(refused);
        }
        Ok(Self {
            choice,
            options: options.clone(),
            cards: path.cards,
            proof_of: None,
            tuned_already: None,
        })
    }

    /// Lets the factory tune the host for its tuned environments.
    pub(crate) fn apply_to(
        &self,
        factory: &mut EnvironmentFactory,
        state: &Path,
    ) -> anyhow::Result<()> {
        if let Some(tunings) = &self.tuned_already {
            factory.leave_tuned(tunings.clone());
            return Ok(());
        }
        let tuner = Journalled::begin(state, LiveHost::new("/"), factory.run())?;
        let left_out = self.choice.left_out_by_knob();
        factory.tune(TunedHost::new(&self.choice.items, Box::new(tuner)).leaving_out(left_out));
        Ok(())
    }

    /// Returns the tuning as facts for the record.
    pub(crate) fn facts(&self) -> Vec<HostFact> {
        let mut facts = Vec::new();
        let mut add = |key: String, value: String| {
            facts.push(HostFact { section: FACTS.into(), key, value });
        };
        add(FACT_OPTIONS.into(), serde_json::to_string(&self.options).unwrap_or_default());
        if let Some(tunings) = &self.tuned_already {
            add(FACT_TUNED_ALREADY.into(), tunings.clone());
        }
        if !self.cards.is_empty() {
            add(CARDS_OF_LOAD_FACT.1.into(), self.cards.join(" "));
        }
        if let Some(environment) = &self.proof_of {
            add(FACT_OF.into(), environment.clone());
        }
        for group in self.choice.groups() {
            let items = self.choice.items.iter().filter(|item| item.group == group);
            let mut changes: Vec<String> = items
                .filter_map(|item| {
                    let change = item.change()?;
                    let (now, wanted) = (&change.now, &change.wanted);
                    Some(format!("{} of {}: {now} -> {wanted}", item.what, item.subject))
                })
                .collect();
            let more = changes.len().saturating_sub(CHANGES_SHOWN);
            changes.truncate(CHANGES_SHOWN);
            if more > 0 {
                changes.push(format!("and {more} more"));
            }
            add(format!("changes of {}", group.name()), changes.join("; "));
        }
        for (what, reason) in merge_reasons(&self.choice.not_weighed) {
            add(format!("{FACT_NOT_WEIGHED}{what}"), reason);
        }
        facts
    }
}

/// Changes of a group that a fact lists by name.
const CHANGES_SHOWN: usize = 20;

/// Refuses a tuned host: the study compares with the host as found.
fn refuse_if_tuned(store: &dyn SettingStore, state: &Path) -> anyhow::Result<()> {
    let Some(tunings) = tunings_in_force(store, state)? else { return Ok(()) };
    Err(anyhow!(
        "this host is tuned already ({tunings}), so there is no host as found to compare with; \
         revert first (tare tune revert), or give the study's tuned environments optional = true"
    ))
    .exit_with(Exit::Host)
}

/// Returns the ids of the tunings that are in force on a host; `None` if it is not tuned.
fn tunings_in_force(store: &dyn SettingStore, state: &Path) -> anyhow::Result<Option<String>> {
    let applied =
        tare_tune::status(store, state).context("cannot read whether this host is tuned")?;
    // A reboot since then undid the settings.
    let in_force = |one: &&TuningStatus| {
        one.settings.iter().any(|setting| setting.state == SettingState::InForce)
    };
    let ids: Vec<&str> = applied.iter().filter(in_force).map(|one| one.id.as_str()).collect();
    Ok((!ids.is_empty()).then(|| ids.join(", ")))
}
