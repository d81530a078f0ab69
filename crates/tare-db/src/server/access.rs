//! Controls who can use the server: passwords and TLS. Both are required when more than this host
//! can reach the server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::net::auth::{AuthError, Users};
use crate::net::tls::{self, TlsAccess, TlsFilesError};
use crate::node::config::Config;
use crate::shard::SharedState;
use crate::shard::login::{self, Login};
use crate::shard::message::Message;

/// Why access to a server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(
        "will not listen on {address} without {missing}: anyone who reaches it could read and \
         write; give {options}, or --insecure to listen anyway"
    )]
    Insecure { address: SocketAddr, missing: &'static str, options: &'static str },
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Tls(#[from] TlsFilesError),
    #[error("cannot start the thread that checks logins")]
    Logins { source: io::Error },
}

/// The access control of a server.
pub(crate) struct AccessControl {
    pub(crate) tls: Option<TlsAccess>,
    pub(crate) logins: Option<Logins>,
}

impl AccessControl {
    /// Loads the users and the TLS files. Refuses to be open to a network unless the configuration
    /// says `insecure`.
    pub(crate) fn prepare(config: &Config) -> Result<Self, AccessError> {
        check_exposure(config)?;
        let users = config.users.as_deref().map(Users::read).transpose()?;
        let tls = config.tls.as_ref().map(tls::load).transpose()?;
        let is_optional = config.tls_optional;
        let tls = tls.map(|config| TlsAccess { config, is_optional });
        Ok(Self { tls, logins: users.map(Logins::new) })
    }
}

fn check_exposure(config: &Config) -> Result<(), AccessError> {
    let tls = config.tls.as_ref().filter(|_| !config.tls_optional);
    let (missing, options) = match (&config.users, tls) {
        _ if config.insecure || config.listen.is_loopback() => return Ok(()),
        (Some(_), Some(_)) => return Ok(()),
        (None, None) => ("passwords and TLS", "--auth-file, --tls-cert and --tls-key"),
        (None, Some(_)) => ("passwords", "--auth-file"),
        (Some(_), None) => ("TLS", "--tls-cert and --tls-key without --tls-optional"),
    };
    let address = SocketAddr::new(config.listen, config.port);
    Err(AccessError::Insecure { address, missing, options })
}

/// The check of logins before its thread is started.
pub(crate) struct Logins {
    users: Users,
    queue: SyncSender<Login>,
    waiting: Receiver<Login>,
}

impl Logins {
    fn new(users: Users) -> Self {
        let (queue, waiting) = login::queue();
        Self { users, queue, waiting }
    }

    /// The queue into which shards put their logins.
    pub(crate) fn queue(&self) -> SyncSender<Login> {
        self.queue.clone()
    }

    /// Starts the thread that checks logins. It ends with the last shard, or with the program.
    pub(crate) fn start(self, shared: &Arc<SharedState>) -> Result<(), AccessError> {
        let Self { users, waiting, .. } = self;
        let shared = Arc::downgrade(shared);
        let builder = std::thread::Builder::new().name("logins".into());
        let tell = move |shard, message| tell(&shared, shard, message);
        let thread = builder.spawn(move || login::check(&users, &waiting, tell));
        thread.map(drop).map_err(|source| AccessError::Logins { source })
    }
}

/// Sends an answer to a shard. A full mailbox is emptied within an iteration of its shard.
fn tell(shared: &Weak<SharedState>, shard: usize, mut message: Message) {
    while let Some(shared) = shared.upgrade() {
        match shared.mailboxes[shard].post(message) {
            Ok(()) => return,
            Err(_) if shared.stop.load(Ordering::Relaxed) => return,
            Err(back) => message = back,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
