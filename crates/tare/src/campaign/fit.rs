//! Checks, before anything is created, whether a study's system and its instances can run in each
//! of its environments.

use anyhow::anyhow;
use tare_lab::PartError;
use tare_lab::campaign::{self, SystemOptions};
use tare_lab::environment::{CpuPlan, EnvironmentSpec, INSTANCES};
use tare_lab::layer::Rootfs;
use tare_lab::study::Study;
use tare_lab::system::{Instances, MemoryNeed, System};
use tare_system::{ClientRoute, SystemInfo};

use crate::exit::{Exit, ExitWith};

/// Checks that the system of a study can run in every environment.
///
/// # Errors
/// If it cannot, with the first reason found.
pub(crate) fn check(study: &Study, info: &SystemInfo, plan: &CpuPlan) -> anyhow::Result<()> {
    devices(study, info)?;
    images(study)?;
    let system =
        without_route(study, info).map_err(|error| anyhow!(error)).exit_with(Exit::Input)?;
    systems_with_options(study, info, &ClientRoute::default())?;
    replicas(study, &*system)?;
    if !study.hosts.is_empty() {
        // Each instance has a host and an environment there.
        return one_number_on_hosts(study);
    }
    // An optional environment that does not fit is left out, with its reason, when it starts.
    for spec in study.environments.iter().filter(|spec| !spec.optional) {
        let count = instances_in(spec, system.instances());
        tare_env::multi_instance::check(spec, count).exit_with(Exit::Input)?;
        tare_env::layer::check_cpus(spec, plan).exit_with(Exit::Input)?;
        let cpus = campaign::instance_cpus(campaign::system_cpus(study, plan), count);
        if let Some(need) = system.memory(cpus) {
            memory(spec, &*system, count, &need)?;
        }
    }
    Ok(())
}

/// Checks that no environment of a system on several hosts has a number of instances of its own.
fn one_number_on_hosts(study: &Study) -> anyhow::Result<()> {
    let hosts = study.hosts.len();
    let other = |spec: &&EnvironmentSpec| {
        spec.instances.is_some_and(|count| usize::try_from(count).ok() != Some(hosts))
    };
    match study.environments.iter().find(other) {
        Some(spec) => Err(anyhow!(
            "environment {:?}: instances = {} needs a system on this host, and [system] hosts has \
             {hosts} hosts with one instance each; leave out one of the two",
            spec.name,
            spec.instances.unwrap_or_default()
        ))
        .exit_with(Exit::Input),
        None => Ok(()),
    }
}

/// Returns how many instances of a system run in an environment. `of_system` are those that the
/// options of the system ask for.
pub(super) fn instances_in(spec: &EnvironmentSpec, of_system: Instances) -> u32 {
    spec.instances.unwrap_or(of_system.count).max(1)
}

/// Returns the most instances of its system that a study starts in an environment; 1 if the options
/// of the system are invalid.
pub(crate) fn instances(study: &Study) -> u32 {
    known_system(study).map_or(1, |system| most_instances(study, system.instances()).count)
}

/// Returns the most instances that any environment of a study has.
pub(super) fn most_instances(study: &Study, of_system: Instances) -> Instances {
    let counts = study.environments.iter().map(|spec| instances_in(spec, of_system));
    Instances { count: counts.max().unwrap_or(of_system.count), ..of_system }
}

/// Returns the instances of the baseline, for whose CPUs a load is sized.
pub(super) fn instances_of_baseline(study: &Study, of_system: Instances) -> Instances {
    let baseline = study.baseline_environment();
    let count = baseline.map_or(of_system.count, |spec| instances_in(spec, of_system));
    Instances { count, ..of_system }
}

/// Returns how many instances the environments of a study have that do not say it.
pub(super) fn instances_of_system(study: &Study) -> Instances {
    known_system(study).map_or(Instances::ONE, |system| system.instances())
}

/// Returns whether the instances of a study's system are one cluster.
pub(crate) fn is_cluster(study: &Study) -> bool {
    known_system(study).is_some_and(|system| system.instances().cluster)
}

/// Systems, each with the options of an environment that it has.
pub(crate) type SystemsWithOptions = Vec<(SystemOptions, Box<dyn System>)>;

/// Returns the system of a study once for each set of options that an environment has.
///
/// # Errors
/// If an option has a wrong value, or changes what must be the same in every environment: the
/// protocol, and whether the instances are a cluster.
pub(crate) fn systems_with_options(
    study: &Study,
    info: &SystemInfo,
    route: &ClientRoute,
) -> anyhow::Result<SystemsWithOptions> {
    let mut all = SystemsWithOptions::new();
    for spec in study.environments.iter() {
        let options = spec.system_options();
        if options.is_empty() || all.iter().any(|(known, _)| *known == options) {
            continue;
        }
        if spec.system.iter().any(|(name, _)| name == INSTANCES) {
            let why =
                "system has the option instances; write it as instances = N of the environment";
            return Err(anyhow!("environment {:?}: {why}", spec.name)).exit_with(Exit::Input);
        }
        let own = study.system.with_options(&options);
        let fail = |what: String| anyhow!("environment {:?}: {what}", spec.name);
        let system = info
            .make(&own, route)
            .map_err(|error| fail(tare_host::error_line(&*error)))
            .exit_with(Exit::Input)?;
        if let Some(count) = spec.instances.filter(|count| *count != system.instances().count) {
            let why = format!(
                "instances = {count}, and an environment runs one instance of {}; leave it out",
                info.name
            );
            return Err(fail(why)).exit_with(Exit::Input);
        }
        let common = info.make(&study.system, route).map_err(|error| anyhow!(error))?;
        let same = system.instances().cluster == common.instances().cluster
            && info.speaks(&own) == info.speaks(&study.system);
        if !same {
            let why = "system cannot change the protocol, or whether the instances are a cluster, \
                       which the load generator needs to be the same everywhere; set it under [system]";
            return Err(fail(why.into())).exit_with(Exit::Input);
        }
        all.push((options, system));
    }
    Ok(all)
}

/// Returns the memory that all instances in one environment need, as far as it is known before they
/// run.
pub(super) fn memory_bytes(study: &Study, plan: &CpuPlan) -> u64 {
    let need = |system: Box<dyn System>| {
        let cpus = cpus_of_one(&*system, study, plan);
        let each = system.memory(cpus).map_or(0, |need| need.bytes);
        each.saturating_mul(u64::from(system.instances().count))
    };
    known_system(study).map_or(0, need)
}

/// Returns whether the study says how much memory its database may use.
pub(super) fn names_memory(study: &Study) -> bool {
    let named = |name: &str| matches!(name, "memory" | "memory_per_cpu");
    study.system.name == "tare-db" && study.system.options.iter().any(|(name, _)| named(name))
}

/// Returns the number of CPUs of one instance.
fn cpus_of_one(system: &dyn System, study: &Study, plan: &CpuPlan) -> usize {
    campaign::instance_cpus(campaign::system_cpus(study, plan), system.instances().count)
}

/// Returns how often an environment holds the rows of a study: once for each independent instance.
pub(super) fn copies_of_rows(study: &Study) -> u64 {
    match known_system(study).map(|system| system.instances()) {
        Some(instances) if !instances.cluster => u64::from(instances.count.max(1)),
        _ => 1,
    }
}

/// Returns how often one environment holds the rows of a study.
pub(super) fn copies_in(study: &Study, spec: &EnvironmentSpec) -> u64 {
    let of_system = instances_of_system(study);
    if of_system.cluster { 1 } else { u64::from(instances_in(spec, of_system)) }
}

/// Returns the system of a study, to read its needs; `None` if its options are invalid.
pub(crate) fn known_system(study: &Study) -> Option<Box<dyn System>> {
    let info = tare_system::find(&study.system.name)?;
    without_route(study, info).ok()
}

/// Returns the system of a study without a route to it, to read its needs.
fn without_route(study: &Study, info: &SystemInfo) -> Result<Box<dyn System>, PartError> {
    info.make_for(study, &ClientRoute::default())
}

/// Checks that a system has as many nodes as the rows of each workload have replicas.
fn replicas(study: &Study, system: &dyn System) -> anyhow::Result<()> {
    let Instances { count, cluster } = system.instances();
    let nodes = if cluster { count } else { 1 };
    let many = study.workloads.iter().find(|one| one.replicas.replication > nodes);
    let Some(workload) = many else { return Ok(()) };
    let why = match cluster {
        true => format!("it has {nodes}"),
        false => "its instances replicate nothing".into(),
    };
    Err(anyhow!(
        "workload {:?}: replication = {} needs a cluster of as many nodes, and {}: {why}; set it to \
         {nodes}, or cluster = true and as many instances of a system that has clusters",
        workload.name,
        workload.replicas.replication,
        system.name()
    ))
    .exit_with(Exit::Input)
}

/// Checks that only a system that uses block devices gets one.
fn devices(study: &Study, info: &SystemInfo) -> anyhow::Result<()> {
    let on_device = |spec: &&EnvironmentSpec| tare_env::storage::is_device(spec);
    let found = study.environments.iter().find(on_device).filter(|_| !info.takes_device);
    let Some(spec) = found else { return Ok(()) };
    Err(anyhow!(
        "environment {:?}: storage \"{}\" is a block device, and {} needs a directory; use a file system, or [system] name = \"fio\"",
        spec.name,
        spec.storage.kind,
        info.name
    ))
    .exit_with(Exit::Input)
}

/// Checks that every environment has an image if the system is the program of an image.
fn images(study: &Study) -> anyhow::Result<()> {
    let has_image = |spec: &EnvironmentSpec| matches!(spec.rootfs, Rootfs::Image(_));
    match study.environments.iter().find(|spec| !has_image(spec)) {
        Some(spec) if study.system.name == "image" => Err(anyhow!(
            "environment {:?} has no image, and [system] name = \"image\" runs its program; set rootfs = {{ image = \"PATH\" }}",
            spec.name
        ))
        .exit_with(Exit::Input),
        _ => Ok(()),
    }
}

/// Checks that an environment has the memory that its system needs.
fn memory(
    spec: &EnvironmentSpec,
    system: &dyn System,
    count: u32,
    need: &MemoryNeed,
) -> anyhow::Result<()> {
    let count = u64::from(count);
    let Some(limit) = tare_env::runtime::memory_bytes(spec) else { return Ok(()) };
    if need.limit_bytes.saturating_mul(count) <= limit {
        return Ok(());
    }
    let each = match count {
        1 => String::new(),
        _ => format!(" for each of {count} instances"),
    };
    let MemoryNeed { limit_bytes, what, .. } = need;
    Err(anyhow!(
        "environment {:?} has {} MiB of memory, and {} needs {} MiB{each} ({what}); raise the limit of the environment, or lower the memory of the system",
        spec.name,
        limit >> 20,
        system.name(),
        limit_bytes >> 20,
    ))
    .exit_with(Exit::Input)
}

#[cfg(test)]
mod tests;
