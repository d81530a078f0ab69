//! A userland proxy like docker-proxy: accepts on one address, connects to another, and copies both
//! ways with a thread each. `std::io::copy` between two TCP streams is `splice` through a pipe on
//! Linux, as in docker-proxy (Go's `io.Copy` on `TCPConn`).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

mod delay;

/// Why the proxy stopped.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot accept on {address}")]
    Accept { address: SocketAddr, source: io::Error },
}

/// Accepts on `listen` and copies to and from `to`, until `stop` is true and one more client has
/// connected. If the backend does not answer, the client's connection is closed. With a `delay`,
/// everything that the backend sends is delayed by that time; a delay of 0 uses the same code path.
///
/// # Errors
/// When it cannot listen, or accepting fails with an error that is not temporary.
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
            Err(error) if is_temporary(&error) => {}
            Err(source) => return Err(ProxyError::Accept { address: listen, source }),
        }
    }
    Ok(())
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Serves one connection until both directions are closed.
fn serve(client: TcpStream, to: SocketAddr, delay: Option<Duration>) {
    let Ok(backend) = TcpStream::connect(to) else { return };
    // Go sets this option on every connection.
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

/// Copies until the end of the stream or an error, and then shuts down the other side.
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
    fn forwards_both_ways() {
        check(None);
    }

    #[test]
    fn forwards_after_delay() {
        for delay in [Duration::ZERO, Duration::from_millis(20)] {
            let start = std::time::Instant::now();
            check(Some(delay));
            assert!(start.elapsed() >= delay);
        }
    }

    fn check(delay: Option<Duration>) {
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
