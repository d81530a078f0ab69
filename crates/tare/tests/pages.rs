//! Checks the project's pages against the built program: commands of the README, words of the
//! glossary.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use common::{run_in, stdout};
use tare::cli::Arguments;

fn read(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Splits a command line into words; quotes group, as in a shell.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('"').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

/// Returns the commands of a page: lines of its shell blocks, and examples between backticks.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut shell = false;
    for line in page.lines() {
        if line.starts_with("```") {
            shell = line == "```sh";
        } else if shell {
            let command = line.split("  #").next().unwrap_or(line).trim();
            found.extend(command.split("; ").map(String::from));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(String::from));
        }
    }
    found.retain(|command| command.starts_with("tare "));
    found
}

#[test]
fn commands_of_the_readme_are_valid() {
    let commands = commands(&read("README.md"));
    let mut examples = 0;
    for command in commands {
        let words = words(&command);
        // `tare load` alone names the command; an example has arguments.
        if words.len() == 2 {
            let help = run_in(Path::new("."), [words[1].as_str(), "--help"]);
            assert!(help.status.success(), "{command}");
            continue;
        }
        examples += 1;
        let parsed = Arguments::try_parse_from(&words);
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
    }
    assert!(examples >= 8, "the README has {examples} examples");
}

#[test]
fn a_wrong_command_is_found() {
    let page = "`tare wiegh quick`\n```sh\ntare weigh --no-such-option quick\n```";
    for command in commands(page) {
        assert!(Arguments::try_parse_from(words(&command)).is_err(), "{command}");
    }
    assert_eq!(words("a \"b c\" d"), ["a", "b c", "d"]);
}

#[test]
fn table_of_results_is_that_of_the_records() {
    let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let here = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    for file in std::fs::read_dir(results).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if name.ends_with(".tare") || name.ends_with(".md") {
            std::fs::copy(file.path(), here.path().join(&name)).unwrap();
        }
        if name.ends_with(".tare") {
            for report in ["md", "html"] {
                let report = file.path().with_extension(report);
                assert!(report.exists(), "{}; run scripts/results", report.display());
            }
            records.push(name);
        }
    }
    assert!(!records.is_empty());
    let output =
        run_in(here.path(), [&["history".into(), "--markdown".into()], &records[..]].concat());
    let page = read("docs/results/README.md");
    let rows = stdout(&output);
    let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with("| [")).collect();
    assert!(rows.len() > records.len(), "{rows:?}");
    for row in rows {
        assert!(page.contains(row), "{row}\nis not in the page; run scripts/results");
    }
}

/// Returns the names of one kind that the program lists: the first words of lines indented by two.
fn listed(kind: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), ["list", kind]);
    assert!(output.status.success());
    let text = stdout(&output);
    let lines = text.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let name = |line: &str| line.split_whitespace().next().map(String::from);
    let names: BTreeSet<String> = lines.filter_map(name).collect();
    assert!(names.len() > 3, "{kind}: {names:?}");
    names
}

/// Returns the names in the first cells of a section's table.
fn explained(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2));
    names.filter(|name| !name.is_empty()).map(String::from).collect()
}

#[test]
fn the_glossary_explains_what_the_program_lists() {
    let page = read("docs/concepts/glossary.md");
    for (kind, heading) in [("systems", "Systems"), ("drivers", "Drivers")] {
        assert_eq!(listed(kind), explained(&page, heading), "{kind}");
    }
    // A runtime may have a name after a colon; the limits are explained together.
    let stem = |name: String| match name.starts_with("limits.") {
        true => "limits".to_string(),
        false => name.split([':', '[']).next().unwrap_or_default().to_string(),
    };
    let stems = |kind: &str| listed(kind).into_iter().map(stem).collect::<BTreeSet<String>>();
    assert_eq!(stems("runtimes"), explained(&page, "Runtimes"));
    assert_eq!(stems("layers"), explained(&page, "The layers"));
}
