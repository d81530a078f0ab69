//! A Rust file in parts: code, comments and string literals. A lexer of the few tokens that hide
//! others.

/// The parts of a Rust file.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The code with blanks for comments and for the insides of literals; line breaks stay.
    pub(crate) code: String,
    /// Comments with the number of the line that each begins in, from 1.
    pub(crate) comments: Vec<(usize, String)>,
    /// Insides of string literals with the number of the line that each begins in.
    pub(crate) strings: Vec<(usize, String)>,
}

/// Takes a file apart. What is not valid Rust is taken apart somehow; the compiler refuses it.
pub(crate) fn parse(text: &str) -> Source {
    let characters: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { characters: &characters, at: 0, line: 1, source: Source::default() };
    while lexer.at < characters.len() {
        lexer.step();
    }
    lexer.source
}

struct Lexer<'a> {
    characters: &'a [char],
    at: usize,
    line: usize,
    source: Source,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.characters.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Takes one character as code.
    fn code(&mut self) {
        let character = self.peek(0);
        self.line += usize::from(character == '\n');
        self.source.code.push(character);
        self.at += 1;
    }

    /// Takes `count` characters that are not code, and returns them.
    fn hide(&mut self, count: usize) -> String {
        let end = (self.at + count).min(self.characters.len());
        let hidden: String = self.characters[self.at..end].iter().collect();
        for character in hidden.chars() {
            self.line += usize::from(character == '\n');
            self.source.code.push(if character == '\n' { '\n' } else { ' ' });
        }
        self.at = end;
        hidden
    }

    fn step(&mut self) {
        let before = if self.at == 0 { ' ' } else { self.characters[self.at - 1] };
        let in_word = before.is_alphanumeric() || before == '_';
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                let line = self.line;
                let rest = &self.characters[self.at..];
                let length = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
                let comment = self.hide(length);
                self.source.comments.push((line, comment));
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('r', '"' | '#') if !in_word => self.raw_string(1),
            ('b' | 'c', 'r') if !in_word && matches!(self.peek(2), '"' | '#') => self.raw_string(2),
            ('\'', _) => self.quote(),
            _ => self.code(),
        }
    }

    fn block_comment(&mut self) {
        let line = self.line;
        let mut depth = 0;
        let mut length = 0;
        while self.at + length < self.characters.len() {
            match (self.peek(length), self.peek(length + 1)) {
                ('/', '*') => (depth, length) = (depth + 1, length + 2),
                ('*', '/') => (depth, length) = (depth - 1, length + 2),
                _ => length += 1,
            }
            if depth == 0 {
                break;
            }
        }
        let comment = self.hide(length);
        self.source.comments.push((line, comment));
    }

    fn string(&mut self) {
        self.code();
        let line = self.line;
        let mut length = 0;
        while self.at + length < self.characters.len() && self.peek(length) != '"' {
            length += if self.peek(length) == '\\' { 2 } else { 1 };
        }
        let inside = self.hide(length);
        self.source.strings.push((line, inside));
        self.code();
    }

    /// A raw string, whose hashes begin `prefix` characters on. A raw identifier is code.
    fn raw_string(&mut self, prefix: usize) {
        let mut hashes = 0;
        while self.peek(prefix + hashes) == '#' {
            hashes += 1;
        }
        if self.peek(prefix + hashes) != '"' {
            self.code();
            return;
        }
        (0..=prefix + hashes).for_each(|_| self.code());
        let line = self.line;
        let mut length = 0;
        let closes = |from: usize| {
            self.peek(from) == '"' && (1..=hashes).all(|n| self.peek(from + n) == '#')
        };
        while self.at + length < self.characters.len() && !closes(length) {
            length += 1;
        }
        let inside = self.hide(length);
        self.source.strings.push((line, inside));
        (0..=hashes).for_each(|_| self.code());
    }

    /// A character literal, or the mark of a lifetime.
    fn quote(&mut self) {
        self.code();
        if self.peek(0) == '\\' {
            let mut length = 2;
            while self.at + length < self.characters.len() && self.peek(length) != '\'' {
                length += 1;
            }
            self.hide(length);
            self.code();
        } else if self.peek(1) == '\'' {
            self.hide(1);
            self.code();
        }
    }
}

/// The code without the items that only tests have: what follows `#[cfg(test)]`, to its end.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let end = item.find([';', '{']).map_or(item.len(), |end| match item.as_bytes()[end] {
            b'{' => end + block(&item[end..]),
            _ => end + 1,
        });
        kept.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    kept.push_str(rest);
    kept
}

/// Length of the block that the text begins with, both braces included.
pub(crate) fn block(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// Whether `word` occurs in `text` with no letter, digit or underscore at either side.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_not_code() {
        let text =
            "let a = \"fn // {\\\"\"; // why {\nlet b = r#\"x\"}\"#; let c = '{'; /* { /* */ */ d";
        let source = parse(text);
        assert!(!source.code.contains(['{', '}']), "{:?}", source.code);
        assert_eq!(source.comments.len(), 2);
        assert_eq!(source.comments[0], (1, "// why {".to_string()));
        let strings: Vec<&str> = source.strings.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(strings, ["fn // {\\\"", "x\"}"]);
        assert!(source.code.ends_with('d'));
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn a_lifetime_opens_no_literal() {
        assert_eq!(parse("fn f<'a>(x: &'a str) {}").code, "fn f<'a>(x: &'a str) {}");
        assert_eq!(parse("b'\\'' + 'x'").code, "b'  ' + ' '");
    }

    #[test]
    fn test_items_are_left_out() {
        let kept =
            without_tests("a\n#[cfg(test)]\nmod tests { use b; }\nc\n#[cfg(test)] mod d;\ne");
        assert!(!kept.contains("use b") && !kept.contains("mod d"), "{kept}");
        assert!(kept.contains('a') && kept.contains('c') && kept.contains('e'), "{kept}");
    }

    #[test]
    fn a_word_has_edges() {
        assert!(has_word("a cat.", "cat"));
        assert!(!has_word("category, bobcat", "cat"));
    }
}
