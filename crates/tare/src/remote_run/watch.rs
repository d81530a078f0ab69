//! Shows a run of another host, and passes on keys and signals.

use std::io::{Read, Write, stdin};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use tare_remote::RemoteHost;

use super::connections::{Connected, Connections};
use super::terminal;
use crate::run_server::{Ended, Frame, Kind, Session, read_frame, write_frame};
use crate::stream::{DropWhenClosed, Errors, Output, warn};

/// How often the run hears that somebody watches.
const BEAT: Duration = Duration::from_secs(5);
/// How often signals and the size of the terminal are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The pauses before a lost connection is made again.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_secs(2), Duration::from_secs(5)];

/// Where a run is shown.
#[derive(Clone, Debug)]
pub(super) enum View<'v> {
    /// On the user's terminal, as it is on the terminal there.
    Terminal,
    /// On standard output and standard error. Each line begins with the prefix.
    Streams { prefix: &'v str },
}

/// Why a run is not shown any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Ended(Ended),
    /// The connection broke, and could not be made again.
    Lost {
        detached: bool,
    },
    /// Another watcher is connected.
    Busy,
    /// The process that watches over the run there was killed.
    Killed,
}

/// Shows a run to its end.
pub(super) fn follow(
    connections: &Connections,
    connected: &Connected,
    directory: &Path,
    view: &View<'_>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Ending> {
    let raw = match view {
        View::Terminal => Some(terminal::Raw::start().context("cannot set up the terminal")?),
        View::Streams { .. } => None,
    };
    let mut watch = Watch { view, stop, directory, received: 0, lines: Default::default() };
    let mut ending = watch.once(&connected.host, &connected.program.path, false)?;
    let name = connected.host.name();
    for pause in AGAIN {
        let Ending::Lost { .. } = ending else { break };
        sleep(pause);
        let host = match connected.host.check() {
            Ok(()) => connected.host.clone(),
            Err(_) => match connected.host.again(connections.directory()) {
                Ok(host) => host,
                Err(_) => continue,
            },
        };
        if matches!(view, View::Streams { .. }) && !stop.load(Ordering::Relaxed) {
            warn(&format!("the connection to {name} was lost and is made again"));
        }
        ending = watch.once(&host, &connected.program.path, true)?;
    }
    if !matches!(ending, Ending::Ended(Ended { code: Some(_), .. })) {
        terminal::restore();
    }
    drop(raw);
    watch.flush();
    if let Ending::Lost { .. } = ending {
        let sessions = connected.sessions().unwrap_or_default();
        let found = sessions.iter().find(|session| session.directory == directory);
        ending = match found {
            Some(Session { ended: Some(ended), .. }) => Ending::Ended(*ended),
            Some(Session { alive: false, .. }) => Ending::Killed,
            Some(session) => Ending::Lost { detached: session.spec.detach },
            None => ending,
        };
    }
    Ok(ending)
}

struct Watch<'w> {
    view: &'w View<'w>,
    stop: &'w Arc<AtomicBool>,
    directory: &'w Path,
    /// The bytes of frames so far.
    received: u64,
    /// What was printed of the last line of each stream.
    lines: [Vec<u8>; 2],
}

impl Watch<'_> {
    /// Shows a run until it ends or the connection breaks.
    fn once(&mut self, host: &RemoteHost, program: &str, again: bool) -> anyhow::Result<Ending> {
        let directory = self.directory.to_str().context("the name of a run is no text")?;
        let after = self.received.to_string();
        let mut words = vec!["run-server", "attach", directory, "--after", &after];
        words.extend(again.then_some("--again"));
        let mut process = host.start(program, &words)?;
        let to_run = process.stdin.take().map(|stdin| Arc::new(Mutex::new(stdin)));
        let over = Arc::new(AtomicBool::new(false));
        if let Some(to_run) = to_run {
            let is_terminal = matches!(self.view, View::Terminal);
            if is_terminal {
                pass_keys(Arc::clone(&to_run));
            }
            pass_signals(to_run, Arc::clone(self.stop), Arc::clone(&over), is_terminal);
        }
        let ending = match &mut process.stdout {
            Some(stdout) => self.show(stdout),
            None => Ending::Lost { detached: false },
        };
        over.store(true, Ordering::Relaxed);
        if matches!(ending, Ending::Lost { .. }) {
            process.wait_at_most(Duration::from_secs(1)).ok();
        }
        Ok(ending)
    }

    /// Prints frames to the last.
    fn show(&mut self, from_run: &mut impl Read) -> Ending {
        while let Ok(Some(frame)) = read_frame(from_run) {
            match frame.kind {
                Kind::Output => self.print(&frame.contents, 0),
                Kind::Errors => self.print(&frame.contents, 1),
                Kind::Ended => {
                    return match serde_json::from_slice(&frame.contents) {
                        Ok(ended) => Ending::Ended(ended),
                        Err(_) => Ending::Killed,
                    };
                }
                Kind::Busy => return Ending::Busy,
                _ => {}
            }
            self.received += frame.len();
        }
        Ending::Lost { detached: false }
    }

    fn print(&mut self, bytes: &[u8], stream: usize) {
        let prefix = match self.view {
            View::Streams { prefix } if !prefix.is_empty() => prefix.as_bytes(),
            _ => return write(stream, bytes),
        };
        let kept = &mut self.lines[stream];
        kept.extend(bytes);
        let whole = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut text = Vec::new();
        for line in kept.drain(..whole).as_slice().split_inclusive(|byte| *byte == b'\n') {
            text.extend(prefix);
            text.extend(line);
        }
        // One write keeps the lines of several hosts apart.
        write(stream, &text);
    }

    /// Prints what has no end of line.
    fn flush(&mut self) {
        for stream in 0..self.lines.len() {
            if !self.lines[stream].is_empty() {
                self.print(b"\n", stream);
            }
        }
    }
}

fn write(stream: usize, bytes: &[u8]) {
    // When a reader goes away, the stop flag is set, and the run ends cleanly.
    let (mut output, mut errors) = (Output, Errors);
    let to: &mut dyn Write = if stream == 0 { &mut output } else { &mut errors };
    let mut to = DropWhenClosed(to);
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

type ToRun = Arc<Mutex<std::io::PipeWriter>>;

fn send(to_run: &ToRun, frame: &Frame) -> bool {
    let mut to_run = to_run.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *to_run, frame).is_ok()
}

/// Passes on what is typed. The thread ends with the process.
fn pass_keys(to_run: ToRun) {
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok(count @ 1..) = stdin().read(&mut bytes) {
            if !send(&to_run, &Frame::new(Kind::Keys, &bytes[..count])) {
                break;
            }
        }
    });
}

/// Passes on the stop flag and the size of the terminal, and says that somebody watches.
fn pass_signals(to_run: ToRun, stop: Arc<AtomicBool>, over: Arc<AtomicBool>, is_terminal: bool) {
    std::thread::spawn(move || {
        let (mut size, mut stopped, mut beat) = (None, false, Instant::now());
        while !over.load(Ordering::Relaxed) {
            let mut good = true;
            let now = is_terminal.then(terminal::size).flatten();
            if let Some((columns, rows)) = now.filter(|_| now != size) {
                let bytes = [columns.to_le_bytes(), rows.to_le_bytes()].concat();
                good &= send(&to_run, &Frame::new(Kind::Size, &bytes));
                size = now;
            }
            if !stopped && stop.load(Ordering::Relaxed) {
                good &= send(&to_run, &Frame::new(Kind::Interrupt, b""));
                stopped = true;
            }
            if beat.elapsed() >= BEAT {
                good &= send(&to_run, &Frame::new(Kind::Beat, b""));
                beat = Instant::now();
            }
            if !good {
                break;
            }
            sleep(LOOK);
        }
    });
}
