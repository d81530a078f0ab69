//! Cassandra or Scylla that runs already: no installation and no options are needed, only answers
//! to queries.

use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};
use tare_lab::system::{LoopTimes, System};

use super::client_route::ClientRoute;
use super::cql::Session;
use super::{cassandra, scylla};

/// A database that speaks CQL and is not started.
#[derive(Debug)]
pub(super) struct AttachedCql {
    pub(super) name: &'static str,
    pub(super) client_route: ClientRoute,
}

impl System for AttachedCql {
    fn name(&self) -> &str {
        self.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        Launch::default()
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        Ok(Session::open(&self.client_route, at).map(drop)?)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        Ok(match self.name {
            "scylla" => scylla::settings(&mut session)?,
            _ => cassandra::settings(&mut session)?,
        })
    }

    fn loop_times(&self, at: &Endpoint) -> Result<Option<LoopTimes>, PartError> {
        match self.name {
            "scylla" => Ok(Some(scylla::attached_loop_times(&self.client_route, at)?)),
            _ => Ok(None),
        }
    }
}
