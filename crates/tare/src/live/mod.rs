//! The progress views of `tare weigh`, `tare explain` and `tare tune prove` on standard error: a
//! screen, a bar, or plain lines.
//!
//! Nothing is drawn while a slice is measured: the views draw when an event comes, and events come
//! only between slices, on the measuring thread. There is no drawing thread.

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

/// Returns the requested view, or the most detailed one that this terminal supports. The key `q` of
/// the screen sets `stop`.
pub(crate) fn observer<'s>(
    requested: Progress,
    study: &Study,
    style: Style,
    stop: &'s AtomicBool,
) -> Box<dyn Observer + 's> {
    if matches!(requested, Progress::Auto | Progress::Screen) {
        match screen::Screen::open(study, style, stop) {
            Ok(screen) => return Box::new(screen),
            Err(reason) if requested == Progress::Screen => {
                stream::say(&format!("tare: cannot open the screen: {reason}"));
            }
            Err(_) => {}
        }
    }
    match requested {
        Progress::Lines => Box::new(lines::LineView::new(style)),
        _ if std::io::stderr().is_terminal() => Box::new(bar::BarView::new(style)),
        _ => Box::new(lines::LineView::new(style)),
    }
}
