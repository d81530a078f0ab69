//! The exchange of [`crate::kernel`] with io_uring, set up as `tare db` sets it up: per message one
//! send and, linked to it, the next receive; all of an iteration are submitted together with the
//! wait for the next ones.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::Flags;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use crate::Result;
use crate::side::Side;

const QUEUE: u32 = 256;
const MSG_NOSIGNAL: i32 = 0x4000;

/// Exchanges messages. Returns how many were received.
pub(crate) fn run(side: &mut Side) -> Result<u64> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(QUEUE)?;
    let message = vec![0_u8; side.send];
    let mut into = vec![vec![0_u8; side.expect + 1]; side.streams.len()];
    let fds: Vec<Fd> = side.streams.iter().map(|stream| Fd(stream.as_raw_fd())).collect();
    let length = |bytes: usize| u32::try_from(bytes).expect("a message is small");
    let mut receive = |number: usize| {
        let into = &mut into[number];
        opcode::Recv::new(fds[number], into.as_mut_ptr(), length(into.len()))
            .build()
            .user_data(number as u64)
    };
    let send = |number: usize| {
        opcode::Send::new(fds[number], message.as_ptr(), length(message.len()))
            .flags(MSG_NOSIGNAL)
            .build()
            .flags(Flags::IO_LINK | Flags::SKIP_SUCCESS)
            .user_data(u64::MAX)
    };
    for number in 0..fds.len() {
        if side.is_client() {
            push(&mut ring, &send(number))?;
        }
        push(&mut ring, &receive(number))?;
    }
    let (mut done, mut open) = (0, fds.len());
    let mut ended = Vec::new();
    while open > 0 {
        ring.submit_and_wait(1)?;
        let over = side.is_over();
        ended.extend(ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (number, result) in ended.drain(..) {
            let received = usize::try_from(result).unwrap_or(0);
            if received == side.expect {
                done += 1;
            } else if received > 0 || number == u64::MAX {
                return Err("a message came in parts, or could not be sent".into());
            }
            if received == 0 || over {
                open -= 1;
                continue;
            }
            let number = usize::try_from(number)?;
            push(&mut ring, &send(number))?;
            push(&mut ring, &receive(number))?;
        }
    }
    Ok(done)
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // JUSTIFICATION: the crate cannot know how long an entry's memory lives.
    // SAFETY: `message` and `into` in `run` neither move nor end before the ring, and each buffer
    // has one receive at a time.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)
}
