//! QEMU's command line.

use std::path::{Path, PathBuf};

use crate::guest::protocol::{LOG_PORT, ORDERS_PORT};
use crate::layer::network::TAP;

/// The monitor program.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// A path in one of QEMU's lists of options, where a comma is written twice.
pub(crate) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    Tcg,
}

/// Name of the image that the data lies on.
pub(crate) const DISK_FILE: &str = "disk.img";

/// Files of one guest, all in its directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn qmp(&self) -> PathBuf {
        self.folder.join("qmp")
    }

    pub(crate) fn orders(&self) -> PathBuf {
        self.folder.join("orders")
    }

    /// What the system prints.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What the guest's kernel prints.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// What QEMU prints; a user-mode kernel prints to its console.
    pub(crate) fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join(DISK_FILE)
    }

    /// The directory that is shared with the guest.
    pub(crate) fn share(&self) -> PathBuf {
        self.folder.join("share")
    }

    /// Where the daemon that serves it listens, and what it prints.
    pub(crate) fn share_socket(&self) -> PathBuf {
        self.folder.join("share.socket")
    }

    pub(crate) fn share_log(&self) -> PathBuf {
        self.folder.join("share.log")
    }

    /// Copies of what the system says of itself in its data directory.
    pub(crate) fn shown(&self) -> PathBuf {
        self.folder.join("data")
    }
}

/// A machine that is to be started. Without devices it can only say hello.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) name: String,
    pub(crate) accelerator: Accelerator,
    pub(crate) vcpus: u32,
    pub(crate) memory: Memory,
    pub(crate) kernel: &'a Path,
    pub(crate) files: &'a Files,
    /// Words for what it has besides console, monitor and ports.
    pub(crate) devices: Vec<String>,
    /// Whether QEMU gives up the system calls that it does not need, as libvirt asks of it.
    pub(crate) sandbox: bool,
}

/// The guest's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    pub(crate) huge_pages: bool,
    /// Whether a daemon of the host reads and writes it too.
    pub(crate) shared: bool,
}

/// The network device behind the tap. `vhost`: the host carries packets in its kernel.
pub(crate) fn network_words(vhost: bool) -> Vec<String> {
    let vhost = if vhost { "on" } else { "off" };
    let tap = format!("tap,id=net,ifname={TAP},script=no,downscript=no,vhost={vhost}");
    ["-netdev", &tap, "-device", "virtio-net-pci,netdev=net,romfile="].map(String::from).to_vec()
}

impl Machine<'_> {
    /// The words after the program's name.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { memory, files, .. } = self;
        let show = |path: PathBuf| escaped(&path);
        let mut words: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        add("name", format!("{},debug-threads=on", self.name));
        let own = memory.huge_pages || memory.shared;
        let backend = if own { ",memory-backend=memory" } else { "" };
        add("machine", format!("q35,usb=off,vmport=off,graphics=off{backend}"));
        let (accelerator, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
        };
        add("accel", accelerator.into());
        add("cpu", cpu.into());
        add("smp", self.vcpus.to_string());
        let mib = memory.bytes >> 20;
        add("m", format!("{mib}M"));
        if own {
            let huge = if memory.huge_pages { ",hugetlb=on,prealloc=on" } else { "" };
            let share = if memory.shared { ",share=on" } else { "" };
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
        words.extend(self.devices.iter().cloned());
        words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
        words
    }
}
