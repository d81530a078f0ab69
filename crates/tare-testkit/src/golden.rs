//! Golden files: texts that a test compares with a file of the repository.

use std::path::Path;

use snapbox::Data;

/// Compares a text with a file, except for CR before LF. With `SNAPSHOTS=overwrite` in the
/// environment it writes the file instead.
///
/// # Panics
/// If they differ; the message shows the lines that do.
pub fn golden(path: &Path, text: impl Into<String>) {
    snapbox::assert_data_eq!(Data::text(text).raw(), Data::read_from(path, None).raw());
}

/// Whether the tests are to write their golden files, for those that [`golden`] does not cover.
pub fn overwrites_golden_files() -> bool {
    std::env::var_os("SNAPSHOTS").is_some_and(|action| action == "overwrite")
}
