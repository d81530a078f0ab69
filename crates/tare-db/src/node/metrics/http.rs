//! Serves the account to Prometheus: one path, one request a connection, one connection at a time.
//! A scraper asks every few seconds, so that nothing more is needed; a client that is not done soon
//! is given up, whatever it sends or takes meanwhile, so that it cannot keep others out for long.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::text::{ServerInfo, render};
use super::{Metrics, SharedCounters};
use crate::node::clock::Clock;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take for everything.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers for as long as the process lives, on a thread of its own.
pub(crate) fn serve(
    listener: TcpListener,
    accounts: Vec<SharedCounters>,
    about: ServerInfo,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let life = move || {
        for stream in listener.incoming() {
            let answered = stream.and_then(|stream| {
                let mut client = Client { stream, clock: Clock::new(), patience: PATIENCE };
                answer(&mut client, &accounts, &about)
            });
            if answered.is_err() {
                // Out of descriptors perhaps: not to spin. Others hardly notice.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(life)?;
    Ok(address)
}

/// A connection whose every step fails once the client has taken too long.
struct Client {
    stream: TcpStream,
    /// Runs since the connection was taken.
    clock: Clock,
    patience: Duration,
}

impl Client {
    fn left(&self) -> io::Result<Option<Duration>> {
        let taken = Duration::from_nanos(self.clock.now_ns());
        let left = self.patience.checked_sub(taken).filter(|left| !left.is_zero());
        left.map(Some).ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Client {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn answer(client: &mut Client, accounts: &[SharedCounters], about: &ServerInfo) -> io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        match client.read(&mut part)? {
            0 => return Ok(()),
            length => head.extend_from_slice(&part[..length]),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let (status, kind, body) = match respond(line) {
        Answer::Metrics => {
            let about = ServerInfo { resident_bytes: resident_bytes(), ..about.clone() };
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ("200 OK", kind, render(&about, &Metrics::of(accounts)))
        }
        Answer::NotFound => ("404 Not Found", "text/plain", "metrics are at /metrics\n".into()),
        Answer::Refused => ("405 Method Not Allowed", "text/plain", "GET only\n".into()),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    client.write_all(body.as_bytes())?;
    client.flush()
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Metrics,
    NotFound,
    Refused,
}

/// What a request line asks for.
fn respond(line: &[u8]) -> Answer {
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (method, path.split(|&byte| byte == b'?').next().unwrap_or_default()) {
        (b"GET", b"/metrics") => Answer::Metrics,
        (b"GET", _) => Answer::NotFound,
        _ => Answer::Refused,
    }
}

/// What of this process is in memory (the second number of `/proc/self/statm`, in pages), in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_and_one_method_are_served() {
        assert_eq!(respond(b"GET /metrics HTTP/1.1"), Answer::Metrics);
        assert_eq!(respond(b"GET /metrics?name=x HTTP/1.0"), Answer::Metrics);
        assert_eq!(respond(b"GET / HTTP/1.1"), Answer::NotFound);
        assert_eq!(respond(b"POST /metrics HTTP/1.1"), Answer::Refused);
        assert_eq!(respond(b"\x16\x03\x01"), Answer::Refused);
        assert!(resident_bytes() > 1 << 20);
    }

    #[test]
    fn a_client_that_never_comes_to_the_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let patience = Duration::from_millis(50);
        let mut client = Client { stream, clock: Clock::new(), patience };
        // Every step is quick, and a head of this length would take minutes.
        let trickle = std::thread::Builder::new().spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut head = Vec::new();
        let given_up = (&mut client).take(1 << 20).read_to_end(&mut head).unwrap_err().kind();
        // Which of the two depends on whether it waited: recv(2) with a timeout says EAGAIN.
        assert!([io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock].contains(&given_up));
        assert!(head.len() < HEAD_BYTES_MAX);
        drop(client);
        trickle.unwrap().join().unwrap();
    }
}
