//! One environment of a campaign: starts it with its data, and ends it.

use std::net::SocketAddr;

use super::outcome::StartError;
use super::{Campaign, CampaignError, Event, READY_DEADLINE, data, error_line};
use crate::PartError;
use crate::access::without_private_keys;
use crate::doubt::Doubt;
use crate::driver::TargetId;
use crate::environment::{Endpoint, Environment, EnvironmentSpec, Launch};
use crate::judge;
use crate::loader::LOCAL;
use crate::record::EnvironmentRecord;
use crate::system::System;
use tare_std::cpus::CpuSet;

pub(super) struct Member {
    pub(super) record: EnvironmentRecord,
    pub(super) running: Option<Running>,
    /// Number of its current start, from 0.
    pub(super) start: u32,
    /// Whether the rows of all workloads were loaded in a start of it.
    pub(super) has_rows: bool,
    /// Failed slices in a row.
    pub(super) failures: u32,
    /// A layer was not in force: read the layers back after each slice.
    pub(super) suspect: bool,
    /// Why the last start failed.
    pub(super) start_error: Option<String>,
    /// Whether the environment is left out of the rest of the campaign.
    pub(super) out: bool,
}

/// A running environment whose system answers.
pub(super) struct Running {
    pub(super) environment: Box<dyn Environment>,
    /// One endpoint for each instance of the system.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) target: TargetId,
}

/// A system did not answer. The text holds its last output.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct NoAnswer {
    text: String,
}

/// Adds the last output of the system or the runtime to a reason, on one line.
pub(super) fn with_output(reason: &str, printed: &str) -> String {
    match printed.trim() {
        "" => reason.to_string(),
        printed => format!("{reason}; it printed last: {}", printed.replace('\n', " | ")),
    }
}

/// Returns the settings of the first instance, and the differing settings of the others.
fn settings(
    system: &dyn System,
    environment: &mut dyn Environment,
    at: &[Endpoint],
) -> Result<Vec<(String, String)>, PartError> {
    let each = match environment.settings()? {
        Some(each) => each,
        None => at.iter().map(|at| system.settings(at)).collect::<Result<_, _>>()?,
    };
    let mut all = Vec::new();
    for (number, own) in each.into_iter().enumerate() {
        match number {
            0 => all = own,
            _ => {
                let other = own.into_iter().filter(|pair| !all.contains(pair));
                let other: Vec<_> = other
                    .map(|(name, value)| (format!("{name} of instance {}", number + 1), value))
                    .collect();
                all.extend(other);
            }
        }
    }
    Ok(all)
}

impl Member {
    pub(super) fn new(spec: EnvironmentSpec, control: bool) -> Self {
        let record = EnvironmentRecord {
            spec,
            control,
            left_out: None,
            layers: Vec::new(),
            settings: Vec::new(),
            config: None,
            ready_ns: None,
            teardown_ns: None,
        };
        Self {
            record,
            running: None,
            start: 0,
            has_rows: false,
            failures: 0,
            suspect: false,
            start_error: None,
            out: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.record.spec.name
    }
}

impl Campaign<'_, '_> {
    /// Starts an environment, waits until its system answers, reads its layers back and loads its
    /// data. Stops the environment if any step fails.
    pub(super) fn start_member(&mut self, index: usize) -> Result<(), StartError> {
        let name = self.members[index].name().to_string();
        self.observer.event(&Event::EnvironmentStarting { name: &name });
        let began = self.parts.clock.now();
        let mut result = self.bring_up(index);
        // If an attached system has ended, that is why the start failed.
        if result.is_err()
            && let Err(gone) = self.check_all_attached()
        {
            result = Err(StartError::Ends(gone));
        }
        self.start_time = self.start_time.max(self.parts.clock.now() - began);
        match &result {
            Ok(()) => {
                let environment = &self.members[index].record;
                self.observer.event(&Event::EnvironmentStarted { environment });
            }
            Err(_) => self.stop_member(index),
        }
        self.members[index].start_error = result.as_ref().err().map(StartError::text);
        // Also after a failure, because the layers may be the reason.
        self.put_member(index).map_err(StartError::Ends)?;
        result
    }

    /// Returns the command of each instance.
    fn launches(&self, system: &dyn System) -> Vec<Launch> {
        let count = system.instances().count.max(1);
        let cpus = self.cpus_of_instance(system);
        if count == 1 && self.parts.hosts.is_none() {
            return vec![system.launch(cpus)];
        }
        (0..count).map(|number| system.launch_instance(cpus, number)).collect()
    }

    /// Returns for how many CPUs an instance is started.
    pub(super) fn cpus_of_instance(&self, system: &dyn System) -> usize {
        match (&self.parts.hosts, system.instances().count.max(1)) {
            (Some(hosts), _) => hosts.instance_cpus,
            (None, 1) => self.system_cpus,
            (None, count) => super::instance_cpus(self.system_cpus, count),
        }
    }

    fn bring_up(&mut self, index: usize) -> Result<(), StartError> {
        let fail = |step| move |source| StartError::Part { step, source };
        let spec = self.members[index].record.spec.clone();
        let system = self.parts.system_of(&spec);
        let launches = self.launches(system);
        let mut environment = (self.parts.factory)(&spec).map_err(fail("create"))?;
        if let Some(snapshot) = &self.snapshot {
            environment.start_from(snapshot);
        }
        let began = self.parts.clock.now();
        let endpoints = match environment.start_all(&launches) {
            Ok(endpoints) => endpoints,
            Err(source) => {
                // It may have created something before it failed.
                if let Err(error) = environment.stop() {
                    self.leftover(&spec.name, &*error);
                }
                return Err(StartError::Part { step: "start", source });
            }
        };
        if let Err(source) = self.wait_until_ready(&mut *environment, &endpoints, system) {
            if let Err(error) = environment.stop() {
                self.leftover(&spec.name, &*error);
            }
            return Err(StartError::Part { step: "wait for", source });
        }
        let addresses: Vec<SocketAddr> = endpoints.iter().map(|at| at.address).collect();
        let target = match self.parts.driver.open(&addresses, READY_DEADLINE) {
            Ok(target) => target,
            Err(error) => {
                let text = with_output(&error_line(&*error), &environment.log_tail());
                let source: PartError = NoAnswer { text }.into();
                if let Err(error) = environment.stop() {
                    self.leftover(&spec.name, &*error);
                }
                return Err(StartError::Part { step: "connect to", source });
            }
        };
        let ready = self.parts.clock.now() - began;
        // From here on `stop_member` ends it.
        let member = &mut self.members[index];
        let running = member.running.insert(Running { environment, endpoints, target });
        let record = &mut member.record;
        record.ready_ns = u64::try_from(ready.as_nanos()).ok();
        record.config = running.environment.config().map(|text| without_private_keys(&text));
        record.layers = running.environment.read_back().map_err(fail("read back"))?;
        let settings = settings(system, &mut *running.environment, &running.endpoints);
        record.settings = settings.map_err(fail("read the settings of"))?;
        let lost = judge::not_in_force(&record.layers).next();
        if let Some(doubt) = lost {
            return Err(StartError::NotInForce { reason: doubt.text() });
        }
        let restored = running.environment.restored();
        record.layers.extend(data::state(self.study.schedule.data, restored, self.data_origin));
        if restored.is_some() {
            self.assume_data(target)?;
        } else if !self.has_rows(index) {
            self.load_data(target, &spec.name)?;
        }
        self.members[index].has_rows = true;
        // An attached system may have other clients, so that it is never quiet.
        if let Some(running) =
            self.members[index].running.as_ref().filter(|_| spec.attach.is_none())
        {
            self.wait_until_quiet(running, system).map_err(fail("measure"))?;
        }
        Ok(())
    }

    /// Returns whether a member is attached to a system that has its rows: those of the user, or
    /// what another member that is attached to it has loaded.
    fn has_rows(&self, index: usize) -> bool {
        let Some(attach) = &self.members[index].record.spec.attach else { return false };
        let is_same = |one: &Member| {
            one.record.spec.attach.as_ref().is_some_and(|other| other.address == attach.address)
        };
        attach.read_only || self.members.iter().any(|one| one.has_rows && is_same(one))
    }

    /// Writes the doubts about an environment that has started.
    pub(super) fn put_environment_doubts(&mut self, index: usize) -> Result<(), CampaignError> {
        let record = &self.members[index].record;
        let mut plan = self.parts.plan.clone();
        let loaders = self.parts.driver.loaders();
        let elsewhere = !loaders.is_empty() && loaders.iter().all(|loader| loader.host != LOCAL);
        if elsewhere || self.parts.hosts.as_ref().is_some_and(|hosts| !hosts.has_this) {
            // No client runs on the CPUs of the system's host.
            plan.client = CpuSet::new();
        }
        let doubts = judge::environment(
            &record.spec,
            &plan,
            &record.layers,
            &record.settings,
            &self.members[self.baseline].record.settings,
        );
        let name = record.spec.name.clone();
        let target = self.members[index].running.as_ref().map(|running| running.target);
        let of_driver = target.map(|target| self.parts.driver.doubts(target)).unwrap_or_default();
        doubts.into_iter().chain(of_driver).try_for_each(|doubt| self.put_doubt(Some(&name), doubt))
    }

    /// Handles an environment that did not start. It is left out if it is optional or its layers
    /// are not in force; otherwise, and for the baseline and the control, the campaign ends.
    pub(super) fn handle_start_error(
        &mut self,
        index: usize,
        error: StartError,
    ) -> Result<(), CampaignError> {
        self.check_hosts()?;
        let spec = &self.members[index].record.spec;
        self.check_driver()?;
        let needed = index == self.baseline || self.members[index].record.control;
        let environment = spec.name.clone();
        match error {
            StartError::Ends(error) => Err(error),
            StartError::NotInForce { reason } if needed => {
                Err(CampaignError::BaselineNotInForce { environment, reason })
            }
            StartError::Part { step, source } if needed || !spec.optional => {
                Err(CampaignError::Start { environment, step, source })
            }
            other => self.leave_out(index, &other.text()),
        }
    }

    /// Takes an environment out of the campaign. Its valid slices stay in the record.
    pub(super) fn leave_out(&mut self, index: usize, reason: &str) -> Result<(), CampaignError> {
        self.stop_member(index);
        let name = self.members[index].name().to_string();
        self.observer.event(&Event::EnvironmentLeftOut { name: &name, reason });
        let slices = &self.writer().record().slices;
        let counts = slices.iter().any(|slice| slice.environment == name && slice.void.is_none());
        let member = &mut self.members[index];
        member.out = true;
        if counts {
            let (environment, reason) = (name.clone(), reason.to_string());
            let doubt = Doubt::EnvironmentLeftOut { environment, reason };
            self.put_doubt(Some(&name), doubt)?;
        } else {
            member.record.left_out = Some(reason.to_string());
        }
        self.put_member(index)
    }

    /// Counts failed slices in a row, and leaves out an environment at `failures_max` of them.
    pub(super) fn count_failure(
        &mut self,
        index: usize,
        failure: Option<&str>,
        failures_max: u32,
    ) -> Result<(), CampaignError> {
        let member = &mut self.members[index];
        let Some(reason) = failure else {
            member.failures = 0;
            return Ok(());
        };
        member.failures += 1;
        if member.failures < failures_max {
            return Ok(());
        }
        let failures = member.failures;
        let printed = member.running.as_ref().map(|running| running.environment.log_tail());
        let reason = with_output(reason, &printed.unwrap_or_default());
        if self.is_attached_like_baseline(index) {
            self.refuse_attached(self.baseline, &reason)?;
        }
        if index == self.baseline {
            let environment = self.members[index].name().to_string();
            return Err(CampaignError::BaselineFailed { environment, failures, reason });
        }
        let times =
            if failures == 1 { "once".into() } else { format!("{failures} times in a row") };
        self.leave_out(index, &format!("it failed {times}, the last time: {reason}"))
    }

    /// Returns whether the environment and the baseline are attached to one system, as the baseline
    /// itself and its twin of the A/A check are: what fails in one has failed in both.
    fn is_attached_like_baseline(&self, index: usize) -> bool {
        let attach = |index: usize| self.members[index].record.spec.attach.as_ref();
        attach(index).is_some() && attach(index) == attach(self.baseline)
    }

    /// Ends an environment, if it runs. A failed teardown becomes a leftover.
    pub(super) fn stop_member(&mut self, index: usize) {
        let Some(mut running) = self.members[index].running.take() else { return };
        let name = self.members[index].name().to_string();
        if let Err(error) = self.parts.driver.close(running.target) {
            self.leftover(&name, &*error);
        }
        let began = self.parts.clock.now();
        if let Err(error) = running.environment.stop() {
            self.leftover(&name, &*error);
        }
        let took = self.parts.clock.now() - began;
        self.members[index].record.teardown_ns = u64::try_from(took.as_nanos()).ok();
        self.teardown =
            if self.teardown == super::TEARDOWN_GUESS { took } else { self.teardown.max(took) };
    }
}
