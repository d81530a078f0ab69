//! Opens a connection: socket, TLS, OPTIONS, STARTUP, login, PREPARE; or a greeting, where the
//! protocol is not CQL. Every exchange has a deadline.

use std::io::{self, ErrorKind as IoErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
};
use tare_cql::frame::{Head, Opcode, Version};
use tare_cql::framing::Framing;
use tare_cql::request::{self, Settings};
use tare_cql::response::{ErrorKind, Response, Rows};
use tare_cql::tls::TlsError;

use crate::access::{self, Access, Host, Login, Protocol};
use crate::error::LoadError;
use crate::protocol::connection::Connection;
use crate::protocol::key_value::{Answer, KeyValueProtocol};
use crate::protocol::prepared::Statement;
use crate::protocol::sharding::Sharding;
use crate::protocol::tls::TlsSettings;
use crate::protocol::wire::{Progress, ReceiveError, Wire};

/// The settings of all connections to a system.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) protocol: Protocol,
    lz4: bool,
    tls: Option<TlsSettings>,
    login: Option<Login>,
    kernel_times: bool,
}

/// A port at which the server picks the shard from the port that the client connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardAwarePort {
    /// The shard-aware port of the server.
    pub(crate) port: u16,
    pub(crate) shard: u16,
    pub(crate) shards: u16,
}

/// Source ports: the dynamic ones (RFC 6335), as Scylla's drivers use them.
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Time limit for the login of a server that has answered, beyond any other deadline.
const LOGIN: Duration = Duration::from_secs(10);
/// How many source ports have been looked for, by all connections.
static NEXT_SEARCH: AtomicUsize = AtomicUsize::new(0);

impl Dialer {
    /// Reads the certificate files.
    pub(crate) fn new(access: &Access) -> Result<Self, LoadError> {
        Ok(Self {
            protocol: access.protocol,
            lz4: access.lz4,
            tls: access.tls.as_ref().map(TlsSettings::new).transpose()?,
            login: access.login.clone(),
            kernel_times: access.kernel_times,
        })
    }

    /// Connects, sends STARTUP and logs in, at most until `deadline`.
    pub(crate) fn open(
        &self,
        host: &Host,
        shard_port: Option<ShardAwarePort>,
        deadline: Instant,
    ) -> Result<Connection, LoadError> {
        let mut address = host.address;
        if let Some(shard_port) = shard_port {
            address.set_port(shard_port.port);
        }
        let fail = |source| LoadError::Connect { address, source };
        let socket = match shard_port {
            None => TcpStream::connect_timeout(&address, remaining(deadline)).map_err(fail)?,
            Some(shard_port) => through(address, shard_port, deadline).map_err(fail)?,
        };
        socket.set_nodelay(true).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        let session = self.tls.as_ref().map(|tls| tls.session(&host.name)).transpose()?;
        let mut connection = Connection::new(socket, address, self.protocol, Wire::new(session));
        connection.complete_handshake(deadline)?;
        if let Some(protocol) = KeyValueProtocol::of(self.protocol) {
            connection.greet(protocol, self.login.as_ref(), deadline)?;
        } else {
            let lz4_known = connection.ask_options(deadline)?;
            if self.lz4 && !lz4_known {
                return Err(LoadError::NoLz4 { address });
            }
            // The server is up; checking a password may take a while.
            let deadline = deadline.max(Instant::now() + LOGIN);
            connection.start(self.lz4, self.login.as_ref(), deadline)?;
        }
        if self.kernel_times {
            let Connection { wire, socket, .. } = &mut connection;
            wire.want_kernel_times(socket).map_err(|source| LoadError::KernelTimes { source })?;
        }
        Ok(connection)
    }
}

/// Connects to the first node and runs schema statements one after the other, at most until
/// `deadline`. Each has the name that errors use, such as `CREATE TABLE`.
///
/// # Errors
/// If the server cannot be reached or refuses a statement.
pub fn execute(
    access: &Access,
    statements: &[(&'static str, String)],
    deadline: Instant,
) -> Result<(), LoadError> {
    let mut connection = open_first(access, deadline)?;
    statements
        .iter()
        .try_for_each(|(what, statement)| connection.query(what, statement, deadline, |_| ()))
}

fn open_first(access: &Access, deadline: Instant) -> Result<Connection, LoadError> {
    let node = access.nodes.first().ok_or(LoadError::NoNode)?;
    let host = access::resolve(node, access.protocol.port())?;
    Dialer::new(access)?.open(&host, None, deadline)
}

/// A connection to the first node for queries one after the other.
#[derive(Debug)]
pub struct QueryConnection(Connection);

impl QueryConnection {
    /// Connects, at most until `deadline`.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn open(access: &Access, deadline: Instant) -> Result<Self, LoadError> {
        open_first(access, deadline).map(Self)
    }

    /// Passes the rows of a query to `take`, at most until `deadline`. `what` is the name that
    /// errors use.
    ///
    /// # Errors
    /// If the server refuses the query or does not answer.
    pub fn rows(
        &mut self,
        what: &'static str,
        query: &str,
        deadline: Instant,
        take: impl FnOnce(&Rows<'_>),
    ) -> Result<(), LoadError> {
        self.0.query(what, query, deadline, |rows| {
            if let Some(rows) = &rows {
                take(rows);
            }
        })
    }
}

/// Connects from a source port that selects the shard.
fn through(
    address: SocketAddr,
    shard_port: ShardAwarePort,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let from_any = |port| match address {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], port)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], port)),
    };
    let shards = usize::from(shard_port.shards.max(1));
    let ports = SOURCE_PORTS.filter(|port| port % shard_port.shards.max(1) == shard_port.shard);
    let count = (usize::from(*SOURCE_PORTS.end() - *SOURCE_PORTS.start()) + 1) / shards;
    // Each search starts behind the one before it, and at another port than other processes.
    let begin = NEXT_SEARCH.fetch_add(1, Ordering::Relaxed);
    let begin = usize::try_from(std::process::id()).unwrap_or(0).wrapping_mul(31) + begin;
    let skip = begin % count.max(1);
    let mut last = Errno::ADDRNOTAVAIL;
    for port in ports.clone().skip(skip).chain(ports).take(count) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let bound = bind(&socket, &SocketAddrAny::from(from_any(port)));
        let connected = bound.and_then(|()| connect(&socket, &SocketAddrAny::from(address)));
        match connected {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::INPROGRESS) => {
                let stream = TcpStream::from(socket);
                wait(&stream, PollFlags::OUT, deadline)?;
                sockopt::socket_error(&stream)??;
                return Ok(stream);
            }
            // Another connection has the port, or had it a minute ago.
            Err(errno @ (Errno::ADDRINUSE | Errno::ADDRNOTAVAIL)) => last = errno,
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(last.into())
}

impl Connection {
    /// Completes the TLS handshake, if TLS is used.
    fn complete_handshake(&mut self, deadline: Instant) -> Result<(), LoadError> {
        let what = "the TLS handshake";
        while self.wire.tls().is_some_and(|tls| tls.is_handshaking()) {
            self.send_all(what, deadline)?;
            if self.wire.tls().is_some_and(|tls| tls.is_handshaking()) {
                self.receive_some(what, deadline)?;
            }
        }
        Ok(())
    }

    /// Logs in and makes sure that the server answers.
    fn greet(
        &mut self,
        protocol: KeyValueProtocol,
        login: Option<&Login>,
        deadline: Instant,
    ) -> Result<(), LoadError> {
        let address = self.address;
        if let Some(login) = login {
            let request = protocol.login(login).ok_or(LoadError::NoLogin { address })?;
            let refused = self.exchange(protocol, "the login", &request, deadline)?;
            if let Some(message) = refused {
                return Err(LoadError::WrongLogin { address, user: login.user.clone(), message });
            }
        }
        let what = "the greeting";
        match self.exchange(protocol, what, protocol.greeting(), deadline)? {
            None => Ok(()),
            Some(message) if message.starts_with("NOAUTH") => {
                Err(LoadError::Login { address, authenticator: message })
            }
            Some(message) => Err(LoadError::NotServing { address, message }),
        }
    }

    /// Sends a request and waits for its answer. Returns what the server said if it refused.
    fn exchange(
        &mut self,
        protocol: KeyValueProtocol,
        what: &'static str,
        request: &[u8],
        deadline: Instant,
    ) -> Result<Option<String>, LoadError> {
        self.input.clear();
        self.out.extend_from_slice(request);
        self.send_all(what, deadline)?;
        self.receive_answer(what, deadline)?;
        let refused = match protocol.decode(&self.input) {
            Ok(Some((Answer::Refused(text), _))) => Some(String::from_utf8_lossy(text).into()),
            _ => None,
        };
        self.input.clear();
        Ok(refused)
    }

    /// Asks for the server's options. Returns whether the server supports LZ4.
    fn ask_options(&mut self, deadline: Instant) -> Result<bool, LoadError> {
        let what = "OPTIONS";
        self.request(what, deadline, request::encode_options)?;
        let Response::Supported { options } = self.response(what)? else {
            return Err(self.unexpected(what));
        };
        let values = |key: &str| {
            let mut options = options;
            options.find(|(name, _)| *name == key).map(|(_, values)| values)
        };
        let lz4 = values("COMPRESSION").is_some_and(|mut values| values.any(|name| name == "lz4"));
        let tls = self.wire.tls().is_some();
        let sharding = Sharding::find(tls, |key| values(key)?.next());
        self.sharding = sharding;
        self.input.clear();
        Ok(lz4)
    }

    fn start(
        &mut self,
        lz4: bool,
        login: Option<&Login>,
        deadline: Instant,
    ) -> Result<(), LoadError> {
        let address = self.address;
        let what = "STARTUP";
        let options = [("CQL_VERSION", tare_cql::CQL_VERSION), ("COMPRESSION", "lz4")];
        let options = if lz4 { &options[..] } else { &options[..1] };
        let framing = Framing::after_startup(self.version, lz4);
        self.send_request(what, deadline, |out, head| request::encode_startup(out, head, options))?;
        // In version 4 Cassandra compresses this answer already; segments of version 5 begin after
        // it.
        if self.version == Version::V4 {
            self.wire.begin(framing);
        }
        self.receive_answer(what, deadline)?;
        let authenticator = match self.response(what)? {
            Response::Ready => None,
            Response::Authenticate { class } => Some(class.to_string()),
            _ => return Err(self.unexpected(what)),
        };
        self.input.clear();
        self.wire.begin(framing);
        let Some(authenticator) = authenticator else { return Ok(()) };
        let Some(login) = login else { return Err(LoadError::Login { address, authenticator }) };
        let what = "the login";
        let token = format!("\0{}\0{}", login.user, login.password);
        self.request(what, deadline, |out, head| {
            request::encode_auth_response(out, head, Some(token.as_bytes()));
        })?;
        match self.response(what) {
            Ok(Response::AuthSuccess { .. }) => {}
            Ok(_) => return Err(self.unexpected(what)),
            Err(LoadError::Refused { code, message, .. })
                if code == ErrorKind::BadCredentials.code() =>
            {
                return Err(LoadError::WrongLogin { address, user: login.user.clone(), message });
            }
            Err(error) => return Err(error),
        }
        self.input.clear();
        Ok(())
    }

    /// Runs one statement without values and passes its rows, if any, to `take`.
    pub(crate) fn query<T>(
        &mut self,
        what: &'static str,
        statement: &str,
        deadline: Instant,
        take: impl FnOnce(Option<Rows<'_>>) -> T,
    ) -> Result<T, LoadError> {
        self.request(what, deadline, |out, head| {
            request::encode_query(out, head, statement, &Settings::DEFAULT, &[]);
        })?;
        let taken = match self.response(what)? {
            Response::Rows(rows) => take(Some(rows)),
            _ => take(None),
        };
        self.input.clear();
        Ok(taken)
    }

    /// Prepares these statements unless they are prepared already.
    pub(crate) fn prepare(
        &mut self,
        statements: &[String],
        deadline: Instant,
    ) -> Result<(), LoadError> {
        if self.prepared.statements.iter().map(|statement| &statement.text).eq(statements) {
            return Ok(());
        }
        self.prepared.statements.clear();
        for text in statements {
            let what = "PREPARE";
            self.request(what, deadline, |out, head| request::encode_prepare(out, head, text))?;
            let statement = match self.response(what) {
                Ok(Response::Prepared(prepared)) => Statement::new(text.clone(), &prepared),
                Ok(_) => return Err(self.unexpected(what)),
                Err(LoadError::Refused { address, code, message, .. }) => {
                    let statement = text.clone();
                    return Err(LoadError::Prepare { address, statement, code, message });
                }
                Err(error) => return Err(error),
            };
            self.input.clear();
            self.prepared.statements.push(statement);
        }
        Ok(())
    }

    /// Sends one request on stream 0 and waits until its whole answer is in `input`.
    fn request(
        &mut self,
        what: &'static str,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>, Head),
    ) -> Result<(), LoadError> {
        self.send_request(what, deadline, encode)?;
        self.receive_answer(what, deadline)
    }

    /// Sends one request on stream 0.
    fn send_request(
        &mut self,
        what: &'static str,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>, Head),
    ) -> Result<(), LoadError> {
        self.input.clear();
        let head = self.head(0);
        encode(&mut self.out, head);
        self.send_all(what, deadline)
    }

    /// Waits until a whole answer is in `input`.
    fn receive_answer(&mut self, what: &'static str, deadline: Instant) -> Result<(), LoadError> {
        loop {
            match Self::answer_at(self.key_value, &self.input) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => self.receive_some(what, deadline)?,
                Err(_) if self.wire.tls().is_none() && self.input.starts_with(&TLS_ALERT) => {
                    return Err(LoadError::SpeaksTls { address: self.address });
                }
                Err(reason) => return Err(self.protocol(what, reason)),
            }
        }
    }

    fn send_all(&mut self, what: &'static str, deadline: Instant) -> Result<(), LoadError> {
        loop {
            match self.send() {
                Progress::More => return Ok(()),
                Progress::Blocked => self.wait(what, PollFlags::OUT, deadline)?,
                Progress::Ended => return Err(self.closed(what)),
            }
        }
    }

    fn receive_some(&mut self, what: &'static str, deadline: Instant) -> Result<(), LoadError> {
        self.wait(what, PollFlags::IN, deadline)?;
        let before = self.input.len();
        match self.receive() {
            Ok(Progress::Ended) if self.input.len() == before => Err(self.closed(what)),
            Ok(_) => Ok(()),
            Err(ReceiveError::Tls(TlsError::Peer { source: reason })) => {
                // Tells the server why, if it still reads.
                let _ = self.send();
                Err(LoadError::Tls { address: self.address, reason })
            }
            Err(error) => Err(self.protocol(what, error.to_string())),
        }
    }

    fn wait(
        &self,
        what: &'static str,
        flags: PollFlags,
        deadline: Instant,
    ) -> Result<(), LoadError> {
        let address = self.address;
        wait(&self.socket, flags, deadline).map_err(|source| LoadError::Exchange {
            address,
            what,
            source,
        })
    }

    /// Returns the answer in `input`; an ERROR becomes a `LoadError`.
    fn response(&self, what: &'static str) -> Result<Response<'_>, LoadError> {
        let frame = match Self::frame_at(&self.input) {
            Ok(Some((frame, _))) => frame,
            Ok(None) => return Err(self.unexpected(what)),
            Err(error) => return Err(self.protocol(what, error.to_string())),
        };
        match Response::decode(&frame) {
            Ok(Response::Error(error)) => Err(LoadError::Refused {
                address: self.address,
                what,
                code: error.kind.code(),
                message: error.message.into(),
            }),
            Ok(response) => Ok(response),
            Err(error) => Err(self.protocol(what, error.to_string())),
        }
    }

    #[cold]
    fn closed(&self, what: &'static str) -> LoadError {
        let hint = match self.wire.tls() {
            None if matches!(what, "OPTIONS" | "the greeting") => "; does it expect TLS?",
            _ => "",
        };
        LoadError::Closed { address: self.address, what, hint }
    }

    #[cold]
    fn unexpected(&self, what: &'static str) -> LoadError {
        let opcode = self.input.get(4).and_then(|&code| Opcode::from_code(code));
        self.protocol(what, format!("the answer is {opcode:?}"))
    }

    #[cold]
    fn protocol(&self, what: &'static str, reason: String) -> LoadError {
        let (address, version) = (self.address, self.version as u8);
        match self.key_value {
            None => LoadError::Protocol { address, what, version, reason },
            Some(_) => LoadError::OtherProtocol { address, what, reason },
        }
    }
}

/// The first bytes of a TLS alert: content type 21, version 3.x (RFC 8446, section 5.1).
const TLS_ALERT: [u8; 2] = [21, 3];

/// Waits until a socket is ready or has an error.
fn wait(socket: &TcpStream, flags: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        if Instant::now() >= deadline {
            return Err(IoErrorKind::TimedOut.into());
        }
        let left = remaining(deadline);
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(socket, flags)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Returns the time until `deadline`, never 0, because sockets take 0 for "no limit".
fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
