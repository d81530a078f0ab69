//! Who the server is and who may log in: a certificate, a key and a user.
//!
//! The key is an Ed25519 key, whose signatures have one length, and no session is resumed, so the
//! lengths of all records depend on the seed alone. Their bytes do not: `ring` draws the keys of a
//! session from the kernel.

use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use tare_cql::tls::AcceptAnyCertificate;

const CERTIFICATE: &[u8] = include_bytes!("server.pem");
const KEY: &[u8] = include_bytes!("server.key");

pub(crate) const USER: &str = "user";
pub(crate) const PASSWORD: &str = "right";

/// The line of the user who may log in.
pub(crate) fn users() -> String {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| {
        tare_db::simulation::user_line(USER, PASSWORD).expect("name and password are valid")
    })
    .clone()
}

/// The server's side of TLS.
pub(crate) fn server() -> Arc<ServerConfig> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|b| b.with_no_client_auth().with_single_cert(vec![certificate], key));
        Arc::new(config.expect("certificate and key belong together"))
    }))
}

/// A client's side of a TLS session, of version 1.3 or 1.2.
pub(crate) fn client(newest: bool) -> ClientConnection {
    let versions = if newest { &TLS13 } else { &TLS12 };
    let provider = provider();
    // The validity of a certificate depends on a clock that is not simulated.
    let verifier = Arc::new(AcceptAnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[versions])
        .expect("the provider has both versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = config.with_no_client_auth();
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("the configuration is complete")
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}
