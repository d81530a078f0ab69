//! What `tare weigh`, `tare explain` and `tare tune prove` show while they run, on standard error:
//! a screen, a bar, or plain lines.
//!
//! Nothing is drawn while a slice is measured: all three are told by events, which come between
//! slices only, on the thread that measures. There is no drawing thread.

mod bar;
mod lines;
mod load;
mod screen;

use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;

use tare_lab::campaign::Observer;
use tare_lab::study::Study;
use tare_report::terminal::Style;

use crate::cli::Progress;
use crate::stream;

pub(crate) use load::LoadView;
pub(crate) use screen::restore;

/// The view that was asked for, or the best that this terminal can show. `stop` is set by the key
/// `q` of the screen.
pub(crate) fn observer<'s>(
    asked: Progress,
    study: &Study,
    style: Style,
    stop: &'s AtomicBool,
) -> Box<dyn Observer + 's> {
    if matches!(asked, Progress::Auto | Progress::Screen) {
        match screen::Screen::open(study, style, stop) {
            Ok(screen) => return Box::new(screen),
            Err(reason) if asked == Progress::Screen => {
                stream::say(&format!("tare: no screen: {reason}"));
            }
            Err(_) => {}
        }
    }
    match asked {
        Progress::Lines => Box::new(lines::Lines::new(style)),
        _ if std::io::stderr().is_terminal() => Box::new(bar::Bars::new(style)),
        _ => Box::new(lines::Lines::new(style)),
    }
}
