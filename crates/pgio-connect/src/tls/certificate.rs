//! Parses the parts of a certificate that webpki does not expose: the public key of X.509 version 1, the
//! common name of the subject, the dates, and the signature algorithm.
//!
//! `openssl x509 -req`, as in PostgreSQL's manual, makes certificates of version 1 with only a common
//! name. This module verifies nothing; `tls` verifies signatures and chains.

use std::ops::RangeInclusive;
use std::time::Duration;

use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Decode, Encode, Tag, Tagged};

/// String types of a name.
const STRINGS: [Tag; 4] =
    [Tag::Utf8String, Tag::PrintableString, Tag::TeletexString, Tag::Ia5String];

fn parse(certificate: &[u8]) -> Option<Certificate> {
    Certificate::from_der(certificate).ok()
}

/// The SubjectPublicKeyInfo, including its tag and length.
pub(super) fn public_key(certificate: &[u8]) -> Option<Vec<u8>> {
    let certificate = parse(certificate)?;
    certificate.tbs_certificate().subject_public_key_info().to_der().ok()
}

/// The first common name of the subject.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = parse(certificate)?;
    let mut names = certificate.tbs_certificate().subject().iter();
    let name = &names.find(|name| name.oid == COMMON_NAME)?.value;
    let text = STRINGS.contains(&name.tag()).then(|| name.value().to_owned())?;
    String::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}

/// From when until when the certificate is valid, since 1970.
pub(super) fn validity(certificate: &[u8]) -> Option<RangeInclusive<Duration>> {
    let certificate = parse(certificate)?;
    let dates = certificate.tbs_certificate().validity();
    Some(dates.not_before.to_unix_duration()..=dates.not_after.to_unix_duration())
}

/// The algorithm of the certificate's signature.
pub(super) fn signature_algorithm(certificate: &[u8]) -> Option<ObjectIdentifier> {
    Some(parse(certificate)?.signature_algorithm().oid)
}

/// Compares like libpq: ignores case; `*.` matches one label.
pub(super) fn name_matches(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            !label.is_empty() && !domain.is_empty() && domain.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const VERSION: u8 = 0xa0;
    const OBJECT_ID: u8 = 0x06;
    const BIT_STRING: u8 = 0x03;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut out = vec![tag];
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => out.push(short),
            Ok(byte) => out.extend([0x81, byte]),
            Err(_) => out.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        out.extend(content);
        out
    }

    /// sha256WithRSAEncryption
    fn algorithm() -> Vec<u8> {
        let rsa = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
        element(SEQUENCE, &element(OBJECT_ID, &rsa))
    }

    fn key() -> Vec<u8> {
        element(SEQUENCE, &[algorithm(), element(BIT_STRING, b"\0the key")].concat())
    }

    /// Valid in the year 2025.
    pub(in super::super) fn certificate(
        version: bool,
        organization: &str,
        common_name: &str,
    ) -> Vec<u8> {
        let name = |id: u8, text: &str| {
            let id = element(OBJECT_ID, &[0x55, 0x04, id]);
            element(SET, &element(SEQUENCE, &[id, element(0x0c, text.as_bytes())].concat()))
        };
        let subject = [name(0x0a, organization), name(0x03, common_name)].concat();
        let version = if version { element(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let dates = [b"250101000000Z", b"260101000000Z"].map(|date| element(0x17, date));
        let to_be_signed = [
            version,
            element(0x02, &[7]),
            algorithm(),
            element(SEQUENCE, &name(0x03, "issuer")),
            element(SEQUENCE, &dates.concat()),
            element(SEQUENCE, &subject),
            key(),
        ];
        let signature = element(BIT_STRING, b"\0signature");
        let signed = [element(SEQUENCE, &to_be_signed.concat()), algorithm(), signature];
        element(SEQUENCE, &signed.concat())
    }

    #[test]
    fn finds_name_and_key() {
        for version in [false, true] {
            for organization in ["org", &"o".repeat(200), &"o".repeat(2000)] {
                let der = certificate(version, organization, "db.example");
                assert_eq!(common_name(&der).as_deref(), Some("db.example"));
                assert_eq!(public_key(&der), Some(key()));
                let rsa = "1.2.840.113549.1.1.11".parse().unwrap();
                assert_eq!(signature_algorithm(&der), Some(rsa));
            }
        }
        assert_eq!(common_name(&certificate(true, "o", "db\0.evil")), None);
    }

    #[test]
    fn a_wildcard_in_a_certificate_name_matches_one_label() {
        assert!(name_matches("DB.example", "db.Example"));
        assert!(name_matches("*.example.org", "db.example.org"));
        for (pattern, host) in [
            ("*.example.org", "a.db.example.org"),
            ("*.example.org", "example.org"),
            ("*.example.org", ".example.org"),
            ("*", "db"),
            ("*.", "db."),
            ("d*.example.org", "db.example.org"),
        ] {
            assert!(!name_matches(pattern, host), "{pattern} {host}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in any::<Vec<u8>>(), at: usize, byte: u8) {
            let _ = (common_name(&bytes), public_key(&bytes));
            let whole = certificate(true, &"o".repeat(130), "db");
            let at = at % whole.len();
            let mut changed = whole.clone();
            changed[at] = byte;
            let _ = (common_name(&changed), public_key(&changed));
            prop_assert_eq!(public_key(&whole[..at]), None);
        }
    }
}
