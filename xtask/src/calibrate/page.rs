//! Generates the table of docs/concepts/trust.md from the results in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{line, summary};

const PAGE: &str = "docs/concepts/trust.md";
const RESULTS: &str = "fixtures/calibration";
const BEGIN: &str = "<!-- results: written by `cargo xtask calibrate --page` -->\n";
const END: &str = "<!-- end of results -->\n";

/// Writes the table if it has changed.
pub(super) fn write(root: &Path) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let (now, wanted) = both(root)?;
    if now != wanted {
        fs::write(&path, wanted).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The current page, and the page with the current results.
fn both(root: &Path) -> anyhow::Result<(String, String)> {
    let path = root.join(PAGE);
    let now =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (head, rest) = now.split_once(BEGIN).context("the page has no place for results")?;
    let (_, foot) = rest.split_once(END).context("the results on the page have no end")?;
    let wanted = format!("{head}{BEGIN}{}{END}{foot}", results(root)?);
    Ok((now, wanted))
}

/// A section for each file of results.
fn results(root: &Path) -> anyhow::Result<String> {
    let folder = root.join(RESULTS);
    if !folder.is_dir() {
        return Ok("\nNot run yet.\n".to_string());
    }
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut text = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text += &format!(
            "\n### [{name}](../../{RESULTS}/{name})\n\n{}",
            summary::markdown(&line::read(&file)?)
        );
    }
    Ok(if text.is_empty() { "\nNot run yet.\n".to_string() } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_page_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        if std::env::var_os("SNAPSHOTS").is_some_and(|action| action == "overwrite") {
            write(root).unwrap();
        }
        let (now, wanted) = both(root).unwrap();
        assert!(now == wanted, "cargo xtask calibrate --page rewrites it");
    }
}
