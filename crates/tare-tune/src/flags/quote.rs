//! Quotes or refuses the user's texts for the syntax in which they are written.

use super::FlagsError;

/// Checks the name of an image, which is written without quotes. The check is stricter than the
/// grammar of references (distribution/reference), so that no character has a meaning for a shell,
/// YAML or systemd.
pub(super) fn check_image(image: &str) -> Result<(), FlagsError> {
    let first = image.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = image.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte));
    match first && rest {
        true => Ok(()),
        false => Err(FlagsError::Image { image: image.into() }),
    }
}

/// Checks a path on the host: absolute, without control characters. systemd, quadlet and Kubernetes
/// take only plain paths, because units have no uniform quoting.
pub(super) fn check_path(consumer: &'static str, path: &str) -> Result<(), FlagsError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+@".contains(c);
    let fits = match consumer {
        "quadlet" | "systemd" | "kubernetes" => path.chars().all(plain),
        _ => !path.chars().any(char::is_control),
    };
    match fits && path.starts_with('/') {
        true => Ok(()),
        false => Err(FlagsError::Path { consumer, path: path.into() }),
    }
}

/// Quotes a word for a POSIX shell: unchanged if that is safe, otherwise in single quotes.
pub(super) fn shell(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-/:@=,+%".contains(c);
    match !word.is_empty() && word.chars().all(safe) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Quotes a YAML scalar in double quotes.
pub(super) fn yaml(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// Quotes a YAML scalar for compose. `$` is doubled, because compose would expand a variable.
pub(super) fn compose(text: &str) -> String {
    yaml(text).replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_unsafe_image_names() {
        for good in ["scylladb/scylla:6.2", "localhost:5000/a/b@sha256:0123", "tare"] {
            assert_eq!(check_image(good), Ok(()), "{good}");
        }
        for bad in ["", "-v", "a b", "a;reboot", "$(id)", "a\nb", "--privileged", "a'b", "`id`"] {
            assert!(check_image(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quotes_or_refuses_paths() {
        assert_eq!(shell("/srv/a b"), "'/srv/a b'");
        assert_eq!(shell("/it's"), r"'/it'\''s'");
        assert_eq!(shell("--a=/srv/x,y"), "--a=/srv/x,y");
        assert_eq!(shell("$(id)"), "'$(id)'");
        assert_eq!(shell(""), "''");
        assert_eq!(yaml(r#"a"b\c"#), r#""a\"b\\c""#);
        assert_eq!(compose("a$b"), "\"a$$b\"");
        assert!(check_path("docker", "/a b/it's").is_ok());
        assert!(check_path("docker", "/a\nb").is_err());
        assert!(check_path("docker", "relative").is_err());
        assert!(check_path("quadlet", "/a b").is_err());
        assert!(check_path("quadlet", "/a%i").is_err());
        assert!(check_path("kubernetes", "/etc/a-b.json").is_ok());
    }
}
