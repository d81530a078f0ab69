//! QEMU's command line.

use std::path::{Path, PathBuf};

use crate::guest::protocol::{LOG_PORT, ORDERS_PORT};

/// The monitor program.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Escapes a path for QEMU's option lists, in which commas are doubled.
pub(crate) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// How QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    Tcg,
}

/// The name of the image that holds the data.
pub(crate) const DISK_FILE: &str = "disk.img";

/// The files of one guest, all in its directory.
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

    /// Returns the file for the system's output.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Returns the file for the output of the guest's kernel.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// Returns the file for QEMU's output. A user-mode kernel prints to its console.
    pub(crate) fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join(DISK_FILE)
    }

    /// Returns the directory that is shared with the guest.
    pub(crate) fn share(&self) -> PathBuf {
        self.folder.join("share")
    }

    /// Returns the socket of the daemon that serves the shared directory.
    pub(crate) fn share_socket(&self) -> PathBuf {
        self.folder.join("share.socket")
    }

    /// Returns the file for that daemon's output.
    pub(crate) fn share_log(&self) -> PathBuf {
        self.folder.join("share.log")
    }

    /// Returns the directory with copies of small files from the guest's data directory.
    pub(crate) fn shown(&self) -> PathBuf {
        self.folder.join("data")
    }
}

/// A machine to start. Without devices it can only report that it is up.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) name: String,
    pub(crate) accelerator: Accelerator,
    pub(crate) vcpus: u32,
    pub(crate) shape: Shape,
    pub(crate) memory: Memory,
    pub(crate) kernel: &'a Path,
    pub(crate) files: &'a Files,
    /// The arguments for devices other than console, monitor and ports.
    pub(crate) devices: Vec<String>,
    /// Whether QEMU runs in its seccomp sandbox, with libvirt's settings.
    pub(crate) sandbox: bool,
    /// Whether its kernel panics once a CPU has been stuck for two minutes, which emulated ones
    /// rarely are. A guest that is frozen between slices would count that time.
    pub(crate) ends_if_stuck: bool,
}

/// How the vCPUs and the memory are divided. With the default, every vCPU is a core, and all are on
/// one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// NUMA nodes, each one socket with an equal part of the memory.
    pub(crate) nodes: u32,
    /// Hardware threads of a core.
    pub(crate) threads: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 1, threads: 1 }
    }
}

impl Shape {
    /// Returns the arguments for `vcpus`, which is a multiple of nodes times threads, and memory.
    fn words(self, vcpus: u32, memory_mib: u64) -> Vec<String> {
        let Self { nodes, threads } = self;
        if self == Self::default() {
            return vec!["-smp".into(), vcpus.to_string()];
        }
        let each = vcpus / nodes;
        let cores = each / threads;
        let smp = format!("{vcpus},sockets={nodes},cores={cores},threads={threads}");
        let mut words = vec!["-smp".into(), smp];
        for node in (0..nodes).filter(|_| nodes > 1) {
            let share = memory_mib / u64::from(nodes);
            let rest = memory_mib % u64::from(nodes);
            let mib = if node == 0 { share + rest } else { share };
            let (first, last) = (node * each, (node + 1) * each - 1);
            let memory = format!("memory-backend-ram,id=node{node},size={mib}M");
            let cpus = format!("node,nodeid={node},cpus={first}-{last},memdev=node{node}");
            words.extend(["-object".into(), memory, "-numa".into(), cpus]);
        }
        words
    }
}

/// The guest's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    pub(crate) huge_pages: bool,
    /// Whether a daemon of the host accesses it too.
    pub(crate) shared: bool,
}

/// Returns the arguments for the network device behind the tap of an instance. With `vhost` the
/// host's kernel carries the packets.
pub(crate) fn network_words(vhost: bool, tap: &str, instance: u32) -> Vec<String> {
    let vhost = if vhost { "on" } else { "off" };
    let tap = format!("tap,id=net,ifname={tap},script=no,downscript=no,vhost={vhost}");
    // QEMU's own address is the same in every guest, and guests may share a bridge.
    let [.., last] = instance.to_be_bytes();
    let mac = format!("52:54:00:12:34:{:02x}", 0x56_u8.wrapping_add(last));
    let card = format!("virtio-net-pci,netdev=net,mac={mac},romfile=");
    ["-netdev", &tap, "-device", &card].map(String::from).to_vec()
}

impl Machine<'_> {
    /// Returns the arguments of QEMU.
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
        // AMD's CPUs show hardware threads only with topoext, which TCG's CPU, one of them, lacks.
        let threads = match (self.accelerator, self.shape.threads) {
            (_, 1) => "",
            (Accelerator::Kvm, _) => ",topoext=on",
            (Accelerator::Tcg, _) => ",vendor=GenuineIntel",
        };
        add("cpu", format!("{cpu}{threads}"));
        let mib = memory.bytes >> 20;
        add("m", format!("{mib}M"));
        if own {
            let huge = if memory.huge_pages { ",hugetlb=on,prealloc=on" } else { "" };
            let share = if memory.shared { ",share=on" } else { "" };
            add("object", format!("memory-backend-memfd,id=memory,size={mib}M{huge}{share}"));
        }
        add("kernel", self.kernel.to_string_lossy().into_owned());
        add("initrd", files.initramfs().to_string_lossy().into_owned());
        // A panic ends the guest immediately, and QEMU with it (-no-reboot). The kernel panics if
        // an emulated timer does not tick while the host is busy; it makes no such check under KVM.
        let options = "rdinit=/tare console=ttyS0 quiet panic=-1 no_timer_check";
        // A soft lockup is twice watchdog_thresh (lockup-watchdogs.rst).
        let stuck = if self.ends_if_stuck { " watchdog_thresh=60 softlockup_panic=1" } else { "" };
        add("append", format!("{options}{stuck} -- guest"));
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
        words.extend(self.shape.words(self.vcpus, mib));
        words.extend(self.devices.iter().cloned());
        words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
        words
    }
}
