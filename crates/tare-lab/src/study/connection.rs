//! Reads how the clients of a workload connect (`tls`, `compression`, `protocol_version`), and
//! `[access]`: where the login and the trusted certificates of attached systems are.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tare_toml::{Item, Table};

use super::{StudyError, WorkloadSpec};
use crate::environment::EnvironmentSpec;

/// The keys of a workload that are read here.
pub(super) const KEYS: [&str; 3] = ["tls", "compression", "protocol_version"];
/// The table with the login and the certificates.
pub(super) const ACCESS: &str = "access";

const ACCESS_KEYS: &[&str] =
    &["username", "password_file", "password_variable", "tls_ca", "tls_name"];
/// The version of CQL's native protocol that is used unless a workload names another.
const PROTOCOL_VERSION: u8 = 4;
const PROTOCOL_VERSIONS: std::ops::RangeInclusive<u32> = 4..=5;

/// How the clients of a workload connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConnection {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// The version of CQL's native protocol: 4 or 5.
    #[serde(default = "protocol_version", skip_serializing_if = "is_usual_version")]
    pub protocol_version: u8,
}

/// How frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    Lz4,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_usual_version(version: &u8) -> bool {
    *version == PROTOCOL_VERSION
}

fn protocol_version() -> u8 {
    PROTOCOL_VERSION
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self { tls: false, compression: None, protocol_version: PROTOCOL_VERSION }
    }
}

impl ClientConnection {
    /// Returns whether it has neither TLS nor options.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether it needs nothing that only CQL has.
    pub fn is_of_any_protocol(self) -> bool {
        Self { tls: false, ..self } == Self::default()
    }
}

impl fmt::Display for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = (self.protocol_version != PROTOCOL_VERSION)
            .then(|| format!("protocol version {}", self.protocol_version));
        let parts = [
            self.tls.then(|| "TLS".to_string()),
            self.compression.map(|Compression::Lz4| "LZ4".to_string()),
            version,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "plain" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Where the login and the trusted certificates for attached systems are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginSpec>,
    /// A PEM file with the certificates of the trusted authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    /// The name in the certificate of the system; `None`: its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
}

/// A user, and where the password is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginSpec {
    pub username: String,
    pub password: PasswordSource,
}

/// Where a password is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PasswordSource {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// Reads how the clients of a workload connect.
pub(super) fn read(table: &Table<'_>) -> Result<ClientConnection, StudyError> {
    let compression = table.word("compression", &["lz4".to_string()])?;
    let usual = u32::from(PROTOCOL_VERSION);
    let version = table.whole_u32("protocol_version", PROTOCOL_VERSIONS, usual)?;
    Ok(ClientConnection {
        tls: table.flag("tls")?,
        compression: compression.map(|_| Compression::Lz4),
        protocol_version: u8::try_from(version).unwrap_or(PROTOCOL_VERSION),
    })
}

/// Reads `[access]`, which only systems need that Tare does not start.
pub(super) fn access(
    root: &Table<'_>,
    environments: &[EnvironmentSpec],
    workloads: &[WorkloadSpec],
) -> Result<Option<AccessSpec>, StudyError> {
    let attached = environments.iter().filter(|spec| spec.attach.is_some()).count();
    let with_tls = workloads.iter().find(|workload| workload.connection.tls);
    let table = root.table(ACCESS, ACCESS_KEYS)?;
    let Some(table) = table else {
        return match with_tls.filter(|_| attached > 0) {
            Some(workload) => Err(root.need("workload")?.bad_value(&needs_ca(workload))),
            None => Ok(None),
        };
    };
    let item = root.need(ACCESS)?;
    if attached == 0 || attached < environments.len() {
        return Err(item.bad_value(
            "login and certificates are for attached systems: Tare starts its own without users and \
             makes their certificates; leave it out, or attach every environment",
        ));
    }
    let access = AccessSpec {
        login: login(&table)?,
        tls_ca: table.get("tls_ca").map(|item| path(&item)).transpose()?,
        tls_name: table.text("tls_name")?.map(|(name, _)| name),
    };
    match (with_tls, &access.tls_ca) {
        (Some(workload), None) => Err(item.bad_value(&needs_ca(workload))),
        (None, Some(_)) => Err(table.need("tls_ca")?.bad_value("no workload has tls = true")),
        (None, None) if access.tls_name.is_some() => {
            Err(table.need("tls_name")?.bad_value("no workload has tls = true"))
        }
        _ => Ok(Some(access)),
    }
}

fn needs_ca(workload: &WorkloadSpec) -> String {
    format!(
        "workload {:?} has tls = true; write tls_ca = \"FILE\" in [access], the authorities that the \
         attached system's certificate is signed by",
        workload.name
    )
}

fn login(table: &Table<'_>) -> Result<Option<LoginSpec>, StudyError> {
    table.exclusive("password_variable", "password_file", "the password is in one place")?;
    let file = table.get("password_file");
    let variable = table.get("password_variable");
    let Some((username, item)) = table.text("username")? else {
        return match file.or(variable) {
            Some(password) => Err(password.bad_value("a password needs a username")),
            None => Ok(None),
        };
    };
    let password = match (file, variable) {
        (Some(file), _) => PasswordSource::File(path(&file)?),
        (None, Some(variable)) => PasswordSource::Variable(name_of_variable(&variable)?),
        (None, None) => {
            return Err(item.bad_value(
                "say where the password is: password_file = \"FILE\" or password_variable = \"NAME\"",
            ));
        }
    };
    Ok(Some(LoginSpec { username, password }))
}

fn path(item: &Item<'_>) -> Result<PathBuf, StudyError> {
    match item.text()? {
        "" => Err(item.bad_value("write the path of a file")),
        text => Ok(text.into()),
    }
}

/// Refuses a text that is no name, which may be the password itself.
fn name_of_variable(item: &Item<'_>) -> Result<String, StudyError> {
    let name = item.text()?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match !name.is_empty() && name.bytes().all(is_word) {
        true => Ok(name.into()),
        false => Err(item.bad_value("write the name of an environment variable")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_has_a_text_and_keeps_only_what_is_unusual() {
        let check = |connection: ClientConnection, text: &str, json: &str| {
            assert_eq!(connection.to_string(), text);
            assert_eq!(serde_json::to_string(&connection).unwrap(), json);
            assert_eq!(serde_json::from_str::<ClientConnection>(json).unwrap(), connection);
        };
        check(ClientConnection::default(), "plain", "{}");
        let all = ClientConnection {
            tls: true,
            compression: Some(Compression::Lz4),
            protocol_version: 5,
        };
        let json = r#"{"tls":true,"compression":"lz4","protocol_version":5}"#;
        check(all, "TLS, LZ4, protocol version 5", json);
        assert!(ClientConnection { tls: true, ..ClientConnection::default() }.is_of_any_protocol());
        assert!(!all.is_of_any_protocol());
    }
}
