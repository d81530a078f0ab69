//! The connection to the agent of one host: orders go out, a thread reads the answers and notes
//! when each arrived, and another shows the agent that the harness is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use tare_remote::RemoteProcess;

use crate::error::ClusterError;
use crate::protocol::{ALIVE_EVERY, Answer, Order};

/// The last bytes of what an agent said that are kept for errors.
const SAID_BYTES: usize = 2000;

type Output = Box<dyn Write + Send>;

/// The process of an agent.
pub(crate) enum Process {
    Here(Child),
    There(Box<RemoteProcess>),
}

/// An agent of a host.
pub(crate) struct Link {
    host: String,
    output: Arc<Mutex<Option<Output>>>,
    answers: Receiver<(Instant, String)>,
    said: Arc<Mutex<String>>,
    /// Why the agent cannot be used any more.
    lost: Option<ClusterError>,
    process: Process,
}

impl Link {
    /// Uses a started agent with these pipes.
    pub(crate) fn new(
        host: String,
        process: Process,
        output: Output,
        input: impl Read + Send + 'static,
        errors: impl Read + Send + 'static,
    ) -> Self {
        let output = Arc::new(Mutex::new(Some(output)));
        let said = Arc::new(Mutex::new(String::new()));
        let (sender, answers) = channel();
        thread::spawn(move || forward(BufReader::new(input), &sender));
        let words = Arc::clone(&said);
        thread::spawn(move || keep(BufReader::new(errors), &words));
        let alive = Arc::downgrade(&output);
        thread::spawn(move || show_alive(&alive));
        Self { host, output, answers, said, lost: None, process }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns why the agent cannot be used any more.
    pub(crate) fn lost(&self) -> Option<&ClusterError> {
        self.lost.as_ref()
    }

    /// Sends an order without waiting for its answer.
    pub(crate) fn send(&mut self, order: &Order) -> Result<(), ClusterError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = output.as_mut().map(|output| write_line(output, order));
        drop(output);
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.lose(&error.to_string())),
            None => Err(self.lose("its pipe is closed")),
        }
    }

    /// Waits for the answer to an order, and returns when it arrived.
    pub(crate) fn answer(&mut self, order: &Order) -> Result<(Instant, Answer), ClusterError> {
        let limit = order.limit();
        let (at, line) = match self.answers.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.lose("its agent has ended"));
            }
            Err(RecvTimeoutError::Timeout) => {
                let (host, order, limit_s) = (self.host.clone(), name(order), limit.as_secs());
                let error = ClusterError::Silent { host, order, limit_s };
                // A later answer would be taken for that of another order.
                self.lost = Some(error.clone());
                return Err(error);
            }
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { error }) => {
                Err(ClusterError::Failed { host: self.host.clone(), reason: error })
            }
            Ok(answer) => Ok((at, answer)),
            Err(_) => Err(self.lose(&format!("it printed {line:?}"))),
        }
    }

    fn lose(&mut self, reason: &str) -> ClusterError {
        // Its last words arrive with the end of its pipes.
        thread::sleep(std::time::Duration::from_millis(100));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.trim().replace('\n', " | ");
        let reason = if said.is_empty() { reason.to_string() } else { format!("{reason}: {said}") };
        let error = ClusterError::Lost { host: self.host.clone(), reason };
        self.lost = Some(error.clone());
        error
    }

    /// Returns the error of an answer that does not fit.
    pub(crate) fn unexpected(&self, order: &Order, answer: &Answer) -> ClusterError {
        let (host, order, answer) = (self.host.clone(), name(order), format!("{answer:?}"));
        ClusterError::Answer { host, order, answer }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        match &mut self.process {
            Process::Here(child) => {
                // It ends with its pipe, and removes what it made before that.
                let _ = child.wait();
            }
            Process::There(process) => {
                let _ = process.wait_at_most(Order::Close.limit());
            }
        }
    }
}

/// Returns the name of an order for errors.
fn name(order: &Order) -> String {
    let text = format!("{order:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_lowercase()
}

fn write_line(output: &mut Output, order: &Order) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// Passes lines on with the time of their arrival, until the end.
fn forward(input: impl BufRead, to: &Sender<(Instant, String)>) {
    for line in input.lines() {
        let Ok(line) = line else { return };
        if to.send((Instant::now(), line)).is_err() {
            return;
        }
    }
}

/// Keeps the last lines.
fn keep(input: impl BufRead, said: &Mutex<String>) {
    for line in input.lines() {
        let Ok(line) = line else { return };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&line);
        said.push('\n');
        let excess = said.len().saturating_sub(SAID_BYTES);
        let cut = (excess..=said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(0);
        said.drain(..cut);
    }
}

/// Shows the agent that the harness is there, until the connection is dropped.
fn show_alive(output: &Weak<Mutex<Option<Output>>>) {
    loop {
        thread::sleep(ALIVE_EVERY);
        let Some(output) = output.upgrade() else { return };
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(output) = output.as_mut() else { return };
        // The next order notices a broken pipe.
        if write_line(output, &Order::Alive).is_err() {
            return;
        }
    }
}
