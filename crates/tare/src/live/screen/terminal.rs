//! The terminal as a screen of its own, and the way back: what is changed here is put back by
//! [`restore`] at the end, on an error, a panic and the second signal.
//!
//! Signals stay signals: Ctrl-C reaches the program while a container starts, when no key is read.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::sync::{Mutex, Once, PoisonError};

use ratatui::layout::Rect;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush,
    tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

/// The smallest terminal that a screen is opened on; one that shrinks later gets a short form.
const COLUMNS_MIN: u16 = 60;
const ROWS_MIN: u16 = 16;

/// Alternate screen, cleared, no cursor (xterm's control sequences, which all emulators know).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[H\x1b[?25l";
/// Colours as they were, the cursor, the normal screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// The settings of the terminal while it is ours. Global, because a panic and a signal must find
/// it.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Why there can be no screen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoScreen {
    #[error("{0} is not a terminal")]
    NotTerminal(&'static str),
    #[error("the terminal can show lines only (TERM={0})")]
    Dumb(String),
    #[error("the terminal has {0} columns and {1} rows; {COLUMNS_MIN} and {ROWS_MIN} are needed")]
    Small(u16, u16),
    #[error("the program runs in the background")]
    Background,
    #[error("cannot set up the terminal: {0}")]
    Set(#[from] std::io::Error),
}

/// The size of the terminal, where it can be told.
pub(super) fn area() -> Option<Rect> {
    let size = tcgetwinsize(stderr()).ok()?;
    Some(Rect::new(0, 0, size.ws_col, size.ws_row))
}

/// Takes the terminal.
pub(super) fn open() -> Result<Rect, NoScreen> {
    let ends = [
        ("standard input", stdin().is_terminal()),
        ("standard output", stdout().is_terminal()),
        ("standard error", stderr().is_terminal()),
    ];
    if let Some((name, _)) = ends.into_iter().find(|(_, terminal)| !terminal) {
        return Err(NoScreen::NotTerminal(name));
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return Err(NoScreen::Dumb(term));
    }
    let area = area().unwrap_or_default();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        return Err(NoScreen::Small(area.width, area.height));
    }
    // In the background, touching the terminal would stop the program.
    if tcgetpgrp(stdin()).ok() != Some(rustix::process::getpgrp()) {
        return Err(NoScreen::Background);
    }
    restore_on_panic();
    let saved = tcgetattr(stdin()).map_err(std::io::Error::from)?;
    let mut ours = saved.clone();
    ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
    // Ctrl-S would stop the drawing, and with it the study.
    ours.input_modes -= InputModes::IXON;
    // A read returns at once, with what there is.
    ours.special_codes[SpecialCodeIndex::VMIN] = 0;
    ours.special_codes[SpecialCodeIndex::VTIME] = 0;
    // Ctrl-Z and Ctrl-\ would leave the shell with this terminal; 0 is "no such key" (termios(3)).
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

/// Gives the terminal back, once; does nothing where it is not ours.
pub(crate) fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(saved) = saved {
        // Past the buffers, which others may hold. A terminal that is gone needs nothing.
        rustix::io::write(stderr(), LEAVE).ok();
        // Keys that were typed for the screen are not for the shell.
        tcflush(stdin(), QueueSelector::IFlush).ok();
        tcsetattr(stdin(), OptionalActions::Now, &saved).ok();
    }
}

/// A panic prints its message on the normal screen.
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
