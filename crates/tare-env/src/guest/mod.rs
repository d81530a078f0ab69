//! The inside of a virtual machine: Tare's own program as the first and only process of a guest
//! (`tare guest`), taking orders from the host.
//!
//! Method: the kernel starts the program from an initramfs. It mounts what a Linux system has,
//! loads the modules without which it hears nothing, and then answers orders, one JSON line each,
//! on a virtio-serial port: load modules, set up the network, mount the data, start the system,
//! say what is in force. The system is the same program again, as a child.
//!
//! Or it runs what the host runs (`crate::inside`): it takes the host's root, which is shared with
//! it read-only, for its own, and then runs commands of that root.
//!
//! Limits: one system per guest. When the host closes the port the guest powers itself off, so
//! that it never outlives its harness.

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::error_line;

mod commands;
mod facts;
pub(crate) mod info;
mod modules;
mod mounts;
mod network;
pub mod protocol;
mod root;
mod serve;

use protocol::{Answer, ORDERS_PORT, Order};

/// How long the devices of the guest may take to appear.
const DEVICE_LIMIT: Duration = Duration::from_secs(30);

/// How long nobody may be at the other end of the orders before the first of them.
const HOST_LIMIT: Duration = Duration::from_secs(30);

/// Why the guest cannot do what it was asked to, or cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error(
        "`tare guest` is the first process of a virtual machine; it was started as process {pid}"
    )]
    NotInit { pid: u32 },
    #[error("cannot mount {what} on {}", .path.display())]
    Mount { what: String, path: PathBuf, source: std::io::Error },
    #[error("cannot load the kernel module {name}")]
    Module { name: String, source: std::io::Error },
    #[error("no {what} appeared within {} s", .limit.as_secs())]
    NoDevice { what: String, limit: Duration },
    #[error("cannot set up the network: {step}")]
    Network { step: &'static str, source: std::io::Error },
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot start the system")]
    Start { source: std::io::Error },
    #[error("cannot run {program:?}")]
    Run { program: String, source: std::io::Error },
    #[error("a command is running already")]
    Running,
    #[error("no command is running")]
    NotRunning,
    #[error("the system has been started already")]
    Started,
    #[error("cannot understand the order {line:?}")]
    Order { line: String, source: serde_json::Error },
}

/// Runs the guest until it is powered off. Returns only with the reason why it cannot go on.
///
/// # Errors
/// When this is not a guest's first process, or the guest is not one that Tare made.
pub fn run() -> Result<(), GuestError> {
    let pid = std::process::id();
    if pid != 1 {
        return Err(GuestError::NotInit { pid });
    }
    let result = boot().and_then(serve_orders);
    if let Err(error) = &result {
        // The console is a file on the host.
        let _ = fs::write("/dev/console", format!("tare guest: {}\n", error_line(error)));
    }
    power_off();
    result
}

/// Mounts and loads what orders need, and opens the port on which they come.
fn boot() -> Result<File, GuestError> {
    mounts::system()?;
    let boot = fs::read_to_string(modules::BOOT_LIST).unwrap_or_default();
    for name in boot.lines() {
        modules::load(name)?;
    }
    raise_limits();
    let path = port(ORDERS_PORT)?;
    let open = || File::options().read(true).write(true).open(&path);
    open().map_err(|source| GuestError::File { path: path.clone(), source })
}

/// The device of a port, by its name: the one that the kernel's command line names
/// (`tare.log=/dev/ttyS1`, a serial line of user-mode Linux), else a virtio-serial port.
fn port(name: &str) -> Result<PathBuf, GuestError> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let named = |word: &str| Some(PathBuf::from(word.strip_prefix(name)?.strip_prefix('=')?));
    if let Some(path) = line.split_whitespace().find_map(named) {
        make_raw(&path).map_err(|source| GuestError::File { path: path.clone(), source })?;
        return Ok(path);
    }
    wait_for(&format!("virtio-serial port {name}"), || {
        let ports = fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten();
        let named = |folder: &Path| {
            fs::read_to_string(folder.join("name")).is_ok_and(|found| found.trim() == name)
        };
        let port = ports.map(|entry| entry.path()).find(|folder| named(folder))?;
        let device = Path::new("/dev").join(port.file_name()?);
        device.exists().then_some(device)
    })
}

/// Lets every byte through a serial line as it is. It stays so while somebody has it open, and a
/// line that nobody has opened yet keeps it for the next.
fn make_raw(path: &Path) -> std::io::Result<()> {
    let line = File::options().read(true).write(true).open(path)?;
    let mut mode = rustix::termios::tcgetattr(&line)?;
    mode.make_raw();
    Ok(rustix::termios::tcsetattr(&line, rustix::termios::OptionalActions::Now, &mode)?)
}

/// Looks until there is one.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, GuestError> {
    let deadline = Instant::now() + DEVICE_LIMIT;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(GuestError::NoDevice { what: what.into(), limit: DEVICE_LIMIT });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Where answers go. Who says something says a whole line.
#[derive(Clone, Debug)]
struct AnswerSender(Arc<Mutex<File>>);

impl AnswerSender {
    fn send(&self, answer: &Answer) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut port = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        port.write_all(&line)
    }
}

/// Says hello and carries out orders until the host closes the port or orders the power off.
fn serve_orders(port: File) -> Result<(), GuestError> {
    let path = || PathBuf::from(ORDERS_PORT);
    let fail = |source| GuestError::File { path: path(), source };
    let answers = AnswerSender(Arc::new(Mutex::new(port.try_clone().map_err(fail)?)));
    answers.send(&Answer::Hello { kernel: facts::kernel() }).map_err(fail)?;
    let mut orders = BufReader::new(port);
    let mut guest = serve::Guest::new(answers.clone());
    let mut heard = false;
    let began = Instant::now();
    loop {
        let line =
            protocol::read_order(&mut orders, || answers.send(&Answer::More)).map_err(fail)?;
        if line.is_empty() {
            // Nobody is at the other end.
            if heard || began.elapsed() > HOST_LIMIT {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        heard = true;
        let answer = match serde_json::from_slice::<Order>(&line) {
            Ok(Order::PowerOff) => return Ok(()),
            Ok(order) => guest.carry_out(order),
            Err(source) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                Err(GuestError::Order { line, source })
            }
        };
        let failed = |error| Some(Answer::Failed { error: error_line(&error) });
        // What a command answers comes while it runs.
        if let Some(answer) = answer.unwrap_or_else(failed) {
            answers.send(&answer).map_err(fail)?;
        }
    }
}

/// As many open files as the kernel allows by default, as a container engine gives.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let files = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    // A kernel that refuses leaves its default.
    let _ = setrlimit(Resource::Nofile, files);
}

fn power_off() {
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}
