//! The requests of the clients, and the checks of their answers.

use std::collections::BTreeMap;

use crate::faults::{Canary, strikes};
use crate::node::NodeSimulation;
use crate::node::client::{
    Answer, Client, DELETE_PARTITION, DELETE_ROW, INSERT, Phase, Received, Refusal, Request, SCAN,
    SELECT_PARTITION, SELECT_ROW, Sent, insert_values, int,
};
use crate::node::rows::{RowKey, Write};
use crate::violation::Violation;

/// How long a client reads nothing, at most.
const STALL_NS_MAX: u64 = 3_000_000_000;

impl NodeSimulation {
    /// Lets clients connect, send requests, stop reading, and leave.
    pub(super) fn act(&mut self) {
        if self.rng.below(3) == 0 && (self.clients.len() as u64) < self.shape.clients_max {
            self.connect();
        }
        if self.clients.is_empty() {
            return;
        }
        let at = self.index(self.clients.len());
        match self.rng.below(60) {
            0 => self.clients[at].reads_from_ns = self.now_ns() + self.rng.below(STALL_NS_MAX),
            1 => self.leave(at),
            _ => {
                for _ in 0..=self.rng.below(24) {
                    if self.clients[at].has_window() {
                        self.request(at);
                    }
                }
            }
        }
    }

    /// Opens a connection.
    pub(super) fn connect(&mut self) {
        let shape = self.shape.client(&mut self.rng);
        let now_ns = self.now_ns();
        let Some(socket) = self.world.borrow_mut().network.connect() else { return };
        self.coverage.connections += 1;
        self.coverage.tls_sessions += u64::from(shape.tls.is_some());
        self.clients.push(Client::new(socket, shape, now_ns));
        let text = format_args!("{socket} connects: {shape:?}");
        self.world.borrow_mut().trace.event(50, &[socket], text);
    }

    /// A client ends its connection, whatever it waits for.
    pub(super) fn leave(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.has_ended = true;
        self.world.borrow_mut().network.end_by_client(client.socket);
    }

    /// A client sends a request.
    fn request(&mut self, at: usize) {
        let key = self.key();
        match self.rng.below(100) {
            0..45 => {
                let length = self.length();
                let write = self.rows.begin(vec![key], Some(length));
                let values = insert_values(key, write.number, length);
                self.execute(at, INSERT, Request::Write(write), &values);
            }
            45..50 => {
                let write = self.rows.begin(vec![key], None);
                let values = [write.number.to_be_bytes().to_vec(), int(key.0), int(key.1)];
                self.execute(at, DELETE_ROW, Request::Write(write), &values);
            }
            50..53 => {
                let write = self.rows.begin(self.partition(key.0), None);
                let values = [write.number.to_be_bytes().to_vec(), int(key.0)];
                self.execute(at, DELETE_PARTITION, Request::Write(write), &values);
            }
            53..60 => self.batch(at),
            60..80 => self.read_partition(at, key.0),
            80..97 => {
                let read = self.read(vec![key]);
                self.execute(at, SELECT_ROW, read, &[int(key.0), int(key.1)]);
            }
            _ => {
                let partitions = i32::try_from(self.shape.partitions).unwrap_or(0);
                let all = (0..partitions).flat_map(|k| self.partition(k)).collect();
                let read = self.read(all);
                self.execute(at, SCAN, read, &[]);
            }
        }
    }

    pub(super) fn read_partition(&mut self, at: usize, k: i32) {
        let read = self.read(self.partition(k));
        self.execute(at, SELECT_PARTITION, read, &[int(k)]);
    }

    fn read(&self, keys: Vec<RowKey>) -> Request {
        let floors = keys.into_iter().map(|key| (key, self.rows.floor(key))).collect();
        Request::Read { floors }
    }

    fn batch(&mut self, at: usize) {
        let mut keys: Vec<RowKey> = (0..2 + self.rng.below(4)).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let length = 8 + self.index(60);
        let write = self.rows.begin(keys, Some(length));
        let (stream, now_ns) = (self.stream(at), self.now_ns());
        self.clients[at].batch(stream, write, length, now_ns);
        self.trace_request(at, stream, 99);
    }

    fn execute(&mut self, at: usize, statement: usize, request: Request, values: &[Vec<u8>]) {
        let (stream, now_ns) = (self.stream(at), self.now_ns());
        let prepared = self.rng.below(4) > 0;
        self.clients[at].execute(stream, request, (statement, prepared), values, now_ns);
        self.trace_request(at, stream, statement as u64);
    }

    fn trace_request(&mut self, at: usize, stream: i16, kind: u64) {
        let client = &self.clients[at];
        let numbers = [client.socket, stream.unsigned_abs().into(), kind];
        let request = client.outstanding.get(&stream);
        let text = format_args!("{} sends on {stream}: {request:?}", client.socket);
        self.world.borrow_mut().trace.event(51, &numbers, text);
    }

    /// A stream that waits for no answer.
    fn stream(&mut self, at: usize) -> i16 {
        loop {
            let stream = i16::try_from(self.rng.below(1 << 15)).unwrap_or(0);
            if !self.clients[at].outstanding.contains_key(&stream) {
                return stream;
            }
        }
    }

    fn key(&mut self) -> RowKey {
        let mut draw = |bound: u64| i32::try_from(self.rng.below(bound)).unwrap_or(0);
        (draw(self.shape.partitions), draw(self.shape.rows))
    }

    /// All rows of a partition.
    fn partition(&self, k: i32) -> Vec<RowKey> {
        (0..i32::try_from(self.shape.rows).unwrap_or(0)).map(|c| (k, c)).collect()
    }

    fn length(&mut self) -> usize {
        let large = strikes(&mut self.rng, self.shape.large_values);
        let bound = if large { self.shape.large_bytes } else { 200 };
        8 + usize::try_from(self.rng.below(bound)).unwrap_or(0)
    }

    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap_or(0)
    }

    /// Moves bytes between the clients and the network, and checks the answers that have come.
    pub(super) fn exchange(&mut self) -> Result<(), Violation> {
        let mut at = 0;
        while at < self.clients.len() {
            let is_open = self.exchange_one(at)?;
            if is_open {
                at += 1;
            } else {
                self.clients.swap_remove(at);
            }
        }
        self.world.borrow_mut().network.forget_closed();
        Ok(())
    }

    /// Does the same for one client, and checks that its connection had a reason to end. Returns
    /// whether it is still open.
    pub(super) fn exchange_one(&mut self, at: usize) -> Result<bool, Violation> {
        let is_open = self.exchange_open(at)?;
        if !is_open {
            self.check_end(at)?;
        }
        Ok(is_open)
    }

    /// Moves bytes between one client and the network, and checks its answers. Returns whether its
    /// connection is still open.
    pub(super) fn exchange_open(&mut self, at: usize) -> Result<bool, Violation> {
        let now_ns = self.now_ns();
        let mut bytes = Vec::new();
        let client = &mut self.clients[at];
        let socket = client.socket;
        let is_open = {
            let mut world = self.world.borrow_mut();
            let world = &mut *world;
            if !client.has_ended {
                let outgoing = &mut client.outgoing;
                world.network.send_to_server(socket, outgoing, now_ns, &mut world.rng);
            }
            if now_ns < client.reads_from_ns {
                return Ok(true);
            }
            world.network.receive_by_client(socket, now_ns, &mut bytes)
        };
        if !bytes.is_empty() && !client.has_ended {
            let received = client.receive(&bytes, now_ns);
            let length = bytes.len() as u64;
            let text = format_args!("{socket} receives {length} bytes");
            self.world.borrow_mut().trace.event(52, &[socket, length], text);
            match received {
                Ok(received) => {
                    for one in received {
                        self.check(at, one)?;
                    }
                }
                // The refusal of a connection does not speak TLS.
                Err(_) if self.is_refused(at) => self.clients[at].phase = Phase::Leaving,
                Err(why) => return Err(Violation::WrongAnswer { why }),
            }
        }
        if self.clients[at].phase == Phase::Leaving && !self.clients[at].has_ended {
            self.leave(at);
        }
        Ok(is_open)
    }

    /// Whether a client may have been refused because its shard has as many connections as it may.
    fn is_refused(&self, at: usize) -> bool {
        let socket = self.clients[at].socket;
        let is_adopted = self.world.borrow().network.is_adopted(socket);
        !self.shape.is_ample && !is_adopted
    }

    /// Checks that a connection had a reason to end.
    fn check_end(&self, at: usize) -> Result<(), Violation> {
        let client = &self.clients[at];
        let has_reason = client.has_ended || self.node.is_none() || self.is_refused(at);
        if has_reason {
            return Ok(());
        }
        let why = format!("{:?}, {} requests wait", client.phase, client.outstanding.len());
        Err(Violation::Closed { why })
    }

    fn check(&mut self, at: usize, received: Received) -> Result<(), Violation> {
        match received {
            Received::ConnectionRefused { message } => {
                self.coverage.refused_connections += 1;
                if self.shape.is_ample {
                    return Err(Violation::Overloaded { message });
                }
                Ok(())
            }
            Received::Answer(sent, answer) => {
                let socket = self.clients[at].socket;
                let text = format_args!("{socket} has {answer:?} for {:?}", sent.request);
                self.world.borrow_mut().trace.event(53, &[socket, kind(&answer)], text);
                self.check_answer(at, &sent, answer)
            }
        }
    }

    fn check_answer(
        &mut self,
        at: usize,
        sent: &Sent,
        mut answer: Answer,
    ) -> Result<(), Violation> {
        self.forge(&mut answer);
        let wrong = |why: &str| Err(Violation::WrongAnswer { why: why.into() });
        let login = self.clients[at].shape.login;
        match (&sent.request, answer) {
            (Request::Startup, Answer::Done) if login.is_some() => wrong("no login was asked for"),
            (Request::Login, Answer::Done) if login != Some(true) => {
                wrong("a wrong password was accepted")
            }
            (Request::Login, Answer::Error { kind: Refusal::BadCredentials, .. }) => {
                self.coverage.refused_logins += 1;
                match login {
                    Some(false) => Ok(()),
                    _ => wrong("the right password was refused"),
                }
            }
            (Request::Write(write), Answer::Done) => {
                self.coverage.acknowledged += 1;
                self.rows.acknowledge(write);
                Ok(())
            }
            (Request::Read { floors }, Answer::Rows { rows, has_more }) => {
                self.coverage.reads += 1;
                self.check_rows(floors, rows, has_more)
            }
            (_, Answer::Error { kind, message }) => self.check_error(sent, kind, message),
            _ => Ok(()),
        }
    }

    fn check_rows(
        &mut self,
        floors: &[(RowKey, i64)],
        rows: Vec<(RowKey, Vec<u8>)>,
        has_more: bool,
    ) -> Result<(), Violation> {
        let count = rows.len();
        let mut found: BTreeMap<RowKey, Vec<u8>> = rows.into_iter().collect();
        if found.len() < count {
            return Err(Violation::WrongRow { difference: "a row came twice".into() });
        }
        for (key, floor) in floors {
            let value = found.remove(key);
            if let Some(value) = &value {
                self.world.borrow_mut().trace.bytes(value);
            } else if has_more {
                continue;
            }
            let checked = self.rows.check(*key, value.as_deref(), *floor);
            checked.map_err(|difference| Violation::WrongRow { difference })?;
        }
        match found.keys().next() {
            Some(key) => Err(Violation::WrongRow { difference: format!("{key:?} was not asked") }),
            None => Ok(()),
        }
    }

    /// Checks that a request had a reason to fail.
    fn check_error(
        &mut self,
        sent: &Sent,
        kind: Refusal,
        message: String,
    ) -> Result<(), Violation> {
        match kind {
            Refusal::Overloaded => {
                let is_for_memory = message.contains("connections hold all the memory");
                let was_over = self.over_memory_ns.is_some_and(|over| over >= sent.sent_ns);
                if if is_for_memory { !was_over } else { self.shape.is_ample } {
                    return Err(Violation::Overloaded { message });
                }
                self.coverage.over_memory += u64::from(is_for_memory);
                self.coverage.overloaded += u64::from(!is_for_memory);
                if let Request::Write(write) = &sent.request
                    && is_of_one_partition(write)
                {
                    self.rows.refuse(write);
                }
                Ok(())
            }
            Refusal::Server => {
                self.coverage.failed += 1;
                let world = self.world.borrow();
                let excused = world
                    .devices
                    .iter()
                    .any(|device| device.failed || device.was_full || device.failed_reads > 0);
                if excused { Ok(()) } else { Err(Violation::Refused { why: message }) }
            }
            Refusal::BadCredentials | Refusal::Request => {
                let request = format!("{:?} was refused: {message}", sent.request);
                Err(Violation::WrongAnswer { why: request })
            }
        }
    }

    /// Plants a canary in an answer.
    fn forge(&mut self, answer: &mut Answer) {
        let canary = self.options.canary.filter(|_| !self.planted);
        if let (Some(Canary::ForgedValue), Answer::Rows { rows, .. }) = (canary, answer)
            && let Some(last) = rows.first_mut().and_then(|(_, value)| value.last_mut())
        {
            *last ^= 1;
            self.planted = true;
        }
    }
}

/// Whether a refusal of the write means that nothing of it was written.
fn is_of_one_partition(write: &Write) -> bool {
    write.rows.iter().all(|(k, _)| *k == write.rows[0].0)
}

/// A number for the kind of an answer, for the trace.
fn kind(answer: &Answer) -> u64 {
    match answer {
        Answer::Done => 0,
        Answer::Rows { rows, has_more } => 1 | u64::from(*has_more) << 1 | (rows.len() as u64) << 8,
        Answer::Authenticate => 2,
        Answer::Prepared => 3,
        Answer::Error { kind, .. } => 4 | (*kind as u64) << 8,
    }
}
