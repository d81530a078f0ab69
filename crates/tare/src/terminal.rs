//! Asking a person for something that must not be seen.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::stream::Errors;

/// Reads one line of standard input. A terminal is asked with `prompt`, and does not show what is
/// typed; afterwards it is as it was.
pub(crate) fn read_secret(prompt: &str) -> io::Result<String> {
    let input = io::stdin();
    let hidden = match input.is_terminal() {
        true => {
            write!(Errors, "{prompt}")?;
            Some(Hidden::begin()?)
        }
        false => None,
    };
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if hidden.is_some() {
        // The end of the line was not shown either.
        writeln!(Errors)?;
    }
    drop(hidden);
    read?;
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok(line)
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing put back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
