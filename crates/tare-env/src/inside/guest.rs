//! A guest that is up, from the host's side.

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

/// Where the share for what is handed back is mounted in the guest.
const HAND_BACK: &str = "/run/tare/hand-back";

/// How long the guest may take for an order: it loads modules and mounts.
const ORDER_LIMIT: Duration = Duration::from_secs(180);

/// How long results may take to the host.
const COPY_LIMIT: Duration = Duration::from_secs(120);

/// How long a command that took too long may take to end when it is killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked whether the command shall stop, and whether the guest lives.
const TICK: Duration = Duration::from_millis(200);

/// A command that is run in a guest, with this process's environment and directory unless said
/// otherwise.
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
    /// A program of the host's root, with its arguments. Variables and arguments that are no text
    /// are shown as well as can be.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        // The guest's own processes bear no mark of a run of the host's.
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

    /// Kills the command, which is an error, when it takes longer than this.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    fn program(&self) -> String {
        self.words.first().cloned().unwrap_or_default()
    }
}

/// A guest whose root is the host's. Dropping it removes it.
#[derive(Debug)]
pub struct Guest {
    // Its process ends before what it stands on is removed.
    monitor: Monitor,
    lines: Lines,
    files: Files,
    hand_back: PathBuf,
    kernel: String,
    accelerator: String,
    journal: Journal,
}

impl Guest {
    /// Boots a guest. `state` is where journals and disks are kept, `program` the static program
    /// that is its first process.
    ///
    /// # Errors
    /// When it cannot be had here, or does not come up. Nothing is left then.
    pub fn boot(options: &Options, state: &Path, program: &Path) -> Result<Self, InsideError> {
        super::check(options, state)?;
        let journal = Journal::create(state, &[])?;
        match Self::start(options, state, program, &journal) {
            Ok(started) => {
                let (monitor, lines, files, kernel, accelerator) = started;
                let hand_back = machine::hand_back(&work_of(state, &journal));
                Ok(Self { monitor, lines, files, hand_back, kernel, accelerator, journal })
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
        let asked = options.kernel.as_deref();
        let (kernel, first, needs) = match options.monitor {
            MonitorKind::Qemu => (Kernel::find(asked)?, BOOT, machine::NEEDS),
            MonitorKind::Uml => (Kernel::user_mode(asked)?, [].as_slice(), machine::NEEDS_UML),
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
        let identity = RunIdentity { run: journal.run(), work: &work, cpus: &cpus };
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
            load: machine::LOAD.iter().map(|name| (*name).to_string()).collect(),
            disk: DISK.into(),
            hand_back: HAND_BACK.into(),
            devices: machine::serials(&files, options),
            accelerator: accelerator.clone(),
        };
        done(&mut lines, "take root", &Order::TakeRoot(root))?;
        Ok((monitor, lines, files, release, accelerator))
    }

    /// Release of the guest's kernel.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// `kvm`, `tcg` or `uml`, a colon, and why.
    pub fn accelerator(&self) -> &str {
        &self.accelerator
    }

    /// The directory of the host that holds what was handed back.
    pub fn hand_back(&self) -> &Path {
        &self.hand_back
    }

    /// Runs a command to its end. What it prints is passed on as it comes. Once `stop` is true the
    /// command gets one SIGINT, and is waited for.
    ///
    /// # Errors
    /// When it cannot be started, takes too long, or the guest ends.
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
        let (mut told, mut killed) = (false, false);
        loop {
            if stop.load(Ordering::Relaxed) && !told {
                told = true;
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
                // A signal that came after the command's end.
                Ok(Answer::Failed { .. }) if told || killed => {}
                Ok(Answer::Failed { error }) => {
                    return Err(InsideError::Refused { program, error });
                }
                // That a signal was sent.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && self.monitor.alive() => {}
                Err(source) => return Err(self.gone(&program, source)),
            }
        }
    }

    fn send(&mut self, program: &str, order: &Order) -> Result<(), InsideError> {
        let sent = self.lines.order(order);
        sent.map_err(|source| self.gone(program, source))
    }

    /// Runs a command to its end and returns how it ended and what it printed: standard output,
    /// then standard error.
    ///
    /// # Errors
    /// As `run`.
    pub fn output(&mut self, command: &Command) -> Result<(Status, String, String), InsideError> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = self.run(command, &mut out, &mut err, &AtomicBool::new(false))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((status, text(out), text(err)))
    }

    /// Brings what lies in `RESULTS` to the host, and returns where it is until the guest is
    /// closed.
    ///
    /// # Errors
    /// When the guest is gone, or it does not fit.
    pub fn collect(&mut self) -> Result<PathBuf, InsideError> {
        let from = format!("{RESULTS}/.");
        let copy = Command::new(["cp", "--recursive", "--", &from, HAND_BACK]).limit(COPY_LIMIT);
        match self.output(&copy)? {
            (Status::Code(0), ..) => Ok(self.hand_back.clone()),
            (_, _, error) => Err(InsideError::Refused { program: "cp".into(), error }),
        }
    }

    /// What the guest's kernel printed last.
    pub fn console(&self) -> String {
        log_tail(&[&self.files.stderr(), &self.files.console()])
    }

    fn gone(&self, program: &str, source: io::Error) -> InsideError {
        InsideError::Gone { program: program.into(), console: self.console(), source }
    }

    /// Ends the guest and removes it with its disks. What could not be removed stays in the
    /// journal.
    pub fn close(mut self) -> Vec<UndoError> {
        // What is not handed back is not wanted: its disks need no orderly end.
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

/// Gives an order that is only to be carried out.
fn done(lines: &mut Lines, name: &'static str, order: &Order) -> Result<(), InsideError> {
    let fail = |source| VmError::Order { order: name, source };
    lines.order(order).map_err(fail)?;
    match lines.receive(Instant::now() + ORDER_LIMIT).map_err(fail)? {
        Answer::Done => Ok(()),
        Answer::Failed { error } => Err(VmError::Refused { order: name, error }.into()),
        _ => Err(VmError::Answer { order: name }.into()),
    }
}
