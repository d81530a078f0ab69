//! The engine of the simulator: it does for a shard what epoll or io_uring do, over sockets and
//! disks that the simulator ([`Machine`]) has in memory.
//!
//! Method: like epoll it leaves received bytes in their socket and sends at once; like io_uring it
//! hands them out in a few buffers, which the shard has to return, sends later, and frees a slot
//! some time after it was closed. The machine draws everything that a kernel leaves open: the order
//! of sockets, the sizes of pieces, and the moment of each.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tare_store::{Completion, Op};

use super::{ConnId, Event, FILE_OPS_MAX, Source, Wait};
use crate::node::directory::{FileDone, FileWork};

/// The longest piece that one read returns.
const READ_BYTES: u64 = 16 << 10;
/// Buffers of one shard, and their size. There are few, so that connections wait for them.
const BUFFERS: usize = 6;
const BUFFER_BYTES: u64 = 4 << 10;
/// Pieces that one connection receives in one iteration.
const PIECES_MAX: u64 = 3;
/// Iterations for which a closed slot is not free.
const CLOSING_MAX: u64 = 4;

/// The number of a connection in the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub u64);

/// What a socket has for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    Nothing,
    Bytes,
    /// The peer sends nothing more.
    End,
    /// The connection is lost, with all bytes that were not read.
    Broken,
}

/// The connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The engine that is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Received bytes stay in the socket until the shard reads them (epoll).
    Sockets,
    /// Received bytes come in buffers (io_uring).
    Buffers,
}

/// The machine of one simulated shard: its part of the network, and its disk.
pub trait Machine {
    /// A connection that a client has opened and nobody has accepted.
    fn accept(&mut self) -> Option<OwnedFd>;
    /// Takes over the shard's end of a connection.
    fn adopt(&mut self, fd: OwnedFd) -> Socket;
    fn arrived(&mut self, socket: Socket) -> Arrived;
    /// Moves at most so many received bytes to `into`.
    fn receive(&mut self, socket: Socket, bytes_max: usize, into: &mut Vec<u8>);
    /// Takes bytes to send, as many as there is room for, and returns their number.
    ///
    /// # Errors
    /// Fails if the connection is lost.
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, Broken>;
    /// Notes that bytes to send wait for the next poll.
    fn wants_room(&mut self, socket: Socket);
    fn close(&mut self, socket: Socket);
    /// Starts an operation on a file.
    fn submit(&mut self, op: Op);
    /// An operation on a file that has ended.
    fn completed(&mut self) -> Option<Completion>;
    /// Number of operations on files that are under way.
    fn operations(&self) -> usize;
    /// Lets time pass until something happens, for at most this long.
    fn sleep(&mut self, at_most: Duration);
    /// A random number below `bound`.
    fn draw(&mut self, bound: u64) -> u64;
}

#[derive(Debug, Default)]
struct Slot {
    socket: Option<Socket>,
    generation: u32,
    sending: Vec<u8>,
    sent: usize,
    is_sending: bool,
    paused: bool,
    /// A piece comes although the connection was paused, because its receive was under way.
    late_piece: bool,
    /// The end of the connection was reported.
    has_hung_up: bool,
    /// Iterations until a closed slot is free; `None` for one that is not closed.
    closing: Option<u64>,
}

/// An engine over a simulated machine.
pub(crate) struct Simulated {
    machine: Box<dyn Machine>,
    delivery: Delivery,
    wakeup: Arc<OwnedFd>,
    listens: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Received pieces that the shard has not read.
    buffers: Vec<Option<Vec<u8>>>,
}

impl Simulated {
    pub(crate) fn new(
        machine: Box<dyn Machine>,
        delivery: Delivery,
        wakeup: Arc<OwnedFd>,
        listens: bool,
    ) -> Self {
        let buffers = std::iter::repeat_with(|| None).take(BUFFERS).collect();
        Self { machine, delivery, wakeup, listens, slots: Vec::new(), free: Vec::new(), buffers }
    }

    pub(crate) fn listen(&mut self, _: OwnedFd) -> io::Result<()> {
        self.listens = true;
        Ok(())
    }

    pub(crate) fn accept_again(&mut self) {}

    pub(crate) fn stop_listening(&mut self) {
        self.listens = false;
    }

    pub(crate) fn add(&mut self, fd: OwnedFd) -> io::Result<ConnId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).map_err(io::Error::other)?
            }
        };
        let slot = &mut self.slots[number as usize];
        *slot = Slot { generation: slot.generation, ..Slot::default() };
        slot.socket = Some(self.machine.adopt(fd));
        Ok(ConnId { slot: number, generation: slot.generation })
    }

    pub(crate) fn read(&mut self, conn: ConnId, source: Source, into: &mut Vec<u8>) -> bool {
        if let Source::Buffer { id, length } = source {
            let bytes = self.buffers[usize::from(id)].take();
            let bytes = bytes.expect("a buffer is read once");
            assert_eq!(bytes.len(), length as usize, "the buffer holds another piece");
            into.extend_from_slice(&bytes);
            return true;
        }
        let slot = &self.slots[conn.slot as usize];
        let Some(socket) = slot.socket.filter(|_| slot.generation == conn.generation) else {
            return false;
        };
        match self.machine.arrived(socket) {
            Arrived::Nothing => true,
            Arrived::Bytes => {
                let length = 1 + self.machine.draw(READ_BYTES);
                self.machine.receive(socket, usize::try_from(length).unwrap_or(1), into);
                true
            }
            Arrived::End | Arrived::Broken => false,
        }
    }

    pub(crate) fn send(&mut self, conn: ConnId, from: &mut Vec<u8>) -> bool {
        let slot = &mut self.slots[conn.slot as usize];
        assert!(slot.generation == conn.generation, "a send on a connection that was closed");
        if slot.is_sending || from.is_empty() {
            return true;
        }
        slot.sending.clear();
        slot.sent = 0;
        std::mem::swap(&mut slot.sending, from);
        slot.is_sending = true;
        match self.delivery {
            Delivery::Sockets => slot.push(&mut *self.machine).is_ok(),
            Delivery::Buffers => {
                if let Some(socket) = slot.socket {
                    self.machine.wants_room(socket);
                }
                true
            }
        }
    }

    pub(crate) fn is_sending(&mut self, conn: ConnId) -> bool {
        self.slots[conn.slot as usize].is_sending
    }

    pub(crate) fn trim(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        if !slot.is_sending {
            slot.sending = Vec::new();
        }
    }

    pub(crate) fn pause(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        slot.paused = true;
        slot.late_piece = self.delivery == Delivery::Buffers && self.machine.draw(2) == 0;
    }

    pub(crate) fn resume(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        (slot.paused, slot.late_piece) = (false, false);
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        assert!(slot.generation == conn.generation, "a connection was closed twice");
        let Some(socket) = slot.socket.take() else { return };
        self.machine.close(socket);
        slot.sending = Vec::new();
        slot.closing = Some(match self.delivery {
            Delivery::Sockets => 0,
            Delivery::Buffers => self.machine.draw(CLOSING_MAX),
        });
        if slot.closing == Some(0) {
            self.release(conn.slot);
        }
    }

    /// Frees a closed slot.
    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.closing = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
    }

    pub(crate) fn has_file_room(&mut self) -> bool {
        self.machine.operations() < FILE_OPS_MAX
    }

    pub(crate) fn file(&mut self, work: FileWork) -> Option<FileDone> {
        self.machine.submit(work.op);
        None
    }

    pub(crate) fn poll(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()> {
        self.collect(events);
        if let (Wait::Sleep(at_most), true) = (wait, events.is_empty()) {
            self.machine.sleep(at_most);
            self.collect(events);
        }
        Ok(())
    }

    fn collect(&mut self, events: &mut Vec<Event>) {
        if crate::net::wakeup::drain(&self.wakeup) {
            events.push(Event::Woken);
        }
        let files_first = self.machine.draw(2) == 0;
        if files_first {
            self.collect_files(events);
        }
        while self.listens
            && let Some(fd) = self.machine.accept()
        {
            events.push(Event::Accepted(fd));
        }
        let mut order: Vec<u32> = (0..).take(self.slots.len()).collect();
        for last in (1..order.len()).rev() {
            let other = self.machine.draw(last as u64 + 1);
            order.swap(last, usize::try_from(other).unwrap_or(last));
        }
        order.into_iter().for_each(|number| self.visit(number, events));
        if !files_first {
            self.collect_files(events);
        }
    }

    fn collect_files(&mut self, events: &mut Vec<Event>) {
        while let Some(completion) = self.machine.completed() {
            events.push(Event::File(FileDone::simulated(completion)));
        }
    }

    /// Reports what has happened to one connection.
    fn visit(&mut self, number: u32, events: &mut Vec<Event>) {
        let slot = &mut self.slots[number as usize];
        let conn = ConnId { slot: number, generation: slot.generation };
        let Some(socket) = slot.socket else {
            match slot.closing {
                Some(0 | 1) => self.release(number),
                Some(left) => slot.closing = Some(left - 1),
                None => {}
            }
            return;
        };
        if slot.has_hung_up || self.machine.draw(8) == 0 {
            return;
        }
        if slot.is_sending {
            match slot.push(&mut *self.machine) {
                Err(Broken) => {
                    slot.has_hung_up = true;
                    events.push(Event::Hangup(conn));
                    return;
                }
                Ok(()) if !slot.is_sending => events.push(Event::Sent(conn)),
                Ok(()) => {}
            }
        }
        match (self.machine.arrived(socket), self.delivery) {
            (Arrived::Nothing, _) => {}
            // Epoll reports a lost connection even if nobody waits for it.
            (Arrived::Broken, delivery) => {
                if delivery == Delivery::Sockets || !slot.paused {
                    slot.has_hung_up = true;
                    events.push(Event::Hangup(conn));
                }
            }
            (Arrived::Bytes | Arrived::End, Delivery::Sockets) => {
                if !slot.paused {
                    events.push(Event::Input(conn, Source::Socket));
                }
            }
            (Arrived::Bytes, Delivery::Buffers) => self.fill(conn, socket, events),
            (Arrived::End, Delivery::Buffers) => {
                if !slot.paused {
                    slot.has_hung_up = true;
                    events.push(Event::Hangup(conn));
                }
            }
        }
    }

    /// Receives some pieces of a connection into buffers.
    fn fill(&mut self, conn: ConnId, socket: Socket, events: &mut Vec<Event>) {
        let slot = &mut self.slots[conn.slot as usize];
        let late = std::mem::take(&mut slot.late_piece);
        let pieces = match (slot.paused, late) {
            (true, false) => 0,
            (true, true) => 1,
            (false, _) => 1 + self.machine.draw(PIECES_MAX),
        };
        for _ in 0..pieces {
            let Some(id) = self.buffers.iter().position(Option::is_none) else { return };
            if self.machine.arrived(socket) != Arrived::Bytes {
                return;
            }
            let mut bytes = Vec::new();
            let length = 1 + self.machine.draw(BUFFER_BYTES);
            self.machine.receive(socket, usize::try_from(length).unwrap_or(1), &mut bytes);
            let length = u32::try_from(bytes.len()).unwrap_or(0);
            self.buffers[id] = Some(bytes);
            let id = u16::try_from(id).unwrap_or(0);
            events.push(Event::Input(conn, Source::Buffer { id, length }));
        }
    }
}

impl Slot {
    /// Sends the remaining bytes, as many as the socket takes.
    fn push(&mut self, machine: &mut dyn Machine) -> Result<(), Broken> {
        let Some(socket) = self.socket else { return Err(Broken) };
        while self.sent < self.sending.len() {
            match machine.send(socket, &self.sending[self.sent..])? {
                0 => return Ok(()),
                length => self.sent += length,
            }
        }
        self.is_sending = false;
        Ok(())
    }
}
