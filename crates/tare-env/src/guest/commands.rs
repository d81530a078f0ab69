//! Running commands of the host's root. Their output and their end are sent as answers.
//!
//! Method: the first process of a system is also the parent of orphaned processes. So one thread
//! waits for all children and forwards the status of a command to the thread that waits for it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, wait, waitid,
};

use super::protocol::{Answer, Run, Stream};
use super::{AnswerSender, GuestError};

/// How long to read a command's output after its end. A process that it left behind may hold the
/// stream open for longer.
const REST_LIMIT: Duration = Duration::from_secs(2);

/// The most output in one answer.
const CHUNK_BYTES: usize = 16 << 10;

/// Runs commands, one at a time.
#[derive(Debug)]
pub(super) struct Commands {
    answers: AnswerSender,
    shared: Arc<Shared>,
    /// Waits for children, from the first command on.
    reaper: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The receivers of the status of children, by pid.
    awaited: Mutex<BTreeMap<i32, Sender<WaitStatus>>>,
    current: Mutex<Option<Pid>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Commands {
    pub(super) fn new(answers: AnswerSender) -> Self {
        Self { answers, shared: Arc::default(), reaper: None }
    }

    /// Starts a command. Its output and its end are sent from other threads.
    pub(super) fn run(&mut self, order: &Run) -> Result<(), GuestError> {
        let mut current = lock(&self.shared.current);
        if current.is_some() {
            return Err(GuestError::Running);
        }
        let program = order.words.first().cloned().unwrap_or_default();
        let fail = |source| GuestError::Run { program: program.clone(), source };
        let mut command = Command::new(&program);
        command.args(order.words.iter().skip(1)).current_dir(&order.directory);
        command.env_clear().envs(order.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (end, ended) = channel();
        // Held until the pid is known, because the child could end before it is registered.
        let mut awaited = lock(&self.shared.awaited);
        let mut child = command.spawn().map_err(fail)?;
        let pid = Pid::from_child(&child);
        awaited.insert(pid.as_raw_nonzero().get(), end);
        *current = Some(pid);
        drop((awaited, current));

        let (eof, rest) = channel();
        let output = child.stdout.take().map(|pipe| (Stream::Output, Box::new(pipe) as _));
        let error = child.stderr.take().map(|pipe| (Stream::Error, Box::new(pipe) as _));
        for (stream, pipe) in output.into_iter().chain(error) {
            let (answers, eof) = (self.answers.clone(), eof.clone());
            spawn("tare-print", move || {
                forward(&answers, stream, pipe);
                drop(eof);
            })
            .map_err(fail)?;
        }
        drop(eof);
        let (answers, shared) = (self.answers.clone(), Arc::clone(&self.shared));
        spawn("tare-end", move || finish(&answers, &shared, &ended, &rest)).map_err(fail)?;
        match &self.reaper {
            Some(reaper) => reaper.thread().unpark(),
            None => {
                let shared = Arc::clone(&self.shared);
                self.reaper = Some(spawn("tare-reaper", move || reap(&shared)).map_err(fail)?);
            }
        }
        Ok(())
    }

    /// Sends a signal to the running command.
    pub(super) fn signal(&self, signal: i32) -> Result<(), GuestError> {
        let pid = lock(&self.shared.current).ok_or(GuestError::NotRunning)?;
        let fail = |source| GuestError::Run { program: format!("kill -{signal}"), source };
        let signal = Signal::from_named_raw(signal).ok_or_else(|| fail(Errno::INVAL.into()))?;
        kill_process(pid, signal).map_err(|error| fail(error.into()))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

/// Sends the output of a stream as answers until its end.
fn forward(answers: &AnswerSender, stream: Stream, mut pipe: Box<dyn Read + Send>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match pipe.read(&mut buffer) {
            Ok(count @ 1..) => {
                let bytes = buffer[..count].to_vec();
                // The host has closed the port.
                if answers.send(&Answer::Printed { stream, bytes }).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// Waits for the command's end and for the rest of its output, then sends its status.
fn finish(
    answers: &AnswerSender,
    shared: &Shared,
    ended: &Receiver<WaitStatus>,
    rest: &Receiver<()>,
) {
    let status = ended.recv().ok();
    // Nothing is ever sent: this returns when the last sender is dropped.
    let _ = rest.recv_timeout(REST_LIMIT);
    *lock(&shared.current) = None;
    let code = status.and_then(WaitStatus::exit_status);
    let signal = status.and_then(WaitStatus::terminating_signal);
    let _ = answers.send(&Answer::Ended { code, signal });
}

/// Waits for children, forever.
fn reap(shared: &Shared) {
    loop {
        // Leaves the child to `wait` below: a command that cannot be executed is a child too, which
        // the standard library waits for itself while `run` holds the lock.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            // Parked until there are children again.
            Err(Errno::CHILD) => {
                thread::park();
                continue;
            }
            Err(_) => continue,
            Ok(_) => {}
        }
        let mut awaited = lock(&shared.awaited);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            // A failed send means that the receiver has ended.
            let waiting = awaited.remove(&pid.as_raw_nonzero().get());
            let _ = waiting.map(|waiting| waiting.send(status));
        }
    }
}
