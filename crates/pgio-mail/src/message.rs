//! Composes messages: size, text, and the form on the wire.
//!
//! The text is random, drawn from a seed, in lines like an encoded attachment. It is almost
//! incompressible, and one line in 64 begins with a dot, which the protocol must escape. A header of
//! pgio's holds the checksum, as with Postal. The checksum uses bare line feeds, because most stores do.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use sha2::{Digest, Sha256};

use benchmath::rng::SplitMix64;

use super::settings::{MIN_MESSAGE_BYTES, MessageSizes, SizeDistribution};

/// A header in every message of pgio's and in no other; only messages with it may be removed.
pub const SUM_HEADER: &str = "X-Pgio-Sha256";

/// Length of a line without its end; the protocol's limit is 998, 76 is usual.
const LINE_LENGTH: usize = 76;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
/// Maximum size in multiples of the mean, beyond what any server accepts.
const MAX_SIZE_FACTOR: u64 = 100;

pub type Sum = [u8; 32];

/// The variable parts of a message.
#[derive(Debug)]
pub struct Draft<'a> {
    /// Without angle brackets.
    pub id: &'a str,
    pub sender: &'a str,
    pub to: &'a [&'a str],
    pub bytes: u64,
    /// Seed of the text.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What follows DATA, including the final dot.
    pub wire: Vec<u8>,
    /// Bytes of header and text.
    pub bytes: u64,
    /// Checksum of the text.
    pub sum: Sum,
}

/// Draws the size of one message.
pub fn size(sizes: &MessageSizes, rng: &mut SplitMix64) -> u64 {
    let mean = sizes.mean as f64;
    let spread = f64::from(sizes.spread) / 100.0;
    let drawn = match sizes.distribution {
        SizeDistribution::Fixed => mean,
        SizeDistribution::Uniform => mean * (1.0 + spread * (2.0 * rng.next_f64() - 1.0)),
        SizeDistribution::Lognormal => {
            let variance = (spread * spread).ln_1p();
            (mean.ln() - variance / 2.0 + variance.sqrt() * normal(rng)).exp()
        }
    };
    (drawn.round() as u64).clamp(MIN_MESSAGE_BYTES, sizes.mean.saturating_mul(MAX_SIZE_FACTOR))
}

/// Draws from the standard normal distribution: Box and Muller, Annals of Mathematical Statistics 29(2), 1958.
fn normal(rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_f64()).cos()
}

pub fn compose(draft: &Draft<'_>) -> Message {
    let mut head = String::with_capacity(512);
    // Writing to a String cannot fail.
    let _ = write!(
        head,
        "Message-ID: <{}>\r\nDate: {}\r\nFrom: <{}>\r\nTo: <{}>\r\nSubject: {}\r\n",
        draft.id,
        date(Timestamp::now()),
        draft.sender,
        // Folded to keep lines short.
        draft.to.join(">,\r\n <"),
        draft.id,
    );
    let _ = write!(head, "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n");
    // The name, two hex digits per byte, and punctuation.
    let sum_line = SUM_HEADER.len() + 2 + 64 + 2;
    // With many recipients the header is longer than a small message; leave at least one line of text.
    let text_bytes = draft.bytes.saturating_sub((head.len() + sum_line + 2) as u64).max(1) as usize;
    let mut rng = SplitMix64::new(draft.seed);
    let mut body = Vec::with_capacity(text_bytes + LINE_LENGTH);
    let mut sum = Sha256::new();
    while body.len() < text_bytes {
        // The last line fills the rest; a line has at least one letter.
        let length = (text_bytes - body.len()).saturating_sub(2).clamp(1, LINE_LENGTH);
        let from = body.len();
        append_letters(&mut rng, length, &mut body);
        sum.update(&body[from..]);
        sum.update(b"\n");
        body.extend(b"\r\n");
    }
    let sum: Sum = sum.finalize().into();
    let _ = write!(head, "{SUM_HEADER}: {}\r\n\r\n", hex(&sum));
    let bytes = (head.len() + body.len()) as u64;
    let mut wire = Vec::with_capacity(bytes as usize + body.len() / LINE_LENGTH / 32 + 64);
    wire.extend(head.as_bytes());
    stuff(&body, &mut wire);
    Message { wire, bytes, sum }
}

fn append_letters(rng: &mut SplitMix64, length: usize, out: &mut Vec<u8>) {
    let mut left = length;
    while left > 0 {
        let mut bits = rng.next_u64();
        for _ in 0..left.min(10) {
            out.push(LETTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
        left = left.saturating_sub(10);
    }
}

/// Formats a date according to RFC 5322, in UTC.
fn date(now: Timestamp) -> String {
    // Only a year after 9999 fails; servers require just some date.
    let date = DateTimePrinter::new().timestamp_to_string(&now);
    date.unwrap_or_else(|_| "Thu, 1 Jan 1970 00:00:00 -0000".to_owned())
}

fn hex(sum: &Sum) -> String {
    sum.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Appends text in the form that follows DATA: doubles a leading dot of a line, ends an unfinished last
/// line, and adds the final dot (RFC 5321, 4.5.2).
pub fn stuff(text: &[u8], out: &mut Vec<u8>) {
    for line in text.split_inclusive(|b| *b == b'\n') {
        if line.starts_with(b".") {
            out.push(b'.');
        }
        out.extend(line);
    }
    if !text.is_empty() && !text.ends_with(b"\r\n") {
        out.extend(b"\r\n");
    }
    out.extend(b".\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads it as a server does: returns the text up to the final dot, and the bytes consumed.
    fn unstuff(wire: &[u8]) -> Option<(Vec<u8>, usize)> {
        let (mut text, mut at) = (Vec::new(), 0);
        for line in wire.split_inclusive(|b| *b == b'\n') {
            at += line.len();
            match line {
                b".\r\n" => return Some((text, at)),
                _ => text.extend(line.strip_prefix(b".").unwrap_or(line)),
            }
        }
        None
    }

    fn draft<'a>(to: &'a [&'a str], bytes: u64, seed: u64) -> Draft<'a> {
        Draft { id: "1.2.3@pgio", sender: "pgio@localhost", to, bytes, seed }
    }

    #[test]
    fn composes_the_requested_size_with_a_checksum() {
        for bytes in [1024, 1025, 1101, 1102, 1103, 71_680] {
            let message = compose(&draft(&["a@b", "c@d"], bytes, 7));
            let (raw, read) = unstuff(&message.wire).unwrap();
            assert_eq!((raw.len() as u64, read), (message.bytes, message.wire.len()));
            assert!(message.bytes.abs_diff(bytes) <= 3, "{} of {bytes}", message.bytes);
            let text = String::from_utf8(raw).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("To: <a@b>,\r\n <c@d>\r\n"), "{head}");
            assert!(head.contains("Message-ID: <1.2.3@pgio>\r\n"), "{head}");
            let lf = body.replace("\r\n", "\n");
            assert!(!lf.contains('\r') && lf.ends_with('\n'));
            let sum: Sum = Sha256::digest(lf).into();
            assert_eq!(sum, message.sum);
            assert!(head.ends_with(&format!("X-Pgio-Sha256: {}", hex(&sum))), "{head}");
            assert!(text.lines().all(|line| line.len() <= 100));
        }
    }

    #[test]
    fn a_long_header_leaves_one_line_of_text() {
        let many = vec!["someone@example.invalid"; 50];
        let message = compose(&draft(&many, MIN_MESSAGE_BYTES, 7));
        assert!(message.bytes > MIN_MESSAGE_BYTES);
        let (raw, _) = unstuff(&message.wire).unwrap();
        let text = String::from_utf8(raw).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), 3, "{body:?}");
        let sum: Sum = Sha256::digest(body.replace("\r\n", "\n")).into();
        assert_eq!(sum, message.sum);
    }

    #[test]
    fn a_seed_determines_the_text_and_some_lines_begin_with_a_dot() {
        let composed = |seed| compose(&draft(&["a@b"], 100_000, seed));
        assert_eq!(composed(1).sum, composed(1).sum);
        assert_ne!(composed(1).sum, composed(2).sum);
        let message = composed(1);
        assert!(message.wire.windows(4).any(|w| w == b"\r\n.."), "no line begins with a dot");
    }

    #[test]
    fn sizes_have_the_requested_mean_and_spread() {
        let mut rng = SplitMix64::new(5);
        for (distribution, spread, relative_sd) in [
            (SizeDistribution::Fixed, 0, 0.0),
            (SizeDistribution::Uniform, 50, 0.5 / 3f64.sqrt()),
            (SizeDistribution::Lognormal, 100, 1.0),
        ] {
            let sizes = MessageSizes { mean: 70 << 10, distribution, spread };
            let drawn: Vec<f64> = (0..40_000).map(|_| size(&sizes, &mut rng) as f64).collect();
            let n = drawn.len() as f64;
            let mean = drawn.iter().sum::<f64>() / n;
            let sd = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
            let wanted = sizes.mean as f64;
            // Five standard errors; the lognormal tail widens the error of the deviation.
            assert!((mean / wanted - 1.0).abs() < 0.026, "{distribution:?}: mean {mean}");
            assert!((sd / wanted - relative_sd).abs() < 0.1, "{distribution:?}: sd {sd}");
            assert!(drawn.iter().all(|x| *x >= MIN_MESSAGE_BYTES as f64));
        }
    }

    proptest! {
        #[test]
        fn dot_stuffing_is_reversible(
            lines in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(b'.'), Just(b'\r'), any::<u8>().prop_filter("ends a line", |b| *b != b'\n')],
                0..6), 0..20),
        ) {
            // Lines end in CRLF, as the protocol requires; a bare CR may be part of a line.
            let text: Vec<u8> = lines.iter().flat_map(|l| [l.as_slice(), b"\r\n"].concat()).collect();
            let mut wire = Vec::new();
            stuff(&text, &mut wire);
            let (read, length) = unstuff(&wire).expect("it has an end");
            prop_assert_eq!(length, wire.len(), "it ends early");
            prop_assert_eq!(read, text);
        }
    }
}
