//! `tare history`: the costs of many records over time.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, anyhow};
use tare_host::error_line;
use tare_lab::analysis::analyse_with;
use tare_lab::record::Record;
use tare_report::history::{self, Entry, Unreadable};

use crate::cli::{FailOn, History};
use crate::exit::{Exit, ExitWith, exit_error};
use crate::stream::{Written, say, write_file};
use crate::terminal::style;

/// Most folders in folders that are searched for records.
const DEPTH_MAX: u32 = 8;

pub(crate) fn run(options: &History, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let files = files(&options.paths)?;
    let (entries, unreadable) = read(&files);
    let history = history::History::new(entries, unreadable);
    for one in &history.unreadable {
        say(&format!("tare: {}", one.reason));
    }
    let code = code(options, &history);
    if let Some(path) = &options.html {
        let page = tare_report::html::history(&history);
        if write_file(path, &page, out)? == Written::Printed {
            return Ok(code);
        }
    }
    if options.json {
        writeln!(out, "{}", history::json(&history))?;
    } else if options.csv {
        write!(out, "{}", history::csv(&history))?;
    } else if options.prometheus {
        write!(out, "{}", history::prometheus(&history))?;
    } else if options.markdown {
        write!(out, "{}", history::markdown(&history, page_of))?;
    } else {
        write!(out, "{}", history::terminal(&history, options.last as usize, style()))?;
        if let Some(path) = &options.html {
            writeln!(out, "page: {}", path.display())?;
        }
    }
    Ok(code)
}

fn code(options: &History, history: &history::History) -> Exit {
    let changed =
        options.fail_on.is_some_and(|what| history.has_claimed_change(what == FailOn::Rise));
    match changed {
        true => Exit::Differs,
        false if !history.unreadable.is_empty() => Exit::Input,
        false => Exit::Success,
    }
}

/// Returns the report beside a record, Markdown or HTML, or the record if there is none.
fn page_of(record: &str) -> String {
    let reports = ["md", "html"].map(|ending| Path::new(record).with_extension(ending));
    let found = reports.into_iter().find(|path| path.is_file());
    found.map_or_else(|| record.to_string(), |path| path.display().to_string())
}

/// Returns the files to read, each once.
pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            search(path, 0, &mut files).exit_with(Exit::Input)?;
            if files.len() == before {
                let error = anyhow!("no record (*.tare) in {}", path.display());
                return Err(exit_error(error, Exit::Input));
            }
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Adds the records in a folder and its subfolders. Links to folders are not followed.
fn search(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth < DEPTH_MAX {
            search(&path, depth + 1, files)?;
        } else if !is_folder && path.extension().is_some_and(|ending| ending == "tare") {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads records with as many threads as there are CPUs, in any order.
fn read(files: &[PathBuf]) -> (Vec<Entry>, Vec<Unreadable>) {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = file.display().to_string();
            let read = Record::read_costs(file).map(|(record, response_times)| {
                let analysis = analyse_with(&record, response_times);
                Entry::new(&name, &record, &analysis)
            });
            match read {
                Ok(entry) => entries.push(entry),
                Err(error) => unreadable.push(Unreadable { name, reason: error_line(&error) }),
            }
        }
        (entries, unreadable)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len().max(1));
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            // A panic of a worker is one of this program.
            match worker.join() {
                Ok((read, failed)) => {
                    entries.extend(read);
                    unreadable.extend(failed);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    unreadable.sort_by(|a, b| a.name.cmp(&b.name));
    (entries, unreadable)
}
