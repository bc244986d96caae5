//! TLS by rustls. The server's certificate is verified as by libpq:
//!
//! | sslmode | without a root certificate | with a root certificate |
//! |---|---|---|
//! | prefer, require | any certificate is accepted | the chain |
//! | verify-ca | an error | the chain |
//! | verify-full | an error | the chain and the host name |
//!
//! Like libpq, this module accepts certificates made as PostgreSQL's manual shows: with the host name
//! in the CN and no subjectAltName, and of X.509 version 1. webpki cannot verify the chain of a
//! version 1 certificate, so such a certificate requires TLS 1.3 and an sslmode without that check.
//!
//! Next: `open` decides when TLS is tried.

use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, MD_5_WITH_RSA_ENCRYPTION,
    SHA_1_WITH_RSA_ENCRYPTION, SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION,
    SHA_512_WITH_RSA_ENCRYPTION,
};

use super::certificate;
use super::error::{ConnectError, TlsUnsupported};
use super::params::{ClientCert, ConnectParams, RootCert, SslMode, SslParams};

/// Returns the configuration for these parameters; the first call creates it.
pub(super) fn client_config(params: &ConnectParams) -> Result<Tls, ConnectError> {
    if let Some(made) = params.tls.get() {
        return Ok(made.clone());
    }
    let made = make(&params.ssl)?;
    Ok(params.tls.get_or_init(|| made).clone())
}

fn make(ssl: &SslParams) -> Result<Tls, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = match (ssl.tls12, ssl.tls13) {
        (true, false) => &[&version::TLS12],
        (false, true) => &[&version::TLS13],
        _ => &[&version::TLS12, &version::TLS13],
    };
    let verifier = verifier(ssl, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| unusable(&e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier.clone()));
    let mut config = match &ssl.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = read_client(client)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| bad_file(&client.key, format!("does not match sslcert: {e}")))?
        }
    };
    config.enable_sni = ssl.sni;
    Ok(Tls { config, verifier })
}

fn unusable(error: &dyn Display) -> ConnectError {
    ConnectError::Tls { at: "any server".to_owned(), problem: error.to_string() }
}

fn bad_file(path: &Path, problem: impl Into<String>) -> ConnectError {
    ConnectError::TlsFile { path: path.to_owned(), problem: problem.into() }
}

fn unsupported(path: &Path, problem: &str) -> ConnectError {
    let with = path.display().to_string();
    ConnectError::TlsUnsupported(TlsUnsupported { with, problem: problem.to_owned() })
}

fn verifier(
    ssl: &SslParams,
    provider: &Arc<CryptoProvider>,
) -> Result<LibpqVerifier, ConnectError> {
    if let (RootCert::File(root), Some(list)) = (&ssl.root, &ssl.revoked)
        && root.exists()
    {
        // libpq reads it beside any root certificates, and refuses what it revokes.
        let problem = "certificate revocation lists are not supported; remove the file if the server's \
                       certificate need not be checked against it, or set sslmode=disable";
        return Err(unsupported(list, problem));
    }
    let roots = match &ssl.root {
        RootCert::System => Some(Roots { store: system_roots()?, listed: Vec::new() }),
        RootCert::File(path) if path.exists() => Some(read_roots(path)?),
        RootCert::File(path) if ssl.mode >= SslMode::VerifyCa => {
            let problem = "not found; set sslrootcert to the file of the CA certificate or to system, \
                           or turn off verification with sslmode=require";
            return Err(bad_file(path, problem));
        }
        RootCert::None if ssl.mode >= SslMode::VerifyCa => {
            let problem = "not found, but sslmode requires verification; give sslrootcert=FILE \
                           or sslrootcert=system, or set sslmode=require";
            return Err(bad_file(Path::new("~/.postgresql/root.crt"), problem));
        }
        RootCert::File(_) | RootCert::None => None,
    };
    Ok(LibpqVerifier {
        roots: roots.map(Arc::new),
        host: String::new(),
        check_name: ssl.mode == SslMode::VerifyFull,
        provider: Arc::clone(provider),
    })
}

fn system_roots() -> Result<RootCertStore, ConnectError> {
    let mut store = RootCertStore::empty();
    // Some systems ship certificates that webpki cannot use; the others are enough.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        return Err(unusable(&"the system's trust store contains no usable certificate"));
    }
    Ok(store)
}

fn read_roots(path: &Path) -> Result<Roots, ConnectError> {
    let listed = read_certificates(path)?;
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(listed.iter().cloned());
    if added == 0 {
        return Err(bad_file(path, "contains no usable certificate in PEM format"));
    }
    Ok(Roots { store, listed })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let pem = fs::read(path).map_err(|e| bad_file(path, e.to_string()))?;
    CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| bad_file(path, format!("not in PEM format: {e}")))
}

fn read_client(
    client: &ClientCert,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ConnectError> {
    let chain = read_certificates(&client.cert)?;
    if chain.is_empty() {
        return Err(bad_file(&client.cert, "contains no certificate in PEM format"));
    }
    let meta = fs::metadata(&client.key);
    let meta =
        meta.map_err(|e| bad_file(&client.key, format!("{e}; set sslkey to the file of the key")))?;
    // Like libpq, accept a key of root that a group may read, so that services can share it.
    let forbidden = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if !meta.is_file() || meta.permissions().mode() & forbidden != 0 {
        return Err(bad_file(
            &client.key,
            "must be a file that only its owner can read; run chmod 0600",
        ));
    }
    let pem = fs::read(&client.key).map_err(|e| bad_file(&client.key, e.to_string()))?;
    if String::from_utf8_lossy(&pem).contains("ENCRYPTED") {
        let problem = "the key is encrypted; decrypt it with openssl pkey -in .. -out ..";
        return Err(unsupported(&client.key, problem));
    }
    let key = PrivateKeyDer::from_pem_slice(&pem);
    Ok((
        chain,
        key.map_err(|e| bad_file(&client.key, format!("not a private key in PEM format: {e}")))?,
    ))
}

/// Returns the channel binding of SCRAM (tls-server-end-point, RFC 5929): the hash of the server's
/// certificate by the algorithm of its signature, at least SHA-256.
pub(super) fn end_point(server_certificate: &[u8]) -> Option<Vec<u8>> {
    // The constants of `rfc5912` lack it.
    const ECDSA_WITH_SHA_1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.1");
    match certificate::signature_algorithm(server_certificate)? {
        // RFC 5929 replaces MD5 and SHA-1 by SHA-256.
        MD_5_WITH_RSA_ENCRYPTION
        | SHA_1_WITH_RSA_ENCRYPTION
        | SHA_256_WITH_RSA_ENCRYPTION
        | ECDSA_WITH_SHA_1
        | ECDSA_WITH_SHA_256 => Some(Sha256::digest(server_certificate).to_vec()),
        SHA_384_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_384 => {
            Some(Sha384::digest(server_certificate).to_vec())
        }
        SHA_512_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_512 => {
            Some(Sha512::digest(server_certificate).to_vec())
        }
        // Ed25519 has no separate hash function, so no binding is defined.
        _ => None,
    }
}

/// Returns the error of a failed handshake.
pub(super) fn failure(at: String, error: &rustls::Error, ssl: &SslParams) -> ConnectError {
    let problem = explain(error, ssl);
    if is_version_1(error) || is_unknown_signature(error) {
        ConnectError::TlsUnsupported(TlsUnsupported { with: at, problem })
    } else {
        ConnectError::Tls { at, problem }
    }
}

/// Whether the chain has a certificate of version 1: webpki's error is hidden behind a `dyn Error`.
fn is_version_1(error: &rustls::Error) -> bool {
    let other = matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(_)));
    other && error.to_string().contains("UnsupportedCertVersion")
}

/// Whether a certificate is signed by an algorithm that OpenSSL may know and ring does not.
fn is_unknown_signature(error: &rustls::Error) -> bool {
    use CertificateError::{
        UnsupportedSignatureAlgorithmContext, UnsupportedSignatureAlgorithmForPublicKeyContext,
    };
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            UnsupportedSignatureAlgorithmContext { .. }
                | UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        )
    )
}

/// Returns the reason of a failed handshake with a hint.
fn explain(error: &rustls::Error, ssl: &SslParams) -> String {
    use rustls::{CertificateError as C, Error as E};
    let roots = match &ssl.root {
        RootCert::File(path) => path.display().to_string(),
        RootCert::System => "the system's trust store".to_owned(),
        RootCert::None => "any root certificate".to_owned(),
    };
    match error {
        E::InvalidCertificate(C::UnknownIssuer) => {
            format!("the server's certificate is not signed by {roots}; check sslrootcert")
        }
        E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "the server's certificate has expired; renew it on the server".to_owned()
        }
        E::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet; check the clocks of both machines".to_owned()
        }
        E::General(mismatch) if mismatch.starts_with(NAME_MISMATCH) => format!(
            "{mismatch}; set host to a name in the certificate (and hostaddr to the address), or turn off the check of the name with sslmode=verify-ca"
        ),
        other if is_version_1(other) => {
            "cannot verify the server's certificate, because it is an X.509 version 1 certificate; \
             issue one of version 3 (openssl x509 -extfile), set sslrootcert to the certificate itself \
             with sslmode=verify-ca (needs TLS 1.3), or set sslmode=disable"
                .to_owned()
        }
        other if is_unknown_signature(other) => {
            "cannot verify the server's certificate, because its signature algorithm is not supported; \
             use RSA of at least 2048 bits, ECDSA on P-256 or P-384, or Ed25519"
                .to_owned()
        }
        E::AlertReceived(alert) => format!(
            "the server sent the alert {alert:?}; check the client certificate (sslcert, sslkey) \
             and the server's log"
        ),
        other => other.to_string(),
    }
}

#[derive(Debug)]
struct Roots {
    store: RootCertStore,
    /// The file may contain the server's own certificate instead of a CA's. OpenSSL accepts that,
    /// webpki does not. Such a certificate must be equal byte by byte, and within its dates.
    listed: Vec<CertificateDer<'static>>,
}

/// The configuration for all hosts.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    config: ClientConfig,
    verifier: LibpqVerifier,
}

impl Tls {
    /// The configuration for a session with this host, and the name to send to it.
    pub(super) fn for_host(mut self, host: String) -> (Arc<ClientConfig>, ServerName<'static>) {
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
struct LibpqVerifier {
    roots: Option<Arc<Roots>>,
    /// As the user wrote it: rustls does not take every name for one.
    host: String,
    check_name: bool,
    provider: Arc<CryptoProvider>,
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

const NAME_MISMATCH: &str = "the server's certificate is for ";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn ssl(mode: SslMode) -> SslParams {
        SslParams {
            mode,
            root: RootCert::None,
            client: None,
            revoked: None,
            sni: true,
            tls12: true,
            tls13: true,
        }
    }

    #[test]
    fn files_that_pgio_does_not_support_have_their_own_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let root = RootCert::File(file("root.crt", ""));
        let revoking =
            SslParams { root, revoked: Some(file("root.crl", "")), ..ssl(SslMode::Prefer) };
        let cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
        let client = ClientCert { cert: file("me.crt", cert), key: file("me.key", key) };
        let encrypted = SslParams { client: Some(client), ..ssl(SslMode::Prefer) };
        for (ssl, name) in [(revoking, "root.crl"), (encrypted, "me.key")] {
            let error = make(&ssl).err().unwrap();
            let named =
                matches!(&error, ConnectError::TlsUnsupported(what) if what.with.ends_with(name));
            assert!(named, "{error}");
        }
    }

    #[test]
    fn a_certificate_that_only_libpq_verifies_has_the_same_error() {
        let inner = io::Error::other("UnsupportedCertVersion");
        let version_1 = CertificateError::Other(rustls::OtherError(Arc::new(inner)));
        let signature = CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: Vec::new(),
            supported_algorithms: Vec::new(),
        };
        let error = |certificate| {
            let error = rustls::Error::InvalidCertificate(certificate);
            failure("h:5432".to_owned(), &error, &ssl(SslMode::Prefer))
        };
        for (certificate, hint) in [(version_1, "version 3"), (signature, "P-256")] {
            let error = error(certificate);
            assert!(matches!(error, ConnectError::TlsUnsupported(_)), "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
        let unknown = error(CertificateError::UnknownIssuer);
        assert!(matches!(unknown, ConnectError::Tls { .. }), "{unknown}");
    }

    #[test]
    fn a_listed_certificate_is_accepted_within_its_dates() {
        let listed = CertificateDer::from(certificate::tests::certificate(false, "o", "db"));
        let verifier = LibpqVerifier {
            roots: Some(Arc::new(Roots {
                store: RootCertStore::empty(),
                listed: vec![listed.clone()],
            })),
            host: String::new(),
            check_name: false,
            provider: Arc::new(ring::default_provider()),
        };
        let name = ServerName::try_from("db").unwrap();
        let refusal = |date| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(date));
            let verified = verifier.verify_server_cert(&listed, &[], &name, &[], now);
            verified.err().map(|error| explain(&error, &ssl(SslMode::VerifyCa)))
        };
        let (begin, end) = (1_735_689_600, 1_767_225_600);
        assert_eq!(refusal(begin), None);
        assert_eq!(refusal(end), None);
        let text = refusal(begin - 1).unwrap();
        assert!(text.contains("not valid yet"), "{text}");
        let text = refusal(end + 1).unwrap();
        assert!(text.contains("expired"), "{text}");
    }
}
