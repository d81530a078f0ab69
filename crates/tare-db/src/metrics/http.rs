//! Serves the account to Prometheus: one path, one request a connection, one connection at a time.
//! A scraper asks every few seconds, so that nothing more is needed; a client that is slow is given
//! up, so that it cannot keep others out for long.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::text::{About, render};
use super::{Account, Metrics};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take for each step.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers for as long as the process lives, on a thread of its own.
pub(crate) fn serve(
    listener: TcpListener,
    accounts: Vec<Account>,
    about: About,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let life = move || {
        for stream in listener.incoming() {
            let answered = match stream {
                Ok(stream) => answer(stream, &accounts, &about),
                Err(error) => Err(error),
            };
            if answered.is_err() {
                // Out of descriptors perhaps: not to spin. Others hardly notice.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(life)?;
    Ok(address)
}

fn answer(mut stream: TcpStream, accounts: &[Account], about: &About) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::with_capacity(1024);
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            length => head.extend_from_slice(&part[..length]),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let (status, kind, body) = match respond(line) {
        Answer::Metrics => {
            let about = About { resident_bytes: resident_bytes(), ..about.clone() };
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ("200 OK", kind, render(&about, &Metrics::of(accounts)))
        }
        Answer::NotFound => ("404 Not Found", "text/plain", "metrics are at /metrics\n".into()),
        Answer::Refused => ("405 Method Not Allowed", "text/plain", "GET only\n".into()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
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
}
