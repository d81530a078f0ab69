//! The inside of a virtual machine: Tare's own program as the first and only process of a guest
//! (`tare guest`), which carries out the host's orders.
//!
//! Method: the kernel starts the program from an initramfs. The program mounts the usual file
//! systems, loads the modules that it needs to receive orders, and then answers orders, one JSON
//! line each, on a virtio-serial port: load modules, set up the network, mount the data, start the
//! system, report the facts. The system is the same program again, as a child.
//!
//! For `crate::inside` it switches to the host's root, which is shared with it read-only, and runs
//! commands of that root.
//!
//! Limits: one system per guest. The guest powers itself off when the host closes the port, so it
//! never outlives its harness.

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

/// How long the host may take to send the first order.
const HOST_LIMIT: Duration = Duration::from_secs(30);

/// Why the guest cannot carry out an order, or cannot run at all.
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
    #[error("another command is running")]
    Running,
    #[error("no command is running")]
    NotRunning,
    #[error("the system is already started")]
    Started,
    #[error("cannot parse the order {line:?}")]
    Order { line: String, source: serde_json::Error },
}

/// Runs the guest and powers it off at the end. Does not return from a guest unless the power-off
/// fails.
///
/// # Errors
/// Fails if this is not a guest's first process, or if the guest was not started by Tare.
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

/// Mounts the file systems, loads the modules that orders need, and opens the port of orders.
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

/// Returns the device of a port: the one in the kernel's command line (`tare.log=/dev/ttyS1`, a
/// serial line of user-mode Linux), else the virtio-serial port of that name.
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

/// Sets a serial line to raw mode. The mode lasts while the line is open, and a first open keeps it
/// for the next.
fn make_raw(path: &Path) -> std::io::Result<()> {
    let line = File::options().read(true).write(true).open(path)?;
    let mut mode = rustix::termios::tcgetattr(&line)?;
    mode.make_raw();
    Ok(rustix::termios::tcsetattr(&line, rustix::termios::OptionalActions::Now, &mode)?)
}

/// Polls until `find` returns a value.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> Result<T, GuestError> {
    let deadline = Instant::now() + DEVICE_LIMIT;
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(GuestError::NoDevice { what: what.into(), limit: DEVICE_LIMIT });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends answers to the host, each as a whole line.
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

/// Sends the hello and carries out orders until the host closes the port or orders the power-off.
fn serve_orders(port: File) -> Result<(), GuestError> {
    let path = || PathBuf::from(ORDERS_PORT);
    let fail = |source| GuestError::File { path: path(), source };
    let answers = AnswerSender(Arc::new(Mutex::new(port.try_clone().map_err(fail)?)));
    answers.send(&Answer::Hello { kernel: facts::kernel() }).map_err(fail)?;
    let mut orders = BufReader::new(port);
    let mut guest = serve::Guest::new(answers.clone());
    let mut received = false;
    let began = Instant::now();
    loop {
        let line =
            protocol::read_order(&mut orders, || answers.send(&Answer::More)).map_err(fail)?;
        if line.is_empty() {
            // The host has not opened the port, or has closed it.
            if received || began.elapsed() > HOST_LIMIT {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        received = true;
        let answer = match serde_json::from_slice::<Order>(&line) {
            Ok(Order::PowerOff) => return Ok(()),
            Ok(order) => guest.carry_out(order),
            Err(source) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                Err(GuestError::Order { line, source })
            }
        };
        let failed = |error| Some(Answer::Failed { error: error_line(&error) });
        // A command sends its own answers while it runs.
        if let Some(answer) = answer.unwrap_or_else(failed) {
            answers.send(&answer).map_err(fail)?;
        }
    }
}

/// Raises the limit of open files to the kernel's default maximum, like a container engine.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let files = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    // If the kernel refuses, its default remains.
    let _ = setrlimit(Resource::Nofile, files);
}

fn power_off() {
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}
