//! "Other machines" on this one: each is a network namespace with a veth pair to this host, a
//! process namespace, a mount namespace with its own `/var/tmp`, `/var/lib/tare` and `/run`, and an
//! sshd. Everything ends with the process that holds the bed, also when it is killed.

mod cgroups;

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip::{Machine, Need, Reason, skip, skipped};

/// Becomes the first process of a machine, with the directories and addresses as arguments.
const MACHINE: &str = include_str!("machine.sh");
/// Passes packets between two devices after a delay.
const LINE: &str = include_str!("line.py");
/// Becomes a program whose kernel seems old.
const OLD_KERNEL: &str = include_str!("old_kernel.py");
/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
const NEEDS: [Need; 10] = [
    Need::Root,
    Need::Program("sshd"),
    Need::Program("ssh"),
    Need::Program("ssh-keygen"),
    Need::Program("ip"),
    Need::Program("tc"),
    Need::Program("nft"),
    Need::Program("unshare"),
    Need::Program("nsenter"),
    Need::Program("mount"),
];
/// The account without root's rights on every machine of a bed.
pub const USER: &str = "bench";
/// Network namespaces and links of beds start with this and the process that made them.
const PREFIX: &str = "tb";

/// Other machines. They end when this is dropped.
#[derive(Debug)]
pub struct SshBed {
    directory: TempDir,
    machines: Vec<Host>,
}

/// What a machine of a bed is.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    name: String,
    monotonic_s: i64,
    delay: Duration,
    old_kernel: bool,
}

impl MachineSpec {
    pub fn new(name: &str) -> Self {
        let delay = Duration::ZERO;
        Self { name: name.into(), monotonic_s: 0, delay, old_kernel: false }
    }

    /// Moves the machine's monotonic clock by this many seconds against that of this host.
    #[must_use]
    pub fn monotonic_s(mut self, offset_s: i64) -> Self {
        self.monotonic_s = offset_s;
        self
    }

    /// Lets every system call fail that Linux 5.0 did not have, such as those of io_uring.
    #[must_use]
    pub fn old_kernel(mut self) -> Self {
        self.old_kernel = true;
        self
    }

    /// Delays every packet to and from the machine by this time, also where the kernel has no
    /// netem. Such a line carries some ten thousand packets per second.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

#[derive(Debug)]
struct Host {
    name: String,
    namespace: String,
    link: String,
    here: Ipv4Addr,
    there: Ipv4Addr,
    has_clock: bool,
    process: Option<Child>,
    line: Option<Child>,
    /// Removed after the processes in them have ended.
    quotas: Vec<cgroups::Quota>,
}

impl SshBed {
    /// Starts machines with these names; `None` after the test was reported as skipped, where a
    /// part of them cannot be made.
    ///
    /// # Panics
    /// If a machine does not start.
    pub fn start(test: &str, names: &[&str]) -> Option<Self> {
        let specs: Vec<_> = names.iter().map(|name| MachineSpec::new(name)).collect();
        Self::start_with(test, &specs)
    }

    /// As [`Self::start`], with more said about each machine.
    ///
    /// # Panics
    /// If a machine does not start.
    pub fn start_with(test: &str, specs: &[MachineSpec]) -> Option<Self> {
        if skipped(test, &NEEDS) {
            return None;
        }
        let clocks = specs.iter().any(|spec| spec.monotonic_s != 0);
        if clocks && !Path::new("/proc/self/ns/time").exists() {
            let lacks = "this kernel has no time namespaces";
            skip(test, Machine::KernelLacks(lacks.into()));
            return None;
        }
        let delays = specs.iter().any(|spec| !spec.delay.is_zero());
        let scripts = delays || specs.iter().any(|spec| spec.old_kernel);
        if scripts && skipped(test, &[Need::Program("python3")]) {
            return None;
        }
        if delays && !Path::new("/dev/net/tun").exists() {
            skip(test, Machine::KernelLacks("this kernel has no tap devices".into()));
            return None;
        }
        remove_abandoned();
        let directory = tempfile::Builder::new().prefix("tb").tempdir_in("/tmp").unwrap();
        // sshd reads the user's public key as that user.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for key in ["key", "host", "other"] {
            let file = directory.path().join(key);
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", file.to_str().unwrap()]);
        }
        let mut bed = Self { directory, machines: Vec::new() };
        for spec in specs {
            bed.add(spec);
        }
        bed.write_config();
        bed.machines.iter().for_each(Host::wait_until_ready);
        Some(bed)
    }

    /// Returns the configuration of ssh that knows the machines, for `TARE_SSH_CONFIG`.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("config")
    }

    /// Returns the directory of the bed's files: `config`, `known` (the known hosts), `key` (which
    /// the machines accept), `host` (their own) and `other`, which nobody knows.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a machine's address in a study or after `--on`.
    pub fn address(&self, name: &str) -> String {
        format!("ssh:{}", self.machine(name).name)
    }

    /// Returns the IP address of a machine.
    pub fn ip(&self, name: &str) -> Ipv4Addr {
        self.machine(name).there
    }

    /// Returns the address of this host as the machine sees it.
    pub fn ip_here(&self, name: &str) -> Ipv4Addr {
        self.machine(name).here
    }

    /// Returns the network namespace of a machine.
    pub fn namespace(&self, name: &str) -> &str {
        &self.machine(name).namespace
    }

    /// Lets the machines reach each other, through this host: their lines forward, and no other
    /// device.
    ///
    /// # Panics
    /// If a line is gone.
    pub fn connect_all(&self) {
        for machine in &self.machines {
            let line = format!("/proc/sys/net/ipv4/conf/{}/forwarding", machine.link);
            fs::write(line, "1").unwrap();
        }
    }

    /// Sets both directions of a machine's line, such as to `delay 10ms`, `loss 2%` or
    /// `rate 100mbit`.
    ///
    /// # Errors
    /// The reason to skip a test, where the kernel has no netem.
    ///
    /// # Panics
    /// If the kernel refuses the words.
    pub fn netem(&self, name: &str, line: &str) -> Result<(), Reason> {
        let machine = self.machine(name);
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = [(vec![], &*machine.link), (vec!["-n", &machine.namespace], "eth0")];
        for (first, link) in ends {
            let replace = ["qdisc", "replace", "dev", link, "root", "netem"];
            let arguments = [first.as_slice(), &replace, &words].concat();
            let output = Command::new("tc").args(&arguments).output().unwrap();
            if String::from_utf8_lossy(&output.stderr).contains("kind is unknown") {
                return Err(Machine::KernelLacks("this kernel has no netem".into()).into());
            }
            checked("tc", &arguments, &output);
        }
        Ok(())
    }

    /// Loses every packet from and to a machine, until [`Self::mend`].
    ///
    /// # Panics
    /// If the kernel has no nftables.
    pub fn cut(&self, name: &str) {
        self.nft(name, &["add", "table", "inet", "cut"]);
        for hook in ["input", "output"] {
            let chain = format!("{{ type filter hook {hook} priority 0; policy drop; }}");
            self.nft(name, &["add", "chain", "inet", "cut", hook, &chain]);
        }
    }

    /// Undoes [`Self::cut`].
    ///
    /// # Panics
    /// If the machine's line is not cut.
    pub fn mend(&self, name: &str) {
        self.nft(name, &["delete", "table", "inet", "cut"]);
    }

    fn nft(&self, name: &str, arguments: &[&str]) {
        let namespace = format!("--net=/run/netns/{}", self.machine(name).namespace);
        run("nsenter", &[&[&*namespace, "nft"], arguments].concat());
    }

    /// Returns a command that runs on a machine as root, without ssh.
    pub fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.machine(name).first_process().to_string();
        command.args(["--target", &target, "--mount", "--net", "--pid", "--wd=/"]);
        command.args(self.machine(name).has_clock.then_some("--time")).args(["--", program]);
        command
    }

    /// Runs a program on a machine as root, without ssh, and returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, name: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.command(name, program).args(arguments).output().unwrap();
        checked(program, arguments, &output)
    }

    /// Gives the processes of a machine whose words contain `word` this share of one CPU, in
    /// percent, until the machine ends.
    ///
    /// # Errors
    /// The reason to skip a test, where the kernel has no quota of CPU time.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn slow_down(&mut self, name: &str, word: &str, percent: u32) -> Result<(), Reason> {
        let found = self.processes(name, word);
        assert!(!found.is_empty(), "no process of {name} has the word {word}");
        let machine = self.machines.iter_mut().find(|machine| machine.name == name).unwrap();
        let group = format!("{}q{}", machine.namespace, machine.quotas.len());
        let quota = cgroups::Quota::new(&group, percent).ok_or_else(|| {
            Reason::from(Machine::KernelLacks("cgroups have no quota of CPU time".into()))
        })?;
        for pid in found {
            quota.add(pid).unwrap();
        }
        machine.quotas.push(quota);
        Ok(())
    }

    /// Returns the processes of a machine whose words contain `word`, as this host numbers them.
    pub fn processes(&self, name: &str, word: &str) -> Vec<u32> {
        let (mut waiting, mut found) = (vec![self.machine(name).first_process()], Vec::new());
        while let Some(pid) = waiting.pop() {
            waiting.extend(children(pid));
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&words).contains(word) {
                found.push(pid);
            }
        }
        found
    }

    /// Ends a machine at once, as a loss of power does. Its line stays.
    ///
    /// # Panics
    /// If it has no processes.
    pub fn kill(&mut self, name: &str) {
        let machine = self.machines.iter_mut().find(|machine| machine.name == name).unwrap();
        machine.end();
    }

    fn machine(&self, name: &str) -> &Host {
        let found = self.machines.iter().find(|machine| machine.name == name);
        found.unwrap_or_else(|| panic!("the bed has no machine {name}"))
    }

    fn add(&mut self, spec: &MachineSpec) {
        let (pid, number) = (std::process::id(), next_number());
        let namespace = format!("{PREFIX}{pid}-{number}");
        let link = format!("{PREFIX}{pid}h{number}");
        let (here, there) = addresses(pid, number);
        let name = spec.name.clone();
        // From here on, dropping the bed removes what was made.
        self.machines.push(Host {
            name,
            namespace,
            link,
            here,
            there,
            has_clock: spec.monotonic_s != 0,
            process: None,
            line: None,
            quotas: Vec::new(),
        });
        let machine = self.machines.last_mut().unwrap();
        let (namespace, link) = (&*machine.namespace, &*machine.link);
        run("ip", &["netns", "add", namespace]);
        run("ip", &["-n", namespace, "link", "set", "lo", "up"]);
        if spec.delay.is_zero() {
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", namespace];
            run("ip", &[["link", "add", link].as_slice(), &peer].concat());
        } else {
            let peer = format!("{link}p");
            machine.line = Some(delay_line(link, &peer, spec.delay));
            run("ip", &["link", "set", &peer, "netns", namespace, "name", "eth0"]);
        }
        run("ip", &["addr", "add", &format!("{here}/30"), "dev", link]);
        run("ip", &["link", "set", link, "up"]);
        run("ip", &["-n", namespace, "addr", "add", &format!("{there}/30"), "dev", "eth0"]);
        run("ip", &["-n", namespace, "link", "set", "eth0", "up"]);
        run("ip", &["-n", namespace, "route", "add", "default", "via", &here.to_string()]);
        machine.process = Some(boot(spec, machine, self.directory.path()));
    }

    fn write_config(&self) {
        let at = self.directory.path();
        let host = fs::read_to_string(at.join("host.pub")).unwrap();
        let host = host.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let (mut config, mut known) = (String::new(), String::new());
        for Host { name, there, .. } in &self.machines {
            known += &format!("{there} {host}\n");
            config += &format!(
                "Host {name}\n  HostName {there}\n  User root\n  IdentityFile {0}/key\n  \
                 IdentitiesOnly yes\n  UserKnownHostsFile {0}/known\n",
                at.display()
            );
        }
        fs::write(at.join("config"), config).unwrap();
        fs::write(at.join("known"), known).unwrap();
    }
}

impl Host {
    /// Returns the first process of the machine, as this host numbers it.
    fn first_process(&self) -> u32 {
        let unshare = self.process.as_ref().map(Child::id).unwrap_or_else(|| {
            panic!("the machine {} was ended", self.name);
        });
        let first = children(unshare).first().copied();
        first.unwrap_or_else(|| panic!("the machine {} does not run", self.name))
    }

    fn wait_until_ready(&self) {
        let started = Instant::now();
        let address = SocketAddr::from((self.there, 22));
        let greets = || -> io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut greeting = [0; 4];
            stream.read_exact(&mut greeting)?;
            Ok(&greeting == b"SSH-")
        };
        while !greets().unwrap_or(false) {
            assert!(started.elapsed() < PATIENCE, "the sshd of {} does not answer", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let first = children(process.id());
        let groups = cgroups::of_runs(&first);
        // Its first process is killed with it, and with that every process of the machine.
        let _ = process.kill();
        let _ = process.wait();
        cgroups::thaw(&groups);
        let started = Instant::now();
        let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        while first.iter().any(lives) && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        cgroups::remove(&groups);
        self.quotas.clear();
    }
}

impl Drop for SshBed {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            machine.end();
            if let Some(mut line) = machine.line.take() {
                let _ = line.kill();
                let _ = line.wait();
            }
            remove(&machine.namespace, &machine.link);
        }
    }
}

/// Starts the process that passes packets between two new devices after a delay. It ends with its
/// standard input, and the devices with it.
fn delay_line(link: &str, peer: &str, delay: Duration) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", LINE, link, peer, &delay.as_micros().to_string()]);
    let mut line = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    line.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    line
}

/// Starts the first process of a machine and its sshd.
fn boot(spec: &MachineSpec, machine: &Host, directory: &Path) -> Child {
    let own = directory.join(&spec.name);
    fs::create_dir(&own).unwrap();
    let log = File::create(own.join("log")).unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace));
    command.args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if spec.monotonic_s != 0 {
        let offset = spec.monotonic_s;
        command.arg("--time").arg(format!("--monotonic={offset}"));
        command.arg(format!("--boottime={offset}"));
    }
    if spec.old_kernel {
        command.args(["python3", "-c", OLD_KERNEL]);
    }
    command.args(["sh", "-c", MACHINE, "sh"]).arg(directory).arg(&own);
    command.arg(machine.there.to_string()).arg(USER);
    // It ends when this pipe closes, so also with a killed test.
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Numbers the machines of this process.
fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Returns the addresses of a line: of this host, and of the machine. They are from the range for
/// benchmarks (RFC 2544), four for each line.
fn addresses(pid: u32, number: u32) -> (Ipv4Addr, Ipv4Addr) {
    let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
    let line = first + 4 * ((pid % 512) * 64 + number % 64);
    (Ipv4Addr::from(line + 1), Ipv4Addr::from(line + 2))
}

/// Removes the namespaces of tests that were killed.
fn remove_abandoned() {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in names.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let Some((pid, number)) = parts else { continue };
        let is_number = pid.parse::<u32>().is_ok() && number.parse::<u32>().is_ok();
        if is_number && !Path::new("/proc").join(pid).exists() {
            remove(&name, &format!("{PREFIX}{pid}h{number}"));
        }
    }
    cgroups::Quota::remove_abandoned(|name| {
        let pid =
            name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
    });
}

fn remove(namespace: &str, link: &str) {
    // The other end of the link goes with it, and with the namespace the link.
    let _ = Command::new("ip").args(["link", "del", link]).output();
    let _ = Command::new("ip").args(["netns", "del", namespace]).output();
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    checked(program, arguments, &output.unwrap_or_else(|error| panic!("{program}: {error}")))
}

fn checked(program: &str, arguments: &[&str], output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
