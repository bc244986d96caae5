//! TLS 1.3 with a raw public key (RFC 7250) that the coordinator draws for each run.
//!
//! The driver accepts any key: what proves the coordinator is the token, bound to the session by its
//! exported keying material (RFC 9266's idea). So there is no certificate to make, to distribute or to
//! let expire.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};

use super::error::LinkError;

/// The label of the exported keying material.
pub(super) const LABEL: &[u8] = b"EXPORTER-pgio-drivers";
/// Room for one large message; a peer that stops reading is lost by its silence first.
const BUFFER: Option<usize> = None;

/// SubjectPublicKeyInfo of Ed25519 up to the key's 32 bytes (RFC 8410).
const ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn tls(error: impl std::fmt::Display) -> LinkError {
    LinkError::Tls(error.to_string())
}

/// The coordinator's side, with a key of its own.
pub(super) fn server() -> Result<Arc<ServerConfig>, LinkError> {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(tls)?;
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(tls)?;
    let spki = [ED25519.as_slice(), pair.public_key().as_ref()].concat();
    let der = PrivatePkcs8KeyDer::from(pkcs8.as_ref());
    let key = rustls::crypto::ring::sign::any_eddsa_type(&der).map_err(tls)?;
    let certified = CertifiedKey::new(vec![CertificateDer::from(spki)], key);
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified)));
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    Ok(Arc::new(config))
}

pub(super) fn accept(config: &Arc<ServerConfig>) -> Result<ServerConnection, LinkError> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(tls)?;
    connection.set_buffer_limit(BUFFER);
    Ok(connection)
}

/// The driver's side.
pub(super) fn connect() -> Result<ClientConnection, LinkError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey(provider())))
        .with_no_client_auth();
    let name = ServerName::try_from("pgio").map_err(tls)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(tls)?;
    connection.set_buffer_limit(BUFFER);
    Ok(connection)
}

/// Accepts every raw public key, but checks that the peer owns it.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
