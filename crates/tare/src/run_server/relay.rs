//! Relays between a run and the watcher at the other end of ssh.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::bail;

use super::frame::{Frame, Kind, read_frame, write_frame};
use super::session::{self, ENDED, LOG, SOCKET};

/// Relays until the run or the watcher ends. `after` is the number of bytes that the watcher has;
/// `again` that it was connected before.
pub(super) fn run(directory: &Path, after: u64, again: bool) -> anyhow::Result<()> {
    session::check(directory)?;
    let mut out = io::stdout().lock();
    match UnixStream::connect(directory.join(SOCKET)) {
        Ok(socket) if !directory.join(ENDED).exists() => {
            Ok(relay(&socket, &mut out, after, again)?)
        }
        _ => replay(directory, &mut out, after),
    }
}

fn relay(socket: &UnixStream, out: &mut impl Write, after: u64, again: bool) -> io::Result<()> {
    let mut hello = after.to_le_bytes().to_vec();
    hello.push(u8::from(again));
    write_frame(&mut &*socket, &Frame::new(Kind::Hello, &hello))?;
    let mut to_run = socket.try_clone()?;
    std::thread::spawn(move || {
        // The end of either leaves the run without a watcher.
        let _ = io::copy(&mut io::stdin(), &mut to_run);
        let _ = to_run.shutdown(std::net::Shutdown::Both);
    });
    while let Some(frame) = read_frame(&mut &*socket)? {
        write_frame(out, &frame)?;
    }
    Ok(())
}

/// Sends what a run that has ended printed, and how it ended.
fn replay(directory: &Path, out: &mut impl Write, after: u64) -> anyhow::Result<()> {
    let Some(ended) = session::read_ended(directory) else {
        bail!("the process that watched over the run was killed");
    };
    let log = fs::read(directory.join(LOG)).unwrap_or_default();
    let (mut log, mut at) = (&log[..], 0);
    while let Some(frame) = read_frame(&mut log)? {
        if at >= after {
            write_frame(out, &frame)?;
        }
        at += frame.len();
    }
    write_frame(out, &Frame::new(Kind::Ended, &serde_json::to_vec(&ended)?))?;
    Ok(())
}
