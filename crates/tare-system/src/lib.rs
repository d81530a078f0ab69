//! Systems under test: what a study can weigh. The contract is `tare_lab::system::System`; one file
//! per implementation, all of them in `ALL`.
//!
//! Programs of other projects are started by `starter` from inside their environment.
//! `client_route` checks over the network whether they are ready, which settings they use, and
//! whether they are idle.
#![forbid(unsafe_code)]

pub mod access;
mod attached_cql;
mod cassandra;
mod certificate;
mod client_route;
mod command;
mod cql;
pub mod doctor;
mod fio;
mod http;
mod image;
mod image_start;
mod instances;
mod java;
mod mariadb;
mod memcached;
mod mysql;
mod options;
pub mod own_rows;
mod postgres;
mod readiness;
mod redis;
mod redis_answers;
mod redis_latency;
mod saved_data;
mod scylla;
mod sstables;
mod starter;
mod tare_db;
/// Returns the first two cells of each row: names and values.
fn pairs(rows: Vec<Vec<String>>) -> Vec<(String, String)> {
    let pair = |row: Vec<String>| {
        let mut cells = row.into_iter();
        Some((cells.next()?, cells.next()?))
    };
    rows.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests;

use tare_lab::PartError;
use tare_lab::study::{OptionInfo, Study, SystemSpec};
use tare_lab::system::System;

pub use cassandra::{Cassandra, CassandraError, jdk_access};
pub use certificate::{CertificateError, SERVER_NAME, ServerCertificate};
pub use client_route::{ClientRoute, ClientRouteError};
pub use fio::{Fio, FioReportError};
pub use image_start::ImageStartError;
pub use mariadb::{MariaDb, MariaDbError};
pub use memcached::Memcached;
pub use options::OptionError;
pub use postgres::Postgres;
pub use redis::Redis;
pub use saved_data::SavedDataError;
pub use scylla::{Scylla, ScyllaError};
pub use starter::{StartSystemError, start};
pub use tare_db::{TareDb, TareDbError};

type Make = fn(&SystemSpec, &ClientRoute) -> Result<Box<dyn System>, PartError>;

/// One system as `tare list` shows it.
#[derive(Clone, Copy, Debug)]
pub struct SystemInfo {
    /// The name in a study.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The options that a study may set under `[system]`.
    pub options: &'static [OptionInfo],
    /// Whether its data may be a block device (storage `raw`) in place of a directory.
    pub takes_device: bool,
    /// Whether it has no data in files, so that none can be restored.
    pub in_memory: bool,
    /// How clients with TLS reach one that Tare starts.
    pub tls: TlsSupport,
    /// The protocol that it speaks, in the drivers' word for it: `cql`, `redis` ...
    speaks: fn(&SystemSpec) -> String,
    /// Looks for its program on this host: returns its path, or how to install it. `None` if it is
    /// part of Tare, or the study names it.
    pub found: Option<fn() -> Result<String, &'static str>>,
    make: Make,
}

/// How clients with TLS reach a system that Tare starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsSupport {
    /// Tare starts it without TLS.
    No,
    /// On the port of the clients without TLS.
    Beside,
    /// It listens for clients with TLS, or for those without.
    Alone,
}

impl SystemInfo {
    /// Returns the system as a study describes it. The options must be those of `options`, which
    /// the study's parser checks.
    ///
    /// # Errors
    /// If an option has a wrong value, or the program cannot be found.
    pub fn make(
        &self,
        spec: &SystemSpec,
        client_route: &ClientRoute,
    ) -> Result<Box<dyn System>, PartError> {
        (self.make)(spec, client_route)
    }

    /// Returns the system of an environment that is attached to it: it is not started, so that no
    /// installation and no options of it are needed.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_attached(
        &self,
        spec: &SystemSpec,
        client_route: &ClientRoute,
    ) -> Result<Box<dyn System>, PartError> {
        match [cassandra::INFO.name, scylla::INFO.name].contains(&self.name) {
            true => {
                let client_route = client_route.clone();
                Ok(Box::new(attached_cql::AttachedCql { name: self.name, client_route }))
            }
            false => self.make(spec, client_route),
        }
    }

    /// Returns the system of a study: that of [`Self::make_attached`] if all environments are
    /// attached.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_for(
        &self,
        study: &Study,
        client_route: &ClientRoute,
    ) -> Result<Box<dyn System>, PartError> {
        match study.environments.iter().all(|spec| spec.attach.is_some()) {
            true => self.make_attached(&study.system, client_route),
            false => self.make(&study.system, client_route),
        }
    }

    /// Returns the protocol of the system as a study describes it.
    pub fn speaks(&self, spec: &SystemSpec) -> String {
        (self.speaks)(spec)
    }
}

/// All systems that a study may name.
pub const ALL: &[SystemInfo] = &[
    tare_db::INFO,
    redis::REDIS,
    redis::VALKEY,
    postgres::INFO,
    mariadb::MARIADB,
    mariadb::MYSQL,
    cassandra::INFO,
    scylla::INFO,
    memcached::INFO,
    command::INFO,
    image::INFO,
    fio::INFO,
];

/// Returns the system with this name.
pub fn find(name: &str) -> Option<&'static SystemInfo> {
    ALL.iter().find(|system| system.name == name)
}

/// Returns the path of a program on PATH, or how to install it.
fn program(name: &str, remedy: &'static str) -> Result<String, &'static str> {
    let found = tare_host::exec::find(name).map(|path| path.display().to_string());
    found.ok_or(remedy)
}
