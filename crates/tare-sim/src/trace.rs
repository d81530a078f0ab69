//! The events of a run, as one hash and as the last lines of text. If two runs of one seed differ
//! in any operation of a store, the hashes differ.

use std::collections::VecDeque;
use std::fmt::Arguments;

use tare_std::rng::mix64;

/// Characters of a line that are kept.
const LINE_MAX: usize = 400;

/// The trace of one run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    /// Lines are formatted only for replays, where they are read.
    lines_max: usize,
}

impl Trace {
    pub(crate) fn new(lines_max: usize) -> Self {
        Self { lines_max, ..Self::default() }
    }

    /// Records an event: its kind, its numbers, and its text.
    pub(crate) fn event(&mut self, kind: u64, numbers: &[u64], text: Arguments<'_>) {
        self.events += 1;
        self.mix(kind);
        numbers.iter().for_each(|&number| self.mix(number));
        if self.lines_max > 0 {
            if self.lines.len() == self.lines_max {
                self.lines.pop_front();
            }
            let mut line = text.to_string();
            if let Some((at, _)) = line.char_indices().nth(LINE_MAX) {
                line.truncate(at);
                line.push_str("..");
            }
            self.lines.push_back(line);
        }
    }

    /// Records the bytes of an answer.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.mix(u64::from(crc32c::crc32c(bytes)) | (bytes.len() as u64) << 32);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, oldest first.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }

    fn mix(&mut self, number: u64) {
        self.hash = mix64(self.hash.rotate_left(5) ^ number);
    }
}
