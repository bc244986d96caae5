//! The one-time token that coordinator and drivers share.
//!
//! It is the key of both proofs and is never sent. It travels in the environment, or as a Secret that
//! becomes the environment; never in arguments, which every user of a host can read.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::error::LinkError;

/// The variable that holds the token.
pub const TOKEN_VARIABLE: &str = "PGIO_DRIVE_TOKEN";
/// The variable that holds the coordinator's addresses.
pub const COORDINATOR_VARIABLE: &str = "PGIO_COORDINATOR";

/// Characters that an offline guess cannot try all of.
const SHORTEST: usize = 32;
const LONGEST: usize = 128;

#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

impl Token {
    /// Draws one of 256 bits.
    pub fn draw() -> Result<Token, LinkError> {
        Ok(Token(hex(&random::<32>()?)))
    }

    pub fn parse(text: &str) -> Result<Token, LinkError> {
        let text = text.trim();
        let is_hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if is_hex && (SHORTEST..=LONGEST).contains(&text.len()) {
            Ok(Token(text.to_owned()))
        } else {
            Err(LinkError::BadToken)
        }
    }

    /// For the environment of a driver, and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes())
    }

    /// Returns the proof that `who` knows the token, for one TLS session and one pair of nonces.
    pub(super) fn proof(&self, who: Prover, binding: &Binding<'_>) -> String {
        hex(hmac::sign(&self.key(), &binding.text(who)).as_ref())
    }

    /// Checks a proof in constant time.
    pub(super) fn proves(&self, who: Prover, binding: &Binding<'_>, proof: &str) -> bool {
        let Some(tag) = unhex(proof) else { return false };
        hmac::verify(&self.key(), &binding.text(who), &tag).is_ok()
    }
}

/// The two sides prove different texts, so that neither proof can be sent back as the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Prover {
    Coordinator,
    Driver,
}

/// What a proof is bound to.
#[derive(Debug)]
pub(super) struct Binding<'a> {
    /// Keying material of the TLS session, which nobody in the middle shares with both ends.
    pub exported: &'a [u8; 32],
    pub driver_nonce: &'a str,
    pub coordinator_nonce: &'a str,
}

impl Binding<'_> {
    fn text(&self, who: Prover) -> Vec<u8> {
        let label: &[u8] = match who {
            Prover::Coordinator => b"pgio coordinator",
            Prover::Driver => b"pgio driver",
        };
        let parts = [
            label,
            self.exported.as_slice(),
            self.driver_nonce.as_bytes(),
            self.coordinator_nonce.as_bytes(),
        ];
        // Each with its length: no two sets of parts make one text.
        let framed = parts.iter().flat_map(|part| {
            (part.len() as u64).to_be_bytes().into_iter().chain(part.iter().copied())
        });
        framed.collect()
    }
}

pub(super) fn nonce() -> Result<String, LinkError> {
    Ok(hex(&random::<16>()?))
}

fn random<const N: usize>() -> Result<[u8; N], LinkError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LinkError::Tls("no random numbers".to_owned()))?;
    Ok(bytes)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_hexadecimal() {
        let drawn = Token::draw().unwrap();
        assert_eq!(drawn.expose().len(), 64);
        assert_eq!(Token::parse(&format!(" {}\n", drawn.expose())).unwrap(), drawn);
        assert_ne!(Token::draw().unwrap(), drawn);
        for bad in ["", "abc", &"g".repeat(64), &"a".repeat(129), &"A".repeat(64)] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
        assert!(!format!("{drawn:?}").contains(drawn.expose()));
    }

    #[test]
    fn a_proof_holds_for_one_side_one_session_and_one_pair_of_nonces() {
        let (token, other) = (Token::draw().unwrap(), Token::draw().unwrap());
        let (session, else_where) = ([1; 32], [2; 32]);
        let binding =
            |exported, driver_nonce| Binding { exported, driver_nonce, coordinator_nonce: "c" };
        let proof = token.proof(Prover::Driver, &binding(&session, "d"));
        assert!(token.proves(Prover::Driver, &binding(&session, "d"), &proof));
        assert!(!token.proves(Prover::Coordinator, &binding(&session, "d"), &proof));
        assert!(!token.proves(Prover::Driver, &binding(&else_where, "d"), &proof));
        assert!(!token.proves(Prover::Driver, &binding(&session, "e"), &proof));
        assert!(!other.proves(Prover::Driver, &binding(&session, "d"), &proof));
        for text in ["", "zz", "é", &proof[1..]] {
            assert!(!token.proves(Prover::Driver, &binding(&session, "d"), text), "{text}");
        }
    }
}
