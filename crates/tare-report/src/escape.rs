//! Escapes untrusted text for GitHub-flavoured Markdown.
//!
//! Three layers interpret text: CommonMark with GitHub's extensions (tables, autolinks), which
//! backslashes and entities escape (<https://github.github.com/gfm/#backslash-escapes>); GitHub's
//! mathematics, which a dollar sign in its own element escapes (docs.github.com, "Writing
//! mathematical expressions"); and GitHub's filters on the resulting text, which ignore
//! backslashes: a mention of a user, a reference to an issue, an emoji by name. A zero-width space
//! breaks these.
//!
//! Limits: the number of a commit may become a link; several blanks show as one.

use crate::figures::clean;

/// A zero-width space: it is invisible and ends a name.
const PARTED: &str = "&#8203;";

/// The text on one line, for a paragraph or a cell of a table.
pub(crate) fn markdown(text: &str) -> String {
    let chars: Vec<char> = clean(text).chars().collect();
    let mut out = String::with_capacity(chars.len() * 2);
    for (index, c) in chars.iter().copied().enumerate() {
        let rest = &chars[index + 1..];
        let next = rest.first().copied().unwrap_or(' ');
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '$' => out.push_str("<span>$</span>"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '{' | '}' | '|' | '~' | '!' | '^' => {
                out.extend(['\\', c]);
            }
            '#' => {
                out.push_str("\\#");
                if next.is_ascii_digit() {
                    out.push_str(PARTED);
                }
            }
            '@' => {
                out.push('@');
                if next.is_alphanumeric() {
                    out.push_str(PARTED);
                }
            }
            ':' if next == '/' => out.push_str("\\:"),
            ':' if names_an_emoji(rest) => {
                out.push(':');
                out.push_str(PARTED);
            }
            '.' if ends_in_www(&chars[..index]) => out.push_str("\\."),
            c => out.push(c),
        }
    }
    out
}

/// Whether `tada:` follows a colon. The minutes of a time of day are not a name.
fn names_an_emoji(rest: &[char]) -> bool {
    let in_name = |c: &char| c.is_ascii_alphanumeric() || "_+-".contains(*c);
    let length = rest.iter().take_while(|c| in_name(c)).count();
    let minutes = length <= 2 && rest[..length].iter().all(char::is_ascii_digit);
    !minutes && rest.get(length) == Some(&':')
}

/// Whether `www` precedes, with which GFM's extended autolinks start.
fn ends_in_www(before: &[char]) -> bool {
    let www = before.len().checked_sub(3).map(|start| &before[start..]);
    www.is_some_and(|www| www.iter().all(|c| c.eq_ignore_ascii_case(&'w')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_construct_becomes_text() {
        for (text, expected) in [
            ("+ cpuset", "+ cpuset"),
            ("oci:runc", "oci:runc"),
            ("12:30:45", "12:30:45"),
            ("a|b", r"a\|b"),
            (r"a\|b", r"a\\\|b"),
            ("`x`", r"\`x\`"),
            ("**b** _i_ ~~s~~", r"\*\*b\*\* \_i\_ \~\~s\~\~"),
            ("[t](u) ![i](u) [^1]", r"\[t\](u) \!\[i\](u) \[\^1\]"),
            ("<script>&lt;", "&lt;script&gt;&amp;lt;"),
            ("<!-- -->", r"&lt;\!-- --&gt;"),
            ("# h #12", r"\# h \#&#8203;12"),
            ("@root a@b.c me @ home", "@&#8203;root a@&#8203;b.c me @ home"),
            (":tada: :100: a:b", ":&#8203;tada: :&#8203;100: a:b"),
            ("https://x.y www.z.de", r"https\://x.y www\.z.de"),
            ("$a$", "<span>$</span>a<span>$</span>"),
            ("a\nb\r\tc\u{1b}[0m", "a\u{fffd}b\u{fffd} c\u{fffd}\\[0m"),
            ("\u{202e}abc", "\u{fffd}abc"),
            ("\u{5e9}\u{1f9a9}", "\u{5e9}\u{1f9a9}"),
        ] {
            assert_eq!(markdown(text), expected, "{text:?}");
        }
    }
}
