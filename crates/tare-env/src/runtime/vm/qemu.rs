//! QEMU's command line.

use std::path::{Path, PathBuf};

use super::data::Data;
use super::options::Options;
use crate::guest::protocol::{LOG_PORT, ORDERS_PORT};
use crate::layer::network::TAP;

/// The monitor program.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// A path in one of QEMU's lists of options, where a comma is written twice.
pub(super) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    Tcg,
}

/// Files of one guest, all in its directory.
#[derive(Clone, Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    pub(super) fn qmp(&self) -> PathBuf {
        self.folder.join("qmp")
    }

    pub(super) fn orders(&self) -> PathBuf {
        self.folder.join("orders")
    }

    /// What the system prints.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What the guest's kernel prints.
    pub(super) fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// What QEMU prints.
    pub(super) fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    pub(super) fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs")
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    /// The directory that is shared with the guest.
    pub(super) fn share(&self) -> PathBuf {
        self.folder.join("share")
    }

    /// Where the daemon that serves it listens, and what it prints.
    pub(super) fn share_socket(&self) -> PathBuf {
        self.folder.join("share.socket")
    }

    pub(super) fn share_log(&self) -> PathBuf {
        self.folder.join("share.log")
    }

    /// Copies of what the system says of itself in its data directory.
    pub(super) fn shown(&self) -> PathBuf {
        self.folder.join("data")
    }
}

/// A machine that is to be started.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) name: String,
    pub(super) accelerator: Accelerator,
    pub(super) vcpus: u32,
    pub(super) kernel: &'a Path,
    pub(super) files: &'a Files,
    pub(super) options: &'a Options,
    /// What the data lies on; without it there is no network either: it can only say hello.
    pub(super) data: Option<&'a Data>,
    /// Whether the host carries packets in its kernel.
    pub(super) vhost: bool,
    /// Whether QEMU gives up the system calls that it does not need, as libvirt asks of it.
    pub(super) sandbox: bool,
}

impl Machine<'_> {
    /// The words after the program's name.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Self { options, files, .. } = self;
        let show = |path: PathBuf| escaped(&path);
        let mut words: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        add("name", format!("{},debug-threads=on", self.name));
        let shared = self.data.is_some_and(Data::shares_memory);
        let memory = if options.huge_pages || shared { ",memory-backend=memory" } else { "" };
        add("machine", format!("q35,usb=off,vmport=off,graphics=off{memory}"));
        let (accelerator, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
        };
        add("accel", accelerator.into());
        add("cpu", cpu.into());
        add("smp", self.vcpus.to_string());
        let mib = options.memory_bytes >> 20;
        add("m", format!("{mib}M"));
        if options.huge_pages || shared {
            let huge = if options.huge_pages { ",hugetlb=on,prealloc=on" } else { "" };
            let share = if shared { ",share=on" } else { "" };
            add("object", format!("memory-backend-memfd,id=memory,size={mib}M{huge}{share}"));
        }
        add("kernel", self.kernel.to_string_lossy().into_owned());
        add("initrd", files.initramfs().to_string_lossy().into_owned());
        // A guest that panics ends at once, and with it QEMU (-no-reboot).
        add("append", "rdinit=/tare console=ttyS0 quiet panic=-1 -- guest".into());
        add("display", "none".into());
        add("chardev", format!("file,id=console,path={}", show(files.console())));
        add("serial", "chardev:console".into());
        add("chardev", format!("socket,id=qmp,path={},server=on,wait=off", show(files.qmp())));
        add("mon", "chardev=qmp,mode=control".into());
        add("device", "virtio-serial-pci".into());
        add(
            "chardev",
            format!("socket,id=orders,path={},server=on,wait=off", show(files.orders())),
        );
        add("device", format!("virtserialport,chardev=orders,name={ORDERS_PORT}"));
        add("chardev", format!("file,id=log,path={}", show(files.log())));
        add("device", format!("virtserialport,chardev=log,name={LOG_PORT}"));
        if self.sandbox {
            let deny = "obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
            add("sandbox", format!("on,{deny}"));
        }
        if let Some(data) = self.data {
            let vhost = if self.vhost { "on" } else { "off" };
            let tap = format!("tap,id=net,ifname={TAP},script=no,downscript=no,vhost={vhost}");
            add("netdev", tap);
            add("device", "virtio-net-pci,netdev=net,romfile=".into());
            words.extend(data.words(files, options));
        }
        words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
        words
    }
}
