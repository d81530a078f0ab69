//! Compares what the project says of itself with what is there. Reads only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Files that may contain `unsafe`, each with the reason.
const UNSAFE_FILES: [(&str, &str); 6] = [
    ("crates/tare-db/src/net/reactor/uring.rs", "io_uring's queues are raw memory"),
    ("crates/tare-db/src/node/memory/heap.rs", "mallopt has no safe interface"),
    ("crates/tare-db/src/node/metrics/page.rs", "counters in a shared memory mapping"),
    ("crates/tare-disk/src/sys.rs", "io_uring's buffers and mincore are raw memory"),
    ("crates/tare-load/tests/memory.rs", "an allocator that counts"),
    ("crates/tare-probe/src/bpf/sys.rs", "bpf(2) takes addresses"),
];

/// Longest source file. A file above it is split, not listed.
const LINES_MAX: usize = 1000;

/// Words that say that something was left for later. Spelt apart so that this file passes.
const MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("todo", "!(")];

/// Finds every untidiness and fails with the list.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = tracked(root)?;
    let mut found: Vec<String> = Vec::new();
    found.extend(sources(root, &files)?);
    found.extend(crates(root)?);
    found.extend(changelog(root)?);
    found.extend(toolchain(root)?);
    found.extend(links(root, &files)?);
    if found.is_empty() {
        return Ok(());
    }
    bail!("tidy: {} finding(s)\n  {}", found.len(), found.join("\n  "))
}

/// Files that git tracks or would track.
fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git to list the files")?;
    let text = String::from_utf8(output.stdout).context("git lists a file that is not UTF-8")?;
    Ok(text.lines().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect())
}

/// Length, markers and unsafe code of every Rust file.
fn sources(root: &Path, files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let text = read(&root.join(file))?;
        let name = file.display();
        let lines = text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{name}: {lines} lines; split it (at most {LINES_MAX})"));
        }
        for marker in MARKERS.iter().filter(|marker| text.contains(**marker)) {
            found.push(format!("{name}: contains {marker}"));
        }
        let listed = UNSAFE_FILES.iter().any(|(listed, _)| Path::new(listed) == file);
        let uses = |line: &str| {
            let code = line.trim_start();
            !code.starts_with("//")
                && (code.contains("unsafe {")
                    || code.contains("unsafe fn ")
                    || code.contains("unsafe impl "))
        };
        if !listed && text.lines().any(uses) && !file.ends_with("tidy.rs") {
            found.push(format!(
                "{name}: unsafe code in a file that is not listed in xtask/src/tidy.rs"
            ));
        }
    }
    for (listed, _) in UNSAFE_FILES.iter().filter(|(listed, _)| !root.join(listed).is_file()) {
        found.push(format!("{listed}: listed as unsafe in xtask/src/tidy.rs, but gone"));
    }
    Ok(found)
}

/// Each crate stands in ARCHITECTURE.md and has a short README.
fn crates(root: &Path) -> anyhow::Result<Vec<String>> {
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    let folder = root.join("crates");
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let readme = folder.join(&name).join("README.md");
        match fs::read_to_string(&readme) {
            Ok(text) if text.lines().count() > 20 => {
                found.push(format!("{}: more than 20 lines", readme.display()));
            }
            Ok(_) => {}
            Err(_) => found.push(format!("{}: missing", readme.display())),
        }
        if !architecture.contains(&format!("`crates/{name}`")) {
            found.push(format!("ARCHITECTURE.md does not name `crates/{name}`"));
        }
        names.insert(name);
    }
    for word in architecture.split('`').filter_map(|word| word.strip_prefix("crates/")) {
        let name = word.split('/').next().unwrap_or(word);
        if !names.contains(name) {
            found.push(format!("ARCHITECTURE.md names `crates/{name}`, which is not there"));
        }
    }
    Ok(found)
}

/// Keep-a-Changelog headings and no others, besides Comparability.
fn changelog(root: &Path) -> anyhow::Result<Vec<String>> {
    const HEADINGS: [&str; 7] =
        ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Comparability"];
    let text = read(&root.join("CHANGELOG.md"))?;
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    let odd = headings.filter(|heading| !HEADINGS.contains(heading));
    Ok(odd
        .map(|heading| format!("CHANGELOG.md: the heading {heading:?} is not one of {HEADINGS:?}"))
        .collect())
}

/// The Rust version is the same wherever it is written.
fn toolchain(root: &Path) -> anyhow::Result<Vec<String>> {
    let pinned = read(&root.join("rust-toolchain.toml"))?;
    let pinned = pinned.split('"').nth(1).context("rust-toolchain.toml names no channel")?;
    let manifest = read(&root.join("Cargo.toml"))?;
    let line = manifest.lines().find(|line| line.starts_with("rust-version"));
    let wanted =
        line.and_then(|line| line.split('"').nth(1)).context("Cargo.toml names no rust-version")?;
    let same =
        pinned == wanted || pinned.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
    let finding = format!("rust-toolchain.toml pins {pinned}, Cargo.toml wants {wanted}");
    Ok(if same { Vec::new() } else { vec![finding] })
}

/// Relative links in Markdown lead to files that exist.
fn links(root: &Path, files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "md")) {
        let text = read(&root.join(file))?;
        let folder = root.join(file).parent().map(PathBuf::from).unwrap_or_default();
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://") || path.contains(' ');
            if !elsewhere && !folder.join(path).exists() {
                found.push(format!("{}: the link to {target} leads nowhere", file.display()));
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
