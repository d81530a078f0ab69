//! Copies with a delay: each chunk is written a fixed time after it was read.
//!
//! Method: one thread reads and records the time, the other waits and writes. A sleep ends late by
//! tens of µs, so the last part of the wait polls the clock. That CPU time counts for the relay.
//! Limits: chunks stay in order, so one can be late because of the one before it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// The most chunks that may wait. At a delay of 200 µs a study's connections have far fewer.
const CHUNKS_MAX: usize = 4096;
/// The last part of a wait, which polls the clock: more than a thread usually wakes up late.
const POLL_TIME: Duration = Duration::from_micros(100);

/// Copies until the end of the stream or an error, and then shuts down the other side.
pub(super) fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let reader = thread::spawn(move || {
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(read) if read > 0 => read,
                Ok(_) | Err(_) => break,
            };
            // Sending fails when the writing thread has stopped.
            if send.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
    });
    for (due, chunk) in receive {
        wait_until(due);
        if to.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = reader.join();
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > POLL_TIME {
        thread::sleep(left - POLL_TIME);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
