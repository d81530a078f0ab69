//! Runs a campaign on this host or on the fake host.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use tare_cluster::Cluster;
use tare_driver::{self as drivers, DriverInfo};
use tare_env::runtime::attached::place_pods;
use tare_env::{EnvironmentFactory, FactoryError, FactoryOptions};
use tare_host::journal::Journal;
use tare_host::{UndoError, facts};
use tare_lab::campaign::{self, CampaignError, DataCache, Ending, Parts, SystemClock};
use tare_lab::doubt::Doubt;
use tare_lab::driver::Driver;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::fake;
use tare_lab::probe::Probe;
use tare_lab::record::{HostFact, RecordWriter};
use tare_lab::stacks::ExtraRounds;
use tare_lab::study::{LoadCpus, Study, scale_load};
use tare_probe::ProbeCpus;
use tare_std::cpus::CpuSet;
use tare_std::units;
use tare_system::{ClientRoute, SystemInfo};
use tare_tune::idle;

use super::attached::RowsOfRun;
use super::data_cache::StudyDataCache;
use super::loaders::ConnectedLoaders;
use super::tuning::StudyTuning;
use super::{
    CampaignConfig, absent, connection, controls, cpu_plan, data_cache, fit, hosts, interrupts,
    neighbours, samplers, space,
};
use crate::cli::Kind;
use crate::exit::{Exit, ExitWith, exit_error};
use crate::stream::warn;
use crate::{cleanup, inside, live, run_server, serve, terminal};

/// Runs a campaign into its record. Returns why it ended and what could not be removed.
pub(crate) fn measure(
    config: &CampaignConfig,
    state: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<(Ending, Vec<UndoError>)> {
    let plan = cpu_plan::of_study(&config.study, &config.plan_options, state)?;
    if config.is_fake()? {
        return Ok((measure_fake(config, plan, stop)?, Vec::new()));
    }
    hosts::check(config)?;
    // What a killed run left behind would disturb the measurement.
    cleanup::before_run(state);
    check(config, &plan, state)?;
    let loaders = ConnectedLoaders::connect(&config.study, state, config.image.as_ref())?;
    let tuning = match config.study.tunes_host() {
        true => Some(StudyTuning::of_study(
            state,
            &config.plan_options,
            &config.study,
            loaders.as_ref(),
        )?),
        false => None,
    };
    measure_on_host(config, state, plan, tuning.as_ref(), loaders, stop)
}

/// Checks what can be wrong with a study before anything is changed here or another host is
/// reached.
///
/// # Errors
/// If the study cannot run on this host.
pub(crate) fn check(config: &CampaignConfig, plan: &CpuPlan, state: &Path) -> anyhow::Result<()> {
    interrupts::check(config, plan)?;
    let (info, _) = parts_of(&config.study)?;
    connection::check(&config.study, info)?;
    fit::check(&config.study, info, plan)?;
    neighbours::check(&config.study)?;
    check_runtimes(&config.study, state)
}

/// Returns the system and the driver of a study.
fn parts_of(study: &Study) -> anyhow::Result<(&'static SystemInfo, &'static DriverInfo)> {
    let info = tare_system::find(&study.system.name)
        .with_context(|| format!("there is no system {}", study.system.name))?;
    let driver = drivers::of(study, &info.speaks(&study.system));
    Ok((info, driver.map_err(|error| anyhow!(error)).exit_with(Exit::Input)?))
}

/// Checks that this host can run every environment that is not optional.
fn check_runtimes(study: &Study, state: &Path) -> anyhow::Result<()> {
    if !study.hosts.is_empty() {
        // Their agents check it.
        return Ok(());
    }
    for spec in study.environments.iter().filter(|spec| !spec.optional) {
        tare_env::runtime::check(spec)
            .and_then(|()| tare_env::runtime::check_boot(spec, state))
            .map_err(|error| anyhow!(error).context(format!("cannot run \"{}\"", spec.name)))
            .exit_with(Exit::Host)?;
    }
    Ok(())
}

/// Runs a campaign on this host into its record, and removes its environments. Returns why it ended
/// and what could not be removed.
pub(crate) fn measure_on_host(
    config: &CampaignConfig,
    state: &Path,
    plan: CpuPlan,
    tuning: Option<&StudyTuning>,
    loaders: Option<ConnectedLoaders>,
    stop: &AtomicBool,
) -> anyhow::Result<(Ending, Vec<UndoError>)> {
    let study = &config.study;
    let (info, driver_info) = parts_of(study)?;
    let (access, certificate) = connection::access(study)?;
    let factory = open_factory(config, state, &plan, loaders.as_ref(), tuning)?;
    let (_connections, cluster) = hosts::open(config, &plan, &factory, state)?.unzip();
    // Other hosts and attached systems are reached from this host's network, not over a link to it.
    let is_linked = cluster.is_none() && study.attached().next().is_none();
    let namespace = is_linked.then(|| factory.client_namespace());
    let route =
        ClientRoute { namespace: namespace.map(Into::into), access: access.clone(), certificate };
    let system =
        info.make_for(study, &route).map_err(|error| anyhow!(error)).exit_with(Exit::Input)?;
    let with_options = fit::systems_with_options(study, info, &route)?;
    // In force until this function returns.
    let idle = limit_idle_states();
    let mut host = host_facts(tuning, idle.as_ref());
    let clock = SystemClock::new();
    let program = crate::own_program()?;
    let client = drivers::Client {
        program: &program,
        cpus: &plan.client,
        namespace,
        scratch: factory.context().work(),
        run: factory.run(),
        speaks: &info.speaks(&study.system),
        access: &access,
    };
    let instances = system.instances();
    let most = fit::most_instances(study, instances);
    let of_baseline = fit::instances_of_baseline(study, instances);
    let mut driver: Box<dyn Driver> = match &loaders {
        Some(loaders) => loaders.start(driver_info, &client, most)?,
        None => driver_info.make(&client, most).map_err(|error| anyhow!(error))?,
    };
    let cpus = observed_cpus(config, &plan)?;
    host.extend(interrupt_cpus(&cpus));
    let link = factory.context().device_of_loaders();
    let (probes, mut doubts) = open_probes(cluster.as_ref(), link, &cpus, &mut host);
    let extra = extra_rounds(config, factory.run(), &cpus, &mut doubts);
    let mut refresh = tare_probe::AccountRefresh::start(&plan.all);
    let refreshed = refresh.cpus();
    host.push(account_resolution(refreshed));
    let sizing = cluster.as_ref().map(|cluster| hosts::sizing_plan(cluster, &plan));
    let mut study = config.sized(sizing.as_ref().unwrap_or(&plan), of_baseline, &driver.loaders());
    let as_written = study.environments.clone();
    place_pods(&mut study.environments).exit_with(Exit::Host)?;
    let rows = RowsOfRun::place(&mut study, &info.speaks(&config.study.system), &access, state)?;
    let writer = config.writer(&with_environments(&study, as_written), &plan, host, &clock)?;
    let available = space::memory_available_bytes().filter(|_| cluster.is_none());
    let memory = available.map(|available| config.memory(available, &plan));
    let left_out = match &cluster {
        Some(cluster) => hosts::left_out(cluster, &study)?,
        None => controls::without_room(config, &absent::names(config)?, &plan, state)?,
    };
    let parts = Parts {
        factory: &mut |spec| match &cluster {
            Some(cluster) => cluster.environment(spec),
            None => factory.environment_of(spec, fit::instances_in(spec, instances)),
        },
        system: &*system,
        systems_with_options: with_options
            .iter()
            .map(|(options, system)| (options.clone(), &**system))
            .collect(),
        driver: &mut *driver,
        probes,
        clock: &clock,
        plan,
        memory,
        data_dir: Some(factory.context().work().join("kept")),
        data_cache: study_cache(&study, driver_info, factory.context().journal())?,
        doubts,
        left_out,
        // Loaders and systems on other hosts are linked by devices that are not of this one.
        device_towards: (cluster.is_none()).then(|| Box::new(tare_host::net_device::towards) as _),
        refresh_accounts: Box::new(move || refresh.refresh()),
        drop_cached_pages: Box::new(|folder| Ok(tare_host::page_cache::drop_pages(folder)?)),
        accounts_are_exact: match &cluster {
            Some(cluster) => cluster.hosts().iter().all(|host| host.opened.accounts_are_exact),
            None => refreshed > 0,
        },
        hosts: cluster.as_ref().map(|cluster| hosts::parts(cluster)),
        goal: config.goal.as_ref(),
    };
    let ending = run_observed(config, &study, parts, writer, stop, extra);
    hosts::close(cluster);
    let ending = ending.inspect_err(|_| cleanup::warn_left(&factory.close()))?;
    if let Err(error) = factory.untune() {
        warn(&format!("{}; run tare clean", tare_host::error_line(&*error)));
    }
    Ok((ending, rows.remove().into_iter().chain(factory.close()).collect()))
}

/// Returns the cache of loaded data, if the study and the user do not turn it off.
fn study_cache<'j>(
    study: &Study,
    driver: &'static DriverInfo,
    journal: &'j Journal,
) -> anyhow::Result<Option<Box<dyn DataCache + 'j>>> {
    let cache = data_cache::of_host()?.filter(|_| !study.schedule.without_data_cache);
    Ok(cache.map(|cache| Box::new(StudyDataCache::new(cache, driver, journal)) as _))
}

/// Returns the study for the record, with the environments as the study file has them: a pod that
/// starts again has another address.
fn with_environments(study: &Study, environments: Vec<EnvironmentSpec>) -> Study {
    Study { environments, ..study.clone() }
}

/// Returns the rounds after those of the study, and adds the doubts about what they cannot sample.
fn extra_rounds(
    config: &CampaignConfig,
    run: &str,
    cpus: &ProbeCpus,
    doubts: &mut Vec<Doubt>,
) -> ExtraRounds<'static> {
    let Some(options) = &config.samples else { return ExtraRounds::default() };
    let (found, missing) = samplers::extra_rounds(options, run, cpus);
    doubts.extend(missing);
    found
}

/// Runs a campaign on the fake host into its record. Nothing on this host is changed.
fn measure_fake(
    config: &CampaignConfig,
    plan: CpuPlan,
    stop: &AtomicBool,
) -> anyhow::Result<Ending> {
    let host = fake::FakeHost::new(config.seed);
    let mut study = config.study.clone();
    study.workloads.iter_mut().for_each(|workload| scale_load(workload, LoadCpus::ONE));
    let writer = config.writer(&study, &plan, Vec::new(), &host)?;
    let (system, mut driver) = (host.system(), host.driver());
    let mut make = |spec: &EnvironmentSpec| host.environment(spec);
    let parts = Parts {
        probes: vec![Box::new(host.probe())],
        goal: config.goal.as_ref(),
        ..Parts::new(&mut make, &system, &mut driver, &host, plan)
    };
    let mut extra = ExtraRounds::default();
    if let Some(options) = config.samples.as_ref().filter(|options| options.stacks) {
        let sampler = |kind: &Kind| Box::new(host.sampler((*kind).into())) as _;
        // The fake host keeps no CPU for interrupts.
        let kinds = options.stack_kinds.iter().filter(|kind| **kind != Kind::InterruptCpus);
        extra.samplers = kinds.map(sampler).collect();
        (extra.rounds, extra.window) = (options.stack_rounds, options.stack_window);
    }
    run_observed(config, &study, parts, writer, stop, extra)
}

/// Runs a campaign with its progress view and, if requested, its page.
fn run_observed<'p>(
    config: &CampaignConfig,
    study: &Study,
    parts: Parts<'p>,
    writer: RecordWriter,
    stop: &AtomicBool,
    extra: ExtraRounds<'p>,
) -> anyhow::Result<Ending> {
    let start = |page| serve::LivePage::start(page, &config.record, &parts.plan.client);
    let mut page = config.page.as_ref().map(start).transpose()?;
    // A screen hides what was printed before it, so its title holds the page's address.
    let title = |page: &serve::LivePage| format!("{}  {}", page.url(), study.title);
    let title = page.as_ref().map_or_else(|| study.title.clone(), title);
    let shown = Study { title, ..study.clone() };
    let mut observer = live::observer(config.progress, &shown, terminal::style(), stop);
    if let Some(page) = &mut page {
        observer = page.observe_with(observer, study.schedule.kind);
    }
    let outcome =
        campaign::run_with_extra_rounds(parts, study, writer, &mut *observer, stop, extra);
    drop(observer);
    if let Some(page) = page {
        page.finish();
    }
    let exit = match &outcome {
        Err(CampaignError::Memory { .. } | CampaignError::Start { .. }) => Exit::Host,
        _ => Exit::Failure,
    };
    let outcome = outcome.exit_with(exit)?;
    if outcome.rounds == 0 && outcome.ending == Ending::BudgetSpent {
        let budget = units::duration(study.schedule.budget);
        let record = config.record.display();
        let error = anyhow!(
            "nothing was measured: the environments took the whole budget of {budget} to start; use a \
             larger --budget or fewer environments ({record} has their starts)"
        );
        return Err(exit_error(error, Exit::Failure));
    }
    Ok(outcome.ending)
}

fn open_factory(
    config: &CampaignConfig,
    state: &Path,
    plan: &CpuPlan,
    loaders: Option<&ConnectedLoaders>,
    tuning: Option<&StudyTuning>,
) -> anyhow::Result<EnvironmentFactory> {
    let options = FactoryOptions {
        state: state.to_path_buf(),
        program: crate::own_program()?,
        cpus: plan.clone(),
        destroy: config.destroy.clone(),
        reach: loaders.and_then(ConnectedLoaders::reach),
    };
    let opened = EnvironmentFactory::open(options);
    let exit = match &opened {
        Err(FactoryError::NoRoot | FactoryError::Missing { .. }) => Exit::Host,
        _ => Exit::Failure,
    };
    let mut factory = opened.exit_with(exit)?;
    if let Some(tuning) = tuning {
        tuning.apply_to(&mut factory, state)?;
    }
    Ok(factory)
}

/// Returns the facts of this host for the record.
fn host_facts(tuning: Option<&StudyTuning>, idle: Option<&idle::IdleLimit>) -> Vec<HostFact> {
    let read = facts::read(Path::new("/proc"), Path::new("/sys")).into_iter();
    let mut host: Vec<HostFact> = read
        .map(|fact| HostFact {
            section: fact.section.to_string(),
            key: fact.key.to_string(),
            value: fact.value,
        })
        .collect();
    host.extend(inside::guest_facts());
    host.extend(run_server::facts());
    host.extend(tuning.map(StudyTuning::facts).unwrap_or_default());
    host.extend(idle.map(|limit| HostFact {
        section: "cpu".into(),
        key: "idle states held".into(),
        value: format!("none that takes over {} µs to leave", limit.latency_us_max),
    }));
    host
}

/// Returns the CPUs that the probes observe. The user's list of interrupt CPUs comes before that of
/// the tuning.
fn observed_cpus(config: &CampaignConfig, plan: &CpuPlan) -> anyhow::Result<ProbeCpus> {
    let asked = config.samples.as_ref().and_then(|options| options.interrupt_cpus.as_ref());
    let Some(asked) = asked else { return Ok(ProbeCpus::new(plan)) };
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let online = online.and_then(|text| CpuSet::parse_list(text.trim()).ok()).unwrap_or_default();
    let missing = asked.difference(&online);
    if !missing.is_empty() {
        return Err(anyhow!(
            "--interrupt-cpus {asked} names CPU {missing}, which is not online; there are {online}"
        ))
        .exit_with(Exit::Input);
    }
    Ok(ProbeCpus { plan: plan.all.clone(), interrupts: asked.clone() })
}

/// Returns the CPUs that are kept for interrupts, as a fact of this host.
fn interrupt_cpus(cpus: &ProbeCpus) -> Option<HostFact> {
    (!cpus.interrupts.is_empty()).then(|| HostFact {
        section: "cpu".into(),
        key: "interrupt CPUs".into(),
        value: cpus.interrupts.to_string(),
    })
}

/// Opens the probes of this host or of those of the system. Adds facts about them, and returns the
/// doubts that they cause.
fn open_probes(
    cluster: Option<&Cluster>,
    link: Option<&str>,
    cpus: &ProbeCpus,
    host: &mut Vec<HostFact>,
) -> (Vec<Box<dyn Probe>>, Vec<Doubt>) {
    if let Some(cluster) = cluster {
        host.extend(hosts::facts(cluster));
        return (cluster.probes(), hosts::doubts(cluster));
    }
    let roots = tare_probe::Roots::default();
    let (mut probes, missing) = tare_probe::open_all(&roots, cpus);
    let link = link.map(|device| tare_probe::path_link(&roots, device));
    probes.extend(link.and_then(Result::ok));
    host.extend(probe_costs(&mut probes));
    let unread = |(probe, error): (&str, tare_probe::ProbeError)| Doubt::ProbeFailed {
        probe: probe.into(),
        reason: tare_host::error_line(&error),
    };
    let mut doubts: Vec<Doubt> = missing.into_iter().map(unread).collect();
    doubts.extend(facts::network_overheads().map(|found| Doubt::BaselineNotClean { found }));
    (probes, doubts)
}

/// Returns how long each probe takes to read, as facts of this host.
fn probe_costs(probes: &mut [Box<dyn Probe>]) -> Vec<HostFact> {
    let fact = |probe: &mut Box<dyn Probe>| {
        // A probe that cannot be read becomes a doubt of its slices.
        let cost = tare_probe::cost(&mut **probe).ok()?;
        let (section, key) = ("probes".to_string(), probe.name().to_string());
        Some(HostFact { section, key, value: cost.with_method(&**probe) })
    };
    probes.iter_mut().filter_map(fact).collect()
}

/// Returns how exact the CPU accounts of running threads are, as a fact of this host.
fn account_resolution(cpus: usize) -> HostFact {
    let value = match cpus {
        0 => "one scheduler tick: no real-time priority for refreshing them".to_string(),
        cpus => format!("exact on {cpus} CPUs, refreshed at both edges of each slice"),
    };
    HostFact { section: "probes".into(), key: "CPU accounts".into(), value }
}

/// Keeps the CPUs out of deep idle states: waking up from those takes longer than an operation.
fn limit_idle_states() -> Option<idle::IdleLimit> {
    idle::IdleLimit::open().unwrap_or_else(|error| {
        warn(&tare_host::error_line(&error));
        None
    })
}
