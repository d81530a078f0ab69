//! Finds and loads kernel modules.
//!
//! Method: modules are loaded by the program that the kernel itself calls,
//! `/proc/sys/kernel/modprobe` (Documentation/admin-guide/sysctl/kernel.rst), with the same
//! arguments. So the host's own arrangement (another path, a guest without kmod) applies here too.
//!
//! Limits: a loaded module stays loaded. Another program may use it by the end of the run, and the
//! kernel does not record which program loaded it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exec::{Command, ExecError};

/// Why a module could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("cannot load the kernel module {name}")]
    Load { name: String, source: ExecError },
    #[error("cannot load the kernel module {name}: this kernel loads none (kernel.modprobe)")]
    NoLoader { name: String, source: io::Error },
    #[error("the kernel module {name} was loaded but does not exist")]
    NotThere { name: String },
}

/// Normalises a module name: dashes and underscores are equal.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether a module is loaded, or built in and visible in sysfs.
pub fn is_loaded(name: &str) -> bool {
    Path::new("/sys/module").join(plain(name)).exists()
}

/// Whether the running kernel has a module: loaded, built in, or loadable.
pub fn is_available(name: &str) -> bool {
    is_loaded(name) || is_listed(&folder(), name)
}

/// `/lib/modules/RELEASE` of the running kernel.
fn folder() -> PathBuf {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Path::new("/lib/modules").join(release)
}

/// Whether a kernel's lists name a module. These lists come with the kernel's build, so they exist
/// even where depmod has not run.
fn is_listed(folder: &Path, name: &str) -> bool {
    let wanted = plain(name);
    let is_it = |line: &str| {
        let file = line.trim().rsplit('/').next().unwrap_or_default();
        file.split_once(".ko").is_some_and(|(name, _)| plain(name) == wanted)
    };
    ["modules.order", "modules.builtin"]
        .iter()
        .any(|list| fs::read_to_string(folder.join(list)).is_ok_and(|text| text.lines().any(is_it)))
}

/// Loads a module with its dependencies. Returns false when it was loaded already.
///
/// # Errors
/// When the kernel has no such module or refuses it.
pub fn load(name: &str) -> Result<bool, ModuleError> {
    if is_loaded(name) {
        return Ok(false);
    }
    let setting = Path::new("/proc/sys/kernel/modprobe");
    let loader = fs::read_to_string(setting)
        .map_err(|source| ModuleError::NoLoader { name: name.into(), source })?;
    let command = Command::new(loader.trim()).args(["-q", "--", name]);
    command.run().map_err(|source| ModuleError::Load { name: name.into(), source })?;
    // A built-in module may not be visible in sysfs.
    match is_loaded(name) || is_listed(&folder(), name) {
        true => Ok(true),
        false => Err(ModuleError::NotThere { name: name.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_modules_in_kernel_lists() {
        let folder = tempfile::tempdir().unwrap();
        let order = "kernel/drivers/nvme/host/nvme-tcp.ko\nkernel/drivers/nvme/target/nvmet.ko\n";
        fs::write(folder.path().join("modules.order"), order).unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/lib/inside_it.ko\n").unwrap();
        for (name, expected) in [
            ("nvme-tcp", true),
            ("nvme_tcp", true),
            ("nvmet", true),
            ("inside-it", true),
            ("nvme", false),
            ("nvmet-rdma", false),
        ] {
            assert_eq!(is_listed(folder.path(), name), expected, "{name}");
        }
    }
}
