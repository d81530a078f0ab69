//! The terminal of a run: the end that its command has, and the end of the supervisor.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Opens a terminal. Returns the supervisor's end and the command's.
pub(super) fn open() -> io::Result<(File, File)> {
    let supervisor = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&supervisor)?;
    unlockpt(&supervisor)?;
    let name = ptsname(&supervisor, Vec::new())?;
    let noctty = OFlags::NOCTTY.bits().cast_signed();
    let mut options = File::options();
    let command = options.read(true).write(true).custom_flags(noctty);
    let command = command.open(OsStr::from_bytes(name.as_bytes()))?;
    Ok((File::from(supervisor), command))
}

/// Sets the size. The kernel tells the command.
pub(super) fn resize(supervisor: &File, columns: u16, rows: u16) -> io::Result<()> {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(supervisor, size)?)
}
