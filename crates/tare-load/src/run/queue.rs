//! The event queue of a load thread: edge-triggered epoll with the connections and one timer.

use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock;
use crate::error::LoadError;
use crate::pacing::WakeEarly;
use crate::protocol::connection::Connection;

/// The token of the timer. Tokens of connections are their indices.
const TIMER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Queue {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer expires; 0 if it has.
    armed_ns: u64,
    wake: WakeEarly,
}

impl Queue {
    pub(crate) fn new(connections: &[Connection]) -> Result<Self, LoadError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(fail)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(fail)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), edge).map_err(fail)?;
        let queue = Self { epoll, timer, armed_ns: 0, wake: WakeEarly::default() };
        for (index, connection) in connections.iter().enumerate() {
            queue.watch(index, connection)?;
        }
        Ok(queue)
    }

    /// Adds a connection to the queue under its index.
    pub(crate) fn watch(&self, index: usize, connection: &Connection) -> Result<(), LoadError> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &connection.socket, data, flags).map_err(fail)
    }

    /// Returns when to stop waiting in order to run at `due_ns`.
    pub(crate) fn early(&self, due_ns: u64) -> u64 {
        self.wake.timer_ns(due_ns)
    }

    /// Waits for events at most until `until_ns`; only polls if that has passed.
    pub(crate) fn wait(
        &mut self,
        events: &mut Vec<Event>,
        now_ns: u64,
        until_ns: u64,
    ) -> Result<(), LoadError> {
        events.clear();
        let timeout = if until_ns <= now_ns {
            Some(Timespec { tv_sec: 0, tv_nsec: 0 })
        } else {
            // A timer that expires too early costs one turn; setting it again costs a system call.
            if self.armed_ns <= now_ns || until_ns < self.armed_ns {
                self.set_timer(until_ns).map_err(fail)?;
            }
            None
        };
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(fail(errno)),
        }
        if timeout.is_none() && events.iter().any(|event| event.data.u64() == TIMER) {
            self.wake.woke(self.armed_ns, clock::now_ns());
            self.armed_ns = 0;
        }
        Ok(())
    }

    /// Removes a connection from the queue.
    pub(crate) fn forget(&self, connection: &Connection) {
        // The connection was added, so this cannot fail; events of a dead connection would be
        // ignored.
        let _ = epoll::delete(&self.epoll, &connection.socket);
    }

    /// Sets the timer to an absolute time. Such timers have no slack, unlike time-outs.
    fn set_timer(&mut self, at_ns: u64) -> Result<(), Errno> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: (at_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (at_ns % 1_000_000_000).cast_signed(),
        };
        let spec = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed_ns = at_ns;
        Ok(())
    }
}

fn fail(errno: Errno) -> LoadError {
    LoadError::EventQueue { source: errno.into() }
}
