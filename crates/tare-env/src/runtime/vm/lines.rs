//! JSON lines over a unix socket, with a time limit for every operation, for the monitor (QMP) and
//! the guest. Orders for the guest are sent in pieces (`crate::guest::protocol`).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guest::protocol::{Answer, Order, PIECE_BYTES};

/// How often a connection to a missing socket is retried.
const RETRY: Duration = Duration::from_millis(2);

/// How long the other end may take to read a message.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// How long a guest on a busy host may take to read a piece of an order.
const PIECE_LIMIT: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub(crate) struct Lines {
    write: UnixStream,
    read: BufReader<UnixStream>,
    /// The beginning of a line that has not been read to its end.
    partial: Vec<u8>,
}

impl Lines {
    /// Connects to a socket that a process is about to create, and retries while the process is
    /// `alive`.
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

    /// Uses a connected socket.
    pub(super) fn over(write: UnixStream) -> io::Result<Self> {
        let read = BufReader::new(write.try_clone()?);
        Ok(Self { write, read, partial: Vec::new() })
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.write.set_write_timeout(Some(SEND_LIMIT))?;
        self.write.write_all(&line(message)?)
    }

    /// Sends an order to the guest, each piece after the guest has read the one before.
    pub(crate) fn order(&mut self, order: &Order) -> io::Result<()> {
        let line = line(order)?;
        self.write.set_write_timeout(Some(SEND_LIMIT))?;
        for (number, piece) in line.chunks(PIECE_BYTES).enumerate() {
            if number > 0 {
                let deadline = Instant::now() + PIECE_LIMIT;
                // Other answers here are left over from the previous order.
                while self.receive::<Answer>(deadline)? != Answer::More {}
            }
            self.write.write_all(piece)?;
        }
        Ok(())
    }

    /// Returns the next message, or fails with `TimedOut` at the deadline.
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

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use rustix::io::ioctl_fionread;

    use super::*;
    use crate::guest::protocol::{Run, Stream, read_order};

    /// Returns an order whose line has this many bytes.
    fn order(bytes: usize) -> Order {
        let with = |word: String| {
            Order::Run(Run { words: vec![word], variables: Vec::new(), directory: "/".into() })
        };
        let without = line(&with(String::new())).unwrap().len();
        with("x".repeat(bytes - without))
    }

    /// Reads one order as the guest does, and returns it with the number of its pieces. Meanwhile a
    /// leftover process of a command prints.
    fn receive_order(guest: UnixStream) -> (Order, usize) {
        let mut answers = guest.try_clone().unwrap();
        // Bytes that are not requested stay in the socket.
        let mut orders = BufReader::with_capacity(1, guest);
        let mut pieces = 1;
        let read = read_order(&mut orders, || {
            pieces += 1;
            assert_eq!(ioctl_fionread(&answers)?, 0, "sent without a request");
            let printed = Answer::Printed { stream: Stream::Error, bytes: vec![7] };
            answers.write_all(&line(&printed)?)?;
            answers.write_all(&line(&Answer::More)?)
        });
        (serde_json::from_slice(&read.unwrap()).unwrap(), pieces)
    }

    #[test]
    fn at_most_one_piece_of_an_order_is_unread() {
        let piece = PIECE_BYTES;
        for bytes in [200, piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 1, 50_000] {
            let (host, guest) = UnixStream::pair().unwrap();
            let guest = thread::spawn(|| receive_order(guest));
            Lines::over(host).unwrap().order(&order(bytes)).unwrap();
            let received = guest.join().unwrap();
            assert_eq!(received, (order(bytes), bytes.div_ceil(piece)), "{bytes}");
        }
    }

    #[test]
    fn order_to_an_ended_guest_fails() {
        let (host, guest) = UnixStream::pair().unwrap();
        drop(guest);
        assert!(Lines::over(host).unwrap().order(&order(50_000)).is_err());
    }
}
