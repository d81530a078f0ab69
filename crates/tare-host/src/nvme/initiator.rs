//! The initiator: this host's controllers, connected to targets on this or other hosts.
//!
//! Method: writing a line of options to `/dev/nvme-fabrics` creates a controller, and reading the
//! same descriptor returns its number (drivers/nvme/host/fabrics.c). Writing to `delete_controller`
//! in sysfs removes it. The host NQN of a controller is in sysfs and identifies ours.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{NvmeError, Transport, name_in, nqn};

const CLASS: &str = "/sys/class/nvme";
const FABRICS: &str = "/dev/nvme-fabrics";

/// The kernel scans for namespaces after it has connected, which takes longer on a busy host.
const SCAN_LIMIT: Duration = Duration::from_secs(20);

/// The kernel ends outstanding commands before it removes a controller, and a file system that was
/// just unmounted writes its last blocks. This is more than the longest of their time-outs.
const DELETE_LIMIT: Duration = Duration::from_secs(60);

/// The options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The name of the connection on this host, the suffix of its host NQN.
    pub name: &'a str,
    pub transport: Transport,
    pub address: IpAddr,
    pub service: u16,
    /// The target's NQN.
    pub subsystem: &'a str,
    /// I/O queues; `None` means one for each CPU.
    pub queues: Option<u32>,
    /// Commands in flight in each queue; `None` means the kernel's default.
    pub depth: Option<u32>,
    /// How long the kernel tries to reconnect to a lost target before I/O fails, in s.
    pub loss_s: u32,
    /// How long a target may be silent before it counts as lost, in s.
    pub keep_alive_s: u32,
}

impl Connect<'_> {
    /// Returns the options in the kernel's syntax. A host id belongs to one host NQN only
    /// (fabrics.c, `nvmf_host_add`), so each connection gets a new one. `ctrl_loss_tmo` alone is a
    /// number of attempts of any length; `fast_io_fail_tmo` is the time after which I/O fails.
    fn words(&self, host_id: &str) -> String {
        let Self { address, service, subsystem, loss_s, keep_alive_s, .. } = self;
        let transport = self.transport.word();
        let host = nqn(self.name);
        let mut words = format!(
            "transport={transport},traddr={address},trsvcid={service},nqn={subsystem},\
             hostnqn={host},hostid={host_id},reconnect_delay=1,ctrl_loss_tmo={loss_s},\
             fast_io_fail_tmo={loss_s},keep_alive_tmo={keep_alive_s}"
        );
        for (name, value) in [("nr_io_queues", self.queues), ("queue_size", self.depth)] {
            if let Some(value) = value {
                words += &format!(",{name}={value}");
            }
        }
        words
    }

    /// Creates the controller.
    ///
    /// # Errors
    /// When this host is connected to the target already, or the target does not answer. The kernel
    /// gives up by itself, for TCP after 3 s without an answer.
    pub fn connect(&self) -> Result<Controller, NvmeError> {
        let same = |controller: &Controller| {
            controller.attribute("subsysnqn").is_some_and(|nqn| nqn == self.subsystem)
        };
        if let Some(other) = controllers().iter().find(|controller| same(controller)) {
            let (nqn, controller) = (self.subsystem.to_string(), other.name());
            return Err(NvmeError::Connected { nqn, controller });
        }
        let fail = |source| NvmeError::Connect {
            nqn: self.subsystem.into(),
            at: format!("{} {} port {}", self.transport.word(), self.address, self.service),
            source,
        };
        let said = || -> io::Result<String> {
            let host_id = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
            let mut file = File::options().read(true).write(true).open(FABRICS)?;
            file.write_all(self.words(host_id.trim()).as_bytes())?;
            let mut said = String::new();
            file.read_to_string(&mut said)?;
            Ok(said)
        };
        let said = said().map_err(fail)?;
        let instance = instance(&said).ok_or_else(|| NvmeError::Answer { said: said.clone() })?;
        Ok(Controller { folder: Path::new(CLASS).join(format!("nvme{instance}")) })
    }
}

/// Reads the number of the controller from an answer such as `instance=3,cntlid=1`.
fn instance(said: &str) -> Option<u32> {
    said.trim().split(',').find_map(|word| word.strip_prefix("instance=")?.parse().ok())
}

/// A controller of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    folder: PathBuf,
}

impl Controller {
    /// Returns the name, such as `nvme3`.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads an attribute from sysfs, such as `state` or `queue_count`.
    pub fn attribute(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.folder.join(name)).ok()?.trim().to_string())
    }

    /// Returns the name of the connection; `None` for controllers that Tare did not create.
    pub fn connection(&self) -> Option<String> {
        Some(name_in(&self.attribute("hostnqn")?)?.to_string())
    }

    /// Asks the kernel to remove it and waits until the deadline at most. The write returns when
    /// the controller is gone and cannot be interrupted, so it runs on another thread.
    fn delete(&self, deadline: Instant) {
        let file = self.folder.join("delete_controller");
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            // The caller checks in sysfs whether it is gone.
            let _ = fs::write(file, "1");
            let _ = done.send(());
        });
        let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Lists the controllers of this host.
pub fn controllers() -> Vec<Controller> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    entries.map(|entry| Controller { folder: entry.path() }).collect()
}

/// Removes the controllers of a connection. Idempotent.
pub(crate) fn disconnect(name: &str) -> Result<(), NvmeError> {
    let deadline = Instant::now() + DELETE_LIMIT;
    loop {
        let mut all = controllers().into_iter();
        let ours = all.find(|controller| controller.connection().as_deref() == Some(name));
        let Some(controller) = ours else { return Ok(()) };
        if Instant::now() > deadline {
            let (controller, limit_s) = (controller.name(), DELETE_LIMIT.as_secs());
            return Err(NvmeError::Stays { controller, limit_s });
        }
        controller.delete(deadline);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Lists the names of Tare's connections.
pub(crate) fn host_names() -> Vec<String> {
    controllers().iter().filter_map(Controller::connection).collect()
}

/// Returns the block device of a namespace of a connected target; `None` while it does not exist.
///
/// With multipath the device belongs to the subsystem and not to one controller
/// (Documentation/admin-guide/nvme-multipath.rst): both have the target's NQN in sysfs.
pub fn namespace(subsystem: &str, id: u32) -> Option<PathBuf> {
    let name = find_namespace(Path::new("/sys/block"), subsystem, id)?;
    Some(Path::new("/dev").join(name)).filter(|device| device.exists())
}

/// Waits for the block device of a namespace and returns it.
///
/// # Errors
/// When it does not appear.
pub fn wait_for_namespace(subsystem: &str, id: u32) -> Result<PathBuf, NvmeError> {
    let deadline = Instant::now() + SCAN_LIMIT;
    loop {
        if let Some(device) = namespace(subsystem, id) {
            return Ok(device);
        }
        if Instant::now() > deadline {
            let (nqn, limit_s) = (subsystem.to_string(), SCAN_LIMIT.as_secs());
            return Err(NvmeError::NoNamespace { nqn, id, limit_s });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn find_namespace(block: &Path, subsystem: &str, id: u32) -> Option<String> {
    let is = |path: PathBuf, value: &str| {
        fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    let mut entries = fs::read_dir(block).ok()?.flatten();
    let found = entries.find(|entry| {
        let folder = entry.path();
        // The paths of a multipath device are hidden: they have no device node.
        is(folder.join("device/subsysnqn"), subsystem)
            && is(folder.join("nsid"), &id.to_string())
            && !is(folder.join("hidden"), "1")
    })?;
    Some(found.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_options_for_kernel() {
        let mut connect = Connect {
            name: "tare-ab12-e0",
            transport: Transport::Tcp,
            address: IpAddr::from([127, 0, 0, 1]),
            service: 4420,
            subsystem: "nqn.2014-08.org.example:disk",
            queues: None,
            depth: None,
            loss_s: 10,
            keep_alive_s: 5,
        };
        assert_eq!(
            connect.words("an-id"),
            "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=nqn.2014-08.org.example:disk,\
             hostnqn=nqn.2026-11.invalid.tare:tare-ab12-e0,hostid=an-id,reconnect_delay=1,\
             ctrl_loss_tmo=10,fast_io_fail_tmo=10,keep_alive_tmo=5"
        );
        connect.transport = Transport::Rdma;
        connect.queues = Some(2);
        connect.depth = Some(64);
        let words = connect.words("an-id");
        assert!(words.starts_with("transport=rdma,"), "{words}");
        assert!(words.ends_with(",nr_io_queues=2,queue_size=64"), "{words}");
    }

    #[test]
    fn parses_controller_number() {
        assert_eq!(instance("instance=12,cntlid=3\n"), Some(12));
        assert_eq!(instance("cntlid=3,instance=0"), Some(0));
        assert_eq!(instance(""), None);
    }

    #[test]
    fn finds_namespace_and_skips_hidden_path() {
        let block = tempfile::tempdir().unwrap();
        for (name, nqn, id, hidden) in [
            ("nvme0c0n1", "nqn.ours", "1", "1"),
            ("nvme0n1", "nqn.ours", "1", "0"),
            ("nvme0n2", "nqn.ours", "2", "0"),
            ("nvme1n1", "nqn.others", "1", "0"),
        ] {
            let folder = block.path().join(name);
            fs::create_dir_all(folder.join("device")).unwrap();
            fs::write(folder.join("device/subsysnqn"), format!("{nqn}\n")).unwrap();
            fs::write(folder.join("nsid"), format!("{id}\n")).unwrap();
            fs::write(folder.join("hidden"), format!("{hidden}\n")).unwrap();
        }
        let find = |nqn, id| find_namespace(block.path(), nqn, id);
        assert_eq!(find("nqn.ours", 1).as_deref(), Some("nvme0n1"));
        assert_eq!(find("nqn.ours", 2).as_deref(), Some("nvme0n2"));
        assert_eq!(find("nqn.ours", 3), None);
        assert_eq!(find("nqn.our", 1), None);
    }
}
