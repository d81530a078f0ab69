//! A userland proxy as docker-proxy is one: accepts on one address, dials another, and copies both
//! ways with a thread each. `std::io::copy` between two TCP streams is `splice` through a pipe on
//! Linux, as in docker-proxy (Go's `io.Copy` on `TCPConn`).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

mod delay;

/// Why the proxy ended.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot accept on {address}")]
    Accept { address: SocketAddr, source: io::Error },
}

/// Accepts on `listen` and copies to and from `to` until `stop` is true and one more client has
/// come (or for ever). A backend that does not answer closes its client's connection. With a
/// `delay` whatever the backend sends is held back for so long before it is passed on; one of 0
/// takes the same way.
///
/// # Errors
/// When it cannot listen, or accepting fails for good.
pub fn run(
    listen: SocketAddr,
    to: SocketAddr,
    delay: Option<Duration>,
    stop: &AtomicBool,
) -> Result<(), ProxyError> {
    let listener = TcpListener::bind(listen)
        .map_err(|source| ProxyError::Listen { address: listen, source })?;
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                thread::spawn(move || serve(client, to, delay));
            }
            // The client gave up before it was accepted, or a signal came.
            Err(error) if is_passing(&error) => {}
            Err(source) => return Err(ProxyError::Accept { address: listen, source }),
        }
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// One connection, until either side has closed both ways.
fn serve(client: TcpStream, to: SocketAddr, delay: Option<Duration>) {
    let Ok(backend) = TcpStream::connect(to) else { return };
    // Go sets this on every connection.
    for stream in [&client, &backend] {
        let _ = stream.set_nodelay(true);
    }
    let (Ok(client_too), Ok(backend_too)) = (client.try_clone(), backend.try_clone()) else {
        return;
    };
    let up = thread::spawn(move || copy(client_too, backend_too));
    match delay {
        None => copy(backend, client),
        Some(delay) => delay::copy(backend, client, delay),
    }
    let _ = up.join();
}

/// Copies until the end or an error, which for a proxy is the same, and passes the end on.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = from.shutdown(Shutdown::Read);
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    #[test]
    fn bytes_and_ends_pass_both_ways() {
        passes(None);
    }

    #[test]
    fn they_pass_with_a_delay_too_and_not_before() {
        for delay in [Duration::ZERO, Duration::from_millis(20)] {
            let begun = std::time::Instant::now();
            passes(Some(delay));
            assert!(begun.elapsed() >= delay);
        }
    }

    fn passes(delay: Option<Duration>) {
        let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = backend.local_addr().unwrap();
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listen = probe.local_addr().unwrap();
        drop(probe);
        thread::spawn(move || run(listen, to, delay, &AtomicBool::new(false)));
        let echo = thread::spawn(move || {
            let (mut stream, _) = backend.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut client = loop {
            match TcpStream::connect(listen) {
                Ok(client) => break client,
                Err(_) => thread::yield_now(),
            }
        };
        client.write_all(b"weigh").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "WEIGH");
        echo.join().unwrap();
    }
}
