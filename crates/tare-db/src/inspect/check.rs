//! Verifies a data directory: the schema's journal, and for each shard the manifest, the commit log
//! and every table file with all its checksums and invariants.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_store::manifest::{Manifest, ManifestError, TableEntry};
use tare_store::recovery::{self, RecoveryError, TornTail};
use tare_store::table::{TableError, Verify};
use tare_store::{FileId, Files};

use super::{InspectError, TableFile};
use crate::JournalError;
use crate::node::directory::{ShardFiles, lock};
use crate::query::catalog::journal;

/// The contents that a check has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckSummary {
    pub shards: usize,
    /// Entries of the commit logs.
    pub log_entries: u64,
    pub tables: usize,
    pub table_bytes: u64,
    pub partitions: u64,
    pub rows: u64,
    /// Number of damages.
    pub damages: u64,
}

/// A result of the check.
#[derive(Debug, thiserror::Error)]
pub enum Finding {
    #[error(transparent)]
    Schema(JournalError),
    #[error(transparent)]
    Log(RecoveryError),
    #[error("in {}", .folder.display())]
    Table { folder: PathBuf, source: TableError },
    #[error(transparent)]
    Manifest(ManifestError),
    #[error("cannot open {}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the manifest lists {}, which does not exist", .path.display())]
    Missing { path: PathBuf },
    #[error("{} holds rows of table {found}; the manifest has table {listed}", .path.display())]
    Stranger { path: PathBuf, found: u32, listed: u32 },
    #[error("note: a crash left {} unfinished; the next start removes it", .path.display())]
    LeftOver { path: PathBuf },
    #[error(
        "note: a crash left commit log {} unfinished at offset {}; the next start cuts \
         it there", .0.file, .0.offset
    )]
    Torn(TornTail),
}

impl Finding {
    /// Whether data is lost or wrong. Other findings are for information.
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Torn(_) | Self::LeftOver { .. })
    }
}

/// Checks the data directory of a server that does not run, and calls `each` with every finding.
pub fn check(data: &Path, each: &mut dyn FnMut(&Finding)) -> Result<CheckSummary, InspectError> {
    if !data.join("shards").is_file() {
        return Err(InspectError::NoData { path: data.into() });
    }
    let _lock = lock(data)?;
    let mut checked = CheckSummary::default();
    let mut report = |finding: Finding, checked: &mut CheckSummary| {
        checked.damages += u64::from(finding.is_damage());
        each(&finding);
    };
    let schema = data.join("schema.log");
    if schema.is_file()
        && let Err(error) = journal::read(&schema, |_, _| {})
    {
        report(Finding::Schema(error), &mut checked);
    }
    for folder in shards(data)? {
        checked.shards += 1;
        let files = ShardFiles::new(folder.clone(), false);
        let manifest = match Manifest::read(&files) {
            Ok(manifest) => manifest,
            Err(error) => {
                // Only the manifest says which files count and where the log begins.
                report(Finding::Manifest(error), &mut checked);
                continue;
            }
        };
        match recovery::check(&files, manifest.log_sequence) {
            Ok((entries, torn)) => {
                checked.log_entries += entries;
                if let Some(torn) = torn {
                    report(Finding::Torn(torn), &mut checked);
                }
            }
            Err(error) => report(Finding::Log(error), &mut checked),
        }
        for listed in &manifest.tables {
            check_table(&folder, listed, &mut checked, &mut report);
        }
        let found = files.list();
        let found = found.map_err(|source| InspectError::Read { path: folder.clone(), source })?;
        for file in found {
            let is_listed = |number| manifest.tables.iter().any(|listed| listed.file == number);
            let left_over = match file {
                FileId::Table(number) => !is_listed(number),
                FileId::ManifestDraft => true,
                FileId::Log(_) | FileId::Manifest => false,
            };
            if left_over {
                let path = folder.join(file.file_name());
                report(Finding::LeftOver { path }, &mut checked);
            }
        }
    }
    Ok(checked)
}

fn check_table(
    folder: &Path,
    listed: &TableEntry,
    checked: &mut CheckSummary,
    report: &mut impl FnMut(Finding, &mut CheckSummary),
) {
    checked.tables += 1;
    checked.table_bytes += listed.bytes;
    let path = folder.join(FileId::Table(listed.file).file_name());
    let file = match File::open(&path) {
        Ok(file) => TableFile { file, number: listed.file },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return report(Finding::Missing { path }, checked);
        }
        Err(source) => return report(Finding::Unreadable { path, source }, checked),
    };
    let damaged = |source: TableError| Finding::Table { folder: folder.into(), source };
    let mut verify = match Verify::open(file.number, listed.bytes, file.reader()) {
        Ok(verify) => verify,
        Err(error) => {
            return report(damaged(error), checked);
        }
    };
    let footer = verify.table().footer();
    if footer.table != listed.table {
        let (found, listed) = (footer.table, listed.table);
        report(Finding::Stranger { path, found, listed }, checked);
    }
    checked.partitions += verify.table().statistics().partitions;
    checked.rows += verify.table().statistics().rows;
    verify.by_ref().for_each(|error| report(damaged(error), checked));
}

/// The directories of the shards, by number.
fn shards(data: &Path) -> Result<Vec<PathBuf>, InspectError> {
    let failed = |source| InspectError::Read { path: data.into(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(data).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("shard-"));
        found.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|shard| data.join(format!("shard-{shard}"))).collect())
}
