//! Parses and checks a study in TOML.
//!
//! An unknown key or value is an error with its place and the nearest valid name. Every figure has
//! a range. The constants in [`defaults`] are the defaults.

use std::time::Duration;

use toml::de::DeTable;

use crate::cpus::SmtUse;

use super::attach::{self, Around};
use super::checks::{Names, must_exist, must_exist_as, name_of, options, part};
use super::connection;
use super::hosts::{self, SystemHost};
use super::loaders;
use super::vocabulary::{KnownPart, KnownWorkload, Vocabulary};
use super::{
    AutoWindow, BadSlo, ClientConnection, CpuSpec, DataStart, KeyDistribution, LoadSize, QuickPart,
    Replicas, Saturate, ScheduleKind, ScheduleSpec, Slo, Study, SystemSpec, WorkloadSpec,
    control_name, environments, expand, published,
};
use super::{Problem, StudyError};
use tare_toml::{Source, Table};

/// Values of keys that a study leaves out.
pub mod defaults {
    use std::time::Duration;

    /// `schedule.window` of a slice, and of a trial.
    pub const WINDOW_SLICES: Duration = Duration::from_millis(400);
    pub const WINDOW_TRIALS: Duration = Duration::from_secs(30);
    /// `schedule.lead_in` of a slice, and of a trial.
    pub const LEAD_IN_SLICES: Duration = Duration::from_millis(100);
    /// `schedule.lead_in` of a slice with `window = "auto"`.
    pub const LEAD_IN_AUTO: Duration = Duration::from_millis(10);
    pub const LEAD_IN_TRIALS: Duration = Duration::from_secs(5);
    /// `schedule.rounds` of slices, and of trials.
    pub const ROUNDS_SLICES: u32 = 60;
    /// `schedule.rounds` and `schedule.rounds_min` with `window = "auto"`.
    pub const ROUNDS_AUTO: u32 = 2000;
    pub const ROUNDS_MIN_AUTO: u32 = 30;
    pub const ROUNDS_TRIALS: u32 = 10;
    /// `schedule.rounds_min`, or `rounds` where that is less.
    pub const ROUNDS_MIN: u32 = 8;
    /// `schedule.budget`.
    pub const BUDGET: Duration = Duration::from_secs(5 * 60);
    /// `schedule.stop_width_percent`.
    pub const STOP_WIDTH_PERCENT: f64 = 2.0;
    /// `workload.write_share`.
    pub const WRITE_SHARE: f64 = 1.0;
    /// `workload.rows`.
    pub const ROWS: u64 = 100_000;
    /// `workload.columns` and `workload.column_bytes`: cassandra-stress's default row is 5 x 34
    /// bytes, the ladder that the quick study repeats used 5 x 64.
    pub const COLUMNS: u32 = 5;
    pub const COLUMN_BYTES: u32 = 64;
    /// `workload.connections` and `workload.in_flight` for each CPU of the system.
    pub const CONNECTIONS: u32 = 8;
    pub const IN_FLIGHT: u32 = 64;
    /// `workload.latency_share`.
    pub const LATENCY_SHARE: f64 = 0.5;
    /// `keys.mean_share` and `keys.deviation_share`: cassandra-stress's `gaussian(1..N)`.
    pub const MEAN_SHARE: f64 = 0.5;
    pub const DEVIATION_SHARE: f64 = 1.0 / 6.0;
}

const ROOT_KEYS: &[&str] = &[
    "name",
    "title",
    "baseline",
    "driver",
    "system",
    "schedule",
    "cpus",
    "loader",
    "environment",
    "neighbour",
    "workload",
    "sweep",
    "published",
    "quick",
    connection::ACCESS,
];
const SCHEDULE_KEYS: &[&str] = &[
    "kind",
    "data",
    "data_cache",
    "window",
    "lead_in",
    "rounds",
    "rounds_min",
    "budget",
    "stop_width_percent",
    "seed",
    "restarts",
    "warm_up",
];
const WORKLOAD_KEYS: &[&str] = &[
    "name",
    "workload",
    "write_share",
    "rows",
    "columns",
    "column_bytes",
    "keys",
    "connections",
    "in_flight",
    "load",
    "latency_share",
    "rate_per_s",
    "rate_only",
    "slo",
    "reads_from_disk",
    "replication",
    "consistency",
    connection::KEYS[0],
    connection::KEYS[1],
    connection::KEYS[2],
];

/// Reads and checks a study, including its quick part. `file_name` is for messages only.
///
/// # Errors
/// The first error, in the order: TOML, sweeps, top level, system, schedule,
/// environments, loaders, workloads, published relations, the quick part.
pub fn parse(text: &str, file_name: &str, vocabulary: &Vocabulary) -> Result<Study, StudyError> {
    let source = Source { file: file_name, text };
    let document = open(source)?;
    let whole = read(&document, source, vocabulary)?;
    quick_part(&document, source, vocabulary, &whole)?;
    Ok(whole)
}

/// Reads and checks the quick part of a study, which its table `[quick]` defines.
///
/// # Errors
/// As [`parse`], and if the study has no such table.
pub fn parse_quick(
    text: &str,
    file_name: &str,
    vocabulary: &Vocabulary,
) -> Result<Study, StudyError> {
    let source = Source { file: file_name, text };
    let document = open(source)?;
    let whole = read(&document, source, vocabulary)?;
    let part = quick_part(&document, source, vocabulary, &whole)?;
    part.ok_or_else(|| source.error(source.first_line(), Problem::NoQuickPart))
}

/// Parses the document and expands its sweeps.
fn open(source: Source<'_>) -> Result<DeTable<'_>, StudyError> {
    expand::rates(expand::sweeps(source.document()?, source)?, source)
}

fn root<'s>(document: &'s DeTable<'s>, source: Source<'s>) -> Result<Table<'s>, StudyError> {
    source.root("the study", document, ROOT_KEYS)
}

fn read(
    document: &DeTable<'_>,
    source: Source<'_>,
    vocabulary: &Vocabulary,
) -> Result<Study, StudyError> {
    let root = root(document, source)?;
    let name = name_of(&root)?.0;
    let title = root.text("title")?.map_or_else(String::new, |(title, _)| title);
    let (baseline, baseline_item) =
        root.text("baseline")?.ok_or_else(|| root.missing("baseline"))?;
    let driver = driver(&root, vocabulary)?;
    let (system, hosts) = system(&root, vocabulary)?;
    let schedule = schedule(&root, unsaved(&system, &hosts, vocabulary))?;
    let cpus = cpus(&root)?;
    let environments = environments::read(&root, source, vocabulary, &system)?;
    let names: Vec<String> = environments.iter().map(|one| one.name.clone()).collect();
    must_exist(&baseline_item, &baseline, &names)?;
    let control = control_name(&baseline);
    if let Some(position) = names.iter().position(|name| *name == control) {
        let tables = root.tables("environment", environments::KEYS)?;
        let item = tables[position].need("name")?;
        return Err(item.bad_value("the baseline's second copy (A/A control) has this name"));
    }
    let (loaders, loader_selectors) = loaders::read(&root, source)?;
    let loaders_min = loaders.len() + loader_selectors.len();
    let around = Around {
        environments: &environments,
        schedule: &schedule,
        system: &system,
        hosts: &hosts,
        has_loaders: loaders_min > 0,
    };
    attach::check(&root.tables("environment", environments::KEYS)?, &around)?;
    let workloads = workloads(&root, source, driver, vocabulary, loaders_min)?;
    let access = connection::access(&root, &environments, &workloads)?;
    let workload_names: Vec<String> = workloads.iter().map(|one| one.name.clone()).collect();
    let published = published::read(&root, &names, &workload_names)?;
    Ok(Study {
        name,
        title,
        baseline,
        system,
        driver: driver.name.clone(),
        schedule,
        cpus,
        environments,
        workloads,
        published,
        quick: None,
        budget_part: None,
        runtime_controls: Vec::new(),
        loaders,
        loader_selectors,
        hosts,
        access,
    })
}

/// Returns the files that the workloads of a study name, each once. A study that cannot be read has
/// none; [`parse`] says why.
pub fn workload_files(text: &str) -> Vec<String> {
    let source = Source { file: "", text };
    let Ok(document) = open(source) else { return Vec::new() };
    let Ok(root) = root(&document, source) else { return Vec::new() };
    let mut files: Vec<String> = Vec::new();
    for table in root.tables("workload", WORKLOAD_KEYS).unwrap_or_default() {
        let Some(name) = table.get("workload").and_then(|item| item.text().ok()) else { continue };
        if name.ends_with(".toml") && !files.iter().any(|known| known == name) {
            files.push(name.into());
        }
    }
    files
}

/// Returns the quick part of a study, if it has one: the tables of `[quick]` merged into those of
/// the study, and only the environments and workloads that `[quick]` lists.
fn quick_part(
    document: &DeTable<'_>,
    source: Source<'_>,
    vocabulary: &Vocabulary,
    whole: &Study,
) -> Result<Option<Study>, StudyError> {
    let root = root(document, source)?;
    let Some(table) = root.table("quick", expand::QUICK_KEYS)? else { return Ok(None) };
    let environments: Vec<String> = whole.environments.iter().map(|one| one.name.clone()).collect();
    let workloads: Vec<String> = whole.workloads.iter().map(|one| one.name.clone()).collect();
    let kept_environments = kept(&table, "environments", "environment", &environments)?;
    let kept_workloads = kept(&table, "workloads", "workload", &workloads)?;
    if !kept_environments.contains(&whole.baseline) {
        let item = table.need("environments")?;
        return Err(item.bad_value(&format!("the baseline {:?} is not among them", whole.baseline)));
    }
    for key in ["schedule", "system", "workload"] {
        if let Some(item) = table.get(key).filter(|item| !item.is_table()) {
            return Err(item.wrong_type("a table"));
        }
    }
    let edited = expand::quick(document);
    let mut part = read(&edited, source, vocabulary)?;
    part.environments.retain(|one| kept_environments.contains(&one.name));
    part.workloads.retain(|one| kept_workloads.contains(&one.name));
    part.title = format!("{} (quick part)", part.title).trim_start().to_string();
    let left = |all: Vec<String>, kept: &[String]| {
        all.into_iter().filter(|name| !kept.contains(name)).collect::<Vec<_>>()
    };
    part.quick = Some(QuickPart {
        environments: left(environments, &kept_environments),
        workloads: left(workloads, &kept_workloads),
    });
    Ok(Some(part))
}

/// Returns the names in a list of `[quick]`, or all names without the list.
fn kept(
    table: &Table<'_>,
    key: &str,
    what: &'static str,
    known: &[String],
) -> Result<Vec<String>, StudyError> {
    let Some(item) = table.get(key) else { return Ok(known.to_vec()) };
    let items = item.list().filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| item.wrong_type(&format!("a list of names of {what}s")))?;
    items
        .iter()
        .map(|item| {
            let name = item.text()?;
            must_exist_as(what, item, name, known)?;
            Ok(name.to_string())
        })
        .collect()
}

fn driver<'v>(root: &Table<'_>, vocabulary: &'v Vocabulary) -> Result<&'v KnownPart, StudyError> {
    let known = &vocabulary.drivers;
    let names: Vec<String> = known.iter().map(|words| words.name.clone()).collect();
    let driver = match root.word("driver", &names)? {
        Some(name) => known.iter().find(|words| words.name == name),
        None => known.first(),
    };
    driver.ok_or_else(|| root.missing("driver"))
}

fn system(
    root: &Table<'_>,
    vocabulary: &Vocabulary,
) -> Result<(SystemSpec, Vec<SystemHost>), StudyError> {
    match root.get("system") {
        Some(item) => {
            let keys = ["name", hosts::KEY];
            let (name, options) = part(&item, &keys, "[system]", &vocabulary.systems)?;
            let mut system = SystemSpec { name, options };
            let hosts = hosts::read(&item, &mut system)?;
            Ok((system, hosts))
        }
        None => {
            let first = vocabulary.systems.first().ok_or_else(|| root.missing("system"))?;
            Ok((SystemSpec { name: first.name.clone(), options: vec![] }, Vec::new()))
        }
    }
}

/// Returns why the data of a system cannot be restored into a start, if that is so.
fn unsaved(
    system: &SystemSpec,
    hosts: &[SystemHost],
    vocabulary: &Vocabulary,
) -> Option<&'static str> {
    let has =
        |pair: (&str, &str)| system.options.iter().any(|(name, value)| (&**name, &**value) == pair);
    if !vocabulary.systems.iter().any(|one| one.name == system.name && !one.in_memory) {
        return Some("the system has no data in files, so the driver loads it after each start");
    }
    if !hosts.is_empty() {
        return Some("its instances run on hosts of their own, where the driver loads each start");
    }
    has(("cluster", "true")).then_some(
        "a node of a cluster keeps the addresses of its first start in its data; leave out \"cluster\", or set data = \"loaded\"",
    )
}

/// Reads the schedule of a study. `unsaved` says why its data cannot be restored.
fn schedule(root: &Table<'_>, unsaved: Option<&str>) -> Result<ScheduleSpec, StudyError> {
    let empty = DeTable::new();
    let table = match root.table("schedule", SCHEDULE_KEYS)? {
        Some(table) => table,
        None => root.empty("[schedule]", &empty),
    };
    let kinds = ["slices".to_string(), "trials".to_string()];
    let kind = match table.word("kind", &kinds)?.as_deref() {
        Some("trials") => ScheduleKind::Trials,
        _ => ScheduleKind::Slices,
    };
    let starts = ["loaded".to_string(), "restored".to_string()];
    let data = table.word("data", &starts)?;
    if let (Some("restored"), Some(why)) = (data.as_deref(), unsaved) {
        return Err(table.need("data")?.bad_value(why));
    }
    let data = match (data.as_deref(), kind) {
        (None, ScheduleKind::Trials) if unsaved.is_some() => DataStart::Loaded,
        (Some("restored"), _) | (None, ScheduleKind::Trials) => DataStart::Restored,
        _ => DataStart::Loaded,
    };
    let without_data_cache = table.get("data_cache").is_some() && !table.flag("data_cache")?;
    let auto = table.get("window").filter(|item| item.text().is_ok_and(|text| text == "auto"));
    if let Some(item) = auto.as_ref().filter(|_| kind == ScheduleKind::Trials) {
        return Err(item.bad_value("only slices have a window that Tare chooses; give a duration"));
    }
    let auto_window = auto.map(|_| AutoWindow::default());
    let (window, lead_in, rounds) = match kind {
        ScheduleKind::Slices if auto_window.is_some() => {
            (AutoWindow::AT_RATE, defaults::LEAD_IN_AUTO, defaults::ROUNDS_AUTO)
        }
        ScheduleKind::Slices => {
            (defaults::WINDOW_SLICES, defaults::LEAD_IN_SLICES, defaults::ROUNDS_SLICES)
        }
        ScheduleKind::Trials => {
            (defaults::WINDOW_TRIALS, defaults::LEAD_IN_TRIALS, defaults::ROUNDS_TRIALS)
        }
    };
    let (ms, hour) = (Duration::from_millis, Duration::from_secs(3600));
    let rounds = table.whole_u32("rounds", 1..=100_000, rounds)?;
    let rounds_min = match auto_window {
        Some(_) => defaults::ROUNDS_MIN_AUTO,
        None => defaults::ROUNDS_MIN,
    };
    let rounds_min = table.whole_u32("rounds_min", 1..=100_000, rounds_min.min(rounds))?;
    if let Some(item) = table.get("rounds_min").filter(|_| rounds_min > rounds) {
        return Err(item.out_of_range(&format!("at most \"rounds\", which is {rounds}")));
    }
    let stop_width = table.get("stop_width_percent");
    Ok(ScheduleSpec {
        kind,
        data,
        without_data_cache,
        window: match auto_window {
            Some(_) => window,
            None => table.duration("window", ms(20)..=hour, window)?,
        },
        auto_window,
        lead_in: table.duration("lead_in", Duration::ZERO..=hour, lead_in)?,
        rounds,
        rounds_min,
        budget: table.duration("budget", ms(1000)..=hour * 24 * 7, defaults::BUDGET)?,
        stop_width_percent: stop_width
            .map_or(Ok(defaults::STOP_WIDTH_PERCENT), |item| item.number(0.0..=100.0))?,
        // TOML's whole numbers are signed, so a seed in a file has 63 bits.
        seed: table.get("seed").map(|item| item.whole(0..=u64::MAX >> 1)).transpose()?,
        restarts: restarts(&table, kind)?,
        warm_up: warm_up(&table, kind)?,
    })
}

fn warm_up(table: &Table<'_>, kind: ScheduleKind) -> Result<Duration, StudyError> {
    match table.get("warm_up") {
        Some(item) if kind == ScheduleKind::Trials => {
            Err(item.bad_value("every trial starts its environment; use \"lead_in\""))
        }
        _ => Ok(table.duration(
            "warm_up",
            Duration::ZERO..=Duration::from_secs(3600),
            Duration::ZERO,
        )?),
    }
}

fn restarts(table: &Table<'_>, kind: ScheduleKind) -> Result<u32, StudyError> {
    let restarts = table.whole_u32("restarts", 0..=100, 0)?;
    match table.get("restarts") {
        Some(item) if kind == ScheduleKind::Trials && restarts > 0 => {
            Err(item.bad_value("every trial starts its environment anyway; leave it out"))
        }
        _ => Ok(restarts),
    }
}

fn cpus(root: &Table<'_>) -> Result<CpuSpec, StudyError> {
    let Some(table) = root.table("cpus", &["system", "client", "interrupts", "node", "smt"])?
    else {
        return Ok(CpuSpec::default());
    };
    // A list is a text, a number of CPUs is not.
    let count = |key: &str, least: u64| -> Result<Option<u32>, StudyError> {
        let count = table.get(key).filter(|item| item.text().is_err());
        let count = count.map(|item| item.whole(least..=u64::from(u32::MAX))).transpose()?;
        Ok(count.and_then(|count| u32::try_from(count).ok()))
    };
    let system_count = count("system", 1)?;
    let interrupts_count = count("interrupts", 0)?;
    let node = table.get("node").map(|item| item.whole(0..=1023)).transpose()?;
    let words = ["use".to_string(), "leave idle".to_string()];
    let smt = match table.word("smt", &words)?.as_deref() {
        Some("leave idle") => SmtUse::LeaveIdle,
        _ => SmtUse::Use,
    };
    let spec = CpuSpec {
        system: if system_count.is_some() { None } else { table.cpus("system")? },
        client: table.cpus("client")?,
        system_count,
        interrupts: if interrupts_count.is_some() { None } else { table.cpus("interrupts")? },
        interrupts_count,
        node: node.and_then(|node| u32::try_from(node).ok()),
        smt,
    };
    if system_count.is_some() && spec.client.is_some() {
        let why = "system is a number, so Tare chooses both sets; give a list for both or neither";
        return Err(table.need("client")?.bad_value(why));
    }
    if let (Some(system), Some(client)) = (&spec.system, &spec.client) {
        let both = system.intersection(client);
        if !both.is_empty() {
            let why = format!("CPU {both} is also in \"system\"; the client needs its own");
            return Err(table.need("client")?.bad_value(&why));
        }
    }
    for (key, set) in [("system", &spec.system), ("client", &spec.client)] {
        let (Some(set), Some(interrupts)) = (set, &spec.interrupts) else { continue };
        let both = set.intersection(interrupts);
        if !both.is_empty() {
            let why = format!("CPU {both} is also in \"{key}\"; interrupts need their own");
            return Err(table.need("interrupts")?.bad_value(&why));
        }
    }
    Ok(spec)
}

fn workloads(
    root: &Table<'_>,
    source: Source<'_>,
    driver: &KnownPart,
    vocabulary: &Vocabulary,
    loaders: usize,
) -> Result<Vec<WorkloadSpec>, StudyError> {
    let own_words = !driver.options.is_empty();
    let own_keys =
        ["name", driver.name.as_str(), "load", "latency_share", "rate_per_s", "rate_only", "slo"];
    let tables = root.tables("workload", if own_words { &own_keys } else { WORKLOAD_KEYS })?;
    if tables.is_empty() {
        return Err(root.missing("workload"));
    }
    let mut names = Names::default();
    let mut workloads = Vec::new();
    for table in tables {
        let (name, item) = name_of(&table)?;
        names.add("workload", &name, &item, source)?;
        let (rate_per_s, latency_share) = fixed_rate(&table)?;
        let has_rate = rate_per_s.is_some() || latency_share > 0.0;
        let slo = slo(&table, has_rate)?;
        let rate_only = rate_only(&table, has_rate)?;
        if own_words {
            let saturate = saturates(&table)?.then(Saturate::default);
            let item = table.need(&driver.name)?;
            let options =
                options(&item, &format!("{} of [[workload]]", driver.name), &[], &driver.options)?;
            workloads.push(WorkloadSpec {
                name,
                workload: None,
                workload_text: None,
                write_share: 0.0,
                rows: 0,
                columns: 0,
                column_bytes: 0,
                keys: KeyDistribution::Uniform,
                connections: 0,
                in_flight: 0,
                load: LoadSize { saturate, ..LoadSize::default() },
                latency_share,
                rate_per_s,
                rate_only,
                slo,
                reads_from_disk: None,
                replicas: Replicas::default(),
                connection: ClientConnection::default(),
                attached_rows: None,
                options,
            });
            continue;
        }
        let named = named(&table, vocabulary)?;
        let saturates = saturates(&table)?;
        let rows = named.map_or(defaults::ROWS, |words| words.rows);
        let (write_share, columns, column_bytes) = match named {
            Some(_) => (0.0, 0, 0),
            None => (
                table.share("write_share", defaults::WRITE_SHARE)?,
                table.whole_u32("columns", 1..=1000, defaults::COLUMNS)?,
                table.whole_u32("column_bytes", 1..=1 << 20, defaults::COLUMN_BYTES)?,
            ),
        };
        let workload = WorkloadSpec {
            name,
            workload: named.map(|words| words.name.clone()),
            workload_text: named.and_then(|words| words.text.clone()),
            write_share,
            rows: table.whole("rows", 1..=1_000_000_000_000, rows)?,
            columns,
            column_bytes,
            keys: keys(&table)?,
            connections: table.whole_u32("connections", 1..=65_536, defaults::CONNECTIONS)?,
            in_flight: table.whole_u32("in_flight", 1..=1 << 20, defaults::IN_FLIGHT)?,
            load: LoadSize {
                in_flight_per_cpu: table.get("in_flight").is_none(),
                connections_per_cpu: table.get("connections").is_none(),
                rows_from_disk_share: table.get("rows").is_none()
                    && table.get("reads_from_disk").is_some(),
                saturate: saturates.then(Saturate::default),
            },
            latency_share,
            rate_per_s,
            rate_only,
            slo,
            reads_from_disk: reads_from_disk(&table)?,
            replicas: replicas(&table)?,
            connection: connection::read(&table)?,
            attached_rows: None,
            options: Vec::new(),
        };
        loaders::check_division(loaders, &workload, &table)?;
        workloads.push(workload);
    }
    Ok(workloads)
}

/// Reads the objective of a workload, which needs a fixed rate to begin with.
fn slo(table: &Table<'_>, has_rate: bool) -> Result<Option<Slo>, StudyError> {
    let Some(item) = table.get("slo") else { return Ok(None) };
    let slo: Slo =
        item.text()?.parse().map_err(|error: BadSlo| item.bad_value(&error.to_string()))?;
    match has_rate {
        true => Ok(Some(slo)),
        false => {
            Err(item.bad_value("the search begins at the fixed rate; set latency_share above 0"))
        }
    }
}

/// Reads the fixed rate of a workload: a number of operations/s, or a share of the baseline's
/// capacity.
fn fixed_rate(table: &Table<'_>) -> Result<(Option<f64>, f64), StudyError> {
    table.exclusive(
        "rate_per_s",
        "latency_share",
        "the fixed rate is either a number or a share of the baseline's capacity",
    )?;
    let rate_per_s = table.get("rate_per_s").map(|item| item.number(1.0..=1e9)).transpose()?;
    let share = if rate_per_s.is_some() { 0.0 } else { defaults::LATENCY_SHARE };
    Ok((rate_per_s, table.share("latency_share", share)?))
}

/// Reads whether a workload has no closed loop. It then needs a fixed rate.
fn rate_only(table: &Table<'_>, has_rate: bool) -> Result<bool, StudyError> {
    let rate_only = table.flag("rate_only")?;
    match table.get("rate_only").filter(|_| rate_only && !has_rate) {
        Some(item) => Err(item.bad_value("nothing would be measured; set rate_per_s")),
        None => Ok(rate_only),
    }
}

/// Reads how often rows are stored, and how many replicas answer.
fn replicas(table: &Table<'_>) -> Result<Replicas, StudyError> {
    let default = Replicas::default();
    let words = Replicas::CONSISTENCIES.map(String::from);
    Ok(Replicas {
        replication: table.whole_u32("replication", 1..=100, default.replication)?,
        consistency: table.word("consistency", &words)?.unwrap_or(default.consistency),
    })
}

/// Returns the share of reads that are to come from disk. Refuses it for a workload without reads.
fn reads_from_disk(table: &Table<'_>) -> Result<Option<f64>, StudyError> {
    let Some(item) = table.get("reads_from_disk") else { return Ok(None) };
    let only_writes = table.share("write_share", defaults::WRITE_SHARE)? >= 1.0;
    if only_writes && table.get("workload").is_none() {
        return Err(item.bad_value("this workload has no reads; write_share below 1 gives it some"));
    }
    table.share("reads_from_disk", 0.0).map(Some)
}

/// Returns whether the campaign is to find the requests in flight of a workload.
fn saturates(table: &Table<'_>) -> Result<bool, StudyError> {
    let known = ["fixed".to_string(), "saturate".to_string()];
    let saturates = table.word("load", &known)?.is_some_and(|load| load == "saturate");
    if saturates {
        table.exclusive("in_flight", "load", "load = \"saturate\" finds it")?;
    }
    Ok(saturates)
}

/// Returns the predefined workload of a table, if it names one. Refuses keys that such a workload
/// defines itself.
fn named<'v>(
    table: &Table<'_>,
    vocabulary: &'v Vocabulary,
) -> Result<Option<&'v KnownWorkload>, StudyError> {
    let known: Vec<String> = vocabulary.workloads.iter().map(|words| words.name.clone()).collect();
    let Some(name) = table.word("workload", &known)? else { return Ok(None) };
    for key in ["write_share", "columns", "column_bytes", "keys"] {
        table.exclusive(key, "workload", "a predefined workload has its own")?;
    }
    Ok(vocabulary.workloads.iter().find(|words| words.name == name))
}

fn keys(table: &Table<'_>) -> Result<KeyDistribution, StudyError> {
    let kinds = ["uniform".to_string(), "sequential".into(), "gaussian".into()];
    let gaussian =
        |mean_share, deviation_share| KeyDistribution::Gaussian { mean_share, deviation_share };
    let Some(item) = table.get("keys") else { return Ok(KeyDistribution::Uniform) };
    if !item.is_table() {
        let kind = item.text()?;
        item.known(kind, &kinds)?;
        return Ok(match kind {
            "sequential" => KeyDistribution::Sequential,
            "gaussian" => gaussian(defaults::MEAN_SHARE, defaults::DEVIATION_SHARE),
            _ => KeyDistribution::Uniform,
        });
    }
    let open = item.open_table("keys")?;
    let kind = open.word("kind", &kinds)?.ok_or_else(|| open.missing("kind"))?;
    if kind != "gaussian" {
        item.table(&format!("keys of kind {kind}"), &["kind"])?;
        let sequential = kind == "sequential";
        return Ok(if sequential { KeyDistribution::Sequential } else { KeyDistribution::Uniform });
    }
    let inner = item.table("keys", &["kind", "mean_share", "deviation_share"])?;
    let deviation = inner.share("deviation_share", defaults::DEVIATION_SHARE)?;
    if let Some(item) = inner.get("deviation_share").filter(|_| deviation == 0.0) {
        return Err(item.out_of_range("above 0"));
    }
    Ok(gaussian(inner.share("mean_share", defaults::MEAN_SHARE)?, deviation))
}
