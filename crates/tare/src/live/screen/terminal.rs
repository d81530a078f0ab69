//! Switches the terminal to the alternate screen. [`restore`] undoes all changes at the end, and
//! after an error, a panic or a second signal.
//!
//! Ctrl-C stays a signal, so that it works while a container starts and no key is read.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::sync::{Mutex, Once, PoisonError};

use ratatui::layout::Rect;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush,
    tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

/// The smallest terminal that a screen is opened on. One that shrinks later shows a short form.
const COLUMNS_MIN: u16 = 60;
const ROWS_MIN: u16 = 16;

/// Switches to the cleared alternate screen without a cursor (control sequences of xterm, which all
/// emulators support).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[H\x1b[?25l";
/// Resets the colours, shows the cursor, and switches to the normal screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// The settings of the terminal before the screen was opened. Global for the handlers of panics and
/// signals.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Why a screen cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScreenError {
    #[error("{0} is not a terminal")]
    NotTerminal(&'static str),
    #[error("the terminal supports only lines (TERM={0})")]
    Dumb(String),
    #[error(
        "the terminal has {0} columns and {1} rows; at least {COLUMNS_MIN} and {ROWS_MIN} are needed"
    )]
    Small(u16, u16),
    #[error("the program runs in the background")]
    Background,
    #[error("cannot set up the terminal: {0}")]
    Set(#[from] std::io::Error),
}

/// Returns the size of the terminal, if it can be read.
pub(super) fn area() -> Option<Rect> {
    let size = tcgetwinsize(stderr()).ok()?;
    Some(Rect::new(0, 0, size.ws_col, size.ws_row))
}

/// Opens the alternate screen.
pub(super) fn open() -> Result<Rect, ScreenError> {
    let streams = [
        ("standard input", stdin().is_terminal()),
        ("standard output", stdout().is_terminal()),
        ("standard error", stderr().is_terminal()),
    ];
    if let Some((name, _)) = streams.into_iter().find(|(_, terminal)| !terminal) {
        return Err(ScreenError::NotTerminal(name));
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return Err(ScreenError::Dumb(term));
    }
    let area = area().unwrap_or_default();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        return Err(ScreenError::Small(area.width, area.height));
    }
    // Changing the terminal from the background would stop the program.
    if tcgetpgrp(stdin()).ok() != Some(rustix::process::getpgrp()) {
        return Err(ScreenError::Background);
    }
    restore_on_panic();
    let saved = tcgetattr(stdin()).map_err(std::io::Error::from)?;
    let mut ours = saved.clone();
    ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
    // Ctrl-S would block drawing, and so the study.
    ours.input_modes -= InputModes::IXON;
    // A read returns at once, also without input.
    ours.special_codes[SpecialCodeIndex::VMIN] = 0;
    ours.special_codes[SpecialCodeIndex::VTIME] = 0;
    // Ctrl-Z and Ctrl-\ would leave these settings to the shell; 0 disables the key (termios(3)).
    ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
    ours.special_codes[SpecialCodeIndex::VQUIT] = 0;
    *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(saved);
    let set = tcsetattr(stdin(), OptionalActions::Now, &ours)
        .and_then(|()| rustix::io::write(stderr(), ENTER).map(|_| ()));
    set.map_err(|error| {
        restore();
        std::io::Error::from(error)
    })?;
    Ok(area)
}

/// Restores the terminal if a screen is open; otherwise does nothing.
pub(crate) fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(saved) = saved {
        // Written directly, as another thread may hold the lock of a buffer. Failures do not
        // matter.
        rustix::io::write(stderr(), LEAVE).ok();
        // Keys arguments for the screen must not reach the shell.
        tcflush(stdin(), QueueSelector::IFlush).ok();
        tcsetattr(stdin(), OptionalActions::Now, &saved).ok();
    }
}

/// Makes a panic print its message on the normal screen.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
    });
}
