//! Verifies a server's certificate as libpq does: the chain and the name, as the mode requires.
//!
//! Reads no files; `tls` makes the configuration.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::certificate;

#[derive(Debug)]
pub(super) struct Roots {
    pub(super) store: RootCertStore,
    /// The file may contain the server's own certificate instead of a CA's. OpenSSL accepts that,
    /// webpki does not. Such a certificate must be equal byte by byte, and within its dates.
    pub(super) listed: Vec<CertificateDer<'static>>,
}

/// The configuration for all hosts.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(super) config: ClientConfig,
    pub(super) verifier: LibpqVerifier,
}

impl Tls {
    /// The configuration for a session with this host, and the name to send to it.
    pub(crate) fn for_host(mut self, host: String) -> (Arc<ClientConfig>, ServerName<'static>) {
        // Where no name is verified, any name will do, as for libpq. In place of one that is no DNS
        // name for rustls comes an address, because addresses are not sent.
        let name = ServerName::try_from(host.clone());
        let name = name.unwrap_or_else(|_| IpAddr::from(Ipv4Addr::UNSPECIFIED).into());
        self.verifier.host = host;
        self.config.dangerous().set_certificate_verifier(Arc::new(self.verifier));
        (Arc::new(self.config), name)
    }
}

/// Verifies what the mode requires, and always the signatures, which prove that the peer has the key.
#[derive(Debug, Clone)]
pub(super) struct LibpqVerifier {
    pub(super) roots: Option<Arc<Roots>>,
    /// As the user wrote it: rustls does not take every name for one.
    pub(super) host: String,
    pub(super) check_name: bool,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LibpqVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        if roots.listed.contains(end_entity) {
            check_dates(end_entity, now)?;
        } else {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                &roots.store,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        if self.check_name {
            check_name(end_entity, &self.host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match (ParsedCertificate::try_from(cert), certificate::public_key(cert)) {
            (Err(_), Some(key)) => {
                let key = SubjectPublicKeyInfoDer::from(key.as_slice());
                verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
            }
            _ => verify_tls13_signature(message, cert, dss, algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    use CertificateError::{BadEncoding, Expired, NotValidYet};
    let now = Duration::from_secs(now.as_secs());
    let wrong = match certificate::validity(certificate) {
        None => BadEncoding,
        Some(dates) if now < *dates.start() => NotValidYet,
        Some(dates) if now > *dates.end() => Expired,
        Some(_) => return Ok(()),
    };
    Err(wrong.into())
}

/// Compares as libpq 15 to 18, which is less strict than webpki: `*.lan` is a name there.
fn check_name(end_entity: &CertificateDer<'_>, host: &str) -> Result<(), rustls::Error> {
    let names = certificate::names(end_entity).ok_or(CertificateError::BadEncoding)?;
    if names.is_for(host) {
        return Ok(());
    }
    Err(rustls::Error::General(format!("{NAME_MISMATCH}{names}, not for {host}")))
}

pub(super) const NAME_MISMATCH: &str = "the server's certificate is for ";
