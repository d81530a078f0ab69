//! `tare weigh`: runs a study and reports it.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use tare_driver as drivers;
use tare_env::{EnvironmentFactory, FactoryError, FactoryOptions};
use tare_host::{UndoError, facts};
use tare_lab::analysis::analyse;
use tare_lab::campaign::{self, CampaignError, Clock, Ending, Memory, Parts, SystemClock};
use tare_lab::cpus;
use tare_lab::doubt::Doubt;
use tare_lab::environment::CpuPlan;
use tare_lab::fake;
use tare_lab::probe::Probe;
use tare_lab::record::{HostFact, Opening, Record, RecordWriter, free_path, read_stacks};
use tare_lab::stacks::ExtraRounds;
use tare_lab::study::{self, Study};
use tare_load::workload::shipped;
use tare_tune::idle;
use tare_tune::plan::Options;

use super::tune::temporary::{self, Temporary};
use super::{fit, inside, report, stacks};
use crate::cli::{Kind, Progress, SampleStacks, Weigh};
use crate::exit::{Exit, ExitWith};
use crate::{live, registry, serve, signals, stream, studies};

/// Memory that a system needs besides its rows.
const SYSTEM_BYTES: u64 = 64 << 20;
/// What a row costs in memory besides its columns: key, index, allocator.
const ROW_EXTRA_BYTES: u64 = 200;

pub(crate) fn run(options: &Weigh, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag_with(live::restore)?;
    let question = Question::of(options)?;
    if inside::is_asked(&options.inside) {
        return in_guest(&question, options, state, out, &stop);
    }
    let state = inside::state(&options.inside, state);
    let (ending, left) = measure(&question, state, &stop)?;
    tell_left(&left);
    // From inside a guest the record is presented by the host.
    if inside::arrived(&options.inside).is_none() {
        present(&question.path, options.html.as_deref(), options.json, out)?;
    }
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        _ if !left.is_empty() => Exit::Failure,
        _ => Exit::Success,
    })
}

/// Runs the study inside a guest, and presents its record here.
fn in_guest(
    question: &Question,
    options: &Weigh,
    state: &Path,
    out: &mut dyn Write,
    stop: &AtomicBool,
) -> anyhow::Result<Exit> {
    question.check_free()?;
    let mut came = false;
    let exit = inside::run(&options.inside, state, out, stop, |folder| {
        came = inside::take_record(folder, &question.path)?;
        Ok(())
    })?;
    if came {
        present(&question.path, options.html.as_deref(), options.json, out)?;
    }
    Ok(exit)
}

/// What is asked, and where the answer goes.
pub(super) struct Question {
    pub(super) study: Study,
    pub(super) text: String,
    /// A record to go on with.
    pub(super) resume: Option<PathBuf>,
    pub(super) path: PathBuf,
    pub(super) seed: u64,
    /// What the planner is asked where an environment tunes the host.
    pub(super) plan_options: Options,
    /// Facts for the record that the host does not tell.
    pub(super) facts: Vec<HostFact>,
    /// What is looked at closer after the rounds, where it is asked for.
    pub(super) stacks: Option<SampleStacks>,
    /// Block devices that may be written over.
    pub(super) destroy: Vec<PathBuf>,
    /// How it is shown while it runs.
    pub(super) progress: Progress,
    /// Where the page is served while the study runs.
    pub(super) page: Option<TcpListener>,
}

impl Question {
    fn of(options: &Weigh) -> anyhow::Result<Self> {
        let (mut study, text, seed, plan_options) = match &options.resume {
            Some(path) => {
                let record = report::read(path)?;
                let plan_options = temporary::options_of(&record.host);
                (record.study, record.study_text, record.header.seed, plan_options)
            }
            None => {
                let (study, text) = read_study(&options.study, options.quick)?;
                let seed = seed(options.seed, &study);
                (study, text, seed, Options::default())
            }
        };
        limit(&mut study, options.rounds, options.budget);
        let path = match (&options.resume, &options.output) {
            (Some(path), _) | (None, Some(path)) => path.clone(),
            (None, None) => free_path(Path::new(&format!("{}.tare", study.name))),
        };
        inside::check(&options.inside, options.show.page)?;
        let mut destroy = options.give_up.destroy_data_on.clone();
        let (mut path, mut resume) = (path, options.resume.clone());
        if let Some(here) = inside::arrived(&options.inside) {
            path = inside::record(resume.as_deref())?;
            resume = resume.map(|_| path.clone());
            destroy.extend(here.devices);
        }
        let stacks = Some(options.stacks.clone());
        let (facts, progress) = (Vec::new(), options.show.progress);
        let page = serve::listen(options.show.page.serve)?;
        Ok(Self {
            study,
            text,
            resume,
            path,
            seed,
            plan_options,
            facts,
            stacks,
            destroy,
            progress,
            page,
        })
    }

    /// What the study's tuned environments change on this host; `None` where there are none.
    fn host_tuning(&self, state: &Path) -> anyhow::Result<Option<Temporary>> {
        let prepare = || Temporary::prepare(state, &self.plan_options, self.study.schedule.kind);
        if !temporary::is_asked(&self.study) {
            return Ok(None);
        }
        // The host is tried only for a study that can run on it.
        check_runtimes(&self.study, state)?;
        prepare().map(Some)
    }

    /// The record's writer: the old one goes on, or a new one is made.
    fn writer(
        &self,
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
            study: self.study.clone(),
            study_text: self.text.clone(),
            cpu_plan: plan.clone(),
            host,
        };
        RecordWriter::create(&self.path, &opening).exit_with(Exit::Input)
    }

    /// Refuses to take a record's place before anything is measured.
    pub(super) fn check_free(&self) -> anyhow::Result<()> {
        let taken = self.resume.is_none() && self.path.exists();
        let error = || anyhow!("{} is there already; name another record", self.path.display());
        if taken { Err(error()).exit_with(Exit::Input) } else { Ok(()) }
    }

    /// Whether the study is of the fake world. Real and fake parts do not go together.
    pub(super) fn is_fake(&self) -> anyhow::Result<bool> {
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

    /// Memory that one environment needs while all are up.
    pub(super) fn memory_per_environment(&self) -> u64 {
        let rows = |w: &study::WorkloadSpec| {
            let shipped = w.workload.as_deref().and_then(shipped::find);
            let row_bytes = match shipped.and_then(|shipped| shipped.read().ok()) {
                Some(workload) => workload.row_bytes_most(),
                None => u64::from(w.columns) * u64::from(w.column_bytes),
            };
            w.rows * (row_bytes + ROW_EXTRA_BYTES)
        };
        let bytes = SYSTEM_BYTES + self.study.workloads.iter().map(rows).sum::<u64>();
        bytes.max(fit::memory_bytes(&self.study))
    }
}

/// Name and text of a study: a file, or one that ships.
fn study_text(word: &str) -> anyhow::Result<(String, String)> {
    let path = Path::new(word);
    if !path.exists()
        && let Some(text) = studies::find(word)
    {
        return Ok((word.to_string(), text.to_string()));
    }
    let text = fs::read_to_string(path).map_err(|error| {
        let names: Vec<&str> = studies::ALL.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        anyhow!(error).context(format!("cannot read the study {word} (studies that ship: {names})"))
    });
    Ok((word.to_string(), text.exit_with(Exit::Input)?))
}

/// A study by its name or path, checked, with its text; or its quick part.
pub(super) fn read_study(word: &str, quick: bool) -> anyhow::Result<(Study, String)> {
    let (name, text) = study_text(word)?;
    let parse = if quick { study::parse_quick } else { study::parse };
    let study = parse(&text, &name, &registry::vocabulary()).exit_with(Exit::Input)?;
    Ok((study, text))
}

/// Changes how long a study may take.
pub(super) fn limit(study: &mut Study, rounds: Option<u32>, budget: Option<Duration>) {
    let schedule = &mut study.schedule;
    schedule.rounds = rounds.unwrap_or(schedule.rounds);
    schedule.rounds_min = schedule.rounds_min.min(schedule.rounds);
    schedule.budget = budget.unwrap_or(schedule.budget);
}

/// The seed that was asked for, else the study's, else a new one.
pub(super) fn seed(asked: Option<u64>, study: &Study) -> u64 {
    asked.or(study.schedule.seed).unwrap_or_else(fresh_seed)
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the ones that change")]
    let ns = since.as_nanos() as u64;
    // Small enough to type, and to survive JSON readers that know no 64-bit integers.
    tare_std::rng::mix64(ns ^ u64::from(std::process::id())) >> 32
}

fn open_factory(
    state: &Path,
    plan: &CpuPlan,
    destroy: &[PathBuf],
) -> anyhow::Result<EnvironmentFactory> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let options = FactoryOptions {
        state: state.to_path_buf(),
        program,
        cpus: plan.clone(),
        destroy: destroy.to_vec(),
    };
    EnvironmentFactory::open(options).map_err(|error| {
        let exit = match &error {
            FactoryError::NoRoot | FactoryError::Missing { .. } => Exit::Host,
            _ => Exit::Failure,
        };
        Err::<EnvironmentFactory, _>(error)
            .exit_with(exit)
            .err()
            .unwrap_or_else(|| anyhow!("unreachable"))
    })
}

/// Whether this host can run what the study cannot do without.
fn check_runtimes(study: &Study, state: &Path) -> anyhow::Result<()> {
    for spec in study.environments.iter().filter(|spec| !spec.optional) {
        tare_env::runtime::check(spec)
            .and_then(|()| tare_env::runtime::check_boot(spec, state))
            .map_err(|error| anyhow!(error).context(format!("cannot run \"{}\"", spec.name)))
            .exit_with(Exit::Host)?;
    }
    Ok(())
}

/// Runs a study into its record, of the fake world or on this host. Returns why it ended and what
/// could not be removed.
pub(super) fn measure(
    question: &Question,
    state: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<(Ending, Vec<UndoError>)> {
    let allowed =
        tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    let plan = cpus::plan(&allowed, &question.study.cpus).exit_with(Exit::Input)?;
    if question.is_fake()? {
        return Ok((measure_fake(question, plan, stop)?, Vec::new()));
    }
    // What a killed run left behind would be in the way, and in the figures.
    super::clean::quietly(state);
    let tuned = question.host_tuning(state)?;
    measure_here(question, state, plan, tuned.as_ref(), stop)
}

/// Runs the study on this host into its record, and removes everything again. Returns why it ended
/// and what could not be removed.
pub(super) fn measure_here(
    question: &Question,
    state: &Path,
    plan: CpuPlan,
    tuned: Option<&Temporary>,
    stop: &AtomicBool,
) -> anyhow::Result<(Ending, Vec<UndoError>)> {
    let study = &question.study;
    let info = tare_system::find(&study.system.name)
        .with_context(|| format!("there is no system {}", study.system.name))?;
    let driver = drivers::of(study, &info.speaks(&study.system));
    let driver = driver.map_err(|error| anyhow!(error)).exit_with(Exit::Input)?;
    fit::check(study, info)?;
    check_runtimes(study, state)?;
    let mut factory = open_factory(state, &plan, &question.destroy)?;
    if let Some(tuned) = tuned {
        tuned.give(&mut factory, state)?;
    }
    let way = tare_system::ClientRoute { namespace: Some(factory.client_namespace().into()) };
    let system =
        info.make(&study.system, &way).map_err(|error| anyhow!(error)).exit_with(Exit::Input)?;
    let host = facts::read(Path::new("/proc"), Path::new("/sys")).into_iter();
    let mut host: Vec<HostFact> = host
        .map(|fact| HostFact {
            section: fact.section.to_string(),
            key: fact.key.to_string(),
            value: fact.value,
        })
        .collect();
    host.extend(inside::facts());
    host.extend(tuned.map(Temporary::facts).unwrap_or_default());
    // Ends with this function.
    let idle = hold_idle_states();
    host.extend(idle.as_ref().map(|hold| HostFact {
        section: "cpu".into(),
        key: "idle states held".into(),
        value: format!("none that takes over {} µs to leave", hold.latency_us_max),
    }));
    let clock = SystemClock::new();
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let client = drivers::Client {
        program: &program,
        cpus: &plan.client,
        namespace: Some(factory.client_namespace()),
        scratch: factory.context().work(),
        run: factory.run(),
    };
    let instances = system.instances();
    let mut driver = driver.make(&client, instances).map_err(|error| anyhow!(error))?;
    let (mut probes, missing) = tare_probe::open_all(&tare_probe::Roots::default(), &plan.all);
    host.extend(costs(&mut probes));
    let unread = |(probe, error): (&str, tare_probe::ProbeError)| Doubt::ProbeFailed {
        probe: probe.into(),
        reason: tare_host::error_line(&error),
    };
    let mut doubts: Vec<Doubt> = missing.into_iter().map(unread).collect();
    doubts.extend(baseline_taxes().map(|found| Doubt::BaselineNotClean { found }));
    let mut extra = ExtraRounds::default();
    if let Some(asked) = &question.stacks {
        let (found, missing) = stacks::extra_rounds(asked, factory.run(), &plan.all);
        extra = found;
        doubts.extend(missing);
    }
    let writer = question.writer(&plan, host, &clock)?;
    let available = memory_available_bytes();
    let parts = Parts {
        factory: &mut |spec| factory.environment_of(spec, instances.count),
        system: &*system,
        driver: &mut *driver,
        probes,
        clock: &clock,
        plan,
        memory: available.map(|available_bytes| Memory {
            available_bytes,
            per_environment_bytes: question.memory_per_environment(),
        }),
        data_dir: Some(factory.context().work().join("kept")),
        doubts,
    };
    let ending = conduct(question, parts, writer, stop, extra)?;
    if let Err(error) = factory.untune() {
        warn(&format!("{}; run tare clean", tare_host::error_line(&*error)));
    }
    Ok((ending, factory.close()))
}

/// What each probe takes to read, as facts of this host.
fn costs(probes: &mut [Box<dyn Probe>]) -> Vec<HostFact> {
    let fact = |probe: &mut Box<dyn Probe>| {
        // One that cannot be read says so in its slices.
        let cost = tare_probe::cost(&mut **probe).ok()?;
        let (section, key) = ("probes".to_string(), probe.name().to_string());
        Some(HostFact { section, key, value: cost_line(cost) })
    };
    probes.iter_mut().filter_map(fact).collect()
}

/// What a probe takes to read, for people.
pub(super) fn cost_line(cost: tare_probe::Cost) -> String {
    let us = |time: Duration| tare_std::units::significant(time.as_secs_f64() * 1e6, 2);
    format!("{} µs at the beginning of a slice, {} µs at its end", us(cost.begin), us(cost.end))
}

/// Runs a study of the fake world into its record. Nothing on the host is touched.
fn measure_fake(question: &Question, plan: CpuPlan, stop: &AtomicBool) -> anyhow::Result<Ending> {
    let world = fake::FakeHost::new(question.seed);
    let writer = question.writer(&plan, Vec::new(), &world)?;
    let parts = Parts {
        factory: &mut |spec| world.environment(spec),
        system: &world.system(),
        driver: &mut world.driver(),
        probes: vec![Box::new(world.probe())],
        clock: &world,
        plan,
        memory: None,
        data_dir: None,
        doubts: Vec::new(),
    };
    let mut extra = ExtraRounds::default();
    if let Some(asked) = question.stacks.as_ref().filter(|asked| asked.stacks) {
        let sampler = |kind: &Kind| Box::new(world.sampler((*kind).into())) as _;
        extra.samplers = asked.stack_kinds.iter().map(sampler).collect();
        (extra.rounds, extra.window) = (asked.stack_rounds, asked.stack_window);
    }
    conduct(question, parts, writer, stop, extra)
}

/// Runs the campaign under the eyes of a live view.
fn conduct<'p>(
    question: &Question,
    parts: Parts<'p>,
    writer: RecordWriter,
    stop: &AtomicBool,
    extra: ExtraRounds<'p>,
) -> anyhow::Result<Ending> {
    let study = &question.study;
    let start = |page| serve::Live::start(page, &question.path, &parts.plan.client);
    let mut served = question.page.as_ref().map(start).transpose()?;
    // A screen hides what was printed before it: its title says where the page is.
    let title = |page: &serve::Live| format!("{}  {}", page.url(), study.title);
    let title = served.as_ref().map_or_else(|| study.title.clone(), title);
    let shown = Study { title, ..study.clone() };
    let mut observer = live::observer(question.progress, &shown, report::style(), stop);
    if let Some(page) = &mut served {
        observer = page.beside(observer, study.schedule.kind);
    }
    let outcome =
        campaign::run_with_extra_rounds(parts, study, writer, &mut *observer, stop, extra);
    drop(observer);
    if let Some(page) = served {
        page.finish();
    }
    let exit = match &outcome {
        Err(CampaignError::Memory { .. } | CampaignError::Start { .. }) => Exit::Host,
        _ => Exit::Failure,
    };
    Ok(outcome.exit_with(exit)?.ending)
}

/// Keeps the CPUs from sleeping deeply while a study runs: waking up takes longer than an
/// operation.
fn hold_idle_states() -> Option<idle::IdleLimit> {
    idle::IdleLimit::open().unwrap_or_else(|error| {
        warn(&tare_host::error_line(&error));
        None
    })
}

/// What taxes every packet of the native run: NAT tables and bridges in this network namespace.
fn baseline_taxes() -> Option<String> {
    let tables = facts::nat_tables().into_iter().map(|table| format!("NAT table {table}"));
    let bridges =
        facts::bridges(Path::new("/sys")).into_iter().map(|name| format!("bridge {name}"));
    let found: Vec<String> = tables.chain(bridges).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// `MemAvailable` of the host.
pub(super) fn memory_available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Prints the result from the record alone, and writes the page.
pub(super) fn present(
    path: &Path,
    html: Option<&Path>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = Record::read(path)?;
    let analysis = analyse(&record);
    let page = html.map_or_else(|| path.with_extension("html"), Path::to_path_buf);
    let stacks = read_stacks(path)?;
    fs::write(&page, tare_report::html::page(&record, &analysis, &stacks)).with_context(|| {
        format!("the record is whole, but cannot write the page {}", page.display())
    })?;
    if json {
        writeln!(out, "{}", tare_report::json::render(&record, &analysis, &stacks))?;
        return Ok(());
    }
    let text = tare_report::terminal::render(&record, &analysis, &stacks, report::style());
    write!(out, "{text}")?;
    writeln!(out, "\nrecord: {}\npage:   {}", path.display(), page.display())?;
    Ok(())
}

pub(super) fn tell_left(left: &[UndoError]) {
    for error in left {
        warn(&format!("left behind: {}; run tare clean", tare_host::error_line(error)));
    }
}

pub(super) fn warn(line: &str) {
    stream::say(&format!("tare: {line}"));
}
