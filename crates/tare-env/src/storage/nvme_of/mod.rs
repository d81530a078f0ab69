//! `nvme-of`: a file system or the bare device on a namespace reached by NVMe over fabrics, over
//! TCP or RDMA. The target is the kernel's (nvmet) on this host, or one on another host.
//!
//! Method: the target's namespace is the same block device as below `ext4` and the others, an image
//! behind a loop device or the user's device, so they differ only by the fabric.
//! `tare_host::nvme` creates and removes the parts: target, controller, soft-RoCE.
//!
//! Limits: target and initiator on one host share its CPUs without a wire between them, so the
//! measurement covers the software of both. Kernel threads do the target's work; the probe
//! `nvme_work` accounts for it.

mod options;
mod parts;

use std::net::IpAddr;
use std::path::Path;

use tare_host::block;
use tare_host::journal::Entry;
use tare_host::nvme::{self, Controller, Transport, soft_roce};

use super::backing::{self, Backing};
use super::filesystem::Format;
use super::{At, Kind, MountView, ReadBack, Storage, StorageError, mount_view, need_program, raw};
use crate::unavailable::Unavailable;

pub(super) const KIND: Kind = Kind {
    name: "nvme-of",
    help: "a file system, or none, on a namespace of an NVMe over fabrics target, on this host or another one",
    options: options::ALL,
    needs: "Linux since 5.11 with nvmet and nvme and the transport as modules, loop devices, mkfs; iproute2's rdma for \
            soft-RoCE; or a target on another host",
    cleanup: "unmounted, disconnected; the target, soft-RoCE, loop device and image removed",
    read_back: "the mount table inside; transport, address, state, target, queues and depth of the \
                controller in sysfs",
    parse: Some(options::parse),
};

/// The target: Tare's or the user's.
#[derive(Debug)]
enum TargetSide {
    /// A target that Tare creates in this kernel. Without an address it listens on the loopback
    /// interface, or for RDMA on a soft-RoCE device.
    Own { backing: Backing, address: Option<IpAddr> },
    /// A target that exists already, perhaps on another host.
    Given { nqn: String, address: IpAddr, service: u16, namespace: u32 },
}

#[derive(Debug)]
struct NvmeOf {
    transport: Transport,
    side: TargetSide,
    /// Queues for I/O and commands in each, if the study sets them.
    queues: Option<u32>,
    depth: Option<u32>,
    /// How long the kernel tries to reconnect to a lost target, and how long a target may be
    /// silent, in s.
    loss_s: u32,
    keep_alive_s: u32,
    above: NamespaceUse,
}

/// How the system uses the namespace.
#[derive(Debug)]
enum NamespaceUse {
    FileSystem {
        format: &'static Format,
        options: Vec<String>,
        mkfs: Vec<String>,
    },
    /// Without a file system: the system gets the device's node.
    Node,
}

impl NvmeOf {
    /// Returns the name of a start's target and connection.
    fn name(at: &At<'_>) -> String {
        at.name("nvme")
    }

    /// Returns the name of soft-RoCE's devices. Interface names have at most 15 bytes.
    fn soft_roce_name(at: &At<'_>) -> String {
        let start = at.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{}-{start}", at.context.prefix())
    }

    fn makes_soft_roce(&self) -> bool {
        self.transport == Transport::Rdma
            && matches!(self.side, TargetSide::Own { address: None, .. })
    }

    /// Returns the target's NQN and its namespace.
    fn subsystem(&self, at: &At<'_>) -> (String, u32) {
        match &self.side {
            TargetSide::Own { .. } => (nvme::nqn(&Self::name(at)), 1),
            TargetSide::Given { nqn, namespace, .. } => (nqn.clone(), *namespace),
        }
    }

    /// Returns the kernel modules that it needs.
    fn modules(&self) -> Vec<&'static str> {
        let target = match self.side {
            TargetSide::Own { .. } => self.transport.target_modules(),
            TargetSide::Given { .. } => &[],
        };
        let soft_roce = if self.makes_soft_roce() { soft_roce::MODULES } else { &[] };
        [target, self.transport.initiator_modules(), soft_roce].concat()
    }

    /// Returns the requested attributes of the controller that are not in force.
    fn not_in_force(&self, at: &At<'_>, controller: &Controller) -> Vec<String> {
        let mut wanted = vec![
            ("transport", self.transport.word().to_string()),
            ("state", "live".into()),
            ("subsysnqn", self.subsystem(at).0),
        ];
        // One more queue is for administration. The kernel's `sqsize` is the last index of the
        // queue.
        wanted.extend(self.queues.map(|queues| ("queue_count", (queues + 1).to_string())));
        wanted.extend(self.depth.map(|depth| ("sqsize", (depth - 1).to_string())));
        wanted.retain(|(name, value)| controller.attribute(name).as_ref() != Some(value));
        wanted.iter().map(|(name, value)| format!("{name} {value}")).collect()
    }
}

impl Storage for NvmeOf {
    fn needs(&self) -> Result<(), Unavailable> {
        let missing = nvme::missing(&self.modules());
        if !missing.is_empty() {
            return Err(Unavailable {
                what: format!("storage nvme-of over {}", self.transport.word()),
                why: format!("this kernel has no module {}", missing.join(", ")),
                remedy: "install all modules of the kernel, or run the study in a guest that has \
                         them: --inside vm:qemu"
                    .into(),
            });
        }
        if let NamespaceUse::FileSystem { format, .. } = &self.above {
            format.needs()?;
        }
        if self.makes_soft_roce() {
            need_program("nvme-of over soft-RoCE", "rdma", "iproute2")?;
        }
        match &self.side {
            TargetSide::Own { backing, .. } => backing.needs("nvme-of"),
            TargetSide::Given { .. } => Ok(()),
        }
    }

    fn device(&self) -> Option<&Path> {
        match &self.side {
            TargetSide::Own { backing, .. } => backing.device(),
            TargetSide::Given { .. } => None,
        }
    }

    fn node(&self) -> Option<&'static str> {
        matches!(self.above, NamespaceUse::Node).then_some(raw::NODE)
    }

    fn remote(&self) -> Option<&str> {
        match &self.side {
            TargetSide::Own { .. } => None,
            TargetSide::Given { nqn, .. } => Some(nqn),
        }
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        let name = Self::name(at);
        if let TargetSide::Own { backing, .. } = &self.side {
            entries.extend(backing.entry(at));
            if self.makes_soft_roce() {
                let name = Self::soft_roce_name(at);
                entries.push(Entry::link(name.clone(), None));
                entries.push(Entry::rdma_device(name));
            }
            entries.push(Entry::nvme_target(name.clone()));
        }
        entries.push(Entry::nvme_controller(name));
        if matches!(self.above, NamespaceUse::FileSystem { .. }) {
            entries.push(Entry::mount(at.data()));
        }
        entries
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        parts::load(at, &self.modules())?;
        let (address, service, is_image) = self.make_target(at)?;
        let device = self.connect(at, address, service)?;
        match &self.above {
            NamespaceUse::FileSystem { format, options, mkfs } => {
                format.create(at, &device, mkfs, is_image)?;
                format.mount(at, &device, options)
            }
            NamespaceUse::Node => raw::make_node(at, &device),
        }
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        let (nqn, id) = self.subsystem(at);
        let device = nvme::namespace(&nqn, id);
        let (mut text, mut in_force) = self.above.read_back(seen, device.as_deref());
        if let TargetSide::Own { backing, .. } = &self.side {
            let below = backing.read_back(at);
            text += &below.text;
            in_force &= below.in_force;
        }
        let name = Self::name(at);
        let all = nvme::controllers().into_iter();
        let mut ours = all.filter(|one| one.connection().as_ref() == Some(&name));
        match ours.next() {
            Some(controller) => {
                text += &parts::describe(&controller);
                let missing = self.not_in_force(at, &controller);
                in_force &= missing.is_empty();
                if !missing.is_empty() {
                    text += &format!("; not in force: {}", missing.join(", "));
                }
            }
            None => {
                text += "; there is no controller";
                in_force = false;
            }
        }
        let scheduler =
            device.as_deref().and_then(|path| mount_view::sysfs(path, "queue/scheduler"));
        text += &format!("; scheduler: {}", scheduler.unwrap_or_else(|| "unreadable".into()));
        text += &parts::loaded(at);
        ReadBack { text, in_force }
    }
}

impl NamespaceUse {
    /// Describes what the system sees on this device, and returns whether it is as requested.
    fn read_back(&self, seen: &MountView, device: Option<&Path>) -> (String, bool) {
        let Self::FileSystem { format, options, .. } = self else {
            return raw::read_node(seen, device);
        };
        let mut text = seen.text();
        let bytes = device.and_then(|device| block::size_bytes(device).ok()).unwrap_or(0);
        let on_it = device.is_some_and(|device| format.is_seen(seen, device, bytes));
        let missing = format.missing_options(seen, options);
        if !missing.is_empty() {
            text += &format!("; not in force: {}", missing.join(","));
        }
        (text, on_it && missing.is_empty())
    }
}

#[cfg(test)]
mod tests;
