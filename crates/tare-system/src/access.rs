//! Reads what `[access]` of a study names: a password and trusted certificates.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tare_lab::access::{ClientAccess, Login};
use tare_lab::study::{AccessSpec, ClientConnection, LoginSpec, PasswordSource};

/// Why the login or the certificates cannot be read. No text has a password in it.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot read the password in {}", .path.display())]
    ReadPassword { path: PathBuf, source: std::io::Error },
    #[error("the first line of {} is empty; write the password there", .path.display())]
    NoPassword { path: PathBuf },
    #[error("no password for {username:?}: set the environment variable {name}")]
    NoVariable { username: String, name: String },
    #[error("cannot read the certificates in {}", .path.display())]
    ReadAuthorities { path: PathBuf, source: std::io::Error },
    #[error("there is no certificate in {}; it needs PEM", .path.display())]
    NoAuthorities { path: PathBuf },
}

/// Reads the password and the certificates. `connection` is how the first connection is made.
///
/// # Errors
/// If one of them cannot be read.
pub fn resolve(
    spec: &AccessSpec,
    connection: ClientConnection,
) -> Result<ClientAccess, AccessError> {
    Ok(ClientAccess {
        connection,
        authorities: spec.tls_ca.as_deref().map(authorities).transpose()?,
        server_name: spec.tls_name.clone(),
        login: spec.login.as_ref().map(login).transpose()?,
    })
}

fn login(spec: &LoginSpec) -> Result<Login, AccessError> {
    let username = spec.username.clone();
    let password = match &spec.password {
        PasswordSource::Variable(name) => std::env::var(name).map_err(|_| {
            AccessError::NoVariable { username: username.clone(), name: name.clone() }
        })?,
        PasswordSource::File(path) => password_in(path)?,
    };
    Ok(Login { username, password })
}

/// Returns the password in a file: its first line.
///
/// # Errors
/// If the file cannot be read, or its first line is empty.
pub fn password_in(path: &Path) -> Result<String, AccessError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AccessError::ReadPassword { path: path.into(), source })?;
    let line = text.lines().next().filter(|line| !line.is_empty());
    line.map(String::from).ok_or_else(|| AccessError::NoPassword { path: path.into() })
}

fn authorities(path: &Path) -> Result<String, AccessError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AccessError::ReadAuthorities { path: path.into(), source })?;
    let mut certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    match certificates.next() {
        Some(Ok(_)) => Ok(text),
        _ => Err(AccessError::NoAuthorities { path: path.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_and_certificates_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let spec = |password: PasswordSource, tls_ca: Option<PathBuf>| AccessSpec {
            login: Some(LoginSpec { username: "ann".into(), password }),
            tls_ca,
            tls_name: Some("db".into()),
        };
        let made = crate::ServerCertificate::make().unwrap();
        let ca = file("ca.pem", made.certificate());
        let password = PasswordSource::File(file("password", "open sesame\nnot this\n"));
        let plain = ClientConnection::default();
        let access = resolve(&spec(password.clone(), Some(ca)), plain).unwrap();
        assert_eq!(access.login.unwrap().password, "open sesame");
        assert_eq!(access.authorities.as_deref(), Some(made.certificate()));
        let refused = |spec: &AccessSpec, expect: &str| {
            let error = resolve(spec, plain).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        refused(
            &spec(PasswordSource::File(file("empty", "\n")), None),
            "is empty; write the password",
        );
        refused(
            &spec(PasswordSource::File("/nowhere/p".into()), None),
            "the password in /nowhere/p",
        );
        refused(
            &spec(PasswordSource::Variable("TARE_NOT_SET".into()), None),
            "variable TARE_NOT_SET",
        );
        refused(&spec(password.clone(), Some(file("no.pem", "text"))), "no certificate in");
        refused(&spec(password, Some("/nowhere/ca".into())), "the certificates in /nowhere/ca");
    }
}
