//! The rows of a load in a system that Tare is attached to: a keyspace (CQL), a database
//! (PostgreSQL), or the keys with a prefix (Redis) that are named after the run. They are in the
//! journal before the first row is written, and removed from the host's network namespace.
//!
//! The journal has the place of a password, never the password. Redis is asked for all of its keys,
//! in small steps.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::journal::Entry;
use tare_host::undo::UndoKinds;
use tare_lab::access::ClientAccess;
use tare_lab::environment::Endpoint;
use tare_lab::study::{AccessSpec, ClientConnection};

use crate::access::{self, AccessError};
use crate::client_route::{ClientRoute, ClientRouteError};
use crate::redis::{self, KeyPolicy};
use crate::{cql, postgres};

/// An entry of this module, as it is written in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "own_rows")]
pub struct OwnRows {
    /// The protocol of the system, in the drivers' word for it.
    pub speaks: String,
    pub address: SocketAddr,
    /// The keyspace, the database, or what keys begin with before a colon.
    pub name: String,
    /// The login and the certificates, by where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    #[serde(default, skip_serializing_if = "ClientConnection::is_plain")]
    pub connection: ClientConnection,
}

/// Why the rows of a load cannot be in an attached system.
#[derive(Debug, thiserror::Error)]
pub enum OwnRowsError {
    #[error(transparent)]
    Route(#[from] ClientRouteError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(
        "Redis at {address} has maxmemory_policy = {policy}: it may drop keys of yours for those of the \
         load; measure one with noeviction, or without maxmemory"
    )]
    Evicts { address: SocketAddr, policy: String },
    #[error("Redis at {address} is a node of a Redis Cluster, which Tare cannot load")]
    Clustered { address: SocketAddr },
    #[error(
        "{address} is a node of a cluster with {others} others, which the load would reach too; Tare \
         attaches to a single node"
    )]
    Nodes { address: SocketAddr, others: usize },
    #[error("Tare cannot keep rows of its own apart in a system that speaks {speaks}")]
    NoPlace { speaks: String },
}

/// Returns the name for the rows of a run.
pub fn name(run: &str) -> String {
    format!("tare_{run}")
}

/// Checks that rows of a load leave those of the user in a system alone.
///
/// # Errors
/// If the system does not answer, may drop rows of the user for others, or is one of several nodes.
pub fn check(speaks: &str, address: SocketAddr, access: &ClientAccess) -> Result<(), OwnRowsError> {
    let route = ClientRoute { access: access.clone(), ..ClientRoute::default() };
    match speaks {
        "redis" => match redis::key_policy(&route, address)? {
            KeyPolicy::Keeps => Ok(()),
            KeyPolicy::Evicts(policy) => Err(OwnRowsError::Evicts { address, policy }),
            KeyPolicy::Clustered => Err(OwnRowsError::Clustered { address }),
        },
        "cql" => check_nodes(address, &route),
        "postgres" => Ok(()),
        other => Err(OwnRowsError::NoPlace { speaks: other.into() }),
    }
}

/// The driver would load all nodes of a cluster, and only one of them is attached.
fn check_nodes(address: SocketAddr, route: &ClientRoute) -> Result<(), OwnRowsError> {
    let at = Endpoint { address, data: None, inside: None };
    let mut session = cql::Session::open(route, &at)?;
    match session.query("SELECT peer FROM system.peers")?.len() {
        0 => Ok(()),
        others => Err(OwnRowsError::Nodes { address, others }),
    }
}

impl OwnRows {
    fn remove(&self) -> Result<(), OwnRowsError> {
        let name = self.name.as_str();
        let access = self.access.as_ref().map(|spec| access::resolve(spec, self.connection));
        let access = access.transpose()?.unwrap_or_default();
        let route = ClientRoute { access, ..ClientRoute::default() };
        let at = Endpoint { address: self.address, data: None, inside: None };
        match self.speaks.as_str() {
            "redis" => Ok(redis::remove_keys(&route, self.address, &format!("{name}:"))?),
            "cql" => {
                let drop = format!("DROP KEYSPACE IF EXISTS {name}");
                Ok(cql::Session::open(&route, &at)?.change(&drop)?)
            }
            "postgres" => Ok(postgres::drop_database(&route, &at, name)?),
            other => Err(OwnRowsError::NoPlace { speaks: other.into() }),
        }
    }
}

impl From<&OwnRows> for Entry {
    fn from(rows: &OwnRows) -> Self {
        Self::new(rows)
    }
}

/// Undoes the entries of this module.
#[derive(Debug)]
pub struct OwnRowsKinds;

impl UndoKinds for OwnRowsKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &["own_rows"]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        let rows: OwnRows = entry.read()?;
        if rows.name != name(run) {
            return Err(UndoError::NotOurs { what: rows.name, run: run.into() });
        }
        rows.remove().map_err(|error| UndoError::OfKind(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_of_the_run_are_removed() {
        let text =
            r#"{"kind":"own_rows","speaks":"redis","address":"127.0.0.1:1","name":"tare_ab12"}"#;
        let entry: Entry = serde_json::from_str(text).unwrap();
        let rows: OwnRows = entry.read().unwrap();
        assert_eq!(Entry::from(&rows), entry);
        let other = OwnRowsKinds.undo("cd34", &entry).unwrap_err();
        assert!(matches!(other, UndoError::NotOurs { .. }), "{other}");
        let silent = OwnRowsKinds.undo("ab12", &entry).unwrap_err();
        assert!(silent.to_string().contains("127.0.0.1:1"), "{silent}");
    }
}
