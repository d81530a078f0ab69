//! `[[environment]]`: layers, and `extends` resolved.

use std::ops::Range;

use super::parse::{Names, must_exist, name_of, options, part};
use super::vocabulary::Vocabulary;
use super::{Problem, StudyError};
use crate::environment::{EnvironmentSpec, HOST_AS_IS, Limits, NOTHING_INJECTED, StorageSpec};
use tare_toml::{Source, Table};

pub(super) const KEYS: &[&str] = &[
    "name", "extends", "optional", "runtime", "network", "cpu", "security", "cgroup", "host",
    "storage", "vm", "sandbox", "rootfs", "inject", "limits",
];

/// An environment as written: only what the file says.
#[derive(Debug)]
struct Written {
    name: String,
    /// Index of the environment that it extends, and the place where it says so.
    extends: Option<(usize, Range<usize>)>,
    optional: bool,
    runtime: Option<String>,
    network: Option<String>,
    cpu: Option<String>,
    security: Option<String>,
    cgroup: Option<String>,
    host: Option<String>,
    storage: Option<StorageSpec>,
    vm: Option<Vec<(String, String)>>,
    sandbox: Option<Vec<(String, String)>>,
    rootfs: Option<Vec<(String, String)>>,
    inject: Option<String>,
    /// `Some(None)` is `memory = "none"`.
    memory: Option<Option<u64>>,
}

/// Reads all environments. An environment takes each layer that it does not name from the one it
/// extends, else from its runtime's default: `process` has no layers (network host, cpu shared,
/// security none, cgroup none), every other runtime has those of a container (bridge, shared,
/// default, own), and always the host as it is, its data in a directory, and nothing injected. `optional` is not inherited.
pub(super) fn read(
    root: &Table<'_>,
    source: Source<'_>,
    vocabulary: &Vocabulary,
) -> Result<Vec<EnvironmentSpec>, StudyError> {
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
    let written: Vec<Written> = tables
        .iter()
        .zip(&order)
        .map(|(table, name)| one(table, name, &order, vocabulary))
        .collect::<Result<_, _>>()?;
    (0..written.len()).map(|index| resolve(index, &written, &tables, source)).collect()
}

fn one(
    table: &Table<'_>,
    name: &str,
    order: &[String],
    vocabulary: &Vocabulary,
) -> Result<Written, StudyError> {
    let extends = match table.text("extends")? {
        None => None,
        Some((target, item)) => {
            must_exist(&item, &target, order)?;
            order.iter().position(|name| *name == target).map(|index| (index, item.span))
        }
    };
    let cpu = table.word("cpu", &vocabulary.cpus)?;
    if let Some(quota) = cpu.as_deref().and_then(|cpu| cpu.strip_prefix("quota=")) {
        let valid = quota.parse::<f64>().is_ok_and(|cpus| (0.01..=4096.0).contains(&cpus));
        if !valid {
            let item = table.need("cpu")?;
            return Err(item.bad_value("a quota is a number of CPUs such as quota=1.5"));
        }
    }
    let memory = match table.get("limits") {
        None => None,
        Some(item) => match item.table("limits", &["memory"])?.get("memory") {
            None => None,
            Some(memory) => {
                let bytes = memory.bytes_or_none()?;
                if bytes.is_some_and(|bytes| bytes < 1 << 20) {
                    return Err(memory.out_of_range("at least 1M, or \"none\""));
                }
                Some(bytes)
            }
        },
    };
    Ok(Written {
        name: name.to_string(),
        extends,
        optional: table.flag("optional")?,
        runtime: table.word("runtime", &vocabulary.runtimes)?,
        network: table.word("network", &vocabulary.networks)?,
        cpu,
        security: table.word("security", &vocabulary.securities)?,
        cgroup: table.word("cgroup", &vocabulary.cgroups)?,
        host: table.word("host", &vocabulary.hosts)?,
        storage: storage(table, vocabulary)?,
        vm: table.get("vm").map(|item| options(&item, "vm", None, &vocabulary.vm)).transpose()?,
        sandbox: table
            .get("sandbox")
            .map(|item| options(&item, "sandbox", None, &vocabulary.sandbox))
            .transpose()?,
        rootfs: rootfs(table, vocabulary)?,
        inject: table.word("inject", &vocabulary.injections)?,
        memory,
    })
}

/// `storage = "xfs"`, or a table with the kind and its options.
fn storage(table: &Table<'_>, vocabulary: &Vocabulary) -> Result<Option<StorageSpec>, StudyError> {
    let known = &vocabulary.storages;
    let Some(item) = table.get("storage") else { return Ok(None) };
    if item.is_table() {
        let (kind, options) = part(&item, "kind", "storage", known)?;
        return Ok(Some(StorageSpec { kind, options }));
    }
    let names: Vec<String> = known.iter().map(|words| words.name.clone()).collect();
    let kind = table.word("storage", &names)?;
    Ok(kind.map(|kind| StorageSpec { kind, options: Vec::new() }))
}

/// `rootfs = "none"`, or a table that says what it is made of: one thing.
fn rootfs(
    table: &Table<'_>,
    vocabulary: &Vocabulary,
) -> Result<Option<Vec<(String, String)>>, StudyError> {
    let Some(item) = table.get("rootfs") else { return Ok(None) };
    if !item.is_table() {
        let none = ["none".to_string()];
        return Ok(table.word("rootfs", &none)?.map(|_| Vec::new()));
    }
    let made_of = options(&item, "rootfs", None, &vocabulary.rootfs)?;
    match made_of.as_slice() {
        [(_, value)] if !value.is_empty() => Ok(Some(made_of)),
        _ => {
            let names: Vec<&str> = vocabulary.rootfs.iter().map(|one| one.name.as_str()).collect();
            Err(item.bad_value(&format!("it is made of one thing: {}", names.join(", "))))
        }
    }
}

fn resolve(
    index: usize,
    written: &[Written],
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
    }
    let first = |layer: fn(&Written) -> &Option<String>| {
        chain.iter().find_map(|at| layer(&written[*at]).clone())
    };
    let runtime = first(|one| &one.runtime).ok_or_else(|| tables[index].missing("runtime"))?;
    let bare = runtime == "process";
    let or = |value: Option<String>, bare_default: &str, default: &str| {
        value.unwrap_or_else(|| if bare { bare_default } else { default }.to_string())
    };
    Ok(EnvironmentSpec {
        name: written[index].name.clone(),
        network: or(first(|one| &one.network), "host", "bridge"),
        cpu: or(first(|one| &one.cpu), "shared", "shared"),
        security: or(first(|one| &one.security), "none", "default"),
        cgroup: or(first(|one| &one.cgroup), "none", "own"),
        host: or(first(|one| &one.host), HOST_AS_IS, HOST_AS_IS),
        storage: chain.iter().find_map(|at| written[*at].storage.clone()).unwrap_or_default(),
        vm: chain.iter().find_map(|at| written[*at].vm.clone()).unwrap_or_default(),
        sandbox: chain.iter().find_map(|at| written[*at].sandbox.clone()).unwrap_or_default(),
        rootfs: chain.iter().find_map(|at| written[*at].rootfs.clone()).unwrap_or_default(),
        inject: or(first(|one| &one.inject), NOTHING_INJECTED, NOTHING_INJECTED),
        limits: Limits { memory_bytes: chain.iter().find_map(|at| written[*at].memory).flatten() },
        optional: written[index].optional,
        runtime,
    })
}
