//! Checks who may log in: users and argon2 hashes of their passwords, one per line of a file. A
//! client answers AUTHENTICATE with SASL PLAIN (RFC 4616).
//!
//! A hash takes time and memory by design (the defaults of the `argon2` crate: 19 MiB, about ten
//! milliseconds), so a thread of its own computes it, one login at a time; shards wait for the
//! result as for a sibling. A user who does not exist takes the same time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

use crate::net::reactor::ConnId;
use crate::query::failure::Failure;
use crate::shard::message::Message;
use crate::shard::{Conn, Shard};
use tare_cql::response::{Reply, encode_auth_success};

/// The Java class by which drivers recognise SASL PLAIN.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";
/// Logins that may wait in the queue.
const LOGINS_MAX: usize = 256;

/// Why the users cannot be read, or an entry cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("cannot read the users in {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("line {line} of {} is not USER:HASH as `tare db password USER` makes it", .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("user {user:?} appears twice in {}", .path.display())]
    Twice { path: PathBuf, user: String },
    #[error("{} names no user", .path.display())]
    Empty { path: PathBuf },
    #[error(
        "{user:?} cannot be the name of a user: it must not be empty or contain \":\", \"#\" or control characters"
    )]
    Name { user: String },
    #[error("the password is empty")]
    NoPassword,
    #[error("cannot hash the password: {reason}")]
    Hash { reason: argon2::password_hash::Error },
}

/// The users of a file, with their hashes in the PHC form.
#[derive(Debug)]
pub(crate) struct Users(BTreeMap<String, String>);

impl Users {
    /// Reads lines of `USER:HASH`. Skips empty lines and those that begin with `#`.
    pub(crate) fn read(path: &Path) -> Result<Self, AuthError> {
        let path = path.to_path_buf();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(AuthError::Read { path, source }),
        };
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line_text = line.trim();
            if line_text.is_empty() || line_text.starts_with('#') {
                continue;
            }
            let entry =
                line_text.split_once(':').filter(|(_, hash)| PasswordHash::new(hash).is_ok());
            let Some((user, hash)) = entry else {
                return Err(AuthError::Line { path, line: number });
            };
            if users.insert(user.to_string(), hash.to_string()).is_some() {
                return Err(AuthError::Twice { path, user: user.to_string() });
            }
        }
        if users.is_empty() {
            return Err(AuthError::Empty { path });
        }
        Ok(Self(users))
    }

    /// Whether the password is the user's. The check of a user who does not exist takes about as
    /// long.
    fn knows(&self, user: &str, password: &[u8]) -> bool {
        let there = self.0.get(user);
        let hash = there.or_else(|| self.0.values().next());
        let hash = hash.and_then(|hash| PasswordHash::new(hash).ok());
        let right =
            hash.is_some_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        right && there.is_some()
    }
}

/// Makes the line of a user for the file.
pub fn entry(user: &str, password: &str) -> Result<String, AuthError> {
    if user.is_empty() || user.contains([':', '#']) || user.contains(char::is_control) {
        return Err(AuthError::Name { user: user.into() });
    }
    if password.is_empty() {
        return Err(AuthError::NoPassword);
    }
    let hash = Argon2::default().hash_password(password.as_bytes());
    let hash: PasswordHash = hash.map_err(|reason| AuthError::Hash { reason })?;
    Ok(format!("{user}:{hash}"))
}

/// Decodes user and password of SASL PLAIN: `[identity] NUL user NUL password`.
pub(crate) fn decode_plain(token: &[u8]) -> Result<(&str, &[u8]), Failure> {
    let mut parts = token.splitn(3, |byte| *byte == 0);
    let (_, user, password) = (parts.next(), parts.next(), parts.next());
    let user = user.and_then(|user| std::str::from_utf8(user).ok());
    match (user, password) {
        (Some(user), Some(password)) => Ok((user, password)),
        _ => Err(Failure::Protocol("the login is not SASL PLAIN".into())),
    }
}

/// A login that waits to be checked.
pub(crate) struct Login {
    shard: usize,
    conn: ConnId,
    reply: Reply,
    user: String,
    password: Vec<u8>,
}

/// The state of a connection's login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoginPhase {
    /// STARTUP has not come yet.
    #[default]
    New,
    /// The server has asked for a login.
    Login,
    /// The login is being checked.
    Checking,
    Ready,
}

/// Makes the queue to the thread that checks logins.
pub(crate) fn queue() -> (SyncSender<Login>, Receiver<Login>) {
    sync_channel(LOGINS_MAX)
}

/// Checks logins until all shards have dropped their ends of the queue. `tell` sends the answer to
/// a shard.
pub(crate) fn check(users: &Users, logins: &Receiver<Login>, tell: impl Fn(usize, Message)) {
    for Login { shard, conn, reply, user, password } in logins {
        let right = users.knows(&user, &password);
        let result = match right {
            true => Ok(()),
            // Some scripts look for this message of Cassandra's PasswordAuthenticator.
            false => Err(Failure::BadCredentials(format!(
                "Provided username {user} and/or password are incorrect"
            ))),
        };
        tell(shard, Message::LoggedIn { conn, reply, result });
    }
}

impl Shard {
    /// Queues a login for the check.
    pub(crate) fn check_login(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        user: &str,
        password: &[u8],
    ) -> Result<(), Failure> {
        let Some(logins) = &self.shared.logins else {
            return Err(Failure::Protocol("this server needs no authentication".into()));
        };
        let (user, password) = (user.to_string(), password.to_vec());
        let login = Login { shard: self.number, conn: conn.id, reply, user, password };
        match logins.try_send(login) {
            Ok(()) => {
                conn.phase = LoginPhase::Checking;
                self.connections.unanswered += 1;
                Ok(())
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                Err(Failure::Overloaded("too many logins at once; try again".into()))
            }
        }
    }

    /// Answers a login and admits the client if it was right.
    pub(crate) fn logged_in(&mut self, id: ConnId, reply: Reply, result: Result<(), Failure>) {
        self.connections.unanswered -= 1;
        if result.is_err() {
            self.telemetry.counters.errors += 1;
        }
        let Some(conn) = self.connections.get_mut(id) else { return };
        match result {
            Ok(()) => {
                conn.phase = LoginPhase::Ready;
                encode_auth_success(&mut conn.out, reply, None);
            }
            Err(failure) => {
                failure.encode(&mut conn.out, reply);
                conn.closing = true;
            }
        }
        self.connections.mark_dirty(id);
    }
}
