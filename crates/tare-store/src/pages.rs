//! Pages for blocks of one page: the disk writes into them, and the block stays there. They are
//! allocated many at a time, because aligned memory wastes as much as a page each time, and serve
//! the next read when their block is dropped.

use std::cell::RefCell;
use std::rc::Rc;

use crate::chunk::Chunk;

/// Pages that are allocated together. The allocator maps so much memory apart, and what no block
/// has used yet takes no memory.
const TOGETHER: usize = 256;

/// The pages of a store. There are as many as were ever in use at the same time, which the limit of
/// the cache and that of the waiting reads bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages(Rc<RefCell<Vec<Chunk>>>);

impl Pages {
    /// A page for a read.
    pub(crate) fn take(&self) -> Chunk {
        let mut free = self.0.borrow_mut();
        if free.is_empty() {
            free.extend(Chunk::pages(TOGETHER));
        }
        free.pop().expect("pages were added")
    }

    /// A page that was taken, after the read.
    pub(crate) fn filled(&self, chunk: Chunk) -> Page {
        Page { chunk, pages: self.clone() }
    }
}

/// A page that serves the next read when it is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    chunk: Chunk,
    pages: Pages,
}

impl Page {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.chunk.bytes()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pages.0.borrow_mut().push(std::mem::take(&mut self.chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_serves_the_next_read_when_it_is_dropped() {
        let pages = Pages::default();
        let (one, other) = (pages.take(), pages.take());
        let address = one.bytes().as_ptr();
        assert_ne!(address, other.bytes().as_ptr());
        drop(pages.filled(one));
        assert_eq!(pages.take().bytes().as_ptr(), address);
    }
}
