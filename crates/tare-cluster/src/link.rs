//! The connection to the agent of one host: orders go out, and answers come in with the time of
//! their arrival.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use tare_remote::RemoteProcess;
use tare_std::line_pipes::LinePipes;

use crate::error::ClusterError;
use crate::protocol::{ALIVE_EVERY, Answer, Order};

/// [`Order::Alive`] as a line.
const ALIVE: &str = r#"{"order":"alive"}"#;

/// The process of an agent.
pub(crate) enum Process {
    Here(Child),
    There(Box<RemoteProcess>),
}

/// An agent of a host.
pub(crate) struct Link {
    host: String,
    pipes: LinePipes,
    answers: Receiver<(Instant, String)>,
    /// Why the agent cannot be used any more.
    lost: Option<ClusterError>,
    process: Process,
}

impl Link {
    /// Uses a started agent with these pipes.
    pub(crate) fn new(
        host: String,
        process: Process,
        output: Box<dyn Write + Send>,
        input: impl Read + Send + 'static,
        errors: impl Read + Send + 'static,
    ) -> Self {
        let (sender, answers) = channel();
        let pipes = LinePipes::new(output, input, errors, move |line| {
            line.is_some_and(|line| sender.send((Instant::now(), line)).is_ok())
        });
        pipes.keep_alive(ALIVE, ALIVE_EVERY);
        Self { host, pipes, answers, lost: None, process }
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
        let sent = serde_json::to_string(order).map_err(std::io::Error::from);
        let sent = sent.and_then(|line| self.pipes.send(&line));
        sent.map_err(|error| self.lose(&error.to_string()))
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
        let said = self.pipes.said().replace('\n', " | ");
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
        self.pipes.close();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_of_life_is_an_order() {
        assert_eq!(serde_json::to_string(&Order::Alive).unwrap(), ALIVE);
    }
}
