//! The calls of a session and their messages, which are built before the window. Only the key is drawn
//! inside the window and written into eight bytes of the message.

use std::borrow::Cow;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use serde::{Deserialize, Serialize};

use crate::rng::SplitMix64;
use crate::workload::Script;

/// Type OIDs of the parameters: bigint and text.
pub(in crate::workload) const BIGINT: u32 = 20;
pub(in crate::workload) const TEXT: u32 = 25;

/// The work of one session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calls {
    /// Its table, pins, plans and privileges; the body is empty.
    pub script: Script,
    pub statements: Vec<Statement>,
    /// The calls, drawn by their shares, which add up to 1.
    pub calls: Vec<Call>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Statement {
    pub name: Cow<'static, str>,
    pub sql: String,
    pub types: Vec<u32>,
}

/// Statements that are sent and answered together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    pub share: f64,
    pub counts: Counts,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    pub statement: Cow<'static, str>,
    pub parameters: Vec<Parameter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parameter {
    /// A key from 1 to this number, drawn for each call; at most one per call.
    Key(u64),
    Number(i64),
    Text(String),
    Null,
}

/// How a call is counted, and where the number of its rows comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counts {
    /// Each returned row is one block read.
    Read,
    /// One returned row has the number of blocks read.
    ReadCount,
    Update,
    Insert,
}

/// A call as bytes.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    pub counts: Counts,
    /// The call is chosen by draws below this limit and not below the previous call's limit.
    pub up_to: u64,
    bytes: Vec<u8>,
    /// The position of the key, and the number of keys.
    key: Option<(usize, u64)>,
}

impl Prepared {
    /// Prepares the calls of a session; the last call gets the remainder due to rounding.
    pub(super) fn all(calls: &[Call]) -> std::io::Result<Vec<Prepared>> {
        let mut prepared = Vec::new();
        let mut share = 0.0;
        for call in calls {
            share += call.share;
            prepared.push(Prepared::new(call, (share * 2f64.powi(64)) as u64)?);
        }
        if let Some(last) = prepared.last_mut() {
            last.up_to = u64::MAX;
        }
        Ok(prepared)
    }

    fn new(call: &Call, up_to: u64) -> std::io::Result<Prepared> {
        let mut bytes = BytesMut::new();
        let mut key = None;
        for step in &call.steps {
            bind(step, &mut bytes)?;
            if let Some(span) = step.parameters.iter().find_map(Parameter::span) {
                key = Some((key_in(step, bytes.len()), span));
            }
            frontend::execute("", 0, &mut bytes)?;
        }
        frontend::sync(&mut bytes);
        Ok(Prepared { counts: call.counts, up_to, bytes: bytes.to_vec(), key })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Draws the key and appends the messages to `out`.
    #[inline]
    pub(super) fn write(&self, rng: &mut SplitMix64, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        if let Some((at, span)) = self.key {
            let key = 1 + rng.below(span);
            out[begin + at..begin + at + 8].copy_from_slice(&key.to_be_bytes());
        }
    }
}

impl Parameter {
    fn span(&self) -> Option<u64> {
        match self {
            Parameter::Key(span) => Some(*span),
            _ => None,
        }
    }
}

/// Appends the Bind message; parameters and results are binary.
fn bind(step: &Step, bytes: &mut BytesMut) -> std::io::Result<()> {
    let value = |parameter: &Parameter, out: &mut BytesMut| {
        match parameter {
            Parameter::Key(_) => out.extend_from_slice(&1i64.to_be_bytes()),
            Parameter::Number(n) => out.extend_from_slice(&n.to_be_bytes()),
            Parameter::Text(text) => out.extend_from_slice(text.as_bytes()),
            Parameter::Null => return Ok(IsNull::Yes),
        }
        Ok(IsNull::No)
    };
    let bound = frontend::bind("", &step.statement, [1], &step.parameters, value, [1], bytes);
    bound.map_err(|e| match e {
        frontend::BindError::Serialization(e) => e,
        frontend::BindError::Conversion(e) => std::io::Error::other(e),
    })
}

/// Returns the position of the key in a Bind message that ends at `end`; after the key come only the
/// following parameters and the one result format.
fn key_in(step: &Step, end: usize) -> usize {
    let after = step.parameters.iter().skip_while(|p| p.span().is_none()).skip(1);
    let behind: usize = after
        .map(|parameter| match parameter {
            Parameter::Key(_) | Parameter::Number(_) => 4 + 8,
            Parameter::Text(text) => 4 + text.len(),
            Parameter::Null => 4,
        })
        .sum();
    end - 4 - behind - 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(parameters: Vec<Parameter>) -> Call {
        Call {
            share: 1.0,
            counts: Counts::Read,
            steps: vec![Step { statement: "r".into(), parameters }],
        }
    }

    fn written(call: &Call, seed: u64) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Prepared::all(std::slice::from_ref(call)).unwrap()[0]
            .write(&mut SplitMix64::new(seed), &mut out);
        out.split_off(6)
    }

    #[test]
    fn the_key_is_where_the_server_looks_for_it() {
        let key = 1 + SplitMix64::new(3).below(1 << 40);
        let value = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        for (parameters, expected) in [
            (vec![Parameter::Key(1 << 40)], value(&key.to_be_bytes())),
            (
                vec![Parameter::Null, Parameter::Key(1 << 40), Parameter::Text("x".repeat(300))],
                [vec![0xff; 4], value(&key.to_be_bytes()), value("x".repeat(300).as_bytes())]
                    .concat(),
            ),
        ] {
            let bytes = written(&call(parameters.clone()), 3);
            // Bind: portal "", statement "r", one format, the parameters, one format of results.
            let head = [b"\0r\0".as_slice(), &[0, 1, 0, 1], &[0, parameters.len() as u8]].concat();
            let body = [head, expected, vec![0, 1, 0, 1]].concat();
            let length = (body.len() as u32 + 4).to_be_bytes();
            let bind = [b"B".as_slice(), &length, &body].concat();
            assert_eq!(bytes[..bind.len()], bind);
            assert_eq!(bytes[bind.len()..], *b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
        }
    }

    #[test]
    fn keys_are_from_1_to_the_span() {
        let prepared = Prepared::all(&[call(vec![Parameter::Key(3)])]).unwrap();
        let mut rng = SplitMix64::new(1);
        let mut seen = [0; 3];
        for _ in 0..3000 {
            let mut out = Vec::new();
            prepared[0].write(&mut rng, &mut out);
            let (at, _) = prepared[0].key.unwrap();
            let key = u64::from_be_bytes(out[at..at + 8].try_into().unwrap());
            seen[key as usize - 1] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
    }

    #[test]
    fn shares_are_of_all_draws() {
        let of = |share| Call { share, ..call(Vec::new()) };
        let prepared = Prepared::all(&[of(0.25), of(0.75)]).unwrap();
        assert_eq!(prepared[0].up_to, 1 << 62);
        assert_eq!(prepared[1].up_to, u64::MAX);
    }
}
