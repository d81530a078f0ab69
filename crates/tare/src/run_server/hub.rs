//! What a run printed, and the watcher that it goes to.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frame::{Frame, Kind, encode};

/// What is kept for a watcher that comes later. The oldest frames go first.
const KEPT_MAX: usize = 4 << 20;

/// The frames of a run and its watcher.
#[derive(Debug, Default)]
pub(super) struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frames: Vec<Vec<u8>>,
    kept: usize,
    /// The number of the bytes of frames that went before those in `frames`.
    gone: u64,
    watcher: Option<(u64, UnixStream)>,
    watchers: u64,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a frame and sends it to the watcher. A watcher that does not take it is lost.
    pub(super) fn send(&self, frame: &Frame) {
        let bytes = encode(frame);
        let mut state = self.lock();
        let sent = match &mut state.watcher {
            Some((_, stream)) => stream.write_all(&bytes).is_ok(),
            None => true,
        };
        if !sent && let Some((_, stream)) = state.watcher.take() {
            // Its reader sees the end.
            let _ = stream.shutdown(Shutdown::Both);
        }
        state.kept += bytes.len();
        state.frames.push(bytes);
        if state.kept > KEPT_MAX {
            let half = state.frames.len() / 2;
            let first: usize = state.frames.drain(..half).map(|frame| frame.len()).sum();
            state.kept -= first;
            state.gone += first as u64;
        }
    }

    /// Takes a watcher that has the first `after` bytes, and sends it the rest. Returns its number;
    /// `None` if there is another, unless it comes `again`.
    pub(super) fn watch(&self, stream: UnixStream, after: u64, again: bool) -> Option<u64> {
        let mut state = self.lock();
        if let Some((_, old)) = &state.watcher {
            if !again {
                let _ = (&stream).write_all(&encode(&Frame::new(Kind::Busy, b"")));
                return None;
            }
            let _ = old.shutdown(Shutdown::Both);
        }
        let mut at = state.gone;
        for frame in &state.frames {
            if at >= after && (&stream).write_all(frame).is_err() {
                return None;
            }
            at += frame.len() as u64;
        }
        state.watchers += 1;
        let number = state.watchers;
        state.watcher = Some((number, stream));
        Some(number)
    }

    /// Forgets a watcher. Returns whether no other has come after it.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut state = self.lock();
        if state.watcher.as_ref().is_some_and(|(current, _)| *current == number) {
            state.watcher = None;
        }
        state.watchers == number
    }

    /// Whether a watcher has come after that with this number.
    pub(super) fn was_watched_after(&self, number: u64) -> bool {
        self.lock().watchers > number
    }

    /// Returns what is kept.
    pub(super) fn log(&self) -> Vec<u8> {
        self.lock().frames.concat()
    }
}
