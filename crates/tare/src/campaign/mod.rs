//! A campaign as the commands run it: `tare weigh`, `tare explain` and `tare tune prove` fill a
//! [`CampaignConfig`] and start it with [`run::measure`].

pub(crate) mod absent;
pub(crate) mod attached;
pub(crate) mod card_path;
mod choice;
pub(crate) mod cold;
mod connection;
pub(crate) mod controls;
pub(crate) mod cpu_plan;
pub(crate) mod data_cache;
pub(crate) mod derived;
pub(crate) mod fit;
mod hosts;
pub(crate) mod interrupts;
pub(crate) mod like;
pub(crate) mod loaders;
pub(crate) mod neighbours;
pub(crate) mod run;
mod samplers;
pub(crate) mod space;
pub(crate) mod study;
pub(crate) mod tuning;

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::anyhow;
use tare_kube::TareImage;
use tare_lab::campaign::{Clock, Goal, Memory};
use tare_lab::environment::CpuPlan;
use tare_lab::fake;
use tare_lab::loader::Loader;
use tare_lab::record::{HostFact, Opening, RecordWriter};
use tare_lab::study::{LoadCpus, Study, WorkloadSpec};
use tare_lab::system::Instances;
use tare_tune::plan::Options;

use crate::cli::{Progress, SampleStacks};
use crate::exit::{Exit, ExitWith};

/// Memory that a system needs in addition to its rows.
const SYSTEM_BYTES: u64 = 64 << 20;
/// Memory of a row in addition to its columns: key, index, allocator.
const ROW_EXTRA_BYTES: u64 = 200;

/// Refuses, before any host is asked, what a study cannot have on other hosts.
pub(crate) fn check_other_hosts(config: &CampaignConfig) -> anyhow::Result<()> {
    hosts::check(config)?;
    loaders::check(&config.study)
}

/// What a campaign measures, how it is shown, and where its record goes.
pub(crate) struct CampaignConfig {
    pub(crate) study: Study,
    /// The study's text, for the record.
    pub(crate) study_text: String,
    /// The record to continue.
    pub(crate) resume: Option<PathBuf>,
    /// The record to write.
    pub(crate) record: PathBuf,
    pub(crate) seed: u64,
    /// Options of the planner, for environments that tune the host.
    pub(crate) plan_options: Options,
    /// Facts for the record in addition to those read from the host.
    pub(crate) facts: Vec<HostFact>,
    /// Stacks and system calls to sample after the rounds.
    pub(crate) samples: Option<SampleStacks>,
    /// Block devices that may be overwritten.
    pub(crate) destroy: Vec<PathBuf>,
    pub(crate) progress: Progress,
    /// The question that ends the rounds in place of the study's schedule.
    pub(crate) goal: Option<Goal>,
    /// The image of pods that load, and of those through which nodes are reached.
    pub(crate) image: Option<TareImage>,
    /// The socket on which the page is served while the study runs.
    pub(crate) page: Option<TcpListener>,
}

impl CampaignConfig {
    /// Opens the record to continue, or creates a new one.
    fn writer(
        &self,
        study: &Study,
        plan: &CpuPlan,
        mut host: Vec<HostFact>,
        clock: &dyn Clock,
    ) -> anyhow::Result<RecordWriter> {
        host.extend_from_slice(&self.facts);
        if let Some(path) = &self.resume {
            return RecordWriter::resume(path).exit_with(Exit::Input);
        }
        let opening = Opening {
            tare_version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms: clock.unix_ms(),
            seed: self.seed,
            command: std::env::args().collect(),
            study: study.clone(),
            study_text: self.study_text.clone(),
            cpu_plan: plan.clone(),
            host,
        };
        RecordWriter::create(&self.record, &opening).exit_with(Exit::Input)
    }

    /// Returns the study with the load that it does not name, sized for the CPUs of this plan. A
    /// study that goes on keeps the load that it began with. `loaders` have the client's CPUs where
    /// there are any.
    fn sized(&self, plan: &CpuPlan, instances: Instances, loaders: &[Loader]) -> Study {
        let mut study = self.study.clone();
        if self.resume.is_none() {
            let mut cpus = LoadCpus::of(&study, plan, instances);
            if !loaders.is_empty() {
                let count = loaders.iter().map(|loader| loader.cpus.len().max(1)).sum::<usize>();
                cpus.client = u32::try_from(count).unwrap_or(u32::MAX);
            }
            tare_driver::scale_load(&mut study, cpus);
        }
        study
    }

    /// Refuses, before anything is measured, to overwrite a record.
    pub(crate) fn check_output(&self) -> anyhow::Result<()> {
        let taken = self.resume.is_none() && self.record.exists();
        let error = || anyhow!("{} exists already; name another record", self.record.display());
        if taken { Err(error()).exit_with(Exit::Input) } else { Ok(()) }
    }

    /// Returns whether the study runs on the fake host.
    ///
    /// # Errors
    /// If the study mixes fake and real parts.
    pub(crate) fn is_fake(&self) -> anyhow::Result<bool> {
        let study = &self.study;
        let is_fake = |name: &str| name.split(':').next() == Some(fake::NAME);
        let runtimes = study.environments.iter().map(|spec| spec.runtime.as_str());
        let names = runtimes.chain([study.system.name.as_str(), study.driver.as_str()]);
        let fakes = names.clone().filter(|name| is_fake(name)).count();
        match fakes {
            0 => Ok(false),
            _ if fakes == names.count() => Ok(true),
            _ => Err(anyhow!(
                "the study {} mixes fake and real parts; make the system, the driver and every runtime fake, or none",
                study.name
            ))
            .exit_with(Exit::Input),
        }
    }

    /// Returns the memory of this host and that of the environments.
    pub(crate) fn memory(&self, available_bytes: u64, plan: &CpuPlan) -> Memory {
        Memory {
            available_bytes,
            per_environment_bytes: self.memory_per_environment(plan),
            instances: fit::instances_of_system(&self.study).count,
        }
    }

    /// Returns the memory that one environment needs while all are up, with all of its instances.
    pub(crate) fn memory_per_environment(&self, plan: &CpuPlan) -> u64 {
        let rows = |one: &WorkloadSpec| one.rows * (space::row_bytes(one) + ROW_EXTRA_BYTES);
        let bytes = SYSTEM_BYTES + self.study.workloads.iter().map(rows).sum::<u64>();
        let all = bytes.saturating_mul(fit::copies_of_rows(&self.study));
        let own = fit::memory_bytes(&self.study, plan);
        // A system with a memory of its own keeps the rest of the rows on disk.
        match fit::names_memory(&self.study) {
            true => own + SYSTEM_BYTES,
            false => all.max(own),
        }
    }
}
