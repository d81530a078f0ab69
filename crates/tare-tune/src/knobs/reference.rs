//! Generates `docs/reference/knobs.md`; a test compares the file with the knobs.

use std::fmt::Write;

use super::{ALL, Knob};
use crate::plan::Group;

/// Returns the page.
fn page() -> String {
    let mut page = String::from(
        "# Knobs\n\n\
         The host settings that `tare tune` can change, in groups; `--only` and `--except` take a knob or a group. This page is\n\
         generated from the program (`tare list knobs` prints a short form).\n",
    );
    for group in Group::ALL {
        let knobs: Vec<&&dyn Knob> = ALL.iter().filter(|knob| knob.group() == *group).collect();
        if knobs.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}", group.name());
        for knob in knobs {
            let start = match knob.takes_effect_at_start() {
                true => "- **Takes effect** when the database is restarted.\n",
                false => "",
            };
            let request = match knob.on_request() {
                true => "- **On request:** only with `--only` or `host = \"tuned=KNOB\"`.\n",
                false => "",
            };
            let perftune = if knob.in_perftune() { "yes" } else { "no" };
            let _ = write!(
                page,
                "\n### `{}`\n{}.\n\n- **Why:** {}\n- **Cost or risk:** {}\n- **Source:** {}\n{start}{request}- **In perftune.py:** {perftune}\n",
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

/// Capitalizes a text.
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
