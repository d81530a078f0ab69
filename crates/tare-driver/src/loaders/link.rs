//! The pipes to one load agent, wherever it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tare_lab::PartError;
use tare_load::clock_ns;

use crate::built_in::protocol::{ALIVE, Order};

/// An agent on another host ends when it hears nothing for this long.
pub const SILENCE: Duration = Duration::from_secs(30);
/// How often the driver shows that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Time limit for an agent to end after its input is closed.
const QUIT: Duration = Duration::from_secs(2);

/// Starts the load agent of one loader, and starts it again after its connection broke.
pub trait StartAgent: Send {
    /// Returns the host as the user wrote it.
    fn host(&self) -> &str;

    /// Starts Tare's program with these arguments on that host.
    ///
    /// # Errors
    /// If the host cannot be reached or does not run the program.
    fn start(&mut self, arguments: &[String]) -> Result<AgentPipes, PartError>;
}

/// A running agent.
#[expect(missing_debug_implementations, reason = "pipes are trait objects without Debug")]
pub struct AgentPipes {
    /// Its standard input, output and error.
    pub orders: Box<dyn Write + Send>,
    pub answers: Box<dyn Read + Send>,
    pub errors: Box<dyn Read + Send>,
    /// Its process, if it runs on this host.
    pub pid: Option<u32>,
    pub process: Box<dyn AgentProcess>,
}

/// The process of an agent whose standard input has been closed.
pub trait AgentProcess: Send {
    /// Waits for its end, and ends it after `limit` as far as that can be done from here.
    fn end(&mut self, limit: Duration);
}

/// What comes from the agents.
#[derive(Debug)]
pub(crate) struct Event {
    /// The place of the loader, and how often it had been connected before.
    pub(crate) loader: usize,
    pub(crate) generation: u32,
    pub(crate) at_ns: u64,
    /// `None`: the agent or its line has ended.
    pub(crate) line: Option<String>,
}

type Writer = Arc<Mutex<Option<Box<dyn Write + Send>>>>;

/// A connected agent.
pub(crate) struct Link {
    orders: Writer,
    stderr: Arc<Mutex<String>>,
    process: Box<dyn AgentProcess>,
    pub(crate) pid: Option<u32>,
    pub(crate) generation: u32,
    /// Dropping it ends the thread that keeps the agent alive.
    _keep_alive: Sender<()>,
}

impl Link {
    /// Takes the pipes of an agent. Its answers go to `events`.
    pub(crate) fn new(
        pipes: AgentPipes,
        loader: usize,
        generation: u32,
        events: &Sender<Event>,
    ) -> Self {
        let AgentPipes { orders, answers, errors, pid, process } = pipes;
        let orders: Writer = Arc::new(Mutex::new(Some(orders)));
        let stderr = Arc::new(Mutex::new(String::new()));
        let events = events.clone();
        thread::spawn(move || {
            let send =
                |line| events.send(Event { loader, generation, at_ns: clock_ns(), line }).is_ok();
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if !send(Some(line)) {
                    return;
                }
            }
            send(None);
        });
        let kept = Arc::clone(&stderr);
        thread::spawn(move || keep_tail(errors, &kept));
        let (keep_alive, ended) = mpsc::channel::<()>();
        let writer = Arc::clone(&orders);
        thread::spawn(move || {
            while ended.recv_timeout(KEEP_ALIVE) == Err(RecvTimeoutError::Timeout) {
                write_line(&writer, ALIVE);
            }
        });
        Self { orders, stderr, process, pid, generation, _keep_alive: keep_alive }
    }

    /// Sends an order. A line that is broken shows at the next answer.
    pub(crate) fn send(&self, order: &Order) {
        if let Ok(text) = serde_json::to_string(order) {
            write_line(&self.orders, &text);
        }
    }

    /// Sends a line that no answer follows.
    pub(crate) fn signal(&self, line: &str) {
        write_line(&self.orders, line);
    }

    /// Returns the last output of the agent or of its line on standard error.
    pub(crate) fn said(&self) -> String {
        // What explains the end may still be on its way.
        thread::sleep(Duration::from_millis(20));
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).trim().to_string()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.process.end(QUIT);
    }
}

fn write_line(writer: &Writer, line: &str) {
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(orders) = writer.as_mut() {
        // One write, so that a line arrives as a whole.
        let _ = orders.write_all(format!("{line}\n").as_bytes()).and_then(|()| orders.flush());
    }
}

/// Keeps about the last 2,000 bytes of what is written.
fn keep_tail(stderr: impl Read, kept: &Mutex<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut text = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() > 2_000 {
            text.clear();
        }
        text.push_str(line.trim());
        text.push(' ');
    }
}
