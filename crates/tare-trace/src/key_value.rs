//! The operations of a capture of Redis's protocol: reads and writes of values by key.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::redis::Answer;
use crate::redis::connection::Message;
use crate::sizes::{ColumnSizes, Sizes};
use crate::tally::{LeftOut, Query, Timing, push_part};
use crate::walk::{self, Event};

/// The most requests of a connection whose answers are awaited.
const PENDING_MAX: usize = 1 << 16;

/// The operations of a capture.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub(crate) reads: Query,
    pub(crate) writes: Query,
    pub(crate) key_sizes: Sizes,
    pub(crate) values: ColumnSizes,
    pub(crate) timing: Timing,
    pub(crate) left_out: LeftOut,
    /// Requests for several keys, and their keys.
    pub(crate) several: u64,
    pub(crate) in_several: u64,
    pub(crate) errors: u64,
    pending: HashMap<usize, VecDeque<Pending>>,
    unpaired: HashSet<usize>,
}

#[derive(Debug)]
struct Pending {
    began_ns: u64,
    is_operation: bool,
    /// The places of the keys of a read.
    reads: Vec<Option<usize>>,
}

/// The keys and values of a request.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Reads(Vec<&'a [u8]>),
    Writes(Vec<(&'a [u8], &'a [u8])>),
    /// Of the connection or the server.
    Management,
    Other(String),
}

impl Operations {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let (connection, at_ns) = (event.connection, event.at_ns);
        match &event.message {
            walk::Message::Redis(Message::Request(words)) => self.request(connection, at_ns, words),
            walk::Message::Redis(Message::Answer(answer)) => self.answer(connection, at_ns, answer),
            walk::Message::Redis(Message::Unpaired) => {
                self.forget(connection);
                self.unpaired.insert(connection);
            }
            walk::Message::Ended => self.forget(connection),
            walk::Message::Cql(_) => self.left_out.add("of CQL", 1),
        }
    }

    fn forget(&mut self, connection: usize) {
        let pending = self.pending.remove(&connection).unwrap_or_default();
        let operations = pending.iter().filter(|one| one.is_operation).count();
        self.timing.give_up(operations as u64);
    }

    fn request(&mut self, connection: usize, at_ns: u64, words: &[&[u8]]) {
        let mut reads = Vec::new();
        let operations = match command(words) {
            Command::Reads(keys) => {
                for key in &keys {
                    self.key_sizes.size(key.len() as u64);
                    reads.push(self.reads.keys.add(&sortable(key)));
                }
                self.reads.operations += keys.len() as u64;
                keys.len()
            }
            Command::Writes(pairs) => {
                for (key, value) in &pairs {
                    self.key_sizes.size(key.len() as u64);
                    self.values.written.value(value);
                    self.writes.keys.add(&sortable(key));
                }
                self.writes.operations += pairs.len() as u64;
                pairs.len()
            }
            Command::Management => 0,
            Command::Other(name) => {
                self.left_out.add(format!("of the command {name}"), 1);
                0
            }
        };
        if operations > 1 {
            self.several += 1;
            self.in_several += operations as u64;
        }
        let is_paired = !self.unpaired.contains(&connection);
        if operations > 0 {
            self.timing.begin(connection, at_ns, operations as u64);
            self.timing.give_up(u64::from(!is_paired));
        }
        let pending = self.pending.entry(connection).or_default();
        if is_paired && pending.len() < PENDING_MAX {
            pending.push_back(Pending { began_ns: at_ns, is_operation: operations > 0, reads });
        }
    }

    fn answer(&mut self, connection: usize, at_ns: u64, answer: &Answer<'_>) {
        let pending = self.pending.get_mut(&connection).and_then(VecDeque::pop_front);
        let Some(pending) = pending.filter(|pending| pending.is_operation) else { return };
        self.timing.end(pending.began_ns, at_ns);
        self.errors += u64::from(*answer == Answer::Error);
        let answers = match answer {
            Answer::Several(answers) => answers.as_slice(),
            one => std::slice::from_ref(one),
        };
        for (place, answer) in pending.reads.iter().zip(answers) {
            match answer {
                Answer::Value(value) => self.values.read.value(value),
                Answer::Nothing => {
                    self.reads.empty += 1;
                    place.iter().for_each(|place| self.reads.keys.remove(*place));
                }
                _ => continue,
            }
            self.reads.answered += 1;
        }
    }
}

/// Returns a key so that keys of numbers sort by them.
fn sortable(key: &[u8]) -> Vec<u8> {
    let mut sortable = Vec::new();
    push_part(&mut sortable, key);
    sortable
}

fn command<'a>(words: &[&'a [u8]]) -> Command<'a> {
    let name = words.first().copied().unwrap_or_default().to_ascii_uppercase();
    let name = String::from_utf8_lossy(&name).chars().take(20).collect::<String>();
    let rest = words.get(1..).unwrap_or_default();
    match (name.as_str(), rest) {
        ("GET" | "GETEX", [key, ..]) => Command::Reads(vec![key]),
        ("MGET", keys) if !keys.is_empty() => Command::Reads(keys.to_vec()),
        ("SET" | "SETNX" | "GETSET", [key, value, ..]) => Command::Writes(vec![(*key, *value)]),
        ("SETEX" | "PSETEX", [key, _, value]) => Command::Writes(vec![(*key, *value)]),
        ("MSET" | "MSETNX", pairs) if pairs.len() >= 2 => {
            Command::Writes(pairs.chunks_exact(2).map(|two| (two[0], two[1])).collect())
        }
        (
            "PING" | "HELLO" | "AUTH" | "CLIENT" | "INFO" | "CONFIG" | "COMMAND" | "SELECT"
            | "QUIT" | "ECHO" | "MULTI" | "EXEC" | "DISCARD" | "WATCH" | "UNWATCH" | "CLUSTER"
            | "READONLY" | "DBSIZE" | "MEMORY" | "LATENCY" | "SLOWLOG" | "TIME" | "ASKING",
            _,
        ) => Command::Management,
        (name, _) => {
            // A name that is no word may be a part of a value.
            let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
            let name = if is_word && !name.is_empty() { name } else { "without a name" };
            Command::Other(name.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_reads_and_writes() {
        let check = |text: &str, expect: Command<'_>| {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            assert_eq!(command(&words), expect, "{text}");
        };
        check("get k", Command::Reads(vec![b"k"]));
        check("MGET a b", Command::Reads(vec![b"a", b"b"]));
        check("SET k v EX 5", Command::Writes(vec![(b"k", b"v")]));
        check("SETEX k 5 v", Command::Writes(vec![(b"k", b"v")]));
        check("MSET a 1 b 2", Command::Writes(vec![(b"a", b"1"), (b"b", b"2")]));
        check("PING", Command::Management);
        check("incr k", Command::Other("INCR".into()));
        check("GET", Command::Other("GET".into()));
        check("\u{1}\u{2} k", Command::Other("without a name".into()));
    }

    #[test]
    fn answers_belong_to_their_requests() {
        let mut operations = Operations::default();
        let mut send = |at_ns, message| {
            let message = walk::Message::Redis(message);
            operations.event(&Event { connection: 0, at_ns, message });
        };
        send(10, Message::Request(&[b"PING"]));
        send(20, Message::Request(&[b"MGET", b"a", b"b"]));
        send(30, Message::Request(&[b"SET", b"a", b"value"]));
        send(40, Message::Answer(Answer::Other));
        send(50, Message::Answer(Answer::Several(vec![Answer::Value(b"xyz"), Answer::Nothing])));
        send(60, Message::Answer(Answer::Other));
        let Operations { reads, writes, timing, values, .. } = operations;
        assert_eq!((reads.operations, reads.answered, reads.empty), (2, 2, 1));
        assert_eq!((writes.operations, timing.operations), (1, 3));
        assert_eq!(timing.latency_ns(), Some((30, 30)));
        assert_eq!((values.read.most(), values.written.most()), (3, 5));
    }
}
