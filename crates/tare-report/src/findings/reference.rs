//! Generates `docs/reference/findings.md` from the rules; a test keeps it up to date.

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
         Every report lists its findings below the headline. The title of a finding is a sentence that leads with its figure and ends\n\
         with a few words of advice:\n\
         `Bridge network: +3.9 µs CPU per operation (+38 %), 27 % of throughput. Use host networking.`\n\
         Below it are the measured intervals, the confidence, the full advice and the expected gain. Each finding comes from one rule\n\
         on this page.\n\n\
         - A **claim** is a figure whose 95 % interval excludes 0 and that is beyond the noise of the A/A control.\n\
         - **Measured** holds the intervals and the environments behind the figure, and the stacks and counters that belong to it.\n\
         - **Confidence** names the interval unless it is above, its sample in rounds, the noise of the A/A control, and the numbers of\n\
         \x20 the doubts about the figure. The field `from_zero` of the JSON holds the figure's distance from zero in half-widths of the\n\
         \x20 interval: above 1 the interval excludes zero.\n\
         - **Expected gain** is a figure measured in this record, with its interval; without one, no gain is stated. It holds for this\n\
         \x20 workload on this host, if the layer does not interact with another.\n\
         - Each finding links to its evidence on the page. Parts in braces are replaced by the figures and names of the record.\n\
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
fn findings_reference_is_current() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    tare_testkit::golden(&root.join("docs/reference/findings.md"), page());
}
