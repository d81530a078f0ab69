//! A campaign with attached systems: where its rows are, and how they are removed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::anyhow;
use tare_host::UndoError;
use tare_host::journal::{Entry, Journal};
use tare_lab::access::ClientAccess;
use tare_lab::attach::AttachedRows;
use tare_lab::study::Study;
use tare_system::own_rows::{self, OwnRows};

use crate::exit::{Exit, ExitWith};
use crate::registry::KINDS;

/// The rows of a run in attached systems. Dropping it removes them.
pub(super) struct RowsOfRun(
    /// `None`: nothing is written.
    Option<Journal>,
);

impl RowsOfRun {
    /// Writes to a journal where the rows will be, after a check that they leave those of the user
    /// alone, and tells the workloads of the study.
    ///
    /// # Errors
    /// If a system does not answer, or may drop rows of the user for them.
    pub(super) fn place(
        study: &mut Study,
        speaks: &str,
        client: &ClientAccess,
        state: &Path,
    ) -> anyhow::Result<Self> {
        let Some(first) = study.attached().next() else { return Ok(Self(None)) };
        let is_read_only = first.read_only;
        let addresses: BTreeSet<SocketAddr> = study.attached().map(|one| one.address).collect();
        for address in &addresses {
            let checked = own_rows::check(speaks, *address, client).map_err(|error| anyhow!(error));
            checked.exit_with(Exit::Host)?;
        }
        if is_read_only {
            tell(study, &AttachedRows::Users);
            return Ok(Self(None));
        }
        let journal = Journal::create(state, KINDS).exit_with(Exit::Host)?;
        let name = own_rows::name(journal.run());
        let (access, connection) = (study.access.clone(), client.connection);
        let entry = |address| OwnRows {
            speaks: speaks.into(),
            address,
            name: name.clone(),
            access: access.clone(),
            connection,
        };
        let entries = addresses.into_iter().map(|address| Entry::from(&entry(address))).collect();
        journal.write(entries).exit_with(Exit::Host)?;
        tell(study, &AttachedRows::Own(name));
        Ok(Self(Some(journal)))
    }

    /// Removes the rows. Idempotent. What could not be removed stays in the journal.
    pub(super) fn remove(&self) -> Vec<UndoError> {
        self.0.as_ref().map(Journal::close).unwrap_or_default()
    }
}

impl Drop for RowsOfRun {
    fn drop(&mut self) {
        self.remove();
    }
}

fn tell(study: &mut Study, rows: &AttachedRows) {
    study.workloads.iter_mut().for_each(|one| one.attached_rows = Some(rows.clone()));
}

/// Refuses a command that changes the layers of its environments.
///
/// # Errors
/// If the study has an attached system.
pub(crate) fn refuse(study: &Study, command: &str) -> anyhow::Result<()> {
    match study.attached().next() {
        None => Ok(()),
        Some(_) => Err(anyhow!(
            "{command} starts environments with other layers, and the study {} is attached to a system \
             that runs already; use tare weigh",
            study.name
        ))
        .exit_with(Exit::Input),
    }
}
