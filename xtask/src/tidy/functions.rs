//! No function is longer than [`LINES_MAX`], from its signature to its last brace.

use super::source;
use super::tree::Tree;

const LINES_MAX: usize = 100;

/// Longer functions that are allowed: crate, name and reason. Keep the list empty.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    against(tree, EXCEPTIONS)
}

fn against(tree: &Tree, exceptions: &[(&str, &str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut met = vec![false; exceptions.len()];
    for (path, text) in tree.ending("rs") {
        if text.lines().count() <= LINES_MAX {
            continue;
        }
        let package = Tree::package_of(path).unwrap_or_default();
        for (name, line, lines) in functions(&source::parse(text).code) {
            if lines <= LINES_MAX {
                continue;
            }
            let listed = exceptions.iter().position(|(c, n, _)| *c == package && *n == name);
            match listed {
                Some(at) => met[at] = true,
                None => found.push(format!("{path}:{line}: {name} has {lines} lines")),
            }
        }
    }
    let stale = exceptions.iter().zip(met).filter(|(_, met)| !met);
    found.extend(stale.map(|((package, name, _), _)| {
        format!("{package}: {name} is short or gone; take it off the list of exceptions")
    }));
    found
}

/// Name, first line and number of lines of every function with a body.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut counted = 0;
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at..];
        let name = rest[3..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let Some(open) = body(rest) else { continue };
        line += code[counted..at].matches('\n').count();
        counted = at;
        let end = open + source::block(&rest[open..]);
        found.push((name, line, rest[..end].matches('\n').count() + 1));
    }
    found
}

/// Where the body of a function begins; nothing for a declaration without one.
fn body(function: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in function.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}(a: [u8; 2]) {{\n{}}}\n", "f(); // }\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found_unless_listed() {
        let text = [function("fits", LINES_MAX), function("long", LINES_MAX + 1)].concat();
        let tree = Tree::of(&[("crates/a/src/lib.rs", &text)]);
        assert_eq!(against(&tree, &[]), ["crates/a/src/lib.rs:101: long has 101 lines"]);
        assert_eq!(against(&tree, &[("a", "long", "why")]), Vec::<String>::new());
        assert_eq!(against(&tree, &[("a", "long", "why"), ("a", "fits", "why")]).len(), 1);
    }
}
