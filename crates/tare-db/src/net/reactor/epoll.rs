//! The engine for environments that deny io_uring: epoll, level triggered, with one `recv` per
//! event and one `send` per batch of answers. A few threads read, write and sync files, because
//! these calls block.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::file_threads::FileThreads;
use super::{ConnId, Event, FILE_OPS_MAX, Source, Wait};
use crate::node::directory::{FileDone, FileWork};

/// Room for one `recv`.
const READ_BYTES: usize = 16 << 10;
const EVENTS_MAX: usize = 256;
/// Connections accepted per event, so that a burst of them does not starve the others.
const ACCEPT_MAX: usize = 16;
/// Threads for files, and so the operations that the disk has at a time.
const FILE_THREADS: usize = 4;

const LISTENER: u64 = u64::MAX;
const WAKEUP: u64 = u64::MAX - 1;

struct Slot {
    fd: Option<OwnedFd>,
    generation: u32,
    sending: Vec<u8>,
    sent: usize,
    paused: bool,
    /// The connection waits until the socket takes more.
    blocked: bool,
}

pub(crate) struct Epoll {
    epoll: OwnedFd,
    wakeup: Arc<OwnedFd>,
    file_threads: FileThreads,
    listener: Option<OwnedFd>,
    /// The process has no descriptors left. It accepts again when a connection has ended, or on
    /// request.
    accept_later: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: Vec<epoll::Event>,
}

impl Epoll {
    pub(crate) fn new(wakeup: Arc<OwnedFd>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            file_threads: FileThreads::new(FILE_THREADS, Arc::clone(&wakeup)),
            wakeup,
            listener: None,
            accept_later: false,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::with_capacity(EVENTS_MAX),
        })
    }

    pub(crate) fn listen(&mut self, listener: OwnedFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER);
        rustix::io::ioctl_fionbio(&listener, true)?;
        epoll::add(&self.epoll, &listener, data, epoll::EventFlags::IN)?;
        self.listener = Some(listener);
        Ok(())
    }

    pub(crate) fn stop_listening(&mut self) {
        self.listener = None;
    }

    pub(crate) fn add(&mut self, fd: OwnedFd) -> io::Result<ConnId> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    fd: None,
                    generation: 0,
                    sending: Vec::new(),
                    sent: 0,
                    paused: false,
                    blocked: false,
                });
                u32::try_from(self.slots.len() - 1).map_err(io::Error::other)?
            }
        };
        let entry = &mut self.slots[slot as usize];
        let data = epoll::EventData::new_u64(u64::from(slot));
        if let Err(error) = epoll::add(&self.epoll, &fd, data, epoll::EventFlags::IN) {
            self.free.push(slot);
            return Err(error.into());
        }
        entry.fd = Some(fd);
        Ok(ConnId { slot, generation: entry.generation })
    }

    pub(crate) fn read(&mut self, conn: ConnId, _: Source, into: &mut Vec<u8>) -> bool {
        let slot = &self.slots[conn.slot as usize];
        // Another connection may use the slot by now; its bytes are not for this one.
        let Some(fd) = slot.fd.as_ref().filter(|_| slot.generation == conn.generation) else {
            return false;
        };
        into.reserve(READ_BYTES);
        match rustix::net::recv(fd, spare_capacity(into), RecvFlags::empty()) {
            Ok((_, length)) => length > 0,
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn send(&mut self, conn: ConnId, from: &mut Vec<u8>) -> bool {
        let slot = &mut self.slots[conn.slot as usize];
        if slot.blocked || from.is_empty() {
            return true;
        }
        slot.sending.clear();
        slot.sent = 0;
        std::mem::swap(&mut slot.sending, from);
        let gone = slot.push().is_err();
        if slot.blocked {
            self.interest(conn.slot);
        }
        !gone
    }

    pub(crate) fn is_sending(&mut self, conn: ConnId) -> bool {
        self.slots[conn.slot as usize].blocked
    }

    pub(crate) fn trim(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        if !slot.blocked {
            slot.sending = Vec::new();
            slot.sent = 0;
        }
    }

    pub(crate) fn pause(&mut self, conn: ConnId) {
        self.slots[conn.slot as usize].paused = true;
        self.interest(conn.slot);
    }

    pub(crate) fn resume(&mut self, conn: ConnId) {
        self.slots[conn.slot as usize].paused = false;
        self.interest(conn.slot);
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.slot as usize];
        if let Some(fd) = slot.fd.take() {
            // The descriptor is dropped even if this fails.
            let _ = rustix::net::shutdown(&fd, Shutdown::Both);
            slot.generation = slot.generation.wrapping_add(1);
            slot.paused = false;
            slot.blocked = false;
            slot.sending = Vec::new();
            self.free.push(conn.slot);
            self.accept_again();
        }
    }

    pub(crate) fn file(&mut self, work: FileWork) -> Option<FileDone> {
        self.file_threads.submit(work)
    }

    pub(crate) fn has_file_room(&mut self) -> bool {
        self.file_threads.in_flight() < FILE_OPS_MAX
    }

    pub(crate) fn poll(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = match wait {
            Wait::Poll => Duration::ZERO,
            Wait::Sleep(timeout) => timeout,
        };
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            match event.data.u64() {
                LISTENER => self.accept(events),
                WAKEUP => {
                    crate::net::wakeup::drain(&self.wakeup);
                    events.push(Event::Woken);
                }
                slot => self.socket_ready(slot, event.flags, events),
            }
        }
        self.ready = ready;
        while let Some(done) = self.file_threads.take() {
            events.push(Event::File(done));
        }
        Ok(())
    }

    fn socket_ready(&mut self, slot: u64, flags: epoll::EventFlags, events: &mut Vec<Event>) {
        let Some((number, slot)) = u32::try_from(slot)
            .ok()
            .and_then(|number| Some((number, self.slots.get_mut(number as usize)?)))
        else {
            return;
        };
        if slot.fd.is_none() {
            return;
        }
        let conn = ConnId { slot: number, generation: slot.generation };
        if flags.intersects(epoll::EventFlags::OUT) && slot.blocked {
            let gone = slot.push().is_err();
            let done = !slot.blocked;
            if done {
                self.interest(number);
            }
            if gone {
                events.push(Event::Hangup(conn));
                return;
            } else if done {
                events.push(Event::Sent(conn));
            }
        }
        if flags.intersects(epoll::EventFlags::IN) {
            events.push(Event::Input(conn, Source::Socket));
        } else if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            events.push(Event::Hangup(conn));
        }
    }

    fn accept(&mut self, events: &mut Vec<Event>) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPT_MAX {
            match rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
                Ok(fd) => events.push(Event::Accepted(fd)),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener would be ready again at once, and the loop would spin.
                    self.accept_later = epoll::delete(&self.epoll, listener).is_ok();
                    return;
                }
                // No connection is left, or a peer gave up: the next event tries again.
                Err(_) => return,
            }
        }
    }

    pub(crate) fn accept_again(&mut self) {
        if let (true, Some(listener)) = (self.accept_later, &self.listener) {
            let data = epoll::EventData::new_u64(LISTENER);
            let added = epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN);
            self.accept_later = added.is_err();
        }
    }

    fn interest(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, !entry.paused);
        flags.set(epoll::EventFlags::OUT, entry.blocked);
        if let Some(fd) = &entry.fd {
            let data = epoll::EventData::new_u64(u64::from(slot));
            // This fails only for a descriptor that is not registered, and this one is.
            let _ = epoll::modify(&self.epoll, fd, data, flags);
        }
    }
}

impl Slot {
    /// Sends the remaining bytes, and sets `blocked` if the socket takes no more.
    fn push(&mut self) -> Result<(), Errno> {
        let Some(fd) = &self.fd else { return Err(Errno::BADF) };
        self.blocked = false;
        while self.sent < self.sending.len() {
            match rustix::net::send(fd, &self.sending[self.sent..], SendFlags::NOSIGNAL) {
                Ok(length) => self.sent += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
