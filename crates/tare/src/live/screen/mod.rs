//! The full-screen view, on the terminal's alternate screen, drawn at events.
//!
//! Method: events change a plain [`state::State`]; a pure function draws it; keys are read when an
//! event comes. All of this happens on the measuring thread, between two slices: before an
//! environment is thawed, and after it is frozen. The terminal emulator receives a frame before the
//! lead-in, which is discarded, at most four times a second.
//!
//! Limits: no event comes while a container starts, so keys wait. Ctrl-C is a signal and does not.

mod draw;
mod keys;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{BufWriter, Stderr, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use tare_lab::campaign::{Event, Observer};
use tare_lab::study::Study;
use tare_report::terminal::Style;

use super::lines::line;
use crate::stream::say;
use draw::Theme;
use keys::Key;
use state::State;
use terminal::ScreenError;
pub(crate) use terminal::restore;

/// Least time between two frames for slices, rounds and rows. Keys and other events draw at once.
const FRAME_INTERVAL: Duration = Duration::from_millis(250);

/// The open screen, which is closed when dropped.
pub(super) struct Screen<'s> {
    terminal: Terminal<CrosstermBackend<BufWriter<Stderr>>>,
    area: Rect,
    state: State,
    theme: Theme,
    stop: &'s AtomicBool,
    started: Instant,
    drawn: Option<Instant>,
}

impl<'s> Screen<'s> {
    /// Opens the screen, or returns why the terminal cannot show one.
    pub(super) fn open(
        study: &Study,
        style: Style,
        stop: &'s AtomicBool,
    ) -> Result<Self, ScreenError> {
        let area = terminal::open()?;
        // The buffer makes each frame one write.
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stderr()));
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = Terminal::with_options(backend, options).inspect_err(|_| restore())?;
        let (state, theme) = (State::new(study), Theme { colour: style.colour });
        Ok(Self { terminal, area, state, theme, stop, started: Instant::now(), drawn: None })
    }

    /// Draws the state. Failures are ignored: measuring goes on without a terminal.
    fn draw(&mut self) {
        let area = terminal::area().unwrap_or(self.area);
        if area != self.area && self.terminal.resize(area).is_ok() {
            self.area = area;
        }
        let (state, theme, now) = (&self.state, self.theme, self.started.elapsed());
        self.terminal
            .draw(|frame| draw::draw(state, now, theme, frame.area(), frame.buffer_mut()))
            .ok();
        self.drawn = Some(Instant::now());
    }
}

impl Observer for Screen<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.state.update(event, self.started.elapsed());
        if let Some(line) = line(event) {
            self.state.log(line);
        }
        let keys = keys::pressed();
        for key in &keys {
            match key {
                Key::Stop => self.stop.store(true, Ordering::Relaxed),
                Key::Redraw => drop(self.terminal.clear()),
                key => self.state.press(*key),
            }
        }
        let stopping = self.stop.load(Ordering::Relaxed);
        let stop_is_new = stopping && !self.state.stopping;
        self.state.stopping = stopping;
        let due = match event {
            // The next event follows at once and draws.
            Event::SliceDone { .. } => false,
            Event::SliceStarting { .. }
            | Event::RoundStarted { .. }
            | Event::RoundDone { .. }
            | Event::ExtraRoundStarted { .. }
            | Event::Populating { .. } => {
                self.drawn.is_none_or(|drawn| drawn.elapsed() >= FRAME_INTERVAL)
            }
            _ => true,
        };
        if due || stop_is_new || !keys.is_empty() {
            self.draw();
        }
    }
}

impl Drop for Screen<'_> {
    /// Closes the screen, and prints the lines of the run on the normal screen.
    fn drop(&mut self) {
        restore();
        for line in self.state.lines() {
            say(line);
        }
    }
}
