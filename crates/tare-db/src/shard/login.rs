//! Logins. A client answers AUTHENTICATE with SASL PLAIN (RFC 4616).
//!
//! A hash of a password takes time and memory by design (the defaults of the `argon2` crate: 19
//! MiB, about ten milliseconds), so a separate thread computes it, one login at a time; shards wait
//! for the result as for a sibling.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tare_cql::response::{Reply, encode_auth_success};

use crate::net::auth::Users;
use crate::net::reactor::ConnId;
use crate::query::failure::Failure;
use crate::shard::Shard;
use crate::shard::connections::{Conn, LoginPhase};
use crate::shard::message::Message;

/// The Java class by which drivers recognise SASL PLAIN.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";
/// Logins that may wait in the queue.
const LOGINS_MAX: usize = 256;

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

/// Makes the queue to the thread that checks logins.
pub(crate) fn queue() -> (SyncSender<Login>, Receiver<Login>) {
    sync_channel(LOGINS_MAX)
}

/// Checks logins until all shards have dropped their ends of the queue. `tell` sends the answer to
/// a shard.
pub(crate) fn check(users: &Users, logins: &Receiver<Login>, tell: impl Fn(usize, Message)) {
    for login in logins {
        let (shard, answer) = login.check(users);
        tell(shard, answer);
    }
}

impl Login {
    /// Checks the login, and returns the answer and the shard that it is for.
    pub(crate) fn check(self, users: &Users) -> (usize, Message) {
        let Self { shard, conn, reply, user, password } = self;
        let right = users.verify(&user, &password);
        let result = match right {
            true => Ok(()),
            // Some scripts look for this message of Cassandra's PasswordAuthenticator.
            false => Err(Failure::BadCredentials(format!(
                "Provided username {user} and/or password are incorrect"
            ))),
        };
        (shard, Message::LoggedIn { conn, reply, result })
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
