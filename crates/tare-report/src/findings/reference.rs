//! The rules as a page of the reference: `docs/reference/findings.md`, kept true by a test.

#![cfg(test)]

use std::fmt::Write;

use super::{Kind, Rule, all};

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Void => "void: claims fall",
        Kind::Cost => "cost",
        Kind::Returned => "given back",
        Kind::Caution => "caution",
        Kind::Nothing => "nothing found",
    }
}

/// A template as code, so that its braces are seen and no markup is made of it.
fn code(template: &str) -> String {
    format!("`{template}`")
}

fn page() -> String {
    let mut page = String::from(
        "<!-- Made from crates/tare-report/src/findings/rules; a test compares the two. -->\n\
         # Findings\n\n\
         Below the headline of every report stand conclusions in sentences: what costs, how sure that is, what to do about it,\n\
         and what that is expected to give back. Each is said by one rule of this page, and by nothing else: no rule, no sentence.\n\n\
         - A **claim** is a figure whose 95 % interval excludes 0 and that is beyond the noise of the A/A control.\n\
         - **How sure** names the interval, the blocks (or rounds of stacks) it rests on, how many half-widths of the interval the\n\
         \x20 figure is away from zero (above 1 the interval excludes it), and the numbers of the doubts that touch it.\n\
         - **Expected back** is always a figure that was measured in this record, with its interval; where there is none, nothing is\n\
         \x20 expected. It holds for this workload, on this host, and where the layer does not interact with another.\n\
         - Each links to its evidence on the page. Parts in braces are filled in.\n\
         - What voids claims comes first, then costs (the largest first), what was given back, cautions, and what was not found.\n\n\
         | rule | kind | title |\n|---|---|---|\n",
    );
    for rule in all() {
        let _ =
            writeln!(page, "| [`{0}`](#{0}) | {1} | {2} |", rule.id, kind(rule.kind), rule.title);
    }
    for rule in all() {
        let Rule { id, title, looks_at, condition, sentence, advice, expected, .. } = rule;
        let _ = write!(
            page,
            "\n## `{id}`\n**{title}.** Kind: {}.\n\n- **Looks at:** {looks_at}.\n- **Speaks when:** {condition}.\n\
             - **Says:** {}\n- **What to do:** {}\n",
            kind(rule.kind),
            code(sentence),
            code(advice),
        );
        match expected.is_empty() {
            true => page.push_str("- **Expected back:** nothing that could be measured.\n"),
            false => {
                let _ = writeln!(
                    page,
                    "- **Expected back:** {}; from {}.",
                    code(expected),
                    rule.expected_from
                );
            }
        }
    }
    page
}

#[test]
fn the_page_in_docs_is_made_from_the_rules() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/findings.md");
    let page = page();
    if std::env::var_os("TARE_GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{} is old; write it with TARE_GOLDEN=write", path.display());
}
