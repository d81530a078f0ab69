//! Words that STYLE asks to leave out of comments, messages and pages.
//!
//! The list holds only what can be found without false alarms: phrases that are wrong in nearly
//! every technical sentence. It is searched in comments and string literals of Rust, in scripts and
//! in Markdown.

use super::source;
use super::tree::Tree;

/// The phrases, in small letters, and what to write in their place.
const PHRASES: [(&str, &str); 22] = [
    ("is told", "name the subject: \"X reports\", \"the user passes\""),
    ("are told", "name the subject"),
    ("was told", "name the subject"),
    ("being told", "name the subject"),
    ("told by", "\"read from\", \"reported by\""),
    ("anew", "\"again\""),
    ("whoever", "name the reader or the caller"),
    ("somebody else's", "\"foreign\", \"another process's\", or name the owner"),
    ("somebody else", "\"another process\", \"another user\""),
    ("other people's", "\"third-party\""),
    ("says so", "name what is printed or returned"),
    ("say so", "name what is printed or returned"),
    ("said so", "name what is printed or returned"),
    ("stands in", "\"is in\""),
    ("stands for", "\"represents\", \"means\""),
    ("stands beside", "\"is next to\""),
    ("hands back", "\"returns\""),
    ("gives back", "\"returns\""),
    ("is handed", "\"receives\", \"takes\""),
    ("has to be so", "repeat what has to be true"),
    ("of its own accord", "\"without a request\""),
    ("in good order", "\"cleanly\""),
];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        // This file has to spell what it looks for.
        if path.ends_with("tidy/words.rs") {
            continue;
        }
        if path.ends_with(".rs") {
            let source = source::parse(text);
            for (line, prose) in source.comments.iter().chain(&source.strings) {
                search(path, *line, prose, &mut found);
            }
        } else if path.ends_with(".md") || text.starts_with("#!/bin/sh") {
            for (number, line) in text.lines().enumerate() {
                search(path, number + 1, line, &mut found);
            }
        }
    }
    found
}

fn search(path: &str, line: usize, prose: &str, found: &mut Vec<String>) {
    let prose = prose.to_lowercase().replace("so far", "");
    for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| source::has_word(&prose, phrase)) {
        found.push(format!("{path}:{line}: {phrase:?}; write {instead}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_prose_alone() {
        let files = [
            ("crates/a/src/lib.rs", "// It is told.\nconst A: &str = \"Anew\";\nfn whoever() {}"),
            ("crates/a/README.md", "Whoever reads it and says so far"),
        ];
        let found = check(&Tree::of(&files));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/a/README.md:1: \"whoever\""), "{found:?}");
    }
}
