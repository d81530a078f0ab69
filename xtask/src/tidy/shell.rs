//! No shell runs a text that was put together: what follows `-c` is a constant or a literal.
//!
//! Names from study files can then reach a script as its arguments only, where a shell does not
//! read them as code. Tests and benches are not searched.

use super::source;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("rs").filter(|(path, _)| path.contains("/src/")) {
        if !text.contains("\"-c\"") || path.ends_with("/tests.rs") || path.contains("/tests/") {
            continue;
        }
        // The literals are blank in the code, so that the text itself is asked where `-c` was.
        let code = source::without_tests(text);
        for (number, line) in code.lines().enumerate() {
            let shell = line.contains("sh\"");
            let Some((_, after)) = line.split_once("\"-c\",").filter(|_| shell) else { continue };
            let script = after.trim_start();
            let word: String =
                script.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let constant = !word.is_empty() && !word.contains(|c: char| c.is_lowercase());
            if !constant && !script.starts_with('"') {
                found.push(format!(
                    "{path}:{}: a shell runs a text that is no constant",
                    number + 1
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_with_a_name_in_it_is_found() {
        let line =
            |script: &str| format!("Command::new(\"sh\").args([\"-c\", {script}]).arg(name)");
        let (constant, literal) = (line("SCRIPT"), line("\"exec \\\"$0\\\"\""));
        let (built, variable) = (line("&format!(\"rm {name}\")"), line("script"));
        let found = check(&Tree::of(&[
            ("crates/a/src/constant.rs", &constant),
            ("crates/a/src/literal.rs", &literal),
            ("crates/a/src/built.rs", &built),
            ("crates/a/src/variable.rs", &variable),
            ("crates/a/tests/built.rs", &built),
        ]));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
