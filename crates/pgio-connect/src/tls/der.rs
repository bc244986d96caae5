//! Just enough DER to read from a certificate what webpki does not give: the public key of one of
//! X.509 version 1, the names in its subject, and what it is signed with.
//!
//! Both are common with PostgreSQL, since its manual's `openssl x509 -req` makes such certificates.
//! Nothing is trusted because it parses: signatures and chains are checked elsewhere.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OBJECT_ID: u8 = 0x06;
/// UTF8String, PrintableString, TeletexString, IA5String.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];
/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The SubjectPublicKeyInfo, with its own tag and length.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, rest) = subject(certificate)?;
    Some(next(rest)?.whole)
}

/// The first common name of the subject.
pub(super) fn common_name(certificate: &[u8]) -> Option<&str> {
    let (mut names, _) = subject(certificate)?;
    while !names.is_empty() {
        let set = next(names)?.tagged(SET)?;
        let name = next(set.content)?.tagged(SEQUENCE)?;
        let kind = next(name.content)?.tagged(OBJECT_ID)?;
        if kind.content == COMMON_NAME {
            let value = next(kind.rest)?;
            let text = STRINGS.contains(&value.tag).then_some(value.content)?;
            return std::str::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        }
        names = set.rest;
    }
    None
}

/// The object identifier of the algorithm that the certificate is signed with.
pub(super) fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let certificate = next(certificate)?.tagged(SEQUENCE)?;
    let signed = next(certificate.content)?.tagged(SEQUENCE)?;
    let algorithm = next(signed.rest)?.tagged(SEQUENCE)?;
    Some(next(algorithm.content)?.tagged(OBJECT_ID)?.content)
}

/// The content of the subject, and what follows it.
fn subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let certificate = next(certificate)?.tagged(SEQUENCE)?;
    let mut rest = next(certificate.content)?.tagged(SEQUENCE)?.content;
    if next(rest)?.tag == VERSION {
        rest = next(rest)?.rest;
    }
    for _serial_algorithm_issuer_validity in 0..4 {
        rest = next(rest)?.rest;
    }
    let subject = next(rest)?.tagged(SEQUENCE)?;
    Some((subject.content, subject.rest))
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
    rest: &'a [u8],
}

impl Element<'_> {
    fn tagged(self, tag: u8) -> Option<Self> {
        (self.tag == tag).then_some(self)
    }
}

fn next(input: &[u8]) -> Option<Element<'_>> {
    let (tag, after) = input.split_first()?;
    let (first, after) = after.split_first()?;
    let (length, after) = match first {
        0..=0x7f => (usize::from(*first), after),
        // More than 3 bytes of length is no certificate; none is the indefinite form of BER.
        0x81..=0x83 => {
            let (bytes, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)), after)
        }
        _ => return None,
    };
    let (content, rest) = after.split_at_checked(length)?;
    Some(Element { tag: *tag, content, whole: &input[..input.len() - rest.len()], rest })
}

/// libpq's comparison: without regard to case; `*.` stands for one label.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    fn certificate(version: bool, organisation: &str, common_name: &str) -> Vec<u8> {
        let name = |id: u8, text: &str| {
            let id = element(OBJECT_ID, &[0x55, 0x04, id]);
            element(SET, &element(SEQUENCE, &[id, element(0x0c, text.as_bytes())].concat()))
        };
        let subject = [name(0x0a, organisation), name(0x03, common_name)].concat();
        let version = if version { element(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let to_be_signed = [
            version,
            element(0x02, &[7]),
            element(SEQUENCE, &[1]),
            element(SEQUENCE, &[2]),
            element(SEQUENCE, &[3]),
            element(SEQUENCE, &subject),
            element(SEQUENCE, b"the key"),
        ];
        element(SEQUENCE, &element(SEQUENCE, &to_be_signed.concat()))
    }

    #[test]
    fn finds_name_and_key() {
        for version in [false, true] {
            for organisation in ["org", &"o".repeat(200), &"o".repeat(2000)] {
                let der = certificate(version, organisation, "db.example");
                assert_eq!(common_name(&der), Some("db.example"));
                assert_eq!(public_key(&der), Some(&*element(SEQUENCE, b"the key")));
            }
        }
        assert_eq!(common_name(&certificate(true, "o", "db\0.evil")), None);
    }

    #[test]
    fn a_star_is_one_label() {
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
