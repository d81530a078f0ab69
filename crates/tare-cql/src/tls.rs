//! TLS for a connection's bytes, by rustls and without I/O: the part that server and client share
//! once they have a session.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ConnectionCommon, DigitallySignedStruct, SideData, SignatureScheme};

/// Why a TLS session has ended.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the peer violates the TLS protocol")]
    Peer { source: rustls::Error },
    #[error("the peer has ended its TLS session")]
    Ended,
}

/// Takes received bytes and appends their plain text to `plain`. After an error there may still be
/// an alert to send.
///
/// # Errors
/// Fails if the bytes violate TLS, or if the session has ended; `plain` has the text
/// before the end.
pub fn decrypt<S: SideData>(
    session: &mut ConnectionCommon<S>,
    mut received: &[u8],
    plain: &mut Vec<u8>,
) -> Result<(), TlsError> {
    while !received.is_empty() {
        // Reading from a slice cannot fail, and its amount is bounded by a record's length.
        let taken = session.read_tls(&mut received).map_err(|_| TlsError::Ended)?;
        let state = session.process_new_packets().map_err(|source| TlsError::Peer { source })?;
        let (length, ended) = (state.plaintext_bytes_to_read(), state.peer_has_closed());
        let start = plain.len();
        plain.resize(start + length, 0);
        session.reader().read_exact(&mut plain[start..]).map_err(|_| TlsError::Ended)?;
        if ended || taken == 0 {
            return Err(TlsError::Ended);
        }
    }
    Ok(())
}

/// Appends the records of `plain`, and pending TLS messages, to `out`.
pub fn encrypt<S: SideData>(
    session: &mut ConnectionCommon<S>,
    mut plain: &[u8],
    out: &mut Vec<u8>,
) {
    loop {
        // The session takes a bounded part at a time. Neither call can fail in memory.
        let taken = session.writer().write(plain).unwrap_or(0);
        plain = &plain[taken..];
        while session.wants_write() && session.write_tls(out).is_ok_and(|written| written > 0) {}
        if plain.is_empty() || taken == 0 {
            return;
        }
    }
}

/// A client's verifier that accepts any certificate, but still checks that its key made the
/// signatures.
#[derive(Debug)]
pub struct AcceptAnyCertificate(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
