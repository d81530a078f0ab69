//! The rules as a page of the reference, `docs/reference/findings.md`; a test keeps it up to date.

#![cfg(test)]

use std::fmt::Write;

use super::{Kind, Rule, all};

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Void => "void",
        Kind::Cost => "cost",
        Kind::Gain => "gain",
        Kind::Caution => "caution",
        Kind::Nothing => "nothing found",
    }
}

/// A template as code, so that its braces stay visible and nothing becomes markup.
fn code(template: &str) -> String {
    format!("`{template}`")
}

fn page() -> String {
    let mut page = String::from(
        "<!-- Generated from crates/tare-report/src/findings/rules; a test compares the two. -->\n\
         # Findings\n\n\
         Every report lists its findings below the headline. A finding leads with its figure and ends with a few words of advice:\n\
         `Bridge network: +3.9 µs CPU per operation (+38 %), 27 % of throughput. Use host networking.` Details, confidence, advice\n\
         and expected gain follow. Each finding comes from one rule of this page: no rule, no finding.\n\n\
         - A **claim** is a figure whose 95 % interval excludes 0 and that is beyond the noise of the A/A control.\n\
         - **Measured** holds the intervals and the environments behind the figure, and the stacks and counters that belong to it.\n\
         - **Confidence** names the interval, its sample (blocks, or rounds of stacks), the figure's distance from zero in half-widths of\n\
         \x20 the interval (above 1 the interval excludes zero), and the numbers of the doubts about it.\n\
         - **Expected gain** is always a figure measured in this record, with its interval; without one, no gain is stated. It holds for\n\
         \x20 this workload on this host, where the layer does not interact with another.\n\
         - Each finding links to its evidence on the page. Parts in braces are filled in.\n\
         - Findings that void claims come first, then costs (the largest first), gains, cautions, and effects that were not found.\n\n\
         | rule | kind | title |\n|---|---|---|\n",
    );
    for rule in all() {
        let _ =
            writeln!(page, "| [`{0}`](#{0}) | {1} | {2} |", rule.id, kind(rule.kind), rule.title);
    }
    for rule in all() {
        let Rule { id, title, data, condition, sentence, details, advice, expected, .. } = rule;
        let _ = write!(
            page,
            "\n## `{id}`\n**{title}.** Kind: {}.\n\n- **Data:** {data}.\n- **Reported when:** {condition}.\n\
             - **Sentence:** {}\n",
            kind(rule.kind),
            code(sentence),
        );
        if !details.is_empty() {
            let _ = writeln!(page, "- **Measured:** {}", code(details));
        }
        let _ = writeln!(page, "- **What to do:** {}", code(advice));
        match expected.is_empty() {
            true => page.push_str("- **Expected gain:** none that could be measured.\n"),
            false => {
                let _ = writeln!(
                    page,
                    "- **Expected gain:** {}; from {}.",
                    code(expected),
                    rule.expected_from
                );
            }
        }
    }
    page
}

#[test]
fn reference_page_matches_rules() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/findings.md");
    let page = page();
    if std::env::var_os("TARE_GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{} is out of date; write it with TARE_GOLDEN=write", path.display());
}
