//! The knobs as a page of documentation: `docs/reference/knobs.md`, kept true by a test.

use std::fmt::Write;

use super::{ALL, Knob};
use crate::plan::Group;

/// The page.
fn page() -> String {
    let mut page = String::from(
        "# Knobs\n\n\
         What `tare tune` can set on a host, in groups; `--only` and `--except` take a knob or a group. This page is made from\n\
         the program (`tare list knobs` prints it in short).\n",
    );
    for group in Group::ALL {
        let knobs: Vec<&&dyn Knob> = ALL.iter().filter(|knob| knob.group() == *group).collect();
        if knobs.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}", group.name());
        for knob in knobs {
            let start = match knob.takes_effect_at_start() {
                true => "- **Takes effect** when the database is started again.\n",
                false => "",
            };
            let perftune = if knob.in_perftune() { "yes" } else { "no" };
            let _ = write!(
                page,
                "\n### `{}`\n{}.\n\n- **Why:** {}\n- **Cost or risk:** {}\n- **Source:** {}\n{start}- **In perftune.py:** {perftune}\n",
                knob.name(),
                sentence(knob.help()),
                sentence(knob.why()),
                sentence(knob.risk()),
                knob.source(),
            );
        }
    }
    page
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "none known".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_page_matches_knobs() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        tare_testkit::golden(&root.join("docs/reference/knobs.md"), page());
    }
}
