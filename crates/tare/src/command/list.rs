//! `tare list`: lists everything that a study may name, from the `ALL` lists of the crates.

mod cached_data;

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use tare_lab::layer::Layer;
use tare_lab::stacks::StackKind;
use tare_probe::stacks::{Perf, UserFrames};

use crate::cli::{List, ListKind};
use crate::exit::Exit;
use crate::study_plan::{self, Needs};
use crate::{registry, studies};

/// One name that a study may use.
#[derive(Serialize)]
struct Item {
    name: String,
    help: String,
    /// Values or options, with one line of help each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<(String, String)>,
    /// Why this host does not support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
    /// Time and needs of a study.
    #[serde(skip_serializing_if = "Option::is_none")]
    study: Option<StudySummary>,
}

/// What running a study takes.
#[derive(Serialize)]
struct StudySummary {
    /// The expected time of the whole study on a host that can run all of it.
    time_s: f64,
    /// The expected time of its quick part, if it has one.
    quick_time_s: Option<f64>,
    needs: Needs,
}

impl Item {
    fn new(name: impl Into<String>, help: impl Into<String>) -> Self {
        let (name, help) = (name.into(), help.into());
        Self { name, help, options: Vec::new(), unavailable: None, study: None }
    }
}

const KINDS: [ListKind; 9] = [
    ListKind::Runtimes,
    ListKind::Layers,
    ListKind::Storage,
    ListKind::Systems,
    ListKind::Drivers,
    ListKind::Probes,
    ListKind::Studies,
    ListKind::Workloads,
    ListKind::Knobs,
];

pub(crate) fn run(options: &List, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.kind == Some(ListKind::Data) {
        return cached_data::list(options.json, out);
    }
    let kinds: Vec<ListKind> = options.kind.map_or_else(|| KINDS.to_vec(), |kind| vec![kind]);
    if options.json {
        let all: serde_json::Map<String, serde_json::Value> = kinds
            .into_iter()
            .map(|kind| Ok((title(kind).to_string(), serde_json::to_value(items(kind, state))?)))
            .collect::<Result<_, serde_json::Error>>()?;
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(Exit::Success);
    }
    for (index, kind) in kinds.into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", title(kind))?;
        print(&items(kind, state), out)?;
    }
    Ok(Exit::Success)
}

fn title(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Runtimes => "runtimes",
        ListKind::Layers => "layers",
        ListKind::Storage => "storage",
        ListKind::Systems => "systems",
        ListKind::Drivers => "drivers",
        ListKind::Probes => "probes",
        ListKind::Studies => "studies",
        ListKind::Workloads => "workloads",
        ListKind::Knobs => "knobs",
        ListKind::Data => "data",
    }
}

fn items(kind: ListKind, state: &Path) -> Vec<Item> {
    match kind {
        ListKind::Runtimes => runtimes(state),
        ListKind::Layers => {
            let layer = |layer: Layer| Item {
                options: values(layer),
                ..Item::new(layer.name(), layer.help())
            };
            Layer::ALL.into_iter().map(layer).collect()
        }
        ListKind::Storage => tare_env::storage::ALL
            .iter()
            .map(|kind| Item { options: pairs(kind.options), ..Item::new(kind.name, kind.help) })
            .collect(),
        ListKind::Systems => {
            let system = |system: &tare_system::SystemInfo| Item {
                options: infos(system.options),
                ..Item::new(system.name, system.help)
            };
            tare_system::ALL.iter().map(system).collect()
        }
        ListKind::Drivers => tare_driver::ALL
            .iter()
            .map(|driver| Item {
                options: infos(driver.options),
                ..Item::new(driver.name, driver.help)
            })
            .collect(),
        ListKind::Probes => probes(),
        ListKind::Studies => studies::ALL.iter().map(|(name, text)| study(name, text)).collect(),
        ListKind::Workloads => tare_load::workload::shipped::ALL
            .iter()
            .map(|shipped| Item::new(shipped.name, title_of(shipped.text)))
            .collect(),
        ListKind::Knobs => {
            let knob = |knob: &&dyn tare_tune::knobs::Knob| Item {
                options: vec![("group".into(), knob.group().name().into())],
                ..Item::new(knob.name(), knob.help())
            };
            tare_tune::knobs::ALL.iter().map(knob).collect()
        }
        // No study names it.
        ListKind::Data => Vec::new(),
    }
}

/// Returns a shipped study with its time and needs.
fn study(name: &str, text: &str) -> Item {
    let mut item = Item::new(name, title_of(text));
    let words = registry::vocabulary();
    // The tests of `studies` parse all of them.
    let Ok(whole) = tare_lab::study::parse(text, name, &words) else { return item };
    let quick = tare_lab::study::parse_quick(text, name, &words).ok();
    let (time_s, time) = study_plan::at_most(&whole);
    let quick = quick.map(|quick| study_plan::at_most(&quick));
    let quick_text = match &quick {
        Some((_, time)) => format!("quick part {time}"),
        None => "no quick part".into(),
    };
    let needs = Needs::of(&whole);
    item.options.push(("time".into(), format!("{time}; {quick_text}")));
    item.options.push(("needs".into(), needs.text()));
    let quick_time_s = quick.map(|(seconds, _)| seconds);
    item.study = Some(StudySummary { time_s, quick_time_s, needs });
    item
}

/// Returns the values of a layer, or where its values are listed.
fn values(layer: Layer) -> Vec<(String, String)> {
    match layer {
        Layer::Runtime => pairs(&[("*", "one of tare list runtimes")]),
        Layer::Storage => pairs(&[("*", "one of tare list storage")]),
        Layer::Vm => pairs(tare_env::runtime::vm::OPTIONS),
        Layer::Sandbox => tare_env::runtime::gvisor::OPTIONS
            .iter()
            .map(|(name, help, _)| ((*name).to_string(), (*help).to_string()))
            .collect(),
        _ => pairs(layer.values()),
    }
}

fn infos(options: &[tare_lab::study::OptionInfo]) -> Vec<(String, String)> {
    options.iter().map(|option| (option.name.into(), option.help.into())).collect()
}

/// Returns the probes, with the reason if this host does not support one, and the option of those
/// that run in slices of their own.
fn probes() -> Vec<Item> {
    let cpus = tare_host::process::cpus_of_this_thread().unwrap_or_default().into();
    let roots = tare_probe::Roots::default();
    let own_slices =
        |option: &str| vec![("by".into(), format!("{option}, in slices of their own"))];
    let probe = |probe: &tare_probe::ProbeKind| {
        let opened = probe.open(&roots, &cpus);
        Item {
            options: match probe.name {
                "pmu" => own_slices("tare weigh --pmu"),
                _ if probe.disturbs => own_slices("tare weigh --syscalls"),
                _ => Vec::new(),
            },
            unavailable: opened.err().map(|error| tare_host::error_line(&error)),
            ..Item::new(probe.name, probe.help)
        }
    };
    let mark = (tare_host::RUN_VARIABLE, "list");
    let stacks = |kind: StackKind, name: &str, help: &str| Item {
        options: own_slices(&format!("tare weigh --stacks --stack-kinds {}", kind.name())),
        unavailable: Perf::open(kind, UserFrames::Auto, mark)
            .err()
            .map(|error| tare_host::error_line(&error)),
        ..Item::new(name, help)
    };
    let mut items: Vec<Item> = tare_probe::ALL.iter().map(probe).collect();
    items.push(stacks(
        StackKind::OnCpu,
        "stacks",
        "CPU time by kernel subsystem and function, sampled by perf",
    ));
    items.push(stacks(StackKind::OffCpu, "stacks_waiting", "where threads wait, sampled by perf"));
    items.push(stacks(
        StackKind::InterruptCpus,
        "stacks_interrupt_cpus",
        "what the CPUs kept for interrupts do, sampled by perf",
    ));
    items
}

/// Returns the runtimes with their options, and what is missing on this host. A runtime with an
/// argument is listed in its syntax, with the arguments that this host supports.
fn runtimes(state: &Path) -> Vec<Item> {
    use tare_env::runtime::Argument;
    let item = |runtime: &tare_env::runtime::Runtime| {
        let name = match runtime.argument {
            Argument::None => runtime.name.to_string(),
            Argument::Optional(_) => format!("{}[:NAME]", runtime.name),
            Argument::Required(_) => format!("{}:NAME", runtime.name),
        };
        let (found, not) = tare_env::runtime::usable(runtime, state);
        let mut item = Item::new(name, runtime.help);
        item.options = pairs(runtime.options);
        let why: Vec<String> = not.iter().map(ToString::to_string).collect();
        item.unavailable = (!why.is_empty()).then(|| why.join("; "));
        if !found.is_empty() {
            item.options.push(("here".into(), found.join(", ")));
        } else if item.unavailable.is_none() {
            let why = (runtime.needs)(None).err().map(|why| why.to_string());
            item.unavailable = Some(why.unwrap_or_else(|| "none found on this host".into()));
        }
        item
    };
    tare_env::runtime::ALL.iter().map(item).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, help)| ((*name).to_string(), (*help).to_string())).collect()
}

/// Returns the `title` of a study or workload.
fn title_of(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("title = "));
    line.unwrap_or_default().trim_matches('"').to_string()
}

fn print(items: &[Item], out: &mut dyn Write) -> anyhow::Result<()> {
    let width = items.iter().map(|item| item.name.chars().count()).max().unwrap_or(0);
    for item in items {
        writeln!(out, "  {:<width$}  {}", item.name, item.help)?;
        let inner = item.options.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, help) in &item.options {
            writeln!(out, "  {:<width$}    {name:<inner$}  {help}", "")?;
        }
        if let Some(why) = &item.unavailable {
            writeln!(out, "  {:<width$}    not on this host: {why}", "")?;
        }
    }
    Ok(())
}
