//! The requests and answers of a connection that speaks Redis's protocol.

use crate::redis::protocol::{self, Answer, NotRedis};
use crate::side::Side;

/// The most bytes of an incomplete message.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A message of Redis's protocol.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request(&'a [&'a [u8]]),
    Answer(Answer<'a>),
    /// From here on, answers cannot be told which request they belong to.
    Unpaired,
}

/// A connection that speaks Redis's protocol.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    received: [Vec<u8>; 2],
    is_lost: [bool; 2],
    ignores_answers: bool,
}

/// Whether a client's bytes begin with a request of a known form: an array of words, or PING.
pub(crate) fn is_redis(bytes: &[u8]) -> bool {
    let array = matches!(bytes, [b'*', b'1'..=b'9', ..]) && protocol::request(bytes).is_ok();
    let length = bytes.len().min(6);
    array || (length >= 4 && bytes[..length].eq_ignore_ascii_case(&b"PING\r\n"[..length]))
}

/// Whether a server's bytes begin with an answer.
pub(crate) fn is_answer(bytes: &[u8]) -> bool {
    let ends_line = bytes.windows(2).take(64).any(|two| two == b"\r\n");
    matches!(bytes.first(), Some(b'+' | b'-' | b':' | b'$' | b'*' | b'%'))
        && ends_line
        && protocol::answer(bytes).is_ok()
}

impl Connection {
    /// Forgets the message under way. Answers have no numbers, so those after a gap are ignored.
    pub(crate) fn gap(&mut self, side: Side, on_message: &mut dyn FnMut(Message<'_>)) {
        self.received[side as usize].clear();
        self.is_lost[side as usize] = true;
        self.stop_answers(on_message);
    }

    fn stop_answers(&mut self, on_message: &mut dyn FnMut(Message<'_>)) {
        self.ignores_answers = true;
        self.received[Side::Server as usize].clear();
        on_message(Message::Unpaired);
    }

    /// Takes the next bytes of a direction, which begin with those of a segment.
    pub(crate) fn take(
        &mut self,
        side: Side,
        bytes: &[u8],
        on_message: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), NotRedis> {
        if side == Side::Server && self.ignores_answers {
            return Ok(());
        }
        if self.is_lost[side as usize] {
            if !is_redis(bytes) {
                return Ok(());
            }
            self.is_lost[side as usize] = false;
        }
        let mut received = std::mem::take(&mut self.received[side as usize]);
        received.extend_from_slice(bytes);
        let mut used = 0;
        while used < received.len() {
            let rest = &received[used..];
            let length = match side {
                Side::Client => self.request(rest, on_message)?,
                Side::Server => match protocol::answer(rest)? {
                    None => None,
                    Some((answer, length)) => {
                        if answer != Answer::Push {
                            on_message(Message::Answer(answer));
                        }
                        Some(length)
                    }
                },
            };
            let Some(length) = length else { break };
            used += length;
        }
        received.drain(..used);
        if received.len() > WAITING_BYTES_MAX {
            return Err(NotRedis);
        }
        self.received[side as usize] = received;
        Ok(())
    }

    fn request(
        &mut self,
        bytes: &[u8],
        on_message: &mut dyn FnMut(Message<'_>),
    ) -> Result<Option<usize>, NotRedis> {
        let Some((words, length)) = protocol::request(bytes)? else { return Ok(None) };
        if !words.is_empty() {
            on_message(Message::Request(&words));
        }
        // These answer more or less than once.
        const UNPAIRED: [&str; 7] =
            ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC", "REPLCONF"];
        let is =
            |name: &&str| words.first().is_some_and(|w| w.eq_ignore_ascii_case(name.as_bytes()));
        if !self.ignores_answers && UNPAIRED.iter().any(is) {
            self.stop_answers(on_message);
        }
        Ok(Some(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_after_a_gap_are_ignored() {
        let mut connection = Connection::default();
        let mut found = Vec::new();
        let mut note = |message: Message<'_>| found.push(format!("{message:?}"));
        connection.take(Side::Client, b"*1\r\n$4\r\nPI", &mut note).unwrap();
        connection.take(Side::Client, b"NG\r\n", &mut note).unwrap();
        connection.take(Side::Server, b"+PONG\r\n", &mut note).unwrap();
        connection.gap(Side::Client, &mut note);
        connection.take(Side::Client, b"rest\r\n", &mut note).unwrap();
        connection.take(Side::Client, b"*1\r\n$4\r\nPING\r\n", &mut note).unwrap();
        connection.take(Side::Server, b"+PONG\r\n", &mut note).unwrap();
        let kinds: Vec<_> = found.iter().map(|text| &text[..4]).collect();
        assert_eq!(kinds, ["Requ", "Answ", "Unpa", "Requ"]);
    }
}
