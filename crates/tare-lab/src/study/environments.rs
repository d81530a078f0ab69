//! Reads `[[environment]]`: the layers, with `extends` resolved.

use std::ops::Range;
use std::str::FromStr;

use super::checks::{Names, must_exist, name_of, options, part};
use super::vocabulary::{KnownOption, Vocabulary};
use super::{Problem, StudyError, SystemSpec, attach, neighbours};
use crate::attach::Attach;
use crate::environment::{EnvironmentSpec, Limits, StorageSpec};
use crate::layer::{
    Apparmor, BadLayerValue, Capabilities, Cgroup, Confinement, Cpu, Host, Inject, Layer, Limit,
    Neighbour, Network, Pages, Rootfs, Runtime, Security, Sidecar, User,
};
use tare_toml::{Item, Source, Table};

pub(super) const KEYS: &[&str] = &[
    "name",
    "extends",
    "optional",
    attach::KEY,
    "runtime",
    "network",
    "cpu",
    "security",
    "user",
    "apparmor",
    "memory",
    "cgroup",
    "host",
    "storage",
    "vm",
    "sandbox",
    "rootfs",
    "system",
    "inject",
    "limits",
    "instances",
    "neighbours",
    "sidecar",
];

/// The highest number of a NUMA node that a kernel can have (CONFIG_NODES_SHIFT).
const NODE_MAX: u64 = 1023;

/// An environment with only the layers that the file sets.
#[derive(Debug)]
struct EnvironmentTable {
    name: String,
    /// Index of the extended environment, and the place of the key `extends`.
    extends: Option<(usize, Range<usize>)>,
    optional: bool,
    attach: Option<Attach>,
    runtime: Option<Runtime>,
    network: Option<Network>,
    cpu: Option<Cpu>,
    security: Option<Security>,
    capabilities: Option<Capabilities>,
    user: Option<User>,
    apparmor: Option<Apparmor>,
    pages: Option<Pages>,
    /// `Some(None)` is `"any"`.
    node: Option<Option<u32>>,
    cgroup: Option<Cgroup>,
    host: Option<Host>,
    storage: Option<StorageSpec>,
    vm: Option<Vec<(String, String)>>,
    sandbox: Option<Vec<(String, String)>>,
    rootfs: Option<Rootfs>,
    system: Option<Vec<(String, String)>>,
    inject: Option<Inject>,
    /// The keys of `limits` that are written; `None` is `"none"`.
    limits: Vec<(Limit, Option<u64>)>,
    instances: Option<u32>,
    neighbours: Option<Vec<Neighbour>>,
    sidecar: Option<Sidecar>,
}

/// Reads all environments. A layer that an environment does not set comes from the environment that
/// it extends, or else from the runtime's defaults. `process` has no isolation (network host, cpu
/// shared, security none, cgroup none); every other runtime has that of a container (bridge,
/// shared, default, own). By default the host is as found, the data is in a directory, and nothing
/// is injected. `optional` is not inherited. `system` is the study's system.
pub(super) fn read(
    root: &Table<'_>,
    source: Source<'_>,
    vocabulary: &Vocabulary,
    system: &SystemSpec,
) -> Result<Vec<EnvironmentSpec>, StudyError> {
    let neighbours = neighbours::read(root, source, vocabulary)?;
    let tables = root.tables("environment", KEYS)?;
    if tables.is_empty() {
        return Err(root.missing("environment"));
    }
    let mut names = Names::default();
    let mut order = Vec::new();
    for table in &tables {
        let (name, item) = name_of(table)?;
        names.add("environment", &name, &item, source)?;
        order.push(name);
    }
    let written: Vec<EnvironmentTable> = tables
        .iter()
        .zip(&order)
        .map(|(table, name)| one(table, name, &order, vocabulary, (system, &neighbours)))
        .collect::<Result<_, _>>()?;
    let resolved = (0..written.len()).map(|index| resolve(index, &written, &tables, source));
    let mut environments: Vec<EnvironmentSpec> = resolved.collect::<Result<_, _>>()?;
    if environments.iter().any(|spec| spec.instances.is_some()) {
        // Every environment has a number then, so that equal numbers are no difference.
        let of_system = system.instances();
        environments.iter_mut().for_each(|spec| spec.instances = spec.instances.or(of_system));
    }
    Ok(environments)
}

/// Reads `instances`, a number from 1.
fn instances(table: &Table<'_>) -> Result<Option<u32>, StudyError> {
    let key = Layer::Instances.name();
    let count = table.get(key).map(|item| item.whole(1..=u64::from(u32::MAX))).transpose()?;
    Ok(count.and_then(|count| u32::try_from(count).ok()))
}

fn one(
    table: &Table<'_>,
    name: &str,
    order: &[String],
    vocabulary: &Vocabulary,
    (system, known_neighbours): (&SystemSpec, &[Neighbour]),
) -> Result<EnvironmentTable, StudyError> {
    let extends = match table.text("extends")? {
        None => None,
        Some((target, item)) => {
            must_exist(&item, &target, order)?;
            order.iter().position(|name| *name == target).map(|index| (index, item.span))
        }
    };
    let (security, capabilities) = security(table)?;
    let (pages, node) = memory(table)?;
    Ok(EnvironmentTable {
        name: name.to_string(),
        extends,
        optional: table.flag("optional")?,
        attach: attach::read(table, KEYS)?,
        runtime: runtime(table, vocabulary)?,
        network: word(table, Layer::Network)?,
        cpu: word(table, Layer::Cpu)?,
        security,
        capabilities,
        user: word(table, Layer::User)?,
        apparmor: word(table, Layer::Apparmor)?,
        pages,
        node,
        cgroup: word(table, Layer::Cgroup)?,
        host: host(table, vocabulary)?,
        storage: storage(table, vocabulary)?,
        vm: table.get("vm").map(|item| options(&item, "vm", &[], &vocabulary.vm)).transpose()?,
        sandbox: table
            .get("sandbox")
            .map(|item| options(&item, "sandbox", &[], &vocabulary.sandbox))
            .transpose()?,
        rootfs: rootfs(table)?,
        system: system_options(table, vocabulary, system)?,
        inject: word(table, Layer::Inject)?,
        limits: limits(table)?,
        instances: instances(table)?,
        neighbours: neighbours::named(table, known_neighbours)?,
        sidecar: word(table, Layer::Sidecar)?,
    })
}

/// Reads `runtime`. An attached system has its own by `attach`.
fn runtime(table: &Table<'_>, vocabulary: &Vocabulary) -> Result<Option<Runtime>, StudyError> {
    if table.get(attach::KEY).is_some() {
        return Ok(Some(Runtime::from(Runtime::ATTACHED)));
    }
    let known = vocabulary.runtimes.iter().filter(|name| *name != Runtime::ATTACHED);
    let known: Vec<String> = known.cloned().collect();
    Ok(table.word("runtime", &known)?.map(Runtime::from))
}

/// Reads `limits = { memory = "2G", cpu_weight = 50 }`.
fn limits(table: &Table<'_>) -> Result<Vec<(Limit, Option<u64>)>, StudyError> {
    let Some(item) = table.get("limits") else { return Ok(Vec::new()) };
    let written = item.table("limits", &Limit::ALL.map(Limit::name))?;
    let mut limits = Vec::new();
    for limit in Limit::ALL {
        let Some(item) = written.get(limit.name()) else { continue };
        let value = match limit.is_bytes() {
            true => item.bytes_or_none()?,
            false if item.text().is_ok_and(|text| text == "none") => None,
            false => Some(item.whole(limit.range())?),
        };
        if value.is_some_and(|value| !limit.range().contains(&value)) {
            return Err(item.out_of_range(limit.range_text()));
        }
        limits.push((limit, value));
    }
    Ok(limits)
}

/// Reads `security = "none"`, or a table with the filter and the capabilities.
fn security(table: &Table<'_>) -> Result<(Option<Security>, Option<Capabilities>), StudyError> {
    let Some(item) = table.get(Layer::Security.name()).filter(Item::is_table) else {
        return Ok((word(table, Layer::Security)?, None));
    };
    let written = item.table("security", &["seccomp", "capabilities"])?;
    let filter = word_of(&written, "seccomp", Layer::Security)?;
    Ok((filter, word_of(&written, "capabilities", Layer::Capabilities)?))
}

/// A table `memory`: the huge pages and the NUMA node.
type Memory = (Option<Pages>, Option<Option<u32>>);

/// Reads `memory = { pages = "never", node = 0 }`.
fn memory(table: &Table<'_>) -> Result<Memory, StudyError> {
    let Some(item) = table.get("memory") else { return Ok((None, None)) };
    let written = item.table("memory", &["pages", "node"])?;
    let node = match written.get("node") {
        None => None,
        Some(item) if item.text().is_ok_and(|text| text == "any") => Some(None),
        Some(item) => Some(u32::try_from(item.whole(0..=NODE_MAX)?).ok()),
    };
    Ok((word_of(&written, "pages", Layer::Pages)?, node))
}

/// Reads `storage = "xfs"`, or a table with the kind and its options.
fn storage(table: &Table<'_>, vocabulary: &Vocabulary) -> Result<Option<StorageSpec>, StudyError> {
    let known = &vocabulary.storages;
    let Some(item) = table.get("storage") else { return Ok(None) };
    if item.is_table() {
        let (kind, options) = part(&item, &["kind"], "storage", known)?;
        return Ok(Some(StorageSpec { kind, options }));
    }
    let names: Vec<String> = known.iter().map(|words| words.name.clone()).collect();
    let kind = table.word("storage", &names)?;
    Ok(kind.map(|kind| StorageSpec { kind, options: Vec::new() }))
}

/// Reads a layer that is written as one word.
fn word<T>(table: &Table<'_>, layer: Layer) -> Result<Option<T>, StudyError>
where
    T: FromStr<Err = BadLayerValue>,
{
    word_of(table, layer.name(), layer)
}

/// Reads a layer that is written as one word under this key.
fn word_of<T>(table: &Table<'_>, key: &str, layer: Layer) -> Result<Option<T>, StudyError>
where
    T: FromStr<Err = BadLayerValue>,
{
    let known: Vec<String> = layer.values().iter().map(|(word, _)| (*word).to_string()).collect();
    let Some(word) = table.word(key, &known)? else { return Ok(None) };
    match word.parse() {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(table.need(key)?.bad_value(&error.wanted)),
    }
}

/// Reads `host`, such as `"tuned=disk+network"`. The vocabulary has the groups of knobs and the
/// knobs.
fn host(table: &Table<'_>, vocabulary: &Vocabulary) -> Result<Option<Host>, StudyError> {
    let host: Option<Host> = word(table, Layer::Host)?;
    for group in host.iter().flat_map(Host::groups) {
        table.need(Layer::Host.name())?.known(group, &vocabulary.host_groups)?;
    }
    Ok(host)
}

/// Reads `system = { OPTION = VALUE }`. The options are those of the study's system.
fn system_options(
    table: &Table<'_>,
    vocabulary: &Vocabulary,
    system: &SystemSpec,
) -> Result<Option<Vec<(String, String)>>, StudyError> {
    let known = vocabulary.systems.iter().find(|known| known.name == system.name);
    let known = known.map(|known| known.options.as_slice()).unwrap_or_default();
    let title = format!("system of {}", system.name);
    let Some(item) = table.get(Layer::System.name()) else { return Ok(None) };
    options(&item, &title, &[], known).map(Some)
}

/// Reads `rootfs = "none"`, or a table with one source.
fn rootfs(table: &Table<'_>) -> Result<Option<Rootfs>, StudyError> {
    let key = Layer::Rootfs.name();
    let Some(item) = table.get(key) else { return Ok(None) };
    if !item.is_table() {
        let none = ["none".to_string()];
        return Ok(table.word(key, &none)?.map(|_| Rootfs::None));
    }
    let free = |(name, _): &(&str, &str)| KnownOption { name: (*name).into(), values: Vec::new() };
    let known: Vec<KnownOption> = Rootfs::VALUES.iter().map(free).collect();
    let made_of = options(&item, key, &[], &known)?;
    match made_of.as_slice() {
        [(name, value)] if !value.is_empty() => Ok(Rootfs::new(name, value.clone())),
        _ => {
            let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
            Err(item.bad_value(&format!("give one of: {}", names.join(", "))))
        }
    }
}

fn resolve(
    index: usize,
    written: &[EnvironmentTable],
    tables: &[Table<'_>],
    source: Source<'_>,
) -> Result<EnvironmentSpec, StudyError> {
    let mut chain = vec![index];
    let mut current = &written[index];
    while let Some((next, span)) = &current.extends {
        let again = chain.iter().position(|seen| seen == next);
        chain.push(*next);
        if let Some(first) = again {
            let chain = chain[first..].iter().map(|at| written[*at].name.clone()).collect();
            return Err(source.error(span.clone(), Problem::ExtendsCycle { chain }));
        }
        current = &written[*next];
        if current.attach.is_some() {
            let item = tables[index].need("extends").or_else(|_| tables[*next].need("name"))?;
            return Err(item.bad_value("an attached environment has no layers to inherit"));
        }
    }
    let runtime = inherited(written, &chain, |one| one.runtime.clone());
    let runtime = runtime.ok_or_else(|| tables[index].missing("runtime"))?;
    let bare = runtime.is_process() || runtime == Runtime::ATTACHED;
    Ok(EnvironmentSpec {
        name: written[index].name.clone(),
        network: inherited(written, &chain, |one| one.network).unwrap_or(match bare {
            true => Network::Host,
            false => Network::Bridge { proxy: false },
        }),
        cpu: inherited(written, &chain, |one| one.cpu).unwrap_or(Cpu::Shared),
        security: inherited(written, &chain, |one| one.security).unwrap_or(match bare {
            true => Security::None,
            false => Security::Default,
        }),
        confinement: Confinement {
            capabilities: inherited(written, &chain, |one| one.capabilities).unwrap_or_default(),
            user: inherited(written, &chain, |one| one.user).unwrap_or_default(),
            apparmor: inherited(written, &chain, |one| one.apparmor).unwrap_or_default(),
            pages: inherited(written, &chain, |one| one.pages).unwrap_or_default(),
            node: inherited(written, &chain, |one| one.node).flatten(),
        },
        cgroup: inherited(written, &chain, |one| one.cgroup).unwrap_or(match bare {
            true => Cgroup::None,
            false => Cgroup::Own,
        }),
        host: inherited(written, &chain, |one| one.host.clone()).unwrap_or_default(),
        storage: inherited(written, &chain, |one| one.storage.clone()).unwrap_or_default(),
        vm: inherited(written, &chain, |one| one.vm.clone()).unwrap_or_default(),
        sandbox: inherited(written, &chain, |one| one.sandbox.clone()).unwrap_or_default(),
        rootfs: inherited(written, &chain, |one| one.rootfs.clone()).unwrap_or_default(),
        system: inherited(written, &chain, |one| one.system.clone()).unwrap_or_default(),
        inject: inherited(written, &chain, |one| one.inject).unwrap_or_default(),
        limits: inherited_limits(written, &chain),
        instances: inherited(written, &chain, |one| one.instances),
        neighbours: inherited(written, &chain, |one| one.neighbours.clone()).unwrap_or_default(),
        sidecar: inherited(written, &chain, |one| one.sidecar).unwrap_or_default(),
        optional: written[index].optional,
        attach: written[index].attach.clone(),
        runtime,
    })
}

/// Returns the limits of the first environment of a chain that sets each.
fn inherited_limits(written: &[EnvironmentTable], chain: &[usize]) -> Limits {
    let mut limits = Limits::default();
    for limit in Limit::ALL {
        let set = |one: &EnvironmentTable| {
            one.limits.iter().find(|(set, _)| *set == limit).map(|(_, value)| *value)
        };
        limits.set(limit, inherited(written, chain, set).flatten());
    }
    limits
}

/// Returns the value of the first environment of a chain that sets it.
fn inherited<T>(
    written: &[EnvironmentTable],
    chain: &[usize],
    layer: impl Fn(&EnvironmentTable) -> Option<T>,
) -> Option<T> {
    chain.iter().find_map(|at| layer(&written[*at]))
}
