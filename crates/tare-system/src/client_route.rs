//! The route to a running system: TCP from where the client runs, because its address means
//! something only there. A system is queried rarely (`INFO`, `SHOW`, `stats`) and outside of the
//! measured windows; every exchange has a limit. It uses TLS where the first workload does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, StreamOwned};
use tare_host::netns::{self, NetnsError};
use tare_lab::access::{ClientAccess, Login};

use super::certificate::ServerCertificate;

/// Time limit for a connection, and for each answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a connection to a port beside that of the clients, which nothing may listen on.
const PLAIN_LIMIT: Duration = Duration::from_secs(1);
/// The most bytes of an answer: settings and counters need less.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The place of the client in the network.
#[derive(Clone, Debug, Default)]
pub struct ClientRoute {
    /// The network namespace, such as `/run/netns/NAME`; `None`: that of this process.
    pub namespace: Option<PathBuf>,
    /// How clients connect there.
    pub access: ClientAccess,
    /// The certificate of the systems that the run starts, where any of their clients has TLS.
    pub certificate: Option<Arc<ServerCertificate>>,
}

/// Why a system gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientRouteError {
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    #[error("it does not answer on {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("cannot set up TLS for {address}")]
    Tls { address: SocketAddr, source: rustls::Error },
    #[error("{name:?} cannot be the name of a TLS server")]
    ServerName { name: String },
    #[error("{address} asks for a login; write username and the place of its password in [access]")]
    NoLogin { address: SocketAddr },
    #[error("{address} refused the login of {username:?}: {said}")]
    Login { address: SocketAddr, username: String, said: String },
    #[error("it accepts connections on {address}, but ends the connection after {question:?}")]
    Ask { address: SocketAddr, question: String, source: io::Error },
    #[error("{address} sees {seen} of the {count} nodes of its cluster")]
    Nodes { address: SocketAddr, seen: usize, count: u32 },
    #[error("it answers {question:?} on {address} with {answer:?}")]
    Answer { address: SocketAddr, question: String, answer: String },
}

/// A connection to a running system.
#[derive(Debug)]
pub(crate) struct SystemConnection {
    stream: Stream,
    address: SocketAddr,
    question: String,
    limit: Duration,
    deadline: Instant,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

/// Begins TLS on a socket. The handshake is made with the first request.
fn with_tls(
    socket: TcpStream,
    address: SocketAddr,
    access: &ClientAccess,
) -> Result<Stream, ClientRouteError> {
    let fail = |source| ClientRouteError::Tls { address, source };
    let mut roots = RootCertStore::empty();
    let text = access.authorities.as_deref().unwrap_or_default();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(text.as_bytes()).flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(fail)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = match &access.server_name {
        None => ServerName::from(address.ip()),
        Some(name) => ServerName::try_from(name.clone())
            .map_err(|_| ClientRouteError::ServerName { name: name.clone() })?,
    };
    let session = rustls::ClientConnection::new(Arc::new(config), name).map_err(fail)?;
    Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
}

impl ClientRoute {
    /// Returns the login that systems may ask for.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.access.login.as_ref()
    }

    /// Connects to a system.
    ///
    /// # Errors
    /// If nothing listens there, or not yet.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
    ) -> Result<SystemConnection, ClientRouteError> {
        let socket = dial(self.namespace.as_deref(), address, LIMIT)?;
        let stream = match self.access.connection.tls {
            true => with_tls(socket, address, &self.access)?,
            false => Stream::Plain(socket),
        };
        Ok(SystemConnection::of(stream, address))
    }
}

/// Connects to an address of a network namespace; `None`: that of this process.
fn dial(
    namespace: Option<&Path>,
    address: SocketAddr,
    limit: Duration,
) -> Result<TcpStream, ClientRouteError> {
    let connect = || TcpStream::connect_timeout(&address, limit);
    let stream = match namespace {
        Some(namespace) => netns::within(namespace, connect)?,
        None => connect(),
    };
    let fail = |source| ClientRouteError::Connect { address, source };
    let stream = stream.map_err(fail)?;
    stream.set_nodelay(true).map_err(fail)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(fail)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(fail)?;
    Ok(stream)
}

impl SystemConnection {
    fn of(stream: Stream, address: SocketAddr) -> Self {
        let (question, deadline) = (String::new(), Instant::now() + LIMIT);
        Self { stream, address, question, limit: LIMIT, deadline }
    }

    /// Connects without TLS to an address of a network namespace; `None`: that of this process.
    pub(crate) fn plain(
        namespace: Option<&Path>,
        address: SocketAddr,
    ) -> Result<Self, ClientRouteError> {
        Ok(Self::of(Stream::Plain(dial(namespace, address, PLAIN_LIMIT)?), address))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the time limit of further answers.
    pub(crate) fn limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends bytes; `question` names them in errors.
    pub(crate) fn send(&mut self, question: &str, bytes: &[u8]) -> Result<(), ClientRouteError> {
        self.question = question.into();
        self.deadline = Instant::now() + self.limit;
        self.stream.write_all(bytes).map_err(|source| self.broke_off(source))
    }

    /// Reads exactly `count` bytes of the answer.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<Vec<u8>, ClientRouteError> {
        if count > ANSWER_BYTES_MAX {
            return Err(self.unexpected_answer(format!("an answer of {count} bytes")));
        }
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            let left = self.deadline.saturating_duration_since(Instant::now());
            // Zero means no limit.
            let left = left.max(Duration::from_millis(1));
            let read = self.stream.socket().set_read_timeout(Some(left));
            match read.and_then(|()| self.stream.read(&mut bytes[filled..])) {
                Ok(0) => return Err(self.broke_off(io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broke_off(error)),
            }
        }
        Ok(bytes)
    }

    /// Reads a line of the answer, without its end.
    pub(crate) fn line(&mut self) -> Result<String, ClientRouteError> {
        let mut line = Vec::new();
        loop {
            match self.bytes(1)?[0] {
                b'\n' => break,
                byte if line.len() < ANSWER_BYTES_MAX => line.push(byte),
                _ => return Err(self.unexpected_answer("a line without an end".into())),
            }
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_string())
    }

    /// Makes an error of a login that failed.
    pub(crate) fn refused_login(&self, login: &Login, said: &str) -> ClientRouteError {
        let username = login.username.clone();
        ClientRouteError::Login { address: self.address, username, said: said.into() }
    }

    /// Makes an error of a system that asks for a login where there is none.
    pub(crate) fn no_login(&self) -> ClientRouteError {
        ClientRouteError::NoLogin { address: self.address }
    }

    /// Makes an error of an answer that does not fit.
    pub(crate) fn unexpected_answer(&self, mut answer: String) -> ClientRouteError {
        let end = answer.char_indices().nth(200).map_or(answer.len(), |(at, _)| at);
        answer.truncate(end);
        ClientRouteError::Answer { address: self.address, question: self.question.clone(), answer }
    }

    fn broke_off(&self, source: io::Error) -> ClientRouteError {
        ClientRouteError::Ask { address: self.address, question: self.question.clone(), source }
    }
}
