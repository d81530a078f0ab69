//! The command line of `tare image`.

use clap::Args;

/// The repository of the image by default.
const REPOSITORY: &str = "tare";

#[derive(Debug, Args)]
pub struct MakeImage {
    /// Name of the image, such as registry.example/tools/tare:1 [default: tare, with the version of
    /// this program as its tag]
    #[arg(long, value_name = "NAME", value_parser = name, default_value = REPOSITORY, hide_default_value = true)]
    pub name: String,
}

/// Reads the name of an image, without or with a tag. Without it, the version is the tag.
///
/// The grammar is that of the distribution project (`reference/regexp.go`), without digests.
fn name(text: &str) -> Result<String, String> {
    let (path, tag) = match text.rsplit_once(':') {
        // A port is no tag.
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (text, env!("CARGO_PKG_VERSION")),
    };
    let is_tag_letter = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let is_tag = !tag.is_empty()
        && tag.len() <= 128
        && !tag.starts_with(['.', '-'])
        && tag.chars().all(is_tag_letter);
    let (registry, repository) = split_registry(path);
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_lower)
            && part.ends_with(is_lower)
            && part.chars().all(|c| is_lower(c) || "_.-".contains(c))
    };
    let is_registry = |registry: &str| {
        registry.starts_with(|c: char| c.is_ascii_alphanumeric())
            && registry.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
    };
    match is_tag && repository.split('/').all(is_part) && registry.is_none_or(is_registry) {
        true => Ok(format!("{path}:{tag}")),
        false => {
            Err("the name of an image is NAME, NAME:TAG or REGISTRY/NAME:TAG, in lower case".into())
        }
    }
}

/// Returns the registry in the name of an image, if it has one, and the rest.
fn split_registry(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            (Some(first), rest)
        }
        _ => (None, name),
    }
}

impl MakeImage {
    /// Returns the name with the registry and the path that Docker's rules leave out, as container
    /// runtimes keep it.
    pub fn full_name(&self) -> String {
        match split_registry(&self.name) {
            (Some(_), _) => self.name.clone(),
            (None, rest) if rest.contains('/') => format!("docker.io/{rest}"),
            (None, rest) => format!("docker.io/library/{rest}"),
        }
    }

    /// Returns the tag.
    pub fn tag(&self) -> &str {
        self.name.rsplit(':').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_images() {
        let version = env!("CARGO_PKG_VERSION");
        for (text, full) in [
            ("tare", format!("docker.io/library/tare:{version}")),
            ("tare:x", "docker.io/library/tare:x".into()),
            ("tools/tare:1.0_b-2", "docker.io/tools/tare:1.0_b-2".into()),
            ("localhost/tare:1", "localhost/tare:1".into()),
            ("r.example:5000/a/b-c", format!("r.example:5000/a/b-c:{version}")),
        ] {
            let image = MakeImage { name: name(text).unwrap() };
            assert_eq!(image.full_name(), full, "{text}");
            assert!(full.ends_with(&format!(":{}", image.tag())), "{text}");
        }
        for text in
            ["", "Tare", "tare:", "tare:-x", "a//b", "a/", "-a", "a@sha256:00", "r.x /a", "a b"]
        {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
