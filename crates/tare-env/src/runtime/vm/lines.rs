//! JSON lines over a unix socket with a time limit for everything: what the monitor (QMP) and the
//! guest have in common. Orders for the guest go in pieces (`crate::guest::protocol`).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guest::protocol::{Answer, Order, PIECE_BYTES};

/// How often a socket is looked for that is not there yet.
const RETRY: Duration = Duration::from_millis(2);

/// How long the other end may take to read what it is sent.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// How long a guest may take to read a piece of an order, on a host that is busy.
const PIECE_LIMIT: Duration = Duration::from_secs(60);

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
        self.write.set_write_timeout(Some(SEND_LIMIT))?;
        self.write.write_all(&line(message)?)
    }

    /// Gives the guest an order: the next piece of it when the one before has been read.
    pub(crate) fn order(&mut self, order: &Order) -> io::Result<()> {
        let line = line(order)?;
        self.write.set_write_timeout(Some(SEND_LIMIT))?;
        for (number, piece) in line.chunks(PIECE_BYTES).enumerate() {
            if number > 0 {
                let deadline = Instant::now() + PIECE_LIMIT;
                // Before that comes only what the order before has left behind.
                while self.receive::<Answer>(deadline)? != Answer::More {}
            }
            self.write.write_all(piece)?;
        }
        Ok(())
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

    /// An order whose line has this many bytes.
    fn order(bytes: usize) -> Order {
        let with = |word: String| {
            Order::Run(Run { words: vec![word], variables: Vec::new(), directory: "/".into() })
        };
        let without = line(&with(String::new())).unwrap().len();
        with("x".repeat(bytes - without))
    }

    /// Reads one order as the guest does, and returns it with the pieces that it came in. What a
    /// command left behind prints meanwhile.
    fn hear(guest: UnixStream) -> (Order, usize) {
        let mut answers = guest.try_clone().unwrap();
        // Whatever is not asked for stays in the socket.
        let mut orders = BufReader::with_capacity(1, guest);
        let mut pieces = 1;
        let read = read_order(&mut orders, || {
            pieces += 1;
            assert_eq!(ioctl_fionread(&answers)?, 0, "sent without having been asked for");
            let printed = Answer::Printed { stream: Stream::Error, bytes: vec![7] };
            answers.write_all(&line(&printed)?)?;
            answers.write_all(&line(&Answer::More)?)
        });
        (serde_json::from_slice(&read.unwrap()).unwrap(), pieces)
    }

    #[test]
    fn no_more_than_a_piece_of_an_order_is_ever_unread() {
        let piece = PIECE_BYTES;
        for bytes in [200, piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 1, 50_000] {
            let (host, guest) = UnixStream::pair().unwrap();
            let guest = thread::spawn(|| hear(guest));
            Lines::over(host).unwrap().order(&order(bytes)).unwrap();
            let heard = guest.join().unwrap();
            assert_eq!(heard, (order(bytes), bytes.div_ceil(piece)), "{bytes}");
        }
    }

    #[test]
    fn a_guest_that_is_gone_is_no_hang() {
        let (host, guest) = UnixStream::pair().unwrap();
        drop(guest);
        assert!(Lines::over(host).unwrap().order(&order(50_000)).is_err());
    }
}
