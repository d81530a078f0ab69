//! Follows a running tool by the lines that it prints.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::process::{Line, LineEvent, RunningTool, ThreadTimes};
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
    /// The CPU time of the tool so far.
    pub(super) cpu_ns: u64,
    pub(super) threads: ThreadTimes,
    pub(super) tool_s: Option<f64>,
    pub(super) operations: f64,
}

/// A running tool, and what its lines have reported so far.
#[derive(Debug)]
pub(super) struct Follower<T> {
    pub(super) tool: T,
    pub(super) running: RunningTool,
    pub(super) limits: TimeLimits,
    pub(super) operations: f64,
    /// Its lines with figures.
    lines: Vec<Figures>,
}

/// What a line with figures has reported.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    at: Instant,
    tool_s: Option<f64>,
    /// Operations since the start of the tool.
    operations: f64,
}

impl<T: Tool> Follower<T> {
    pub(super) fn new(tool: T, running: RunningTool, limits: TimeLimits) -> Self {
        Self { tool, running, limits, operations: 0.0, lines: Vec::new() }
    }

    /// Returns when the first line with figures arrived.
    pub(super) fn first(&self) -> Option<Instant> {
        self.lines.first().map(|line| line.at)
    }

    pub(super) fn mark(&self, at: Instant, tool_s: Option<f64>) -> WindowEdge {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WindowEdge {
            at,
            unix_s: unix_s.as_secs_f64(),
            cpu_ns: self.running.cpu_ns(),
            threads: self.running.threads(),
            tool_s,
            operations: self.operations,
        }
    }

    /// Returns the operations/s between its first and its last line.
    pub(super) fn rate_per_s(&self) -> f64 {
        let [Some(first), Some(last)] = [self.lines.first(), self.lines.last()] else { return 0.0 };
        self.operations / last.at.duration_since(first.at).as_secs_f64().max(0.01)
    }

    /// Takes the figures of a line; `None` if it has none.
    fn note(&mut self, line: &Line) -> Option<Progress> {
        let progress = self.tool.progress(&line.text)?;
        let before = self.lines.last().map_or(line.at, |last| last.at);
        match progress.count {
            Count::Total(count) => self.operations = count as f64,
            Count::Interval(count) => self.operations += count as f64,
            Count::Rate(rate) => {
                self.operations += rate * line.at.duration_since(before).as_secs_f64();
            }
        }
        let (tool_s, operations) = (progress.tool_s, self.operations);
        self.lines.push(Figures { at: line.at, tool_s, operations });
        Some(progress)
    }

    /// Returns an edge as it is by the lines around it: its operations by their rate between the
    /// two, and the tool's time of the nearer one.
    pub(super) fn by_lines(&self, edge: WindowEdge) -> WindowEdge {
        let next = self.lines.iter().position(|line| line.at >= edge.at);
        let next = next.unwrap_or(self.lines.len());
        let [before, after] = [next.checked_sub(1), Some(next)].map(|at| self.lines.get(at?));
        let (operations, tool_s) = match (before, after) {
            (Some(before), Some(after)) => {
                let length = after.at.duration_since(before.at).as_secs_f64();
                let into = edge.at.duration_since(before.at).as_secs_f64();
                let share = if length > 0.0 { into / length } else { 1.0 };
                let operations = before.operations + (after.operations - before.operations) * share;
                (operations, if share < 0.5 { before.tool_s } else { after.tool_s })
            }
            (Some(one), None) | (None, Some(one)) => (one.operations, one.tool_s),
            (None, None) => (edge.operations, edge.tool_s),
        };
        WindowEdge { operations, tool_s, ..edge }
    }

    /// Follows it until its first line after an edge.
    pub(super) fn pass(&mut self, edge: &WindowEdge) -> Result<(), ToolError> {
        while self.lines.last().is_none_or(|last| last.at < edge.at) {
            if self.next(self.limits.silence)?.is_none() {
                return Err(self.early());
            }
        }
        Ok(())
    }

    /// Returns the next line with figures; `None` once it has ended.
    fn next(&mut self, limit: Duration) -> Result<Option<(Instant, Progress)>, ToolError> {
        let deadline = Instant::now() + limit;
        loop {
            let line = match self.running.next_line(deadline) {
                LineEvent::Line(line) => line,
                LineEvent::Ended => return Ok(None),
                LineEvent::Stopped => return Err(Self::stopped()),
                LineEvent::Late => {
                    let (tool, said) = (T::INFO.name, self.running.printed.said());
                    return Err(match self.lines.is_empty() {
                        true => ToolError::NotBegun { tool, limit, said },
                        false => ToolError::Silent { tool, limit, said },
                    });
                }
            };
            if self.tool.is_last(&line.text) {
                return Ok(None);
            }
            if let Some(progress) = self.note(&line) {
                return Ok(Some((line.at, progress)));
            }
        }
    }

    fn stopped() -> ToolError {
        ToolError::Stopped { tool: T::INFO.name.into() }
    }

    fn early(&mut self) -> ToolError {
        let status = match self.running.end(Instant::now() + self.limits.end) {
            Ok(Some(status)) => status.to_string(),
            _ => "it has closed its output".into(),
        };
        let (tool, said) = (T::INFO.name, self.running.printed.said());
        match self.lines.is_empty() {
            true => ToolError::Unbegun { tool, status, said },
            false => ToolError::Early { tool, status, said },
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
            let before = self.lines.last().map_or(end, |last| last.at);
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
                LineEvent::Line(line) if self.tool.is_last(&line.text) => return Err(self.early()),
                LineEvent::Line(line) => drop(self.note(&line)),
                LineEvent::Late => return Ok(()),
                LineEvent::Ended => return Err(self.early()),
                LineEvent::Stopped => return Err(Self::stopped()),
            }
        }
    }
}
