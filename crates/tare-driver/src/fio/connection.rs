//! The driver's connection to the server inside. Every wait has a limit.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::FioError;
use super::protocol::{Answer, Order};
use crate::placement;

/// Time between two tries to connect.
const RETRY: Duration = Duration::from_millis(20);
/// Time limit without a sign of life, which the server sends every second.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    answers: Receiver<Answer>,
}

impl Connection {
    /// Connects from a network namespace and waits for the server's first line until `deadline`.
    /// Also returns fio's version.
    pub(super) fn open(
        address: SocketAddr,
        namespace: Option<&Path>,
        deadline: Duration,
    ) -> Result<(Self, String), FioError> {
        let end = Instant::now() + deadline;
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(RETRY);
            // A proxy without a backend accepts the connection and drops it.
            let tried = Self::connect(address, namespace, left).and_then(|connection| {
                match connection.answers.recv_timeout(left) {
                    Ok(Answer::Ready { version }) => Ok((connection, version)),
                    _ => Err(FioError::NoServer { address }),
                }
            });
            match tried {
                Err(FioError::Connect { .. } | FioError::NoServer { .. })
                    if Instant::now() < end =>
                {
                    thread::sleep(RETRY);
                }
                tried => return tried,
            }
        }
    }

    fn connect(
        address: SocketAddr,
        namespace: Option<&Path>,
        limit: Duration,
    ) -> Result<Self, FioError> {
        let fail = |source| FioError::Connect { address, source };
        // A socket keeps the namespace in which it was created.
        let connected =
            placement::within(namespace, || TcpStream::connect_timeout(&address, limit))?;
        let stream = connected.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let reader = stream.try_clone().map_err(fail)?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { break };
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Self { stream, answers })
    }

    pub(super) fn say(&mut self, order: &Order) -> Result<(), FioError> {
        let mut line =
            serde_json::to_vec(order).map_err(|error| FioError::Talk { source: error.into() })?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|source| FioError::Talk { source })
    }

    /// Returns the next answer, except signs of life, at most until `end`.
    ///
    /// # Errors
    /// `Late` after `end`; `Silent` without signs of life; and what the server could not do.
    pub(super) fn next_answer(&mut self, end: Instant) -> Result<Answer, FioError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(SILENCE)) {
                Ok(Answer::Alive) => {}
                Ok(Answer::Failed { error }) => return Err(FioError::Refused { error }),
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(FioError::Gone),
                Err(RecvTimeoutError::Timeout) if left <= SILENCE => return Err(FioError::Late),
                Err(RecvTimeoutError::Timeout) => return Err(FioError::Silent { limit: SILENCE }),
            }
        }
    }
}
