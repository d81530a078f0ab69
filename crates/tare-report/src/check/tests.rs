//! Budgets of the invented quick record: "docker-default" costs 62 % CPU, "+ host network" 4.5 %.

use super::*;
use crate::fixture;
use crate::layout::Style;

fn check(budgets: &[&str]) -> Check {
    try_check(budgets).unwrap()
}

fn try_check(budgets: &[&str]) -> Result<Check, CheckError> {
    let (record, analysis) = fixture::quick();
    let budgets: Vec<Budget> = budgets.iter().map(|text| text.parse().unwrap()).collect();
    Check::new(&record, &analysis, None, &budgets)
}

fn verdicts(budgets: &[&str]) -> Vec<BudgetVerdict> {
    check(budgets).costs.iter().map(|cost| cost.verdict).collect()
}

#[test]
fn only_a_claimed_cost_is_beyond() {
    use BudgetVerdict::{Beyond, TooWide, Within};
    assert_eq!(verdicts(&["docker-default: cpu <= 30 %"]), [Beyond]);
    assert_eq!(verdicts(&["docker-default: cpu <= 80 %, throughput <= 90 %"]), [Within, Within]);
    assert_eq!(verdicts(&["docker-default @ write: cpu <= 1.63x"]), [TooWide]);
    let both = check(&["docker-default: cpu <= 30 %", "+ host network: cpu <= 30 %"]);
    assert!(both.is_exceeded() && !both.is_undecided());
    assert!(!check(&["all: cpu <= 100 %"]).is_exceeded());
    assert!(check(&[]).is_undecided(), "nothing checked is not a pass");
}

#[test]
fn undecided_cost_says_how_long_it_takes() {
    let check = check(&["docker-default: cpu <= 63.5 %"]);
    let [cost] = &check.costs[..] else { panic!("{check:?}") };
    assert!(cost.verdict.is_undecided());
    let needed = cost.rounds_needed.unwrap();
    assert!(needed > check.rounds, "{needed}");
    let text = lines(&check, Style::new(false, 120));
    assert!(text.starts_with("undecided  docker-default (write): cpu +6"), "{text}");
    assert!(text.contains("the limit is inside the interval; about "), "{text}");
    assert!(text.contains("1 undecided"), "{text}");
}

#[test]
fn only_a_decision_with_a_margin_ends_a_measurement() {
    let settled = |budget: &str| check(&[budget]).is_settled();
    assert!(settled("docker-default: cpu <= 30 %") && settled("docker-default: cpu <= 80 %"));
    assert!(!settled("docker-default: cpu <= 63 %"));
    let cost = check(&["docker-default: cpu <= 80 %"]).costs[0].value.unwrap();
    // Just outside of the interval: decided, but not before the end.
    let near =
        format!("docker-default: cpu <= {:.3} %", cost.high + (cost.high - cost.value) * 0.1);
    assert_eq!(verdicts(&[&near]), [BudgetVerdict::Within]);
    assert!(!settled(&near), "{near}");
    // What cannot be measured does not keep the others waiting.
    assert!(settled("gvisor: cpu <= 3 %"));
}

#[test]
fn budgets_parse_or_say_what_is_wrong() {
    let good = |text: &str| text.parse::<Budget>().unwrap();
    let one = good("30 % CPU, 20 % throughput @ a b: cpu <= 1.3x,p99.9<=20 %");
    assert_eq!(one.environment, "30 % CPU, 20 % throughput");
    assert_eq!(one.workload.as_deref(), Some("a b"));
    let texts: Vec<String> = one.terms.iter().map(Term::to_string).collect();
    assert_eq!(texts, ["cpu <= 30 %", "p99.9 <= 1.2x"]);
    assert_eq!(good("oci:runc: cpu rise <= 5 %").environment, "oci:runc");
    for (text, part) in [
        ("cpu <= 3 %", "has no colon"),
        (": cpu <= 3 %", "no environment"),
        ("a: cpu < 3 %", "is no limit"),
        ("a: gpu <= 3 %", "is no figure"),
        ("a: cpu <= 3", "percentage such as"),
        ("a: cpu <= -3 %", "percentage such as"),
        ("a: throughput <= 2x", "percentage such as"),
        ("a: p99 rise <= 5 %", "different rates"),
    ] {
        let error = text.parse::<Budget>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn budgets_that_do_not_fit_the_study_are_refused() {
    for (budget, part) in [
        ("docker: cpu <= 3 %", "the study has \"native\", \"docker-default\""),
        ("docker-default @ scan: cpu <= 3 %", "names the workload \"scan\""),
        ("native: cpu <= 3 %", "is the baseline"),
        ("docker-default: cpu rise <= 3 %", "--against"),
    ] {
        let error = try_check(&[budget]).unwrap_err().to_string();
        assert!(error.contains(part), "{budget}: {error}");
    }
}

#[test]
fn rise_is_against_older_record() {
    let (record, analysis) = fixture::quick();
    let against = Some(Against { name: "last-good.tare", analysis: &analysis });
    let same = Check::new(&record, &analysis, against, &[]).unwrap();
    assert!(same.costs.len() > 3 && same.costs.iter().all(|cost| cost.rise));
    assert!(!same.is_exceeded(), "{same:?}");
    let mut cheaper = analysis.clone();
    for finding in cheaper.findings.iter_mut().filter(|f| f.environment == "docker-default") {
        let cost = finding.server_cpu_cost.as_mut().unwrap();
        cost.percent = Interval { value: 40.0, low: 39.0, high: 41.0, ..cost.percent };
    }
    let against = Some(Against { name: "last-good.tare", analysis: &cheaper });
    let risen = Check::new(&record, &analysis, against, &[]).unwrap();
    let beyond: Vec<&CheckedCost> =
        risen.costs.iter().filter(|cost| cost.verdict == BudgetVerdict::Beyond).collect();
    let [cost] = beyond[..] else { panic!("{risen:?}") };
    assert_eq!((cost.environment.as_str(), cost.limit), ("docker-default", RISE_PERCENT));
    assert!(lines(&risen, Style::new(false, 120)).contains("against last-good.tare"));
}

#[test]
fn annotations_are_one_line_each() {
    let check = check(&["docker-default: cpu <= 30 %, cpu <= 63.5 %, cpu <= 90 %"]);
    let text = github(&check);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("::error title=Cost beyond its budget::docker-default (write)"));
    assert!(lines[1].starts_with("::warning title=") && lines[1].contains("%25"), "{text}");
    let entries: serde_json::Value =
        serde_json::from_str(&code_quality(&check, "studies/quick.toml")).unwrap();
    let severities: Vec<&str> =
        entries.as_array().unwrap().iter().map(|e| e["severity"].as_str().unwrap()).collect();
    assert_eq!(severities, ["major", "minor"]);
    assert_eq!(entries[0]["location"]["path"], "studies/quick.toml");
    assert_eq!(entries[0]["fingerprint"].as_str().unwrap().len(), 64);
    assert!(markdown(&check).contains("| **beyond** | docker-default |"));
    let document: serde_json::Value = serde_json::from_str(&json(&check)).unwrap();
    assert_eq!((&document["exceeded"], &document["undecided"]), (&true.into(), &true.into()));
}

/// An element of XML with its attributes and children.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("{} has no {name}", self.name)).1
    }
}

/// Reads the subset of XML that a report uses, or panics: a declaration, elements, attributes in
/// double quotes, text with the five entities.
fn parse_xml(text: &str) -> Element {
    let mut rest = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    let mut open = vec![Element::default()];
    while let Some(at) = rest.find('<') {
        unescape(&rest[..at]);
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let done = open.pop().unwrap();
            assert_eq!(done.name, name);
            open.last_mut().unwrap().children.push(done);
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut words) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut element = Element { name: name.to_string(), ..Element::default() };
        while let Some((key, after)) = words.trim_start().split_once("=\"") {
            let (value, after) = after.split_once('"').unwrap();
            element.attributes.push((key.to_string(), unescape(value)));
            words = after;
        }
        assert!(words.trim().is_empty(), "{words:?} is no attribute");
        match empty {
            true => open.last_mut().unwrap().children.push(element),
            false => open.push(element),
        }
    }
    assert!(rest.trim().is_empty() && open.len() == 1, "an element is open: {open:?}");
    open.pop().unwrap().children.pop().unwrap()
}

fn unescape(text: &str) -> String {
    assert!(!text.contains(['<', '>', '"']) && !text.chars().any(|c| c.is_control() && c != '\n'));
    let mut out = String::new();
    let mut parts = text.split('&');
    out.push_str(parts.next().unwrap());
    for part in parts {
        let (entity, after) = part.split_once(';').expect("an entity ends");
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            other => panic!("&{other}; is unknown"),
        });
        out.push_str(after);
    }
    out
}

#[test]
fn junit_is_xml_with_a_case_per_cost() {
    let check = check(&["docker-default: cpu <= 30 %, cpu <= 63.5 %, cpu <= 90 %"]);
    let suites = parse_xml(&junit(&check));
    let [suite] = &suites.children[..] else { panic!("{suites:?}") };
    let counts = ["tests", "failures", "errors", "skipped"].map(|name| suite.attribute(name));
    assert_eq!(counts, ["3", "1", "0", "1"]);
    let cases: Vec<&Element> = suite.children.iter().filter(|c| c.name == "testcase").collect();
    let outcome =
        |case: &&Element| case.children.first().map_or("", |c| c.name.as_str()).to_string();
    let outcomes: Vec<String> = cases.iter().map(outcome).collect();
    assert_eq!(outcomes, ["failure", "skipped", ""]);
    assert_eq!(cases[0].attribute("name"), "docker-default: cpu <= 30 %");
}

#[test]
fn hostile_names_stay_text() {
    let (record, analysis) = fixture::hostile();
    let name = record.study.environments[1].name.clone();
    let budget = Budget {
        environment: name,
        workload: None,
        terms: vec![Term { figure: Figure::Cpu, rise: false, limit: 1.0 }],
    };
    let check = Check::new(&record, &analysis, None, &[budget]).unwrap();
    parse_xml(&junit(&check));
    assert_eq!(github(&check).lines().count(), 1);
    let all = Budget { environment: ALL.into(), workload: None, terms: vec![] };
    assert!(Check::new(&record, &analysis, None, &[all]).is_ok());
}
