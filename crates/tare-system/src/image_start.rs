//! Reads how an image starts its program, inside its root file system: the object `config` of the
//! OCI image configuration (<https://github.com/opencontainers/image-spec/blob/main/config.md>).

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The numeric user and group of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Why the program of an image cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ImageStartError {
    #[error("the image's configuration of its program cannot be read")]
    Config(#[source] serde_json::Error),
    #[error("the image names a user {user:?} that its /etc/passwd and /etc/group do not know")]
    User { user: String },
}

/// The configuration as the image has it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

/// How the image's program is started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImageProgram {
    entry: Vec<String>,
    command: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    /// The user; `None`: root, as now.
    pub(crate) user: Option<User>,
}

impl ImageProgram {
    /// Reads the configuration and looks up names of users below `root`.
    pub(crate) fn read(text: &str, root: &Path) -> Result<Self, ImageStartError> {
        let config: Config = serde_json::from_str(text).map_err(ImageStartError::Config)?;
        let env = config.env.unwrap_or_default();
        let pair = |text: &String| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_string(), value.to_string()))
        };
        let folder = config.working_dir.filter(|folder| !folder.is_empty());
        let user = config.user.filter(|user| !user.is_empty());
        let unknown = |user: &str| ImageStartError::User { user: user.into() };
        Ok(Self {
            entry: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            variables: env.iter().filter_map(pair).collect(),
            folder: folder.map_or_else(|| "/".into(), PathBuf::from),
            user: user.map(|user| find(&user, root).ok_or_else(|| unknown(&user))).transpose()?,
        })
    }

    /// Returns the command: the entry point, then the study's words or else the image's own.
    pub(crate) fn words(&self, own: &[String]) -> Vec<String> {
        let command = if own.is_empty() { &self.command } else { own };
        self.entry.iter().chain(command).cloned().collect()
    }
}

/// Finds `user`, `uid`, `user:group` or `uid:gid`. A user without a group has that of the list of
/// users, or root's.
fn find(text: &str, root: &Path) -> Option<User> {
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let line = users.lines().find(|line| {
        let mut fields = line.split(':');
        fields.next() == Some(user) || fields.nth(1) == Some(user)
    });
    let field = |at: usize| line.and_then(|line| line.split(':').nth(at)?.parse().ok());
    let uid = user.parse().ok().or_else(|| field(2))?;
    let Some(group) = group else { return Some(User { uid, gid: field(3).unwrap_or(0) }) };
    let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let named = groups.lines().find(|line| line.split(':').next() == Some(group));
    let named = named.and_then(|line| line.split(':').nth(2)?.parse().ok());
    let gid = group.parse().ok().or(named)?;
    Some(User { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_config_is_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nredis:x:999:998::/data:\n")
            .unwrap();
        fs::write(root.path().join("etc/group"), "root:x:0:\ndisk:x:6:\n").unwrap();
        let read = |text: &str| ImageProgram::read(text, root.path());
        let text = r#"{"Entrypoint":["entry.sh"],"Cmd":["serve","--x"],"Env":["A=b=c","bad"],
            "WorkingDir":"/data","User":"redis","ExposedPorts":{"6379/tcp":{}}}"#;
        let program = read(text).unwrap();
        assert_eq!(program.words(&[]), ["entry.sh", "serve", "--x"]);
        assert_eq!(program.words(&["other".into()]), ["entry.sh", "other"]);
        assert_eq!(program.variables, [("A".to_string(), "b=c".to_string())]);
        assert_eq!(program.folder, Path::new("/data"));
        assert_eq!(program.user, Some(User { uid: 999, gid: 998 }));
        for (user, expect) in [
            ("999", Some((999, 998))),
            ("7", Some((7, 0))),
            ("redis:disk", Some((999, 6))),
            ("7:8", Some((7, 8))),
            ("nobody", None),
            ("redis:none", None),
        ] {
            let found = read(&format!(r#"{{"User":"{user}"}}"#)).ok().and_then(|one| one.user);
            assert_eq!(found.map(|found| (found.uid, found.gid)), expect, "{user}");
        }
        assert!(read("{image}").unwrap_err().to_string().contains("cannot be read"));
    }
}
