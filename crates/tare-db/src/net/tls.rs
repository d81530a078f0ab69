//! TLS for the server, by rustls. The certificate and key come from PEM files; clients need no
//! certificates. The handshake runs in the shard's loop (a signature takes ten to some hundred
//! microseconds, once per connection).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tare_cql::tls::{self, TlsError};

use crate::node::config::TlsFiles;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    #[error("cannot read a {what} from {}", .path.display())]
    Pem { what: &'static str, path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{} holds no certificate", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("certificate {} and key {} cannot be used together", .certificate.display(), .key.display())]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
}

/// Loads the certificate and key.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsFilesError> {
    let TlsFiles { certificate, key } = files;
    let pem = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| TlsFilesError::Pem { what, path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem("certificate", certificate))?;
    if chain.is_empty() {
        return Err(TlsFilesError::NoCertificate { path: certificate.clone() });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(pem("private key", key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let config = config.map_err(|source| {
        let (certificate, key) = (certificate.clone(), key.clone());
        TlsFilesError::Unusable { certificate, key, source }
    })?;
    Ok(Arc::new(config))
}

/// Which connections speak TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsAccess {
    pub(crate) config: Arc<ServerConfig>,
    /// Whether connections without TLS are accepted too.
    pub(crate) is_optional: bool,
}

/// The first byte of a TLS connection: content type handshake (RFC 8446, section 5.1). CQL begins
/// with the protocol's version.
const HANDSHAKE: u8 = 22;

/// Whether the first bytes of a connection are those of TLS.
pub(crate) fn begins_tls(received: &[u8]) -> bool {
    received.first() == Some(&HANDSHAKE)
}

/// The TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls(ServerConnection);

impl Tls {
    pub(crate) fn new(access: &TlsAccess) -> Result<Self, TlsError> {
        let connection = ServerConnection::new(Arc::clone(&access.config));
        connection.map(Self).map_err(|source| TlsError::Peer { source })
    }

    /// Takes received bytes and appends their plain text to `plain`. After an error there may still
    /// be an alert to send.
    pub(crate) fn decrypt(&mut self, received: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
        tls::decrypt(&mut self.0, received, plain)
    }

    pub(crate) fn has_output(&self) -> bool {
        self.0.wants_write()
    }

    /// Appends the records of `plain`, and pending TLS messages, to `out`.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        tls::encrypt(&mut self.0, plain, out);
    }
}
