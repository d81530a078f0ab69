//! Readings at every second of a slice, on a thread of their own.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// Readings under way. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct EachSecond<T> {
    stop: Sender<()>,
    thread: JoinHandle<Vec<T>>,
}

impl<T: Send + 'static> EachSecond<T> {
    /// Reads now and after every further second, until `read` fails.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start(mut read: impl FnMut() -> Option<T> + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let begin = Instant::now();
        let follow = move || {
            let mut readings = Vec::from_iter(read());
            for second in 1.. {
                let due = begin + SECOND * second;
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    // A window of whole seconds ends about when its last one does.
                    if due.saturating_duration_since(Instant::now()) < SECOND / 10 {
                        readings.extend(read());
                    }
                    break;
                }
                let Some(reading) = read() else { break };
                readings.push(reading);
            }
            readings
        };
        let thread = thread::Builder::new().name("each-second".into()).spawn(follow)?;
        Ok(Self { stop, thread })
    }

    /// Ends the readings and returns them, the first one from the beginning.
    pub(crate) fn stop(self) -> Vec<T> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_until_it_is_stopped_or_fails() {
        let mut next = 0;
        let count = move || {
            next += 1;
            Some(next)
        };
        let readings = EachSecond::start(count).unwrap();
        thread::sleep(SECOND * 3 / 2);
        let readings = readings.stop();
        assert!(readings.starts_with(&[1, 2]), "{readings:?}");
        let readings = EachSecond::start(|| Some(())).unwrap();
        thread::sleep(SECOND - SECOND / 100);
        assert!(readings.stop().len() >= 2, "the end is that of the second");
        let failed = EachSecond::start(|| None::<u32>).unwrap();
        assert_eq!(failed.stop(), [0_u32; 0]);
    }
}
