//! Client-side TLS with rustls, without I/O: bytes go in and out of buffers.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tare_cql::tls::{self, AcceptAnyCertificate, TlsError};

use crate::access::{self, Trust};
use crate::error::LoadError;

/// The settings of TLS sessions.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl TlsSettings {
    /// Reads the certificates of the trusted authorities.
    pub(crate) fn new(asked: &access::Tls) -> Result<Self, LoadError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| LoadError::TlsSetup { source })?;
        let config = match &asked.trust {
            Trust::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
                .with_no_client_auth(),
            Trust::Authorities(path) => {
                let roots = CertificateDer::pem_file_iter(path)
                    .map_err(|error| error.to_string())
                    .and_then(roots)
                    .map_err(|reason| LoadError::TlsAuthorities { path: path.clone(), reason })?;
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            Trust::Pem(text) => {
                let roots = roots(CertificateDer::pem_slice_iter(text.as_bytes()))
                    .map_err(|reason| LoadError::TlsPem { reason })?;
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        Ok(Self { config: Arc::new(config), server_name: asked.server_name.clone() })
    }

    /// Returns a new session with a server of this name.
    pub(crate) fn session(&self, host: &str) -> Result<Session, LoadError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_string())
            .map_err(|_| LoadError::TlsName { name: name.into() })?;
        ClientConnection::new(Arc::clone(&self.config), server_name)
            .map(Session)
            .map_err(|source| LoadError::TlsSetup { source })
    }
}

/// Returns the certificates of trusted authorities, or why there are none.
fn roots<E: std::fmt::Display>(
    certificates: impl Iterator<Item = Result<CertificateDer<'static>, E>>,
) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it holds no certificate".into()) } else { Ok(roots) }
}

/// The TLS of one connection.
#[derive(Debug)]
pub(crate) struct Session(ClientConnection);

impl Session {
    /// Decrypts received bytes and appends them to `plain`.
    pub(crate) fn decrypt(&mut self, received: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
        tls::decrypt(&mut self.0, received, plain)
    }

    /// Returns true during the handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.0.wants_write()
    }

    /// Appends the records that hold `plain`, and pending handshake data, to `out`.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        tls::encrypt(&mut self.0, plain, out);
    }
}
