//! The user's terminal while it shows a command of another host: what is typed goes there.

use std::io::{self, IsTerminal, stderr, stdin, stdout};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

use crate::run_server::TerminalSpec;

/// The settings before. Global for the handler of a second signal.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Returns the terminal of this process; `None` if a stream is none, or it is in the background.
pub(super) fn spec() -> Option<TerminalSpec> {
    let all = stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal();
    if !all || tcgetpgrp(stdin()).ok() != Some(rustix::process::getpgrp()) {
        return None;
    }
    let (columns, rows) = size()?;
    let term = std::env::var("TERM").unwrap_or_default();
    let no_colour = std::env::var("NO_COLOR").unwrap_or_default();
    Some(TerminalSpec { term, no_colour, columns, rows })
}

/// Returns columns and rows.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Passes keys on as they are typed, until dropped. Ctrl-C is one of them.
pub(super) struct Raw;

impl Raw {
    pub(super) fn start() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(saved) = saved {
            tcsetattr(stdin(), OptionalActions::Now, &saved).ok();
        }
    }
}

/// Leaves raw mode, and the screen of a command that could not leave it itself.
pub(super) fn restore() {
    /// Shows the cursor, and the normal screen.
    const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(saved) = saved {
        rustix::io::write(stderr(), LEAVE).ok();
        tcsetattr(stdin(), OptionalActions::Now, &saved).ok();
    }
}
