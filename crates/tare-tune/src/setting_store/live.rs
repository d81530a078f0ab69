//! The running host, or a directory with the files of a host.
//!
//! Kernel files are written with one write(2) each, as they require. Files below another root are
//! replaced by renaming, so that a killed test leaves the old value or the new one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::SettingStore;
use crate::ethtool::{Ethtool, EthtoolError};
use crate::irqbalance;
use crate::setting::{EthtoolSetting, Key, SettingError, SettingErrorClass};
use crate::snapshot::Snapshot;

/// Reads and writes a host.
///
/// With root `/`, ethtool's settings are accessed over netlink, in the network namespace of the
/// calling thread, and irqbalance's over its socket. With any other root both are in the pseudo
/// files of a snapshot, `ROOT/tare/...`.
#[derive(Clone, Debug)]
pub struct LiveHost {
    root: PathBuf,
}

impl LiveHost {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path of a kernel file below the root.
    fn place(&self, path: &str) -> Result<PathBuf, SettingError> {
        let below = path.starts_with("/proc/") || path.starts_with("/sys/");
        let plain =
            path[1.min(path.len())..].split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !below || !plain || path.contains('\0') {
            let text = format!(
                "{path:?} is not a host setting: only files below /proc and /sys are tuned"
            );
            return Err(SettingError { class: SettingErrorClass::Failed, text });
        }
        Ok(self.root.join(&path[1..]))
    }

    fn pseudo(&self, path: &str) -> PathBuf {
        self.root.join("tare").join(path)
    }

    /// Replaces a file and follows links. The new file is first created at the root, where nothing
    /// reads it, so that a killed test leaves the tree unchanged.
    fn replace(&self, place: &Path, value: &str) -> Result<(), SettingError> {
        let shown = place.display().to_string();
        let place = fs::canonicalize(place).map_err(|error| open_error(&shown, &error))?;
        let new = self.root.join(".tare-new");
        let written = fs::write(&new, format!("{value}\n")).and_then(|()| fs::rename(&new, &place));
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            write_error(&shown, value, &error)
        })
    }

    /// Reads an ethtool setting from its pseudo file.
    fn pseudo_setting(&self, nic: &str, setting: &EthtoolSetting) -> Result<Pseudo, SettingError> {
        if nic.contains('/') || nic == ".." {
            return Err(absent(format!("{nic:?} is not the name of a network device")));
        }
        let (file, name) = setting.pseudo();
        let place = self.pseudo(&format!("ethtool/{nic}/{file}"));
        let text = read(&place)?;
        let mut snapshot = Snapshot::default();
        let node = crate::snapshot::Node::File(text);
        snapshot.insert(&format!("/tare/ethtool/{nic}/{file}"), node);
        let value = snapshot
            .ethtool(nic, file, name)
            .ok_or_else(|| absent(format!("network device {nic} has no {name} in its {file}")))?;
        Ok(Pseudo { place, snapshot, value })
    }
}

/// A setting in a pseudo file.
struct Pseudo {
    place: PathBuf,
    snapshot: Snapshot,
    value: String,
}

impl SettingStore for LiveHost {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        match key {
            Key::File { path } => read(&self.place(path)?),
            Key::Ethtool { nic, setting } if self.is_live() => {
                let read = Ethtool::open().and_then(|mut ethtool| ethtool.read(nic, setting));
                read.map_err(|error| ethtool_error(&error))
            }
            Key::Ethtool { nic, setting } => Ok(self.pseudo_setting(nic, setting)?.value),
            Key::IrqbalanceBans if self.is_live() => {
                let bans = irqbalance::bans().map_err(|error| irqbalance_error(&error))?;
                Ok(irqbalance::numbers(&bans))
            }
            Key::IrqbalanceBans => read(&self.pseudo("irqbalance/banned-irqs")),
        }
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        match key {
            Key::File { path } => {
                let place = self.place(path)?;
                match is_kernel_file(&place) {
                    true => write_once(&place, path, value),
                    false => self.replace(&place, value),
                }
            }
            Key::Ethtool { nic, setting } if self.is_live() => {
                let written =
                    Ethtool::open().and_then(|mut ethtool| ethtool.write(nic, setting, value));
                written.map_err(|error| ethtool_error(&error))
            }
            Key::Ethtool { nic, setting } => {
                let mut pseudo = self.pseudo_setting(nic, setting)?;
                key.write_to(&mut pseudo.snapshot, value);
                let path = format!("/tare/ethtool/{nic}/{}", setting.pseudo().0);
                self.replace(&pseudo.place, pseudo.snapshot.read(&path).unwrap_or_default())
            }
            Key::IrqbalanceBans if self.is_live() => {
                let wrong = || SettingError {
                    class: SettingErrorClass::Failed,
                    text: format!("{value:?} is not a list of interrupt numbers"),
                };
                let numbers = value.split_whitespace().map(|word| word.parse::<u32>());
                let numbers = numbers.collect::<Result<Vec<u32>, _>>().map_err(|_| wrong())?;
                irqbalance::set_bans(&numbers).map_err(|error| irqbalance_error(&error))
            }
            Key::IrqbalanceBans => self.replace(&self.pseudo("irqbalance/banned-irqs"), value),
        }
    }

    fn may_write(&self, key: &Key) -> Result<(), SettingError> {
        match key {
            Key::File { path } => {
                // Opening fails without permission or on a read-only mount. Other errors are
                // reported by the write.
                let opened = OpenOptions::new().write(true).open(self.place(path)?);
                match opened.map_err(|error| open_error(path, &error)) {
                    Err(error) if error.class == SettingErrorClass::Permission => Err(error),
                    _ => Ok(()),
                }
            }
            Key::Ethtool { .. } | Key::IrqbalanceBans
                if self.is_live() && !rustix::process::geteuid().is_root() =>
            {
                let text = "cannot change settings of network devices and irqbalance; run as root"
                    .to_string();
                Err(SettingError { class: SettingErrorClass::Permission, text })
            }
            Key::Ethtool { .. } | Key::IrqbalanceBans => Ok(()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.root)
    }

    fn boot_id(&self) -> String {
        let text = fs::read_to_string(self.root.join("proc/sys/kernel/random/boot_id"));
        text.unwrap_or_default().trim().to_string()
    }
}

/// Whether a file is a kernel file, also where the kernel's file systems are mounted below another
/// root.
fn is_kernel_file(place: &Path) -> bool {
    // PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC, CGROUP2_SUPER_MAGIC (linux/magic.h).
    const KINDS: [i64; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x6367_7270];
    rustix::fs::statfs(place).is_ok_and(|system| KINDS.contains(&system.f_type))
}

fn read(place: &Path) -> Result<String, SettingError> {
    let text = fs::read_to_string(place).map_err(|error| {
        let errno = Errno::from_io_error(&error);
        let class = match errno {
            Some(errno) => class_of(errno),
            None => SettingErrorClass::Failed,
        };
        SettingError { class, text: format!("cannot read {}: {error}", place.display()) }
    })?;
    Ok(text.trim().to_string())
}

/// Writes a value with one write(2), because a kernel file takes each write as a whole value.
fn write_once(place: &Path, path: &str, value: &str) -> Result<(), SettingError> {
    let opened = OpenOptions::new().write(true).open(place);
    let mut file = opened.map_err(|error| open_error(path, &error))?;
    let line = format!("{value}\n");
    match file.write(line.as_bytes()) {
        Ok(written) if written == line.len() => Ok(()),
        Ok(_) => Err(SettingError {
            class: SettingErrorClass::NotTaken,
            text: format!("cannot write {value:?} to {path}: the kernel took only part of it"),
        }),
        Err(error) => Err(write_error(path, value, &error)),
    }
}

/// Returns the error of a file that could not be opened for writing.
fn open_error(path: &str, error: &std::io::Error) -> SettingError {
    let errno = Errno::from_io_error(error);
    let class = errno.map_or(SettingErrorClass::Failed, class_of);
    let advice = match class {
        SettingErrorClass::Permission if errno == Some(Errno::ROFS) => {
            "; it is mounted read only, as in a container: run tare on the host"
        }
        SettingErrorClass::Permission => "; run tare as root, on the host",
        SettingErrorClass::Absent => "; this host does not have it",
        _ => "",
    };
    SettingError { class, text: format!("cannot open {path} for writing: {error}{advice}") }
}

/// Returns the error of a value that the kernel did not take.
fn write_error(path: &str, value: &str, error: &std::io::Error) -> SettingError {
    let errno = Errno::from_io_error(error);
    // The kernel returns EIO, newer kernels EPERM, for an interrupt whose affinity it manages
    // (kernel/irq/proc.c), and ENOSPC when the CPUs have no free vector (arch/x86 apic/vector.c).
    let affinity = path.starts_with("/proc/irq/");
    let (class, reason) = match errno {
        Some(Errno::IO | Errno::PERM) if affinity => (
            SettingErrorClass::ManagedIrq,
            "; the kernel manages the affinity of this interrupt and refuses changes",
        ),
        Some(Errno::NOSPC) if affinity => (
            SettingErrorClass::NoVector,
            "; the CPUs have no interrupt vector left; use more CPUs (--irq-cpus) or fewer queues",
        ),
        Some(errno) => (class_of(errno), ""),
        None => (SettingErrorClass::Failed, ""),
    };
    SettingError { class, text: format!("cannot write {value:?} to {path}: {error}{reason}") }
}

fn ethtool_error(error: &EthtoolError) -> SettingError {
    let class = match (error, error.errno()) {
        (EthtoolError::Missing { .. } | EthtoolError::Family { .. }, _) => {
            SettingErrorClass::Absent
        }
        (_, Some(errno)) => class_of(errno),
        (_, None) => SettingErrorClass::Failed,
    };
    let advice = match class {
        SettingErrorClass::Permission => "; run tare as root",
        _ => "",
    };
    SettingError { class, text: format!("{error}{advice}") }
}

fn irqbalance_error(error: &irqbalance::IrqbalanceError) -> SettingError {
    SettingError { class: error.class(), text: tare_host::error_line(error) }
}

fn absent(text: String) -> SettingError {
    SettingError { class: SettingErrorClass::Absent, text }
}

fn class_of(errno: Errno) -> SettingErrorClass {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP => {
            SettingErrorClass::Absent
        }
        Errno::ACCESS | Errno::PERM | Errno::ROFS => SettingErrorClass::Permission,
        _ => SettingErrorClass::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_errors_by_path() {
        use SettingErrorClass::{Absent, Failed, ManagedIrq, NoVector, Permission};
        let affinity = "/proc/irq/24/smp_affinity";
        let scheduler = "/sys/block/vda/queue/scheduler";
        for (path, errno, expect) in [
            (affinity, Errno::IO, ManagedIrq),
            (affinity, Errno::PERM, ManagedIrq),
            (affinity, Errno::NOSPC, NoVector),
            (affinity, Errno::INVAL, Absent),
            (scheduler, Errno::INVAL, Absent),
            (scheduler, Errno::OPNOTSUPP, Absent),
            (scheduler, Errno::PERM, Permission),
            (scheduler, Errno::ROFS, Permission),
            (scheduler, Errno::IO, Failed),
            (scheduler, Errno::BUSY, Failed),
        ] {
            assert_eq!(write_error(path, "1", &errno.into()).class, expect, "{path} {errno}");
        }
        // A refused open does not mean that the kernel manages the interrupt.
        assert_eq!(open_error(affinity, &Errno::PERM.into()).class, Permission);
        assert_eq!(open_error(affinity, &Errno::ACCESS.into()).class, Permission);
    }

    #[test]
    fn accepts_only_kernel_files() {
        let host = LiveHost::new("/nonexistent");
        for path in
            ["/etc/passwd", "/proc/../etc/passwd", "proc/x", "", "/sys", "/sys//a", "/sys/."]
        {
            assert!(host.place(path).is_err(), "{path}");
        }
        assert_eq!(host.place("/sys/a").unwrap(), Path::new("/nonexistent/sys/a"));
    }
}
