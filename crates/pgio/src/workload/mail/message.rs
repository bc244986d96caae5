//! A message: its size, its text, and how it stands on the wire.
//!
//! The text is drawn from a seed, in lines as of an encoded attachment: little can be saved by
//! compressing it, and one line in 64 begins with a dot, which the protocol has to keep apart from the
//! end of a message. Its checksum is in a header of ours, as with Postal, and is taken with bare line
//! feeds, which is how most stores write a line's end.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use sha2::{Digest, Sha256};

use crate::config::resolve::{MIN_MESSAGE_BYTES, MessageSizes};
use crate::config::value::mail::SizeDistribution;
use crate::rng::SplitMix64;

/// In the header of every message of ours, and of nobody else's: what may be removed.
pub(super) const MARK: &str = "X-Pgio-Sha256";

/// Characters of a line, without its end; 998 is the protocol's limit, 76 the usual length.
const LINE: usize = 76;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
/// A mean times this is more than any server takes.
const LARGEST: u64 = 100;

pub(super) type Sum = [u8; 32];

/// What differs from message to message.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    /// Without angle brackets.
    pub(super) id: &'a str,
    pub(super) sender: &'a str,
    pub(super) to: &'a [&'a str],
    pub(super) bytes: u64,
    /// The seed of its text.
    pub(super) seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// As it follows DATA, the final dot included.
    pub(super) wire: Vec<u8>,
    /// Bytes of header and text.
    pub(super) bytes: u64,
    /// The checksum of its text.
    pub(super) sum: Sum,
}

/// Draws the size of one message.
pub(super) fn size(sizes: &MessageSizes, rng: &mut SplitMix64) -> u64 {
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
    (drawn.round() as u64).clamp(MIN_MESSAGE_BYTES, sizes.mean.saturating_mul(LARGEST))
}

/// Standard normal: Box and Muller, Annals of Mathematical Statistics 29(2), 1958.
fn normal(rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_f64()).cos()
}

pub(super) fn compose(draft: &Draft<'_>) -> Message {
    let mut head = String::with_capacity(512);
    // Writing to a String cannot fail.
    let _ = write!(
        head,
        "Message-ID: <{}>\r\nDate: {}\r\nFrom: <{}>\r\nTo: <{}>\r\nSubject: {}\r\n",
        draft.id,
        date(Timestamp::now()),
        draft.sender,
        // Folded, so that no line becomes too long.
        draft.to.join(">,\r\n <"),
        draft.id,
    );
    let _ = write!(head, "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n");
    // The name, two hex digits a byte, and what stands around them.
    let sum_line = MARK.len() + 2 + 64 + 2;
    // Many recipients make a header longer than a small message: one without a text has no sum.
    let text_bytes = draft.bytes.saturating_sub((head.len() + sum_line + 2) as u64).max(1) as usize;
    let mut rng = SplitMix64::new(draft.seed);
    let mut body = Vec::with_capacity(text_bytes + LINE);
    let mut sum = Sha256::new();
    while body.len() < text_bytes {
        // The last line makes up for the rest; a line has at least one letter.
        let length = (text_bytes - body.len()).saturating_sub(2).clamp(1, LINE);
        let from = body.len();
        letters(&mut rng, length, &mut body);
        sum.update(&body[from..]);
        sum.update(b"\n");
        body.extend(b"\r\n");
    }
    let sum: Sum = sum.finalize().into();
    let _ = write!(head, "{MARK}: {}\r\n\r\n", hex(&sum));
    let bytes = (head.len() + body.len()) as u64;
    let mut wire = Vec::with_capacity(bytes as usize + body.len() / LINE / 32 + 64);
    wire.extend(head.as_bytes());
    stuff(&body, &mut wire);
    Message { wire, bytes, sum }
}

fn letters(rng: &mut SplitMix64, length: usize, out: &mut Vec<u8>) {
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

/// As RFC 5322 has it, in UTC.
fn date(now: Timestamp) -> String {
    // A year over 9999 is the only failure; a Date of some kind is all that a server wants.
    let date = DateTimePrinter::new().timestamp_to_string(&now);
    date.unwrap_or_else(|_| "Thu, 1 Jan 1970 00:00:00 -0000".to_owned())
}

pub(super) fn hex(sum: &Sum) -> String {
    sum.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Text as it follows DATA: a line that begins with a dot gets another, and a dot by itself ends all
/// (RFC 5321, 4.5.2). A last line without its end gets one.
pub(super) fn stuff(text: &[u8], out: &mut Vec<u8>) {
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

    /// What a server makes of it: the text up to the lonely dot, and how much was read.
    pub(crate) fn unstuff(wire: &[u8]) -> Option<(Vec<u8>, usize)> {
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
    fn a_message_has_its_size_its_sum_and_lines_of_the_usual_length() {
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
    fn a_header_that_is_longer_than_the_message_leaves_a_line_of_text() {
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
    fn one_seed_is_one_text_and_dots_do_begin_lines() {
        let of = |seed| compose(&draft(&["a@b"], 100_000, seed));
        assert_eq!(of(1).sum, of(1).sum);
        assert_ne!(of(1).sum, of(2).sum);
        let message = of(1);
        assert!(message.wire.windows(4).any(|w| w == b"\r\n.."), "no line begins with a dot");
    }

    #[test]
    fn sizes_have_their_mean_and_their_spread() {
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
            // Five standard errors; the tail of a lognormal widens that of its deviation.
            assert!((mean / wanted - 1.0).abs() < 0.026, "{distribution:?}: mean {mean}");
            assert!((sd / wanted - relative_sd).abs() < 0.1, "{distribution:?}: sd {sd}");
            assert!(drawn.iter().all(|x| *x >= MIN_MESSAGE_BYTES as f64));
        }
    }

    proptest! {
        #[test]
        fn every_text_survives_the_dots(
            lines in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(b'.'), Just(b'\r'), any::<u8>().prop_filter("ends a line", |b| *b != b'\n')],
                0..6), 0..20),
        ) {
            // Lines end in CRLF, as the protocol has it; a bare CR inside is the text's own.
            let text: Vec<u8> = lines.iter().flat_map(|l| [l.as_slice(), b"\r\n"].concat()).collect();
            let mut wire = Vec::new();
            stuff(&text, &mut wire);
            let (read, length) = unstuff(&wire).expect("it has an end");
            prop_assert_eq!(length, wire.len(), "it ends early");
            prop_assert_eq!(read, text);
        }
    }
}
