//! Whether the parts of a study fit together, before anything is made: its system into each of its
//! environments, and so many instances of it.

use anyhow::anyhow;
use tare_lab::PartError;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Rootfs;
use tare_lab::study::Study;
use tare_lab::system::{MemoryNeed, System};
use tare_system::{ClientRoute, SystemInfo};

use crate::exit::{Exit, ExitWith};

/// Refuses a study whose system cannot run as it is asked to.
///
/// # Errors
/// The first part that does not fit.
pub(super) fn check(study: &Study, info: &SystemInfo) -> anyhow::Result<()> {
    devices(study, info)?;
    images(study)?;
    let system = look(study, info).map_err(|error| anyhow!(error)).exit_with(Exit::Input)?;
    let count = system.instances().count;
    // One that may be left out says so itself once it is made.
    for spec in study.environments.iter().filter(|spec| !spec.optional) {
        tare_env::multi_instance::check(spec, count).exit_with(Exit::Input)?;
    }
    let Some(need) = system.memory() else { return Ok(()) };
    study.environments.iter().try_for_each(|spec| memory(spec, &*system, &need))
}

/// What all instances in one environment need of memory, as far as that is known before they run.
pub(super) fn memory_bytes(study: &Study) -> u64 {
    let system = tare_system::find(&study.system.name).and_then(|info| look(study, info).ok());
    let need = |system: Box<dyn System>| {
        let each = system.memory().map_or(0, |need| need.bytes);
        each.saturating_mul(u64::from(system.instances().count))
    };
    system.map_or(0, need)
}

/// A system that is only looked at: the one that is weighed knows its way.
fn look(study: &Study, info: &SystemInfo) -> Result<Box<dyn System>, PartError> {
    info.make(&study.system, &ClientRoute::default())
}

/// Whether the system can do with what it is given as its data.
fn devices(study: &Study, info: &SystemInfo) -> anyhow::Result<()> {
    let on_device = |spec: &&EnvironmentSpec| tare_env::storage::is_device(spec);
    let found = study.environments.iter().find(on_device).filter(|_| !info.takes_device);
    let Some(spec) = found else { return Ok(()) };
    Err(anyhow!(
        "environment {:?}: storage \"{}\" gives the system a block device, and {} wants a directory; take a file system, or [system] name = \"fio\"",
        spec.name,
        spec.storage.kind,
        info.name
    ))
    .exit_with(Exit::Input)
}

/// Whether every environment has an image where the system is the program of one.
fn images(study: &Study) -> anyhow::Result<()> {
    let has_image = |spec: &EnvironmentSpec| matches!(spec.rootfs, Rootfs::Image(_));
    match study.environments.iter().find(|spec| !has_image(spec)) {
        Some(spec) if study.system.name == "image" => Err(anyhow!(
            "environment {:?} has no image whose program could be weighed; set rootfs = {{ image = \"PATH\" }}",
            spec.name
        ))
        .exit_with(Exit::Input),
        _ => Ok(()),
    }
}

/// Whether an environment has the memory that its system needs.
fn memory(spec: &EnvironmentSpec, system: &dyn System, need: &MemoryNeed) -> anyhow::Result<()> {
    let count = u64::from(system.instances().count.max(1));
    let Some(limit) = tare_env::runtime::memory_bytes(spec) else { return Ok(()) };
    if need.bytes.saturating_mul(count) <= limit {
        return Ok(());
    }
    let each = match count {
        1 => String::new(),
        _ => format!(" for each of {count} instances"),
    };
    let MemoryNeed { bytes, what } = need;
    Err(anyhow!(
        "environment {:?} has {} MiB of memory, and {} needs {} MiB{each} ({what}); give the environment more, or the system less",
        spec.name,
        limit >> 20,
        system.name(),
        bytes >> 20,
    ))
    .exit_with(Exit::Input)
}
