//! The devices of the network paths of a run, in a table of their own.

use rusqlite::{Connection, Transaction, params};
use tare_std::net_device::NetDevice;

use super::columns::has_table;
use crate::path::LoaderPath;

/// Added without a new version: a reader that does not know the table needs nothing of it.
pub(super) const TABLES: &str = include_str!("paths.sql");

const LOADER: &str = "loader";
const SYSTEM: &str = "system";

/// Replaces the paths of the run.
pub(super) fn put(transaction: &Transaction<'_>, paths: &[LoaderPath]) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM paths", [])?;
    for path in paths {
        let ends = [(LOADER, Some(&path.there)), (SYSTEM, path.here.as_ref())];
        for (side, device) in ends {
            let Some(device) = device else { continue };
            // A device is numbers and texts, which JSON can always hold.
            let text = serde_json::to_string(device).unwrap_or_default();
            let sql = "INSERT INTO paths VALUES (?, ?, ?, ?)";
            transaction.execute(sql, params![path.loader, side, device.name, text])?;
        }
    }
    Ok(())
}

/// Returns the paths of the run. A device that cannot be understood is left out.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<LoaderPath>> {
    if !has_table(connection, "paths")? {
        return Ok(Vec::new());
    }
    // By name of the side: the loader's comes before the system's.
    let sql = "SELECT loader, side, device FROM paths ORDER BY loader, side";
    let mut statement = connection.prepare(sql)?;
    let read = statement.query_map([], |row| {
        let device: Option<NetDevice> = serde_json::from_str(&row.get::<_, String>(2)?).ok();
        Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?, device))
    })?;
    let mut paths: Vec<LoaderPath> = Vec::new();
    for row in read {
        let (loader, side, device) = row?;
        let Some(device) = device else { continue };
        match side.as_str() {
            LOADER => paths.push(LoaderPath { loader, there: device, here: None }),
            _ => {
                let known = paths.iter_mut().find(|path| path.loader == loader);
                known.into_iter().for_each(|path| path.here = Some(device.clone()));
            }
        }
    }
    Ok(paths)
}
