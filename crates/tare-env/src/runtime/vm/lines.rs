//! JSON lines over a unix socket with a time limit for everything: what the monitor (QMP) and the
//! guest have in common.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often a socket is looked for that is not there yet.
const RETRY: Duration = Duration::from_millis(2);

/// Both ends of one conversation.
#[derive(Debug)]
pub(crate) struct Lines {
    write: UnixStream,
    read: BufReader<UnixStream>,
    /// What was read of a line that has not ended.
    partial: Vec<u8>,
}

impl Lines {
    /// Connects to a socket that somebody is about to make, as long as `alive` says that he lives.
    pub(crate) fn connect(
        path: &Path,
        deadline: Instant,
        mut alive: impl FnMut() -> bool,
    ) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path) {
                Ok(socket) => return Self::over(socket),
                Err(error) if Instant::now() > deadline || !alive() => return Err(error),
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    /// Speaks over a socket that is connected.
    pub(super) fn over(write: UnixStream) -> io::Result<Self> {
        let read = BufReader::new(write.try_clone()?);
        Ok(Self { write, read, partial: Vec::new() })
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
        line.push(b'\n');
        self.write.set_write_timeout(Some(Duration::from_secs(10)))?;
        self.write.write_all(&line)
    }

    /// The next line before the deadline; `TimedOut` when there is none.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, deadline: Instant) -> io::Result<T> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.read.get_ref().set_read_timeout(Some(left))?;
            match self.read.read_until(b'\n', &mut self.partial) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.partial.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.partial);
                    return serde_json::from_slice(&line).map_err(io::Error::other);
                }
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
