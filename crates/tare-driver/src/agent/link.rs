//! The harness's end of the pipes to one load agent, wherever that runs.

use std::fmt;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_load::clock_ns;
use tare_std::line_pipes::LinePipes;

use super::protocol::{ALIVE, Order};

/// An agent on another host ends when it hears nothing for this long.
pub const SILENCE: Duration = Duration::from_secs(30);
/// How often the harness shows that it is there.
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

/// A child process has no pipe where its agent needs one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the load agent has no pipe as its standard {stream}")]
pub struct NoPipe {
    stream: &'static str,
}

/// The process of an agent whose standard input has been closed.
pub trait AgentProcess: Send + fmt::Debug {
    /// Waits for its end, and ends it after `limit` as far as that can be done from here.
    fn end(&mut self, limit: Duration);
}

impl AgentPipes {
    /// Takes the pipes of a child process that is an agent.
    ///
    /// # Errors
    /// If one of its standard streams is not a pipe.
    pub fn of_child(mut child: Child) -> Result<Self, NoPipe> {
        let no = |stream| move || NoPipe { stream };
        Ok(Self {
            orders: Box::new(child.stdin.take().ok_or_else(no("input"))?),
            answers: Box::new(child.stdout.take().ok_or_else(no("output"))?),
            errors: Box::new(child.stderr.take().ok_or_else(no("error"))?),
            pid: Some(child.id()),
            process: Box::new(child),
        })
    }
}

impl AgentProcess for Child {
    fn end(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // It may end by itself just now; then there is nothing to kill.
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// What comes from an agent.
#[derive(Debug)]
pub(crate) struct Event {
    /// The place of the loader, and how often it had been connected before.
    pub(crate) loader: usize,
    pub(crate) generation: u32,
    pub(crate) at_ns: u64,
    /// `None`: the agent or its line has ended.
    pub(crate) line: Option<String>,
}

/// A connected agent.
#[derive(Debug)]
pub(crate) struct Link {
    pipes: LinePipes,
    process: Box<dyn AgentProcess>,
    pub(crate) pid: Option<u32>,
    pub(crate) generation: u32,
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
        let events = events.clone();
        let pipes = LinePipes::new(orders, answers, errors, move |line| {
            events.send(Event { loader, generation, at_ns: clock_ns(), line }).is_ok()
        });
        Self { pipes, process, pid, generation }
    }

    /// Shows the agent again and again that the harness is there.
    pub(crate) fn keep_alive(&self) {
        self.pipes.keep_alive(ALIVE, KEEP_ALIVE);
    }

    /// Sends an order. A line that is broken shows at the next answer.
    pub(crate) fn send(&self, order: &Order) {
        if let Ok(text) = serde_json::to_string(order) {
            self.signal(&text);
        }
    }

    /// Sends a line that no answer follows.
    pub(crate) fn signal(&self, line: &str) {
        let _ = self.pipes.send(line);
    }

    /// Returns the last output of the agent or of its line on standard error, on one line.
    pub(crate) fn said(&self) -> String {
        self.pipes.said().replace('\n', " ")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.pipes.close();
        self.process.end(QUIT);
    }
}
