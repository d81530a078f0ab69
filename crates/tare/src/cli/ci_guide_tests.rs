//! The workflows of docs/guides/ci.md: each parses as YAML, has the keys that its forge needs, and
//! its command lines are ones of this program.

use clap::Parser;

use super::{Arguments, Command};

const GUIDE: &str = include_str!("../../../../docs/guides/ci.md");

/// A value of the subset of YAML that the workflows use.
#[derive(Debug, PartialEq)]
enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
    Nothing,
}

impl Yaml {
    fn get(&self, key: &str) -> &Yaml {
        let Yaml::Map(fields) = self else { panic!("{self:?} has no {key}") };
        let found = fields.iter().find(|(name, _)| name == key);
        &found.unwrap_or_else(|| panic!("no {key} in {fields:?}")).1
    }

    fn list(&self) -> &[Yaml] {
        let Yaml::List(items) = self else { panic!("{self:?} is no list") };
        items
    }

    fn text(&self) -> &str {
        let Yaml::Text(text) = self else { panic!("{self:?} is no text") };
        text
    }

    /// Every text, at any depth.
    fn texts(&self) -> Vec<&str> {
        match self {
            Yaml::Text(text) => vec![text],
            Yaml::List(items) => items.iter().flat_map(Yaml::texts).collect(),
            Yaml::Map(fields) => fields.iter().flat_map(|(_, value)| value.texts()).collect(),
            Yaml::Nothing => Vec::new(),
        }
    }
}

type Line<'t> = (usize, &'t str);

/// Parses block mappings, block sequences, literal scalars and plain scalars; panics on anything
/// that YAML 1.2 would read differently.
fn parse(text: &str) -> Yaml {
    let lines: Vec<Line<'_>> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| (line.len() - line.trim_start().len(), line.trim()))
        .collect();
    let mut rest = &lines[..];
    let value = block(&mut rest, 0);
    assert!(rest.is_empty(), "not in a block: {rest:?}");
    value
}

fn block<'t>(rest: &mut &[Line<'t>], least: usize) -> Yaml {
    let Some(&(indent, first)) = rest.first().filter(|line| line.0 >= least) else {
        return Yaml::Nothing;
    };
    let (mut items, mut fields) = (Vec::new(), Vec::new());
    while let Some(&(here, line)) = rest.first().filter(|line| line.0 >= indent) {
        assert_eq!(here, indent, "{line:?} is indented otherwise");
        *rest = &rest[1..];
        if let Some(item) = line.strip_prefix("- ") {
            assert!(first.starts_with("- "), "{line:?} in a mapping");
            items.push(in_list(item, indent + 2, rest));
        } else {
            assert!(!first.starts_with("- "), "{line:?} in a sequence");
            fields.push(field(line, indent, rest));
        }
    }
    if items.is_empty() { Yaml::Map(fields) } else { Yaml::List(items) }
}

fn in_list<'t>(item: &'t str, indent: usize, rest: &mut &[Line<'t>]) -> Yaml {
    if item == "|" {
        return literal(rest, indent);
    }
    if !is_field(item) {
        return scalar(item);
    }
    // The first field stands after the dash, the others below it.
    let mut fields = vec![field(item, indent, rest)];
    if let Yaml::Map(more) = block(rest, indent) {
        fields.extend(more);
    }
    Yaml::Map(fields)
}

fn is_field(text: &str) -> bool {
    text.split_once(':').is_some_and(|(key, after)| {
        (after.is_empty() || after.starts_with(' '))
            && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    })
}

fn field<'t>(line: &'t str, indent: usize, rest: &mut &[Line<'t>]) -> (String, Yaml) {
    assert!(is_field(line), "{line:?} is no field");
    let (key, value) = line.split_once(':').unwrap();
    let value = match value.trim() {
        "" => block(rest, indent + 1),
        "|" => literal(rest, indent + 1),
        text => scalar(text),
    };
    (key.to_string(), value)
}

fn literal(rest: &mut &[Line<'_>], least: usize) -> Yaml {
    let count = rest.iter().take_while(|line| line.0 >= least).count();
    let (mine, others) = rest.split_at(count);
    *rest = others;
    Yaml::Text(mine.iter().map(|line| line.1).collect::<Vec<_>>().join("\n"))
}

fn scalar(text: &str) -> Yaml {
    if let Some(items) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return Yaml::List(items.split(',').map(|item| scalar(item.trim())).collect());
    }
    let special = text.starts_with(['"', '\'', '{', '[', '&', '*', '!', '|', '>', '%', '@', '`']);
    assert!(!special && !text.contains(": ") && !text.contains(" #"), "{text:?} needs quotes");
    Yaml::Text(text.to_string())
}

fn workflows() -> Vec<Yaml> {
    let blocks = GUIDE.split("```yaml\n").skip(1);
    blocks.map(|block| parse(block.split_once("```").unwrap().0)).collect()
}

/// The words of a simple command, without redirections and what follows `||`.
fn words(line: &str) -> Vec<String> {
    let line = line.split(" || ").next().unwrap().split(" >> ").next().unwrap();
    let mut words = Vec::new();
    for (at, part) in line.split('"').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_string)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

#[test]
fn ci_workflows_parse_and_their_commands_exist() {
    let [github, gitlab] = &workflows()[..] else { panic!("two workflows") };
    assert_eq!(github.get("on"), &parse("pull_request:"));
    assert_eq!(github.get("permissions").get("contents").text(), "read");
    let steps = github.get("jobs").get("tare").get("steps").list();
    assert_eq!(steps[0].get("uses").text(), "actions/checkout@v4");
    assert!(steps[1].get("run").text().contains("--annotate github"));
    let job = gitlab.get("costs");
    assert_eq!(job.get("allow_failure").get("exit_codes").list()[0].text(), "2");
    let reports = job.get("artifacts").get("reports");
    let mut commands = 0;
    for workflow in [github, gitlab] {
        for line in workflow.texts().into_iter().flat_map(str::lines) {
            let line = line.trim_start_matches("sudo ");
            if !line.starts_with("tare ") {
                continue;
            }
            let parsed = Arguments::try_parse_from(words(line));
            let Ok(Command::Check(check)) = parsed.map(|parsed| parsed.command) else {
                panic!("{line}")
            };
            assert_eq!(check.budgets[0].environment, "container default");
            if !check.subject.ends_with(".tare") {
                let (study, _) = crate::campaign::study::read(&check.subject, check.quick).unwrap();
                tare_report::check::places(&study, &check.budgets[0]).unwrap();
            }
            if let Some(junit) = &check.junit {
                assert_eq!(junit.to_str(), Some(reports.get("junit").text()));
            }
            if let Some(quality) = &check.code_quality {
                assert_eq!(quality.to_str(), Some(reports.get("codequality").text()));
            }
            commands += 1;
        }
    }
    assert_eq!(commands, 3);
}
