//! The io_uring engine: multishot accept and receive into provided buffers; sends and file
//! operations are submitted together once per iteration. A polling iteration that finds nothing
//! makes no system call: the kernel sets a flag in the shared ring when it has completions to
//! deliver (`IORING_SETUP_TASKRUN_FLAG`).
//!
//! The engine needs Linux 6.1 (`DEFER_TASKRUN`). If something is missing, the error names the step
//! that failed, and the caller falls back to epoll.
//!
//! Memory that the kernel may access belongs to the engine: bytes that a connection sends stay in
//! its slot, those of file operations in `operations`, received bytes in the pool. A slot is reused
//! only when no operation on it is under way, and dropping the engine leaks the memory that the
//! kernel may still access.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::net::Shutdown;
use slab::Slab;
use tare_store::io::OpKind;

use super::file_threads::FileThreads;
use super::read_batcher::ReadBatcher;
use super::{ConnId, Event, FILE_OPS_MAX, Source, Wait};
use crate::node::directory::{FileDone, FileWork, is_end};

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 4096;
const BUFFERS: u16 = 256;
const BUFFER_BYTES: u32 = 16 << 10;
const BUFFER_GROUP: u16 = 0;
/// When the shard holds this many buffers, connections get the remaining ones one at a time, in
/// turn.
const BUFFERS_FREELY: u16 = BUFFERS / 4;

const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_WAITALL: i32 = 0x100;
const POLLIN: u32 = 1;

/// The kind of a completion is the high byte of its user data. The slot is the low half.
const RECEIVE: u64 = 1 << 56;
const SEND: u64 = 2 << 56;
const ACCEPT: u64 = 3 << 56;
const WAKE: u64 = 4 << 56;
const FILE: u64 = 5 << 56;
const CANCEL: u64 = 6 << 56;

/// Why io_uring cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum UringError {
    #[error("io_uring_setup failed")]
    Setup { source: io::Error },
    #[error("this io_uring lacks {what}")]
    Lacks { what: &'static str },
    #[error("io_uring cannot {what}")]
    Step { what: &'static str, source: io::Error },
}

impl UringError {
    /// The error in one line, with the errno if there is one.
    pub(crate) fn explain(&self) -> String {
        match self {
            Self::Setup { source } | Self::Step { source, .. } => match source.raw_os_error() {
                Some(errno) => format!("{self}: {source} (errno {errno})"),
                None => format!("{self}: {source}"),
            },
            Self::Lacks { .. } => self.to_string(),
        }
    }
}

struct Slot {
    fd: Option<OwnedFd>,
    generation: u32,
    /// Operations under way.
    pending: u32,
    sending: Vec<u8>,
    sent: usize,
    send_active: bool,
    receiving: bool,
    /// The slot is in `Uring::wanting`.
    wanting: bool,
    paused: bool,
    closing: bool,
}

/// An operation on a file's data, which the kernel carries out in steps.
struct FileOperation {
    work: FileWork,
    /// Bytes read or written by earlier steps.
    done: usize,
    /// The current step is the sync after a write.
    syncing: bool,
}

pub(crate) struct Uring {
    ring: IoUring,
    buffers: BufferPool,
    /// Connections that wait for a buffer; each gets one in turn. Otherwise the first one to ask
    /// would take every buffer that becomes free, and the others would wait for everything that its
    /// client sends.
    wanting: VecDeque<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    listener: Option<OwnedFd>,
    accepting: bool,
    wakeup: Arc<OwnedFd>,
    /// File operations by the low half of their user data.
    operations: Slab<FileOperation>,
    reads: ReadBatcher,
    file_threads: FileThreads,
}

impl Uring {
    /// Makes the ring on the calling thread, which alone may use it, and checks the features that
    /// it needs.
    pub(crate) fn new(wakeup: Arc<OwnedFd>) -> Result<Self, UringError> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)
            .map_err(|source| UringError::Setup { source })?;
        for (there, what) in [
            (ring.params().is_feature_ext_arg(), "timeouts of io_uring_enter (EXT_ARG)"),
            (ring.params().is_feature_nodrop(), "completions that are never dropped (NODROP)"),
            (ring.params().is_feature_fast_poll(), "internal polling (FAST_POLL)"),
        ] {
            if !there {
                return Err(UringError::Lacks { what });
            }
        }
        let buffers = BufferPool::new();
        // JUSTIFICATION: without provided buffers every idle connection would pin one of its own.
        // SAFETY: the ring of the pool has BUFFERS entries and is leaked, never freed, on drop.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.address(),
                BUFFERS,
                BUFFER_GROUP,
                0,
            )
        }
        .map_err(|source| UringError::Step { what: "register a buffer ring", source })?;
        let file_threads = FileThreads::new(1, Arc::clone(&wakeup));
        let mut engine = Self {
            ring,
            buffers,
            wanting: VecDeque::new(),
            slots: Vec::new(),
            free: Vec::new(),
            listener: None,
            accepting: false,
            wakeup,
            operations: Slab::new(),
            reads: ReadBatcher::default(),
            file_threads,
        };
        engine.watch_wakeup();
        engine
            .ring
            .submit()
            .map_err(|source| UringError::Step { what: "submit (io_uring_enter)", source })?;
        Ok(engine)
    }

    pub(crate) fn listen(&mut self, listener: OwnedFd) -> io::Result<()> {
        self.listener = Some(listener);
        self.arm_accept();
        Ok(())
    }

    pub(crate) fn accept_again(&mut self) {
        if !self.accepting && self.listener.is_some() {
            self.arm_accept();
        }
    }

    pub(crate) fn stop_listening(&mut self) {
        if self.listener.take().is_some() && self.accepting {
            self.push(opcode::AsyncCancel::new(ACCEPT).build().user_data(CANCEL));
        }
    }

    pub(crate) fn add(&mut self, fd: OwnedFd) -> io::Result<ConnId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).map_err(io::Error::other)?;
                self.slots.push(Slot {
                    fd: None,
                    generation: 0,
                    pending: 0,
                    sending: Vec::new(),
                    sent: 0,
                    send_active: false,
                    receiving: false,
                    wanting: false,
                    paused: false,
                    closing: false,
                });
                slot
            }
        };
        let entry = &mut self.slots[slot as usize];
        entry.fd = Some(fd);
        let generation = entry.generation;
        self.arm_receive(slot);
        Ok(ConnId { slot, generation })
    }

    pub(crate) fn read(&mut self, _: ConnId, source: Source, into: &mut Vec<u8>) -> bool {
        if let Source::Buffer { id, length } = source {
            into.extend_from_slice(self.buffers.bytes(id, length as usize));
            self.buffers.return_buffer(id);
        }
        true
    }

    pub(crate) fn send(&mut self, conn: ConnId, from: &mut Vec<u8>) -> bool {
        let slot = &mut self.slots[conn.slot as usize];
        if slot.send_active || from.is_empty() {
            return true;
        }
        slot.sending.clear();
        slot.sent = 0;
        std::mem::swap(&mut slot.sending, from);
        slot.send_active = true;
        slot.pending += 1;
        self.push_send(conn.slot);
        true
    }

    pub(crate) fn is_sending(&mut self, conn: ConnId) -> bool {
        self.slots[conn.slot as usize].send_active
    }

    pub(crate) fn trim(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        if !slot.send_active {
            slot.sending = Vec::new();
        }
    }

    pub(crate) fn pause(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        slot.paused = true;
        if slot.receiving {
            let target = RECEIVE | u64::from(conn.slot);
            self.push(opcode::AsyncCancel::new(target).build().user_data(CANCEL));
        }
    }

    pub(crate) fn resume(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        slot.paused = false;
        if !slot.receiving {
            self.arm_receive(conn.slot);
        }
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        if slot.closing {
            return;
        }
        slot.closing = true;
        if let Some(fd) = &slot.fd {
            // The shutdown completes the operations under way. It fails if the peer has closed the
            // connection.
            let _ = rustix::net::shutdown(fd, Shutdown::Both);
        }
        self.release(conn.slot);
    }

    pub(crate) fn file(&mut self, work: FileWork) -> Option<FileDone> {
        if !work.is_on_data() {
            return self.file_threads.submit(work);
        }
        let is_read = matches!(work.op.kind, OpKind::Read { .. });
        let number = self.operations.insert(FileOperation { work, done: 0, syncing: false });
        let number = u32::try_from(number).expect("few operations are under way");
        if !(is_read && self.reads.hold(number)) {
            self.submit_operation(number);
        }
        None
    }

    /// Submits the reads that need not wait any longer. Returns whether there were any.
    fn release_reads(&mut self) -> bool {
        let released = self.reads.release();
        released.iter().for_each(|&number| self.submit_operation(number));
        !released.is_empty()
    }

    pub(crate) fn has_file_room(&mut self) -> bool {
        self.files_in_flight() < FILE_OPS_MAX
    }

    fn files_in_flight(&self) -> usize {
        self.operations.len() + self.file_threads.in_flight()
    }

    pub(crate) fn poll(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()> {
        self.release_reads();
        self.arm_wanting();
        let ready = !self.ring.completion().is_empty();
        let entered = match wait {
            Wait::Sleep(timeout) if !ready => {
                let timeout = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &args)
            }
            _ => {
                let queue = self.ring.submission();
                let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
                drop(queue);
                if needed { self.ring.submit() } else { Ok(0) }
            }
        };
        if let Err(error) = entered {
            // The call was interrupted or timed out, or completions have to be taken first.
            let passing = [Errno::INTR, Errno::TIME, Errno::BUSY, Errno::AGAIN];
            let errno = Errno::from_io_error(&error);
            if !errno.is_some_and(|errno| passing.contains(&errno)) {
                return Err(error);
            }
        }
        // The kernel delivers about 20 at a time (`IO_LOCAL_TW_DEFAULT_MAX`).
        while self.collect(events) && self.ring.submission().taskrun() {
            // The next iteration reports an error.
            let _ = self.ring.submit();
        }
        if self.release_reads() {
            // Submit now, because the disk is idle. The next iteration reports an error.
            let _ = self.ring.submit();
        }
        while let Some(done) = self.file_threads.take() {
            events.push(Event::File(done));
        }
        Ok(())
    }

    /// Takes all completions. Returns whether there were any.
    fn collect(&mut self, events: &mut Vec<Event>) -> bool {
        let mut came = false;
        loop {
            let next = self.ring.completion().next();
            let Some(entry) = next else { return came };
            self.complete(&entry, events);
            came = true;
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry, events: &mut Vec<Event>) {
        #[expect(clippy::cast_possible_truncation, reason = "the slot is the low half")]
        let slot = entry.user_data() as u32;
        let more = cqueue::more(entry.flags());
        match entry.user_data() & (0xff << 56) {
            RECEIVE => self.received(slot, entry, more, events),
            SEND => self.sent(slot, entry.result(), events),
            ACCEPT => {
                self.accepting = more;
                if let Ok(fd) = check(entry.result()) {
                    // JUSTIFICATION: io_uring returns a new descriptor as a number.
                    // SAFETY: it was made by this accept, and nobody else owns it.
                    events.push(Event::Accepted(unsafe { OwnedFd::from_raw_fd(fd) }));
                }
                let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                let exhausted = exhausted.iter().any(|e| entry.result() == -e.raw_os_error());
                // Without descriptors it would spin; `accept_again` arms it later.
                if !more && self.listener.is_some() && !exhausted {
                    self.arm_accept();
                }
            }
            WAKE => {
                crate::net::wakeup::drain(&self.wakeup);
                events.push(Event::Woken);
                if !more {
                    self.watch_wakeup();
                }
            }
            FILE => self.file_step(slot, entry.result(), events),
            _ => {}
        }
    }

    #[inline]
    fn received(
        &mut self,
        number: u32,
        entry: &cqueue::Entry,
        more: bool,
        events: &mut Vec<Event>,
    ) {
        let slot = &mut self.slots[number as usize];
        let conn = ConnId { slot: number, generation: slot.generation };
        if !more {
            slot.receiving = false;
            slot.pending -= 1;
        }
        let buffer = cqueue::buffer_select(entry.flags());
        self.buffers.taken += u16::from(buffer.is_some());
        let length = u32::try_from(entry.result()).unwrap_or(0);
        if slot.closing {
            if let Some(id) = buffer {
                self.buffers.return_buffer(id);
            }
            self.release(number);
            return;
        }
        match (buffer, length) {
            (Some(id), 1..) => events.push(Event::Input(conn, Source::Buffer { id, length })),
            (buffer, _) => {
                if let Some(id) = buffer {
                    self.buffers.return_buffer(id);
                }
                let passing = [Errno::NOBUFS, Errno::CANCELED, Errno::INTR, Errno::AGAIN];
                if !passing.iter().any(|errno| entry.result() == -errno.raw_os_error()) {
                    events.push(Event::Hangup(conn));
                    return;
                }
            }
        }
        if !more && !self.slots[number as usize].paused {
            self.arm_receive(number);
        }
    }

    #[inline]
    fn sent(&mut self, number: u32, result: i32, events: &mut Vec<Event>) {
        let slot = &mut self.slots[number as usize];
        let conn = ConnId { slot: number, generation: slot.generation };
        let sent = usize::try_from(result).unwrap_or(0);
        slot.sent += sent;
        if sent > 0 && slot.sent < slot.sending.len() && !slot.closing {
            self.push_send(number);
            return;
        }
        slot.send_active = false;
        slot.pending -= 1;
        if slot.closing {
            self.release(number);
        } else if sent == 0 {
            events.push(Event::Hangup(conn));
        } else {
            events.push(Event::Sent(conn));
        }
    }

    /// Frees a closing slot when the kernel is done with it.
    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.closing && slot.pending == 0 {
            slot.fd = None;
            slot.generation = slot.generation.wrapping_add(1);
            slot.closing = false;
            slot.paused = false;
            slot.wanting = false;
            slot.sending = Vec::new();
            self.free.push(number);
            self.accept_again();
        }
    }

    /// Takes the result of a step of a file operation, and submits the next step or ends the
    /// operation.
    fn file_step(&mut self, number: u32, result: i32, events: &mut Vec<Event>) {
        let Some(operation) = self.operations.get_mut(number as usize) else { return };
        let retry = [Errno::INTR, Errno::AGAIN].iter().any(|e| result == -e.raw_os_error());
        let moved = usize::try_from(result).unwrap_or(0);
        operation.done += moved;
        let done = operation.done;
        let end = match (&operation.work.op.kind, check(result)) {
            _ if retry => None,
            (_, Err(error)) => Some(Err(error)),
            (OpKind::Read { chunk, .. }, Ok(_)) => {
                let whole = done == chunk.len() || moved == 0 || is_end(done);
                whole.then_some(Ok(done))
            }
            (OpKind::Write { .. }, Ok(0)) if !operation.syncing => {
                Some(Err(io::ErrorKind::WriteZero.into()))
            }
            (OpKind::Write { chunk, sync, .. }, Ok(_)) => {
                let whole = done == chunk.len();
                let ended = whole && (operation.syncing || !*sync);
                operation.syncing = whole;
                ended.then_some(Ok(done))
            }
            (_, Ok(_)) => Some(Ok(0)),
        };
        match end {
            None => self.submit_operation(number),
            Some(result) => {
                let FileOperation { work, .. } = self.operations.remove(number as usize);
                if matches!(work.op.kind, OpKind::Read { .. }) {
                    self.reads.ended();
                }
                events.push(Event::File(work.end(result)));
            }
        }
    }

    /// Submits the next step of a file operation: the rest of a read or write, or a sync.
    fn submit_operation(&mut self, number: u32) {
        let Some(operation) = self.operations.get_mut(number as usize) else { return };
        let fd = Fd(operation.work.file.as_ref().map_or(-1, |file| file.as_raw_fd()));
        let done = operation.done;
        let length = |rest: &[u8]| u32::try_from(rest.len()).expect("a chunk is below 4 GiB");
        let entry = match &mut operation.work.op.kind {
            OpKind::Read { offset, chunk } => {
                let rest = &mut chunk.bytes_mut()[done..];
                opcode::Read::new(fd, rest.as_mut_ptr(), length(rest))
                    .offset(*offset + done as u64)
                    .build()
            }
            OpKind::Write { offset, chunk, .. } if !operation.syncing => {
                let rest = &chunk.bytes()[done..];
                opcode::Write::new(fd, rest.as_ptr(), length(rest))
                    .offset(*offset + done as u64)
                    .build()
            }
            _ => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        };
        self.push(entry.user_data(FILE | u64::from(number)));
    }

    fn push_send(&mut self, number: u32) {
        let slot = &self.slots[number as usize];
        let rest = &slot.sending[slot.sent..];
        // Bytes beyond 32 bits of length go with the next send.
        let length = u32::try_from(rest.len()).unwrap_or(1 << 30);
        let entry = opcode::Send::new(Fd(raw(slot.fd.as_ref())), rest.as_ptr(), length)
            .flags(MSG_NOSIGNAL | MSG_WAITALL)
            .build()
            .user_data(SEND | u64::from(number));
        self.push(entry);
    }

    /// Receives on a connection, or queues it for a buffer.
    fn arm_receive(&mut self, number: u32) {
        if self.buffers.taken < BUFFERS_FREELY {
            self.push_receive(number, true);
        } else if !self.slots[number as usize].wanting {
            self.slots[number as usize].wanting = true;
            self.wanting.push_back(number);
        }
    }

    /// Receives on connections that wait for a buffer: on all of them if there are many buffers,
    /// else on one connection for each buffer.
    fn arm_wanting(&mut self) {
        let freely = self.buffers.taken < BUFFERS_FREELY;
        let mut free = BUFFERS.saturating_sub(self.buffers.taken);
        while (freely || free > 0)
            && let Some(number) = self.wanting.pop_front()
        {
            let slot = &mut self.slots[number as usize];
            let is_wanting = std::mem::take(&mut slot.wanting);
            // The connection may have been paused, or closed and its slot reused.
            if is_wanting && !slot.paused && !slot.closing && !slot.receiving {
                free = free.saturating_sub(1);
                self.push_receive(number, freely);
            }
        }
    }

    /// Receives any number of times, or once.
    fn push_receive(&mut self, number: u32, multishot: bool) {
        let slot = &mut self.slots[number as usize];
        slot.receiving = true;
        slot.pending += 1;
        let fd = Fd(raw(slot.fd.as_ref()));
        let entry = if multishot {
            opcode::RecvMulti::new(fd, BUFFER_GROUP).build()
        } else {
            let once = opcode::Recv::new(fd, std::ptr::null_mut(), BUFFER_BYTES);
            once.buf_group(BUFFER_GROUP).build().flags(squeue::Flags::BUFFER_SELECT)
        };
        self.push(entry.user_data(RECEIVE | u64::from(number)));
    }

    fn arm_accept(&mut self) {
        self.accepting = true;
        let entry = opcode::AcceptMulti::new(Fd(raw(self.listener.as_ref()))).build();
        self.push(entry.user_data(ACCEPT));
    }

    fn watch_wakeup(&mut self) {
        let fd = Fd(self.wakeup.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, POLLIN).multi(true).build().user_data(WAKE);
        self.push(entry);
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // JUSTIFICATION: the crate cannot know how long an entry's memory lives.
            // SAFETY: every pointer in an entry is into memory that the engine owns and neither
            // moves, changes nor frees until the completion (see the head of this file).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full, so it is submitted. The next iteration reports an error.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may access this memory until the ring is gone, which happens some time after
        // its descriptor is closed. An engine lives as long as its shard, so this happens once.
        std::mem::forget(std::mem::take(&mut self.slots));
        std::mem::forget(std::mem::take(&mut self.operations));
    }
}

fn raw(fd: Option<&OwnedFd>) -> RawFd {
    // A slot in use has a descriptor; -1 makes the operation fail instead of hitting another file.
    fd.map_or(-1, AsRawFd::as_raw_fd)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The buffers into which the kernel receives: a ring of descriptions, and the bytes. Layout:
/// `struct io_uring_buf_ring`, io_uring_register_buf_ring(3). The pool is never freed.
struct BufferPool {
    entries: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
    /// Buffers that the kernel has filled and the shard has not returned.
    taken: u16,
}

impl BufferPool {
    fn new() -> Self {
        const PAGE: usize = 4096;
        let ring = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let (entries, bytes) = (
            zeroed(ring, PAGE).cast::<BufRingEntry>(),
            zeroed(usize::from(BUFFERS) * BUFFER_BYTES as usize, PAGE),
        );
        let mut pool = Self { entries, bytes, tail: 0, taken: BUFFERS };
        (0..BUFFERS).for_each(|id| pool.return_buffer(id));
        pool
    }

    fn address(&self) -> u64 {
        self.entries as u64
    }

    /// The bytes of a buffer that the kernel has filled.
    #[inline]
    fn bytes(&self, id: u16, length: usize) -> &[u8] {
        assert!(
            id < BUFFERS && length <= BUFFER_BYTES as usize,
            "the kernel returned a foreign buffer"
        );
        // JUSTIFICATION: the buffers are one raw allocation, written by the kernel.
        // SAFETY: in bounds by the check above; initialised (zeroed at first); between the
        // completion and `return_buffer` the kernel does not touch it.
        unsafe {
            std::slice::from_raw_parts(
                self.bytes.add(usize::from(id) * BUFFER_BYTES as usize),
                length,
            )
        }
    }

    /// Returns a buffer to the kernel.
    #[inline]
    fn return_buffer(&mut self, id: u16) {
        self.taken -= 1;
        let index = usize::from(self.tail & (BUFFERS - 1));
        self.tail = self.tail.wrapping_add(1);
        // JUSTIFICATION: the ring is shared with the kernel and has no safe interface.
        // SAFETY: `index` is inside the ring, `id` inside the buffers; the entry at the tail is
        // ours until the tail is stored, with release, after it. The tail overlays the reserved
        // field of entry 0, which `set_*` do not write.
        unsafe {
            let entry = &mut *self.entries.add(index);
            entry.set_addr(self.bytes.add(usize::from(id) * BUFFER_BYTES as usize) as u64);
            entry.set_len(BUFFER_BYTES);
            entry.set_bid(id);
            let tail = BufRingEntry::tail(self.entries).cast_mut().cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// Allocates zeroed memory that lives as long as the process.
fn zeroed(bytes: usize, align: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes, align).expect("sizes are constants");
    // JUSTIFICATION: the kernel wants the ring aligned to a page.
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!memory.is_null(), "no memory for {bytes} bytes of receive buffers");
    memory
}
