//! The TLS certificate of the systems that a run starts: self-signed, made for the run, and gone
//! with it. Clients trust it alone.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// The name in the certificate. Systems have an address in each environment, and no name.
pub const SERVER_NAME: &str = "tare";

/// Where a system finds the files, below its data directory.
pub(crate) const CERTIFICATE_FILE: &str = "tls/certificate.pem";
pub(crate) const KEY_FILE: &str = "tls/key.pem";

/// No certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a TLS certificate for the run")]
pub struct CertificateError(#[from] rcgen::Error);

/// A certificate with its private key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    certificate: String,
    key: String,
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").finish_non_exhaustive()
    }
}

impl ServerCertificate {
    /// Makes a certificate with a key of its own (ECDSA, P-256).
    ///
    /// # Errors
    /// If the host has no random numbers.
    pub fn make() -> Result<Self, CertificateError> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec![SERVER_NAME.to_string()])?;
        let certificate = pem("CERTIFICATE", cert.der());
        Ok(Self { certificate, key: pem("PRIVATE KEY", &signing_key.serialize_der()) })
    }

    /// Returns the certificate, which its clients trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the files for the data directory of a system.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        vec![
            (CERTIFICATE_FILE.into(), self.certificate.clone()),
            (KEY_FILE.into(), self.key.clone()),
        ]
    }
}

/// Returns bytes in PEM (RFC 7468): base64 in lines of 64 characters between two labels.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    // Base64 is ASCII.
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::access::without_private_keys;

    #[test]
    fn pem_is_read_back() {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let made = ServerCertificate::make().unwrap();
        assert!(made.certificate.lines().all(|line| line.len() <= 64), "{}", made.certificate);
        let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
        assert_eq!(pem("CERTIFICATE", &certificate), made.certificate);
        PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    }

    #[test]
    fn private_key_is_neither_printed_nor_recorded() {
        let made = ServerCertificate::make().unwrap();
        assert_eq!(format!("{made:?}"), "ServerCertificate { .. }");
        let plan = serde_json::to_string(&made.files()).unwrap();
        let config = serde_json::to_string(&plan).unwrap();
        let kept = without_private_keys(&config);
        assert!(
            config.contains("PRIVATE KEY-----") && !kept.contains("PRIVATE KEY-----"),
            "{kept}"
        );
        assert!(kept.contains("BEGIN CERTIFICATE"), "{kept}");
    }
}
