//! When the kernel passed requests to the network device, and when it received their answers
//! (`SO_TIMESTAMPING`, Documentation/networking/timestamping.rst of the kernel, 6.18).
//!
//! Between the kernel's receipt of an answer and the return of the receive, the client wakes up:
//! 5 to 50 µs that belong to the client, not to the server. The kernel's times leave it out.
//!
//! Method: a received answer has the time of the packet with its last byte. The time of a sent
//! packet comes back through the error queue of the socket, with the number of its last byte
//! (`OPT_ID`), counted from when the option was set. Only a request that ended a send has one; the
//! requests of one send left together, and all get it. Both are on the wall clock, whose distance
//! from the monotonic clock is measured at each receive.
//!
//! Limits: a packet that held two sends has the time of the second only. A request whose send the
//! kernel did not take whole has no time. Both count as missing.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::clock::WallClock;

/// `SO_EE_ORIGIN_TIMESTAMPING` of linux/errqueue.h.
const ORIGIN_TIMESTAMPING: u8 = 4;
/// `SCM_TSTAMP_SND` of linux/errqueue.h: passed to the device.
const SENT_TO_DEVICE: u32 = 0;
/// Room for the control messages of one packet: a `scm_timestamping` and a `sock_extended_err` with
/// an address.
const CONTROL_BYTES: usize = 256;

/// The kernel's times of one connection, in ns on the clock of `clock::now_ns`.
#[derive(Debug)]
pub(crate) struct KernelTimes {
    /// Bytes that the kernel had taken when the option was set.
    first_byte: u32,
    /// The streams of requests whose times have not been read, each with the number of the byte
    /// behind its send.
    waiting: VecDeque<(u32, i16)>,
    clock: WallClock,
    /// When the last received packet came. The first packets after the option was set may have no
    /// time.
    received_ns: Option<u64>,
    control: Vec<u8>,
}

impl KernelTimes {
    /// Asks the kernel for the times of all that is sent from now on. It has taken `sent_bytes` of
    /// the connection so far, and all are acknowledged.
    pub(crate) fn of(socket: &TcpStream, sent_bytes: u32) -> io::Result<Self> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(socket, sockopt::Timestamping, &flags)?;
        let mut clock = WallClock::default();
        clock.compare();
        Ok(Self {
            first_byte: sent_bytes,
            waiting: VecDeque::new(),
            clock,
            received_ns: None,
            control: Vec::with_capacity(CONTROL_BYTES),
        })
    }

    /// Notes that the kernel has taken the requests of these streams whole, in one send that ended
    /// before byte `sent_bytes` of the connection.
    #[inline]
    pub(crate) fn sent(&mut self, streams: &[i16], sent_bytes: u32) {
        let end = sent_bytes.wrapping_sub(self.first_byte);
        self.waiting.extend(streams.iter().map(|&stream| (end, stream)));
    }

    /// Receives into `buffer`, and keeps the time of what came.
    #[inline]
    pub(crate) fn receive(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut into = [IoSliceMut::new(buffer)];
        self.control.clear();
        self.control.resize(CONTROL_BYTES, 0);
        let control = Some(&mut self.control[..]);
        let message =
            recvmsg::<()>(socket.as_raw_fd(), &mut into, control, MsgFlags::MSG_DONTWAIT)?;
        self.clock.compare();
        self.received_ns = None;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampsns(times) = control {
                self.received_ns = self.clock.monotonic_ns(nanoseconds(times.system));
            }
        }
        Ok(message.bytes)
    }

    /// When the kernel received the last packet, if that is known.
    #[inline]
    pub(crate) fn received_ns(&self) -> Option<u64> {
        self.received_ns
    }

    /// Passes each stream whose request has left to `take`, with the time at which it did.
    #[inline]
    pub(crate) fn take_sent(&mut self, socket: &TcpStream, mut take: impl FnMut(i16, u64)) {
        while !self.waiting.is_empty() {
            let Some((last_byte, ns)) = self.next_sent(socket) else { return };
            let end = last_byte.wrapping_add(1);
            // Numbers wrap; nothing that waits is half of them away.
            while let Some(&(of, stream)) = self.waiting.front()
                && of.wrapping_sub(end).cast_signed() <= 0
            {
                self.waiting.pop_front();
                if of == end
                    && let Some(ns) = ns
                {
                    take(stream, ns);
                }
            }
        }
    }

    /// Takes the next time from the error queue, with the number of the packet's last byte.
    fn next_sent(&mut self, socket: &TcpStream) -> Option<(u32, Option<u64>)> {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        loop {
            self.control.clear();
            self.control.resize(CONTROL_BYTES, 0);
            let control = Some(&mut self.control[..]);
            let message = match recvmsg::<()>(socket.as_raw_fd(), &mut [], control, flags) {
                Ok(message) => message,
                Err(Errno::EINTR) => continue,
                // Nothing is left, or the connection has ended, which the next receive will tell.
                Err(_) => return None,
            };
            let (mut last_byte, mut time) = (None, None);
            for control in message.cmsgs().ok()? {
                match control {
                    ControlMessageOwned::ScmTimestampsns(times) => time = Some(times.system),
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _)
                        if error.ee_origin == ORIGIN_TIMESTAMPING
                            && error.ee_info == SENT_TO_DEVICE =>
                    {
                        last_byte = Some(error.ee_data);
                    }
                    _ => {}
                }
            }
            if let (Some(last_byte), Some(time)) = (last_byte, time) {
                return Some((last_byte, self.clock.monotonic_ns(nanoseconds(time))));
            }
        }
    }
}

/// A time on the wall clock in ns since 1970.
fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::clock;

    #[test]
    fn times_of_sends_and_receipts_lie_between_those_of_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        let mut echo = |bytes: usize| {
            let mut buffer = vec![0; bytes];
            server.read_exact(&mut buffer).unwrap();
            server.write_all(&buffer).unwrap();
        };
        // What was sent before the option was set does not count.
        client.write_all(&[1; 10]).unwrap();
        echo(10);
        client.read_exact(&mut [0; 10]).unwrap();
        let mut times = KernelTimes::of(&client, 10).unwrap();
        let (mut sent_bytes, mut timed) = (10, 0);
        for round in 0..1000 {
            let begun_ns = clock::now_ns();
            client.write_all(&[2; 300]).unwrap();
            sent_bytes += 300;
            times.sent(&[round, round + 1000], sent_bytes);
            echo(300);
            let mut buffer = [0; 1000];
            assert_eq!(times.receive(&client, &mut buffer).unwrap(), 300);
            let ended_ns = clock::now_ns();
            let mut taken = Vec::new();
            times.take_sent(&client, |stream, ns| taken.push((stream, ns)));
            let [(first, sent_ns), (second, _)] = taken[..] else { panic!("{taken:?}") };
            assert_eq!((first, second), (round, round + 1000));
            // The kernel begins to stamp received packets a little later (net_enable_timestamp).
            let Some(received_ns) = times.received_ns() else { continue };
            timed += 1;
            // The clocks are compared to within a few hundred ns.
            assert!(begun_ns <= sent_ns + 1000 && received_ns <= ended_ns + 1000);
            assert!(sent_ns < received_ns, "{sent_ns} {received_ns}");
        }
        assert!(times.waiting.is_empty() && timed > 0);
    }

    #[test]
    fn send_without_a_time_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut times = KernelTimes::of(&client, 0).unwrap();
        // Nobody has sent these: another packet ends at other bytes.
        times.sent(&[7], 3);
        client.write_all(&[0; 5]).unwrap();
        times.sent(&[8], 5);
        let mut taken = Vec::new();
        while !times.waiting.is_empty() {
            times.take_sent(&client, |stream, _| taken.push(stream));
        }
        assert_eq!(taken, [8]);
    }
}
