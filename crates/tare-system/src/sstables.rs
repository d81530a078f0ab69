//! The files of a data directory of Cassandra or Scylla, whose tables are SSTables.

use std::path::Path;

use rustix::process::Signal;
use tare_host::tree_copy::FileUse;

use super::saved_data::DataFiles;

/// The components of an SSTable that are written once. The others are small, and may be written
/// again: statistics, summaries, filters and the list of components.
const CONSTANT: [&str; 6] =
    ["-Data.db", "-Index.db", "-Partitions.db", "-Rows.db", "-CompressionInfo.db", "-Digest.crc32"];

/// Data whose system flushes all tables when SIGTERM ends it, so that the commit log is empty.
pub(crate) const fn data_files(use_of: fn(&Path) -> FileUse) -> DataFiles {
    DataFiles { mark: "data/system_schema", while_running: None, use_of, stop: Signal::TERM }
}

/// Returns what becomes of a file in a restore. What is in the directories `left_out` stays behind,
/// and components with the ends `also` are written once too.
pub(crate) fn file_use(path: &Path, left_out: &[&str], also: &[&str]) -> FileUse {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_constant = || CONSTANT.iter().chain(also).any(|end| name.ends_with(end));
    match path.iter().next().and_then(|first| first.to_str()) {
        Some(first) if left_out.contains(&first) => FileUse::LeftOut,
        Some("data") if is_constant() => FileUse::Constant,
        _ => FileUse::Changing,
    }
}
