//! The blocks of a compaction's inputs, read front to back, many at a time, without the cache.

use std::rc::Rc;

use crate::chunk::Chunk;
use crate::io::{FileId, OpKind};
use crate::table::{Block, BlockAt, BlockSource, TableError, Window};

/// One window per input.
#[derive(Debug)]
pub(crate) struct Windows {
    windows: Vec<(u64, Window, ReadState)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    No,
    /// A block is missing.
    Wanted,
    UnderWay,
}

impl Windows {
    /// Windows on files, each of which is read so many bytes at a time.
    pub(crate) fn new(files: impl Iterator<Item = u64>, bytes: usize) -> Self {
        Self { windows: files.map(|file| (file, Window::new(bytes), ReadState::No)).collect() }
    }

    /// The next read, and its input.
    pub(crate) fn next_op(&mut self) -> Option<(usize, FileId, OpKind)> {
        let mut windows = self.windows.iter_mut().enumerate();
        let (input, (file, window, read)) =
            windows.find(|(_, (_, _, read))| *read == ReadState::Wanted)?;
        *read = ReadState::No;
        let (offset, length) = window.wanted()?;
        *read = ReadState::UnderWay;
        let kind = OpKind::Read { offset, chunk: Chunk::zeroed(length) };
        Some((input, FileId::Table(*file), kind))
    }

    /// Takes the bytes of an input's read.
    pub(crate) fn feed(&mut self, input: usize, bytes: &[u8]) -> Result<(), TableError> {
        let (_, window, read) = &mut self.windows[input];
        *read = ReadState::No;
        window.feed(bytes)
    }

    /// Whether a read is wanted or under way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.windows.iter().any(|(_, _, read)| *read != ReadState::No)
    }
}

impl BlockSource for Windows {
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        let found = self.windows.iter_mut().find(|(file, _, _)| *file == at.file);
        let (_, window, read) = found.expect("a compaction reads its inputs");
        let block = window.get(at)?;
        if block.is_none() {
            *read = ReadState::Wanted;
        }
        Ok(block)
    }

    fn expect(&mut self, at: BlockAt) {
        if let Some((_, window, _)) = self.windows.iter_mut().find(|(file, _, _)| *file == at.file)
        {
            window.expect(at);
        }
    }
}
