//! The simulated network: connections whose bytes arrive late, in pieces of any size, and whose
//! buffers fill up. It keeps the order of bytes and loses none before a connection breaks, as TCP
//! does.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use tare_db::simulation::Arrived;
use tare_std::rng::Rng;

/// The buffers and delays of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkShape {
    /// Bytes that may be on their way to the server, and to a client.
    pub(crate) to_server_bytes: usize,
    pub(crate) to_client_bytes: usize,
    /// The longest piece, and the longest delay of a piece.
    pub(crate) piece_bytes: u64,
    pub(crate) delay_ns: u64,
}

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    on_the_way: VecDeque<(u64, Vec<u8>)>,
    /// Bytes that wait for their reader.
    here: VecDeque<u8>,
    capacity_bytes: usize,
    held_bytes: usize,
    last_due_ns: u64,
}

impl Pipe {
    fn new(capacity_bytes: usize) -> Self {
        Self {
            on_the_way: VecDeque::new(),
            here: VecDeque::new(),
            capacity_bytes,
            held_bytes: 0,
            last_due_ns: 0,
        }
    }

    fn room(&self) -> usize {
        self.capacity_bytes.saturating_sub(self.held_bytes)
    }

    fn push(&mut self, bytes: &[u8], shape: &NetworkShape, now_ns: u64, rng: &mut Rng) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let wanted = usize::try_from(1 + rng.below(shape.piece_bytes)).unwrap_or(1);
            let (piece, left) = rest.split_at(wanted.min(rest.len()));
            let delay_ns = 1_000 + rng.below(shape.delay_ns);
            self.last_due_ns = self.last_due_ns.max(now_ns + delay_ns);
            self.on_the_way.push_back((self.last_due_ns, piece.to_vec()));
            rest = left;
        }
        self.held_bytes += bytes.len();
    }

    /// Lets the pieces arrive that are due.
    fn arrive(&mut self, now_ns: u64) {
        while self.on_the_way.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
            let Some((_, piece)) = self.on_the_way.pop_front() else { return };
            self.here.extend(piece);
        }
    }

    fn take(&mut self, bytes_max: usize, into: &mut Vec<u8>) {
        let length = bytes_max.min(self.here.len());
        into.extend(self.here.drain(..length));
        self.held_bytes -= length;
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.on_the_way.front().map(|(due_ns, _)| *due_ns)
    }

    fn is_empty(&self) -> bool {
        self.held_bytes == 0
    }
}

/// One connection, with both its ends.
#[derive(Debug)]
pub(crate) struct Connection {
    to_server: Pipe,
    to_client: Pipe,
    /// The client's end of the pair of sockets whose other end the server accepts. No bytes go
    /// through it, but those with which the server refuses the connection.
    client_fd: OwnedFd,
    /// The shard that has adopted it.
    shard: Option<usize>,
    /// The server waits for room to send.
    wants_room: bool,
    is_broken: bool,
    client_has_ended: bool,
    server_has_closed: bool,
}

/// All connections to one server.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) shape: NetworkShape,
    connections: BTreeMap<u64, Connection>,
    /// Connections that nobody has accepted, with the server's end.
    backlog: VecDeque<(u64, OwnedFd)>,
    /// Accepted connections that no shard has adopted, by the server's descriptor.
    accepted: BTreeMap<RawFd, u64>,
    next: u64,
}

impl Network {
    pub(crate) fn new(shape: NetworkShape) -> Self {
        let (connections, accepted) = (BTreeMap::new(), BTreeMap::new());
        Self { shape, connections, backlog: VecDeque::new(), accepted, next: 0 }
    }

    /// Opens a connection. It fails only if the process has no descriptors left.
    pub(crate) fn connect(&mut self) -> Option<u64> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (client_fd, server) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        let number = self.next;
        self.next += 1;
        let connection = Connection {
            to_server: Pipe::new(self.shape.to_server_bytes),
            to_client: Pipe::new(self.shape.to_client_bytes),
            client_fd,
            shard: None,
            wants_room: false,
            is_broken: false,
            client_has_ended: false,
            server_has_closed: false,
        };
        self.connections.insert(number, connection);
        self.backlog.push_back((number, server));
        Some(number)
    }

    // The server's side.

    pub(crate) fn accept(&mut self) -> Option<OwnedFd> {
        let (number, fd) = self.backlog.pop_front()?;
        self.accepted.insert(fd.as_raw_fd(), number);
        Some(fd)
    }

    /// Gives the server's end to a shard, and returns the number of the connection. From now on
    /// bytes go through the pipes, so the pair of sockets is not needed.
    pub(crate) fn adopt(&mut self, fd: OwnedFd, shard: usize) -> Option<u64> {
        let number = self.accepted.remove(&fd.as_raw_fd())?;
        let connection = self.connections.get_mut(&number)?;
        connection.shard = Some(shard);
        Some(number)
    }

    /// What the server's end of a connection has for its reader.
    pub(crate) fn arrived(&mut self, number: u64, now_ns: u64) -> Arrived {
        let Some(connection) = self.connections.get_mut(&number) else { return Arrived::Broken };
        if connection.is_broken {
            return Arrived::Broken;
        }
        connection.to_server.arrive(now_ns);
        match (connection.to_server.here.is_empty(), connection.client_has_ended) {
            (false, _) => Arrived::Bytes,
            (true, true) if connection.to_server.is_empty() => Arrived::End,
            (true, _) => Arrived::Nothing,
        }
    }

    pub(crate) fn receive(&mut self, number: u64, bytes_max: usize, into: &mut Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.to_server.take(bytes_max, into);
        }
    }

    /// Takes bytes of the server, and returns how many; `None` if the connection is lost.
    pub(crate) fn send(
        &mut self,
        number: u64,
        bytes: &[u8],
        now_ns: u64,
        rng: &mut Rng,
    ) -> Option<usize> {
        let shape = self.shape;
        let connection = self.connections.get_mut(&number)?;
        if connection.is_broken || connection.client_has_ended {
            return None;
        }
        let room = connection.to_client.room().min(bytes.len());
        // A kernel may take fewer bytes than there is room for.
        let taken = if room > 1 && rng.below(4) == 0 {
            usize::try_from(rng.below(room as u64)).unwrap_or(0)
        } else {
            room
        };
        connection.to_client.push(&bytes[..taken], &shape, now_ns, rng);
        connection.wants_room = taken < bytes.len();
        Some(taken)
    }

    pub(crate) fn wants_room(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.wants_room = true;
        }
    }

    /// Closes the server's end. What was sent still arrives.
    pub(crate) fn close_by_server(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.server_has_closed = true;
            connection.wants_room = false;
        }
    }

    /// Whether a shard has a reason to run.
    pub(crate) fn is_due(&mut self, shard: usize, now_ns: u64) -> bool {
        if shard == 0 && !self.backlog.is_empty() {
            return true;
        }
        self.connections.values_mut().any(|connection| {
            connection.to_server.arrive(now_ns);
            let has_input = !connection.to_server.here.is_empty()
                || connection.is_broken
                || connection.client_has_ended;
            let has_room = connection.wants_room && connection.to_client.room() > 0;
            connection.shard == Some(shard)
                && !connection.server_has_closed
                && (has_input || has_room)
        })
    }

    /// The time at which the next piece arrives.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let pipes = self.connections.values().flat_map(|c| [&c.to_server, &c.to_client]);
        pipes.filter_map(Pipe::next_due_ns).min()
    }

    // The client's side.

    /// Takes bytes of a client from the front of `bytes`, as many as there is room for.
    pub(crate) fn send_to_server(
        &mut self,
        number: u64,
        bytes: &mut Vec<u8>,
        now_ns: u64,
        rng: &mut Rng,
    ) {
        let shape = self.shape;
        if let Some(connection) = self.connections.get_mut(&number) {
            let taken = connection.to_server.room().min(bytes.len());
            connection.to_server.push(&bytes[..taken], &shape, now_ns, rng);
            bytes.drain(..taken);
        }
    }

    /// Moves the bytes that have arrived at a client to `into`. Returns whether more can come.
    pub(crate) fn receive_by_client(
        &mut self,
        number: u64,
        now_ns: u64,
        into: &mut Vec<u8>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        connection.to_client.arrive(now_ns);
        connection.to_client.take(usize::MAX, into);
        if connection.shard.is_none() {
            let mut buffer = [0; 1024];
            return match recv(&connection.client_fd, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => false,
                Ok((length, _)) => {
                    into.extend_from_slice(&buffer[..length]);
                    true
                }
                // Nothing has come yet.
                Err(_) => !connection.is_broken,
            };
        }
        let ended = connection.server_has_closed && connection.to_client.is_empty();
        !ended && !connection.is_broken
    }

    /// Whether a shard has adopted the connection.
    pub(crate) fn is_adopted(&self, number: u64) -> bool {
        self.connections.get(&number).is_some_and(|connection| connection.shard.is_some())
    }

    /// Whether the server has read everything that the client has sent.
    pub(crate) fn is_all_read(&self, number: u64) -> bool {
        self.connections.get(&number).is_some_and(|connection| connection.to_server.is_empty())
    }

    /// The client ends the connection after what it has sent.
    pub(crate) fn end_by_client(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.client_has_ended = true;
        }
    }

    /// The connection is lost at both ends.
    pub(crate) fn break_off(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_broken = true;
        }
    }

    /// Forgets connections that both sides have left.
    pub(crate) fn forget_closed(&mut self) {
        self.connections
            .retain(|_, c| !(c.server_has_closed && (c.client_has_ended || c.is_broken)));
    }

    /// The server is gone: what it has sent still arrives, and nothing else.
    pub(crate) fn lose_server(&mut self) {
        self.backlog.clear();
        self.accepted.clear();
        for connection in self.connections.values_mut() {
            connection.server_has_closed = true;
            // A connection that no shard had accepted ends without a byte.
            connection.shard.get_or_insert(0);
        }
    }

    /// Forgets all connections.
    pub(crate) fn clear(&mut self) {
        self.connections.clear();
        self.backlog.clear();
        self.accepted.clear();
    }
}
