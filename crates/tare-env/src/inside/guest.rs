//! A running guest, from the host's side.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tare_host::journal::{Entry, Journal};
use tare_host::{RUN_VARIABLE, UndoError, process};

use super::monitor::{Ready, Started};
use super::{DISK, InsideError, Options, RESULTS, SCRATCH, machine};
use crate::guest::protocol::{Answer, Order, Root, Run, Stream};
use crate::run_context::RunIdentity;
use crate::runtime::vm::{
    BOOT, BOOT_LIMIT, Files, Kernel, Lines, Modules, Monitor, MonitorKind, VmError, initramfs,
};
use crate::system::log_tail;

/// Where the export directory is mounted in the guest.
const EXPORT: &str = "/run/tare/export";

/// How long the guest may take for an order, such as to load modules and mount.
const ORDER_LIMIT: Duration = Duration::from_secs(180);

/// How long the copy of the results to the host may take.
const COPY_LIMIT: Duration = Duration::from_secs(120);

/// How long a command may take to end after it is killed at its time limit.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How often `stop` and the guest's process are checked while a command runs.
const TICK: Duration = Duration::from_millis(200);

/// A command to run in a guest, by default with this process's environment and directory.
#[derive(Clone, Debug)]
pub struct Command {
    words: Vec<String>,
    variables: Vec<(String, String)>,
    directory: PathBuf,
    limit: Option<Duration>,
}

/// How a command ended: its exit code, or the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl Command {
    /// Returns a command of a program of the host's root, with its arguments. Invalid UTF-8 in
    /// variables is replaced.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        // The guest's processes do not carry the mark of a run of the host.
        let mut variables: Vec<(String, String)> =
            variables.filter(|(name, _)| name != RUN_VARIABLE && name != "TMPDIR").collect();
        variables.push(("TMPDIR".into(), SCRATCH.into()));
        Self {
            words: words.into_iter().map(Into::into).collect(),
            variables,
            directory: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            limit: None,
        }
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Kills the command after this time, and makes that an error.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    fn program(&self) -> String {
        self.words.first().cloned().unwrap_or_default()
    }
}

/// A guest with the host's root. Dropping it removes it.
#[derive(Debug)]
pub struct Guest {
    // Dropped first: the process must end before its files are removed.
    monitor: Monitor,
    lines: Lines,
    files: Files,
    export: PathBuf,
    kernel: String,
    accelerator: String,
    journal: Journal,
}

impl Guest {
    /// Boots a guest. `state` is the directory of journals and disks, `program` the static program
    /// that becomes its first process.
    ///
    /// # Errors
    /// Fails if this host cannot run it, or if it does not come up. Nothing is left behind.
    pub fn boot(options: &Options, state: &Path, program: &Path) -> Result<Self, InsideError> {
        super::check(options, state)?;
        let journal = Journal::create(state, &[])?;
        match Self::start(options, state, program, &journal) {
            Ok(started) => {
                let (monitor, lines, files, kernel, accelerator) = started;
                let export = machine::export(&work_of(state, &journal));
                let mut guest =
                    Self { monitor, lines, files, export, kernel, accelerator, journal };
                guest.set_address(options)?;
                Ok(guest)
            }
            Err(error) => {
                journal.close();
                Err(error)
            }
        }
    }

    fn start(
        options: &Options,
        state: &Path,
        program: &Path,
        journal: &Journal,
    ) -> Result<(Monitor, Lines, Files, String, String), InsideError> {
        let work = work_of(state, journal);
        journal.write(vec![Entry::processes(), Entry::directory(work.clone())])?;
        let file = |path: &Path| {
            let path = path.to_path_buf();
            move |source| InsideError::File { path, source }
        };
        fs::create_dir(&work).map_err(file(&work))?;
        let files = Files::new(&work);
        let cpus = process::cpus_of_this_thread().map_err(file(Path::new("/proc/self/status")))?;
        let image = options.kernel.as_deref();
        let (kernel, first, needs) = match options.monitor {
            MonitorKind::Qemu => (Kernel::find(image)?, BOOT, machine::NEEDS),
            MonitorKind::Uml => (Kernel::user_mode(image)?, [].as_slice(), machine::NEEDS_UML),
        };
        machine::index_modules(&kernel)?;
        let mut modules = Modules::index(&kernel);
        let names = |modules: Vec<crate::guest::protocol::Module>| -> Vec<String> {
            modules.into_iter().map(|module| module.name).collect()
        };
        let boot = names(modules.choose(first)?);
        let later = modules.choose(needs)?;
        let root = initramfs::Contents {
            program,
            files: &[],
            modules: modules.chosen(),
            boot: &boot,
            bundle: None,
        };
        initramfs::write(&files.initramfs(), &root).map_err(file(&files.initramfs()))?;
        machine::make_disks(&files, options, journal.run())?;
        let identity = RunIdentity { run: journal.run(), cpus: &cpus };
        let deadline = Instant::now() + BOOT_LIMIT;
        let ready = Ready { options, identity, kernel: &kernel, files: &files };
        let Started { monitor, mut lines, accelerator, share } = ready.start(deadline)?;
        let boot = |source| VmError::Boot { limit: BOOT_LIMIT, source };
        let release = match lines.receive(deadline).map_err(boot)? {
            Answer::Hello { kernel } => kernel,
            _ => return Err(VmError::Answer { order: "hello" }.into()),
        };
        done(&mut lines, "load", &Order::Load { modules: later })?;
        let root = Root {
            share,
            modules: kernel.modules,
            load: machine::load(options),
            disk: DISK.into(),
            export: EXPORT.into(),
            devices: machine::serials(&files, options),
            accelerator: accelerator.clone(),
        };
        done(&mut lines, "take root", &Order::TakeRoot(root))?;
        Ok((monitor, lines, files, release, accelerator))
    }

    /// Gives the guest's card its address.
    fn set_address(&mut self, options: &Options) -> Result<(), InsideError> {
        let card = options.card.as_ref();
        let Some((address, length)) = card.and_then(|card| card.address) else { return Ok(()) };
        let address = format!("{address}/{length}");
        let up = ["ip", "link", "set", "dev", machine::CARD, "up"];
        let add = ["ip", "address", "add", &address, "dev", machine::CARD];
        for words in [&up[..], &add[..]] {
            let command = Command::new(words.iter().copied()).limit(ORDER_LIMIT);
            match self.output(&command)? {
                (Status::Code(0), ..) => {}
                (_, _, error) => {
                    return Err(InsideError::Refused { program: "ip".into(), error });
                }
            }
        }
        Ok(())
    }

    /// Returns the release of the guest's kernel.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Returns `kvm`, `tcg` or `uml`, a colon, and the reason.
    pub fn accelerator(&self) -> &str {
        &self.accelerator
    }

    /// Returns the host's path of the export directory.
    pub fn export(&self) -> &Path {
        &self.export
    }

    /// Runs a command to its end and forwards its output. Once `stop` is true, sends one SIGINT to
    /// the command and waits for its end.
    ///
    /// # Errors
    /// Fails if the command cannot be started or takes too long, or if the guest ends.
    pub fn run(
        &mut self,
        command: &Command,
        out: &mut dyn Write,
        err: &mut dyn Write,
        stop: &AtomicBool,
    ) -> Result<Status, InsideError> {
        let program = command.program();
        let order = Order::Run(Run {
            words: command.words.clone(),
            variables: command.variables.clone(),
            directory: command.directory.clone(),
        });
        self.send(&program, &order)?;
        let began = Instant::now();
        let (mut interrupted, mut killed) = (false, false);
        loop {
            if stop.load(Ordering::Relaxed) && !interrupted {
                interrupted = true;
                self.send(&program, &Order::Signal { signal: Signal::INT.as_raw() })?;
            }
            match command.limit {
                Some(limit) if killed && began.elapsed() > limit + KILL_LIMIT => {
                    return Err(InsideError::TimedOut { program, limit });
                }
                Some(limit) if !killed && began.elapsed() > limit => {
                    killed = true;
                    self.send(&program, &Order::Signal { signal: Signal::KILL.as_raw() })?;
                }
                _ => {}
            }
            match self.lines.receive(Instant::now() + TICK) {
                Ok(Answer::Printed { stream, bytes }) => {
                    let to: &mut dyn Write = match stream {
                        Stream::Output => &mut *out,
                        Stream::Error => &mut *err,
                    };
                    let print = to.write_all(&bytes).and_then(|()| to.flush());
                    let fail = |source| InsideError::Print { program: program.clone(), source };
                    print.map_err(fail)?;
                }
                Ok(Answer::Ended { code, signal }) => {
                    let ended = match code {
                        Some(code) => Status::Code(code),
                        None => Status::Signal(signal.unwrap_or_default()),
                    };
                    return match command.limit {
                        Some(limit) if killed => Err(InsideError::TimedOut { program, limit }),
                        _ => Ok(ended),
                    };
                }
                // The signal was sent after the command's end.
                Ok(Answer::Failed { .. }) if interrupted || killed => {}
                Ok(Answer::Failed { error }) => {
                    return Err(InsideError::Refused { program, error });
                }
                // The answer to a signal.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && self.monitor.alive() => {}
                Err(source) => return Err(self.ended(&program, source)),
            }
        }
    }

    fn send(&mut self, program: &str, order: &Order) -> Result<(), InsideError> {
        let sent = self.lines.order(order);
        sent.map_err(|source| self.ended(program, source))
    }

    /// Runs a command to its end and returns its status, its standard output and its standard
    /// error.
    ///
    /// # Errors
    /// Fails like `run`.
    pub fn output(&mut self, command: &Command) -> Result<(Status, String, String), InsideError> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = self.run(command, &mut out, &mut err, &AtomicBool::new(false))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((status, text(out), text(err)))
    }

    /// Copies the contents of `RESULTS` to the host and returns their directory, which exists until
    /// the guest is closed.
    ///
    /// # Errors
    /// Fails if the guest has ended, or if the results do not fit.
    pub fn collect(&mut self) -> Result<PathBuf, InsideError> {
        let from = format!("{RESULTS}/.");
        let copy = Command::new(["cp", "--recursive", "--", &from, EXPORT]).limit(COPY_LIMIT);
        match self.output(&copy)? {
            (Status::Code(0), ..) => Ok(self.export.clone()),
            (_, _, error) => Err(InsideError::Refused { program: "cp".into(), error }),
        }
    }

    /// Returns the last output of the guest's kernel.
    pub fn console(&self) -> String {
        log_tail(&[&self.files.stderr(), &self.files.console()])
    }

    fn ended(&self, program: &str, source: io::Error) -> InsideError {
        InsideError::Gone { program: program.into(), console: self.console(), source }
    }

    /// Ends the guest and removes it with its disks. What could not be removed stays in the
    /// journal.
    pub fn close(mut self) -> Vec<UndoError> {
        // The results are on the host already, so the guest need not unmount its disks.
        let _ = self.monitor.kill();
        self.journal.close()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        self.journal.close();
    }
}

fn work_of(state: &Path, journal: &Journal) -> PathBuf {
    let state = fs::canonicalize(state).unwrap_or_else(|_| state.to_path_buf());
    state.join(journal.prefix())
}

/// Sends an order whose answer is `Answer::Done`.
fn done(lines: &mut Lines, name: &'static str, order: &Order) -> Result<(), InsideError> {
    let fail = |source| VmError::Order { order: name, source };
    lines.order(order).map_err(fail)?;
    match lines.receive(Instant::now() + ORDER_LIMIT).map_err(fail)? {
        Answer::Done => Ok(()),
        Answer::Failed { error } => Err(VmError::Refused { order: name, error }.into()),
        _ => Err(VmError::Answer { order: name }.into()),
    }
}
