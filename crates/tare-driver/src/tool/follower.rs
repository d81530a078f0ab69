//! Follows a running tool by the lines that it prints.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::process::{LineEvent, RunningTool, ThreadTimes};
use super::{Count, Progress, Tool, ToolError};

/// Time limits for a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    /// Until its load starts: a Java tool takes seconds, more on a busy host.
    pub(super) start: Duration,
    /// Between two of its lines. A tool that prints nothing during a longer stall cannot measure
    /// it.
    pub(super) silence: Duration,
    /// Until it ends and has reported, beyond its own length.
    pub(super) end: Duration,
}

pub(super) const LIMITS: TimeLimits = TimeLimits {
    start: Duration::from_secs(90),
    silence: Duration::from_secs(30),
    end: Duration::from_secs(60),
};

/// One edge of the window.
#[derive(Clone, Debug)]
pub(super) struct WindowEdge {
    pub(super) at: Instant,
    pub(super) unix_s: f64,
    pub(super) threads: ThreadTimes,
    pub(super) tool_s: Option<f64>,
    pub(super) operations: f64,
}

/// A running tool, and what its lines have reported so far.
pub(super) struct Follower<'t, T> {
    pub(super) tool: &'t T,
    pub(super) running: RunningTool,
    pub(super) limits: TimeLimits,
    pub(super) operations: f64,
    /// When the first and the last line with figures arrived.
    pub(super) last: Option<(Instant, Instant)>,
}

impl<T: Tool> Follower<'_, T> {
    pub(super) fn mark(&self, at: Instant, tool_s: Option<f64>) -> WindowEdge {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WindowEdge {
            at,
            unix_s: unix_s.as_secs_f64(),
            threads: self.running.threads(),
            tool_s,
            operations: self.operations,
        }
    }

    /// Returns the operations/s between its first and its last line.
    pub(super) fn rate_per_s(&self) -> f64 {
        let Some((first, last)) = self.last else { return 0.0 };
        self.operations / last.duration_since(first).as_secs_f64().max(0.01)
    }

    /// Returns the next line with figures; `None` once it has ended.
    fn next(&mut self, limit: Duration) -> Result<Option<(Instant, Progress)>, ToolError> {
        let deadline = Instant::now() + limit;
        loop {
            let line = match self.running.next_line(deadline) {
                LineEvent::Line(line) => line,
                LineEvent::Ended => return Ok(None),
                LineEvent::Late => {
                    let (tool, said) = (T::INFO.name, self.running.printed.said());
                    return Err(match self.last {
                        None => ToolError::NotBegun { tool, limit, said },
                        Some(_) => ToolError::Silent { tool, limit, said },
                    });
                }
            };
            if self.tool.is_last(&line.text) {
                return Ok(None);
            }
            let Some(progress) = self.tool.progress(&line.text) else { continue };
            let (first, before) = self.last.unwrap_or((line.at, line.at));
            match progress.count {
                Count::Total(count) => self.operations = count as f64,
                Count::Interval(count) => self.operations += count as f64,
                Count::Rate(rate) => {
                    self.operations += rate * line.at.duration_since(before).as_secs_f64();
                }
            }
            self.last = Some((first, line.at));
            return Ok(Some((line.at, progress)));
        }
    }

    fn early(&mut self) -> ToolError {
        let status = match self.running.end(Instant::now() + self.limits.end) {
            Ok(Some(status)) => status.to_string(),
            _ => "it has closed its output".into(),
        };
        let (tool, said) = (T::INFO.name, self.running.printed.said());
        match self.last {
            None => ToolError::Unbegun { tool, status, said },
            Some(_) => ToolError::Early { tool, status, said },
        }
    }

    /// Follows it until the first line after the lead-in. Returns `None` if it ends before that and
    /// may.
    pub(super) fn lead_in(
        &mut self,
        lead_in: Duration,
        may_end: bool,
    ) -> Result<Option<(Instant, Option<f64>)>, ToolError> {
        let mut limit = self.limits.start;
        let mut begun = None;
        loop {
            let Some((at, progress)) = self.next(limit)? else {
                let error = self.early();
                let is_whole =
                    matches!(self.running.end(Instant::now()), Ok(Some(s)) if s.success());
                return if may_end && is_whole { Ok(None) } else { Err(error) };
            };
            limit = self.limits.silence;
            // The interval before the first line is part of its start.
            let begun = *begun.get_or_insert(at);
            if at >= begun + lead_in && at > begun {
                return Ok(Some((at, progress.tool_s)));
            }
        }
    }

    /// Follows it until the line nearest to `end`.
    pub(super) fn until(&mut self, end: Instant) -> Result<(Instant, Option<f64>), ToolError> {
        loop {
            let before = self.last.map_or(end, |(_, last)| last);
            let Some((at, progress)) = self.next(self.limits.silence)? else {
                return Err(self.early());
            };
            if at + at.duration_since(before) / 2 >= end {
                return Ok((at, progress.tool_s));
            }
        }
    }

    /// Waits for its first line, which has the time that its load has run, and for the rest of the
    /// lead-in.
    pub(super) fn begin(&mut self, lead_in: Duration) -> Result<Instant, ToolError> {
        let Some((_, progress)) = self.next(self.limits.start)? else { return Err(self.early()) };
        let ran = Duration::try_from_secs_f64(progress.tool_s.unwrap_or(0.0)).unwrap_or_default();
        self.sleep(lead_in.saturating_sub(ran))?;
        Ok(Instant::now())
    }

    /// Waits while it runs.
    pub(super) fn sleep(&mut self, time: Duration) -> Result<(), ToolError> {
        let deadline = Instant::now() + time;
        loop {
            match self.running.next_line(deadline) {
                LineEvent::Line(_) => {}
                LineEvent::Late => return Ok(()),
                LineEvent::Ended => return Err(self.early()),
            }
        }
    }
}
