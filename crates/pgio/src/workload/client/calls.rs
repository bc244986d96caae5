//! The calls of a session and their messages, which are built before the window. Only the key is drawn
//! inside the window and written into eight bytes of the message.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use serde::{Deserialize, Serialize};

use crate::rng::SplitMix64;
use crate::workload::Script;

/// Type OIDs of the parameters: bigint and text.
pub(in crate::workload) const BIGINT: u32 = 20;
pub(in crate::workload) const TEXT: u32 = 25;

/// The work of all sessions. What sessions share is there, and sent to a driver, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AllCalls {
    different: Vec<Calls>,
    /// The index of each session's work.
    by_session: Vec<u32>,
}

impl AllCalls {
    /// All sessions do the same.
    pub(super) fn shared(calls: Calls, sessions: u32) -> AllCalls {
        AllCalls { different: vec![calls], by_session: vec![0; sessions as usize] }
    }

    /// Each session has its own.
    pub(crate) fn per_session(different: Vec<Calls>) -> AllCalls {
        let sessions = (0..).take(different.len()).collect();
        AllCalls { different, by_session: sessions }
    }

    /// Returns the number of sessions.
    pub(in crate::workload) fn sessions(&self) -> usize {
        self.by_session.len()
    }

    /// Returns the work of a session, if there are so many.
    pub(super) fn for_session(&self, session: usize) -> Option<&Calls> {
        self.different.get(*self.by_session.get(session)? as usize)
    }

    /// Returns each different work, in the order of the sessions.
    pub(super) fn distinct(&self) -> &[Calls] {
        &self.different
    }

    /// Returns the work of these sessions.
    pub(in crate::workload) fn part(&self, first: usize, count: usize) -> AllCalls {
        let mut part = AllCalls { different: Vec::new(), by_session: Vec::new() };
        let mut places = BTreeMap::new();
        let sessions = first..first + count;
        for (index, calls) in
            sessions.filter_map(|n| self.by_session.get(n).zip(self.for_session(n)))
        {
            let place = *places.entry(*index).or_insert_with(|| {
                part.different.push(calls.clone());
                part.different.len() as u32 - 1
            });
            part.by_session.push(place);
        }
        part
    }
}

/// The work of one session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// Its table, pins, plans and privileges; the body is empty.
    pub script: Script,
    pub statements: Vec<Statement>,
    /// The calls, drawn by their shares, which add up to 1.
    pub calls: Vec<Call>,
}

impl Calls {
    /// Returns the name of its table.
    pub(super) fn table(&self) -> String {
        self.script.table.clone()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Statement {
    pub name: Cow<'static, str>,
    pub sql: String,
    pub types: Vec<u32>,
}

/// Statements that are sent and answered together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub share: f64,
    pub counts: Counts,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub statement: Cow<'static, str>,
    pub parameters: Vec<Parameter>,
    /// It is sent so many times in a row.
    pub times: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Parameter {
    /// A key from 1 to this number, drawn for each call; at most one per call.
    Key(u64),
    /// The number of the repetition, from 1.
    Repetition,
    /// A text of so many bytes.
    Filler(u32),
    Null,
}

/// How a call is counted, and where the number of its rows comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Counts {
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
    pub(super) fn prepare_all(calls: &[Call]) -> std::io::Result<Vec<Prepared>> {
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
        let steps = call.steps.iter();
        let repetitions =
            steps.flat_map(|step| (1..=i64::from(step.times)).map(move |n| (step, n)));
        for (step, repetition) in repetitions {
            bind(step, repetition, &mut bytes)?;
            if let Some(span) = step.parameters.iter().find_map(Parameter::key_count) {
                key = Some((key_position(step, bytes.len()), span));
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
    fn key_count(&self) -> Option<u64> {
        match self {
            Parameter::Key(span) => Some(*span),
            _ => None,
        }
    }
}

/// Appends the Bind message; parameters and results are binary.
fn bind(step: &Step, repetition: i64, bytes: &mut BytesMut) -> std::io::Result<()> {
    let value = |parameter: &Parameter, out: &mut BytesMut| {
        match parameter {
            Parameter::Key(_) => out.extend_from_slice(&1i64.to_be_bytes()),
            Parameter::Repetition => out.extend_from_slice(&repetition.to_be_bytes()),
            Parameter::Filler(length) => out.put_bytes(b'X', *length as usize),
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
fn key_position(step: &Step, end: usize) -> usize {
    let after = step.parameters.iter().skip_while(|p| p.key_count().is_none()).skip(1);
    let trailing_bytes: usize = after
        .map(|parameter| match parameter {
            Parameter::Key(_) | Parameter::Repetition => 4 + 8,
            Parameter::Filler(length) => 4 + *length as usize,
            Parameter::Null => 4,
        })
        .sum();
    end - 4 - trailing_bytes - 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(parameters: Vec<Parameter>) -> Call {
        Call {
            share: 1.0,
            counts: Counts::Read,
            steps: vec![Step { statement: "r".into(), parameters, times: 1 }],
        }
    }

    fn written(call: &Call, seed: u64) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Prepared::prepare_all(std::slice::from_ref(call)).unwrap()[0]
            .write(&mut SplitMix64::new(seed), &mut out);
        out.split_off(6)
    }

    #[test]
    fn bind_messages_have_the_key_at_its_parameter_position() {
        let key = 1 + SplitMix64::new(3).below(1 << 40);
        let value = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        for (parameters, expected) in [
            (vec![Parameter::Key(1 << 40)], value(&key.to_be_bytes())),
            (
                vec![Parameter::Null, Parameter::Key(1 << 40), Parameter::Filler(300)],
                [vec![0xff; 4], value(&key.to_be_bytes()), value("X".repeat(300).as_bytes())]
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
    fn repeated_steps_pass_their_number_as_parameter() {
        let mut repeated = call(vec![Parameter::Repetition]);
        repeated.steps[0].times = 3;
        let bytes = written(&repeated, 1);
        let begins = |name: &[u8]| bytes.windows(name.len()).filter(|w| *w == name).count();
        assert_eq!(begins(b"\0r\0"), 3);
        for number in 1..=3i64 {
            assert_eq!(begins(&[&[0, 0, 0, 8], number.to_be_bytes().as_slice()].concat()), 1);
        }
    }

    #[test]
    fn a_part_holds_the_calls_of_its_own_sessions() {
        let own = |table: &str| Calls {
            script: Script { table: table.to_owned(), ..Script::default() },
            statements: Vec::new(),
            calls: Vec::new(),
        };
        let tables = |all: &AllCalls| -> Vec<String> {
            (0..).map_while(|session| all.for_session(session)).map(Calls::table).collect()
        };
        let each = AllCalls::per_session(["a", "b", "c"].map(own).into());
        assert_eq!(tables(&each.part(1, 2)), ["b", "c"]);
        let same = AllCalls::shared(own("a"), 4).part(1, 3);
        assert_eq!((tables(&same), same.distinct().len()), (vec!["a".to_owned(); 3], 1));
    }

    #[test]
    fn keys_are_from_1_to_the_span() {
        let prepared = Prepared::prepare_all(&[call(vec![Parameter::Key(3)])]).unwrap();
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
    fn shares_of_calls_are_scaled_to_the_range_of_draws() {
        let with_share = |share| Call { share, ..call(Vec::new()) };
        let prepared = Prepared::prepare_all(&[with_share(0.25), with_share(0.75)]).unwrap();
        assert_eq!(prepared[0].up_to, 1 << 62);
        assert_eq!(prepared[1].up_to, u64::MAX);
    }
}
