//! Copying with a delay: each piece is passed on a fixed time after it was read.
//!
//! Method: a thread reads and notes when, this one waits and writes. A sleep wakes up late by what
//! the scheduler needs (tens of µs), so the last part of the wait is spent looking at the clock.
//! That CPU time is the relay's own. Limits: order is kept, so a piece never overtakes the one
//! before it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// Pieces that may wait. At 200 µs each this is far more than a study's connections ask for.
const PIECES_MAX: usize = 4096;
/// The last part of a wait, which is not slept: more than a thread is usually late.
const AWAKE: Duration = Duration::from_micros(100);

/// Copies until the end or an error, which for a relay is the same, and passes the end on.
pub(super) fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let reader = thread::spawn(move || {
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(read) if read > 0 => read,
                Ok(_) | Err(_) => break,
            };
            // Nobody receives any more when the other side has gone.
            if send.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
    });
    for (due, piece) in receive {
        wait_until(due);
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = reader.join();
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > AWAKE {
        thread::sleep(left - AWAKE);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
