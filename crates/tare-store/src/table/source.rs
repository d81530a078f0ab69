//! Sources of blocks.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::block::{Block, BlockAt};
use super::{PAGE_BYTES, TableError};

/// A source that cursors take blocks from.
pub trait BlockSource {
    /// The block; `None` if it is not in memory, and then the source has noted it as wanted.
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError>;

    /// Announces that this block will be needed soon, right after one that is missing.
    fn expect(&mut self, at: BlockAt);
}

/// Reads blocks and waits for them, for recovery and tools.
#[derive(Debug)]
pub struct FileSource<R> {
    read: R,
    buffer: Vec<u8>,
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<usize>> FileSource<R> {
    /// A source for a file. `read` fills a buffer from an offset of it and may return fewer bytes.
    pub fn new(read: R) -> Self {
        Self { read, buffer: Vec::new() }
    }

    /// Reads and checks one block.
    pub fn block(&mut self, at: BlockAt) -> Result<Block, TableError> {
        self.buffer.resize(at.bytes(), 0);
        let mut done = 0;
        while done < self.buffer.len() {
            match (self.read)(at.offset() + done as u64, &mut self.buffer[done..]) {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(source) => {
                    let (file, offset, source) = (at.file, at.offset(), Arc::new(source));
                    return Err(TableError::Read { file, offset, source });
                }
            }
        }
        Block::decode(at, &self.buffer[..done])
    }
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<usize>> BlockSource for FileSource<R> {
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        self.block(at).map(|block| Some(Rc::new(block)))
    }

    fn expect(&mut self, _: BlockAt) {}
}

/// Blocks of one file, read in order, many at a time, without the cache, for compaction, which
/// needs each block once.
#[derive(Debug)]
pub struct Window {
    bytes_max: usize,
    /// The blocks of the next read, ascending, without duplicates.
    wanted: Vec<BlockAt>,
    /// Blocks that were read, oldest first.
    held: VecDeque<(BlockAt, Rc<Block>)>,
    held_bytes: usize,
}

/// Reads whose blocks a window holds. A cursor that moves on needs at most two index blocks and the
/// data after each.
const READS_HELD: usize = 4;

impl Window {
    /// A window that reads at most so many bytes at once, but always a whole block. It holds four
    /// times as much of the file.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, wanted: Vec::new(), held: VecDeque::new(), held_bytes: 0 }
    }

    /// The next read: offset and length in bytes, both multiples of a page. `None` if no block is
    /// missing.
    pub fn wanted(&self) -> Option<(u64, usize)> {
        let (first, last) = (self.wanted.first()?, self.wanted.last()?);
        Some((first.offset(), (last.page - first.page + last.pages) as usize * PAGE_BYTES))
    }

    /// Takes the bytes that [`Self::wanted`] asked for. Missing bytes count as damage.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TableError> {
        while self.held_bytes > self.bytes_max * (READS_HELD - 1) {
            let Some((at, _)) = self.held.pop_front() else { break };
            self.held_bytes -= at.bytes();
        }
        let first = self.wanted.first().map_or(0, |first| first.page);
        for at in self.wanted.drain(..) {
            let from = (at.page - first) as usize * PAGE_BYTES;
            let block = Block::decode(at, bytes.get(from..).unwrap_or_default())?;
            self.held.push_back((at, Rc::new(block)));
            self.held_bytes += at.bytes();
        }
        Ok(())
    }
}

impl BlockSource for Window {
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        if let Some((_, block)) = self.held.iter().find(|(held, _)| *held == at) {
            return Ok(Some(Rc::clone(block)));
        }
        self.wanted.clear();
        self.wanted.push(at);
        Ok(None)
    }

    fn expect(&mut self, at: BlockAt) {
        let Some((first, last)) = self.wanted.first().zip(self.wanted.last()) else { return };
        let ascends = at.page >= last.page + last.pages;
        if ascends && (at.page - first.page + at.pages) as usize * PAGE_BYTES <= self.bytes_max {
            self.wanted.push(at);
        }
    }
}
