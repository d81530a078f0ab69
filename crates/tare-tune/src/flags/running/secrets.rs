//! Texts that look like secrets, which are never printed.
//!
//! Method: the name of a variable, an option or a label says what its value is; passwords in URLs
//! and the password options of redis-cli and mysql are known. A value that is secret in one place
//! is secret in all. In a command, it becomes a variable of the shell.
//!
//! Limits: a secret whose place has an innocent name is not recognised.

use crate::flags::quote;

/// Parts of names of secrets.
const PARTS: [&str; 10] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "PRIVATE",
    "BASICAUTH",
];
/// Ends of names of secrets.
const ENDS: [&str; 6] = ["PASS", "PWD", "AUTH", "KEY", "PW", "USERS"];
/// Ends of names of files with secrets, which are no secrets.
const FILES: [&str; 4] = ["_FILE", "_PATH", "_DIR", "_DIRECTORY"];

/// The secrets of a container: a name of a variable, and the value.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets {
    known: Vec<(String, String)>,
}

impl Secrets {
    /// Finds secrets in variables and labels (`NAME=VALUE`), and in words of commands.
    pub(super) fn find<'a>(
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
        words: &[&str],
    ) -> Self {
        let mut secrets = Self::default();
        for (name, value) in pairs {
            if is_secret(name) {
                secrets.add(name, value);
            }
            secrets.add_url(value);
        }
        secrets.add_words(words);
        // The longest first, so that a part of another does not hide the rest of it.
        secrets.known.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        secrets
    }

    fn add_words(&mut self, words: &[&str]) {
        for word in words.iter().filter(|word| word.contains(char::is_whitespace)) {
            // A command for a shell.
            let parts: Vec<&str> = word.split_whitespace().collect();
            self.add_words(&parts);
        }
        let program = |names: &[&str], before: &[&str]| {
            let last = |word: &&str| word.rsplit('/').next().unwrap_or_default().to_string();
            before.iter().map(last).any(|word| names.iter().any(|name| word.starts_with(name)))
        };
        for (at, word) in words.iter().enumerate() {
            self.add_url(word);
            let before = &words[..at];
            match word.split_once('=') {
                Some((name, value)) if is_secret(name) => self.add(name, value),
                _ => {}
            }
            if let Some(name) = before.last() {
                let password = *name == "-a" && program(&["redis-cli", "valkey-cli"], before);
                if is_secret(name) && !name.contains('=') && !word.starts_with("--") {
                    self.add(name, word);
                } else if password {
                    self.add("PASSWORD", word);
                }
            }
            if let Some(value) = word.strip_prefix("-p")
                && program(&["mysql", "mariadb"], before)
            {
                self.add("PASSWORD", value);
            }
        }
    }

    /// Adds the password of a URL: `scheme://user:password@host`.
    fn add_url(&mut self, text: &str) {
        for part in text.split("://").skip(1) {
            let authority = part.split(['/', '?', '#', ' ']).next().unwrap_or_default();
            let user = authority.rsplit_once('@').map(|(user, _)| user);
            if let Some((_, password)) = user.and_then(|user| user.split_once(':')) {
                self.add("PASSWORD", password);
            }
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        let value = value.trim_matches(['"', '\'']);
        if value.is_empty() || self.known.iter().any(|(_, known)| known == value) {
            return;
        }
        let upper = name.to_ascii_uppercase();
        let letters: String =
            upper.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let plain = letters.trim_matches('_');
        let digit = plain.starts_with(|c: char| c.is_ascii_digit());
        let base = if digit || plain.is_empty() { format!("SECRET_{plain}") } else { plain.into() };
        let taken = |name: &str| self.known.iter().any(|(known, _)| known == name);
        let mut name = base.clone();
        let mut number = 1;
        while taken(&name) {
            number += 1;
            name = format!("{base}_{number}");
        }
        self.known.push((name, value.to_string()));
    }

    /// Whether a text has a secret in it.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.known.iter().any(|(_, value)| split(text, value).is_some())
    }

    /// Quotes a word for a shell. Secrets in it become variables, without which the shell stops.
    /// `used` gets the names of these variables.
    pub(super) fn quoted(&self, word: &str, used: &mut Vec<String>) -> String {
        let found = self.known.iter().find_map(|(name, value)| Some((name, split(word, value)?)));
        let Some((name, (before, after))) = found else { return quote::shell(word) };
        if !used.contains(name) {
            used.push(name.clone());
        }
        let part = |text: &str, used: &mut Vec<String>| match text.is_empty() {
            true => String::new(),
            false => self.quoted(text, used),
        };
        let before = part(before, used);
        format!("{before}\"${{{name}:?}}\"{}", part(after, used))
    }
}

/// Returns what is before and after a secret in a text. A short one could be in any text by chance,
/// so it is found only as a whole word or a whole value.
fn split<'a>(text: &'a str, secret: &str) -> Option<(&'a str, &'a str)> {
    const SHORT: usize = 4;
    match secret.len() < SHORT {
        false => text.split_once(secret),
        true => {
            let before = text.strip_suffix(secret)?;
            let whole = before.is_empty() || before.ends_with(['=', ':', ' ']);
            whole.then_some((before, ""))
        }
    }
}

/// Whether a name is that of a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace(['-', '.'], "_");
    let is_file = FILES.iter().any(|end| name.ends_with(end));
    let is_directory = matches!(name.as_str(), "PWD" | "OLDPWD");
    !is_file
        && !is_directory
        && (PARTS.iter().any(|part| name.contains(part))
            || ENDS.iter().any(|end| name.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_secret() {
        for name in [
            "POSTGRES_PASSWORD",
            "MYSQL_PWD",
            "AWS_SECRET_ACCESS_KEY",
            "--requirepass",
            "db.token",
            "REDIS_AUTH",
            "--api-key",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["PATH", "PWD", "POSTGRES_PASSWORD_FILE", "--smp", "POSTGRES_HOST_AUTH_METHOD"]
        {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn secrets_become_variables_wherever_they_are() {
        let pairs = [("POSTGRES_PASSWORD", "hunter2"), ("URL", "redis://me:pa%20ss@host:6379/0")];
        let words = ["redis-server", "--requirepass", "s3 cret", "redis-cli -a abcd ping"];
        let secrets = Secrets::find(pairs.into_iter(), &words);
        let quoted = |word: &str| secrets.quoted(word, &mut Vec::new());
        assert_eq!(quoted("-U x:hunter2@y"), "'-U x:'\"${POSTGRES_PASSWORD:?}\"@y");
        assert_eq!(quoted("redis://me:pa%20ss@h"), "redis://me:\"${PASSWORD:?}\"@h");
        assert_eq!(quoted("redis-cli -a abcd ping"), "'redis-cli -a '\"${PASSWORD_2:?}\"' ping'");
        assert_eq!(quoted("s3 cret"), "\"${REQUIREPASS:?}\"");
        assert_eq!(quoted("--smp=2"), "--smp=2");
        assert!(secrets.are_in("hunter2"));
    }
}
