//! The user's terminal: its colour and width, and input that it does not show.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tare_report::terminal::Style;

use crate::stream::Errors;

/// Returns colour and width of the terminal on standard output. Without one it is plain and has
/// `COLUMNS`, or 160 columns.
pub(crate) fn style() -> Style {
    const WIDTH_DEFAULT: u16 = 160;
    /// A table has no room for less.
    const WIDTH_MIN: u16 = 40;
    let terminal = io::stdout().is_terminal();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let width = size.map(|size| size.ws_col).filter(|width| terminal && *width > 0);
    let asked = || {
        let columns: u16 = std::env::var("COLUMNS").ok()?.parse().ok()?;
        (columns >= WIDTH_MIN).then_some(columns)
    };
    Style {
        colour: terminal && !no_colour,
        width: width.or_else(asked).unwrap_or(WIDTH_DEFAULT),
        ..Style::default()
    }
}

/// Reads one line of standard input. On a terminal, `prompt` is printed first and what is typed is
/// not shown.
pub(crate) fn read_secret(prompt: &str) -> io::Result<String> {
    let input = io::stdin();
    let hidden = match input.is_terminal() {
        true => {
            write!(Errors, "{prompt}")?;
            Some(EchoOff::start()?)
        }
        false => None,
    };
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if hidden.is_some() {
        // The terminal did not show the end of the line either.
        writeln!(Errors)?;
    }
    drop(hidden);
    read?;
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok(line)
}

/// Keeps the terminal from showing what is typed, until dropped.
struct EchoOff(Termios);

impl EchoOff {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
