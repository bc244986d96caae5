//! Parses the parts of a certificate that webpki does not expose: the public key of X.509 version 1, the
//! names, the dates, and the signature algorithm; and compares names.
//!
//! `openssl x509 -req`, as in PostgreSQL's manual, makes certificates of version 1 with only a common
//! name. This module verifies nothing; `tls` verifies signatures and chains.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use x509_cert::certificate::{Certificate, TbsCertificate};
use x509_cert::der::asn1::{Any, ObjectIdentifier};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;

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

/// Kinds of a GeneralName (RFC 5280).
const DNS_NAME: u32 = 2;
const IP_ADDRESS: u32 = 7;

/// What a certificate is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// In the subjectAltName.
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
    common_name: Option<String>,
}

/// The names that libpq compares with the host; `None` if the certificate or its subjectAltName is
/// malformed.
pub(super) fn names(certificate: &[u8]) -> Option<Names> {
    let certificate = parse(certificate)?;
    let certificate = certificate.tbs_certificate();
    let mut names = Names { common_name: common_name(certificate), ..Names::default() };
    let mut extensions = certificate.extensions().into_iter().flatten();
    let Some(extension) = extensions.find(|e| e.extn_id == SubjectAltName::OID) else {
        return Some(names);
    };
    for name in Vec::<Any>::from_der(extension.extn_value.as_bytes()).ok()? {
        let value = name.value();
        // libpq compares no other kinds, and bytes: some names are not ASCII.
        match name.tag().number().value() {
            DNS_NAME => names.dns.extend(String::from_utf8(value.to_vec())),
            IP_ADDRESS => {
                let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
                let v6 = <[u8; 16]>::try_from(value).map(IpAddr::from);
                names.addresses.extend(v4.or(v6));
            }
            _ => {}
        }
    }
    Some(names)
}

/// The first common name of the subject.
fn common_name(certificate: &TbsCertificate) -> Option<String> {
    let mut names = certificate.subject().iter();
    let name = &names.find(|name| name.oid == COMMON_NAME)?.value;
    let text = STRINGS.contains(&name.tag()).then(|| name.value().to_owned())?;
    String::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}

impl Names {
    /// Whether the certificate is for this host. The common name counts only if the subjectAltName has no name of
    /// the host's kind.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let address: Option<IpAddr> = host.parse().ok();
        let of_its_kind = match address {
            Some(_) => !self.addresses.is_empty(),
            None => !self.dns.is_empty(),
        };
        address.is_some_and(|address| self.addresses.contains(&address))
            || self.dns.iter().any(|name| name_matches(name, host))
            || !of_its_kind && self.common_name.iter().any(|name| name_matches(name, host))
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let mut all: Vec<String> = self.dns.iter().cloned().chain(addresses).collect();
        if all.is_empty() {
            all.extend(self.common_name.clone());
        }
        if all.is_empty() { f.write_str("no name") } else { f.write_str(&all.join(", ")) }
    }
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
fn name_matches(pattern: &str, host: &str) -> bool {
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
    use pgio_fuzz::fuzz;

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
    pub(crate) fn certificate(version: bool, organization: &str, common_name: &str) -> Vec<u8> {
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
                let common_name = Some("db.example".to_owned());
                assert_eq!(names(&der), Some(Names { common_name, ..Names::default() }));
                assert_eq!(public_key(&der), Some(key()));
                let rsa = "1.2.840.113549.1.1.11".parse().unwrap();
                assert_eq!(signature_algorithm(&der), Some(rsa));
            }
        }
        assert_eq!(names(&certificate(true, "o", "db\0.evil")), Some(Names::default()));
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

    #[test]
    fn names_count_as_for_libpq() {
        let names = |dns: &[&str], addresses: &[&str]| Names {
            dns: dns.iter().map(|name| (*name).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            common_name: Some("cn".to_owned()),
        };
        for (names, hosts, others) in [
            (names(&[], &[]), &["cn", "CN"][..], &["db", ""][..]),
            (
                names(&["*.lan", "bücher.example"], &[]),
                &["db.lan", "bücher.example"],
                &["cn", "lan"],
            ),
            (names(&["db"], &["::1", "10.0.0.1"]), &["db", "0:0::1", "10.0.0.1"], &["cn", "::2"]),
            (names(&["10.0.0.1"], &[]), &["10.0.0.1"], &["10.0.0.2"]),
        ] {
            for host in hosts {
                assert!(names.is_for(host), "{names} {host}");
            }
            for host in others {
                assert!(!names.is_for(host), "{names} {host}");
            }
        }
        // For an address, the common name counts beside names that are none.
        let mut own = names(&["db"], &[]);
        own.common_name = Some("10.0.0.1".to_owned());
        assert!(own.is_for("10.0.0.1"));
        own.addresses.push("10.0.0.2".parse().unwrap());
        assert!(!own.is_for("10.0.0.1"));
    }

    #[test]
    fn fuzzed_certificates_are_parsed_or_refused() {
        let whole = certificate(true, &"o".repeat(130), "db");
        for end in 0..whole.len() {
            assert_eq!(public_key(&whole[..end]), None);
        }
        fuzz(&[whole, certificate(false, "o", "*.db.example")], |bytes| {
            let _ = (public_key(bytes), validity(bytes), signature_algorithm(bytes));
            if let Some(names) = names(bytes) {
                let _ = (names.is_for("db.example"), names.is_for("::1"), names.to_string());
            }
        });
    }
}
