//! Work that several processes share: what a workload says of it, and who takes a part of it up.
//!
//! A workload divides its own work and reads its own parts; what carries them between the processes sees a kind
//! and JSON text ([`Part`]). The process that divides asks a [`Coordinator`]; the one that receives a part looks
//! its kind up among those that it was given ([`PartKinds`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::{Client, ConnectParams};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::error::EngineError;
use super::participants::{Participants, Setup};
use super::window::GRACE;
use crate::host::stop::Stop;

/// The work of one trial that is to be divided.
pub trait SharedWork: Send + Sync {
    /// Returns the sessions to divide; none: each process does the whole work.
    fn sessions(&self) -> Option<usize>;

    /// Returns the part with these sessions, written by its [`PartKind`].
    fn part(&self, first: usize, count: usize) -> Result<Part, EngineError>;

    /// Returns whether a trial may prepare it again after a process was lost.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Returns how long it may go on, in the warm-up and in the window.
    fn limit(&self) -> WorkLimit {
        WorkLimit::AfterEnd(GRACE)
    }

    /// Returns where the server counts the work; none: it is not PostgreSQL's.
    fn proof(&self) -> Option<Proof> {
        None
    }
}

/// Where the server counts the calls of a workload.
#[derive(Debug, Clone)]
pub enum Proof {
    /// Each call inserts `rows` into the table, whose name is quoted.
    Inserted { table: String, rows: u64 },
    /// Each call is one scan of an index of these tables.
    Scanned { tables: Vec<String> },
}

/// How long the work of a process may go on before the process itself ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkLimit {
    /// This long after the end of the span.
    AfterEnd(Duration),
    /// This long after the start, whatever the length of the span.
    AfterStart(Duration),
}

impl WorkLimit {
    /// Returns the longest time from the start of a span of this length; none: no limit.
    pub(crate) fn for_span(self, span: Option<Duration>) -> Option<Duration> {
        match self {
            WorkLimit::AfterEnd(more) => Some(span?.saturating_add(more)),
            WorkLimit::AfterStart(limit) => Some(limit),
        }
    }
}

/// A part of the work as it is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    pub kind: String,
    pub work: Box<RawValue>,
}

/// Has other processes do the work.
pub trait Coordinator: fmt::Debug + Send + Sync {
    /// Has every process look for what the work needs on its host.
    fn check(&self, work: &dyn SharedWork, stop: &Stop) -> Result<(), EngineError>;

    /// Has every process reach the server, which they must find where this one does.
    fn reach(
        &self,
        params: &ConnectParams,
        admin: &mut Client,
        stop: &Stop,
    ) -> Result<(), EngineError>;

    /// Whether one of them descends from this process, which then counts its load as its own.
    fn descend_from_this(&self) -> bool;

    /// Prepares the work on all processes, or on none.
    fn prepare(
        self: Arc<Self>,
        work: &dyn SharedWork,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError>;
}

/// How parts of one kind are taken up, on the host where they are done.
#[derive(Debug, Clone, Copy)]
pub struct PartKind {
    pub name: &'static str,
    /// Refuses work for which this host lacks something.
    pub check: fn(&Part) -> Result<(), EngineError>,
    pub prepare: Prepare,
}

/// Finds a kind by its name among those that this program has.
pub type PartKinds = fn(&str) -> Option<&'static PartKind>;

type Prepare = fn(&Part, Setup, &mut Client) -> Result<Box<dyn Participants>, EngineError>;

impl PartKind {
    /// Writes a part of this kind, or what is reported of one.
    pub(crate) fn write<T: Serialize + ?Sized>(&self, work: &T) -> Result<Part, EngineError> {
        let kind = self.name.to_owned();
        match to_raw_value(work) {
            Ok(work) => Ok(Part { kind, work }),
            Err(source) => Err(EngineError::Part { kind, why: source.to_string() }),
        }
    }
}

impl Part {
    /// Reads the work as its kind wrote it.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, EngineError> {
        serde_json::from_str(self.work.get()).map_err(|source| self.unusable(source))
    }

    /// Returns the kind that takes it up.
    pub(crate) fn find(&self, kinds: PartKinds) -> Result<&'static PartKind, EngineError> {
        kinds(&self.kind).ok_or_else(|| self.unusable("this program has no such work"))
    }

    fn unusable(&self, why: impl fmt::Display) -> EngineError {
        EngineError::Part { kind: self.kind.clone(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_may_end_some_time_after_their_span() {
        let longest = WorkLimit::AfterEnd(Duration::from_secs(5));
        assert_eq!(longest.for_span(Some(Duration::from_secs(60))), Some(Duration::from_secs(65)));
        assert_eq!(longest.for_span(None), None, "a number of transactions");
    }

    #[test]
    fn a_part_that_nobody_takes_up_or_can_read_is_refused() {
        let part = Part { kind: "other".to_owned(), work: to_raw_value(&true).unwrap() };
        let error = part.find(|_| None).unwrap_err();
        assert_eq!(error.to_string(), "cannot take up work `other`: this program has no such work");
        let error = part.read::<u32>().unwrap_err().to_string();
        assert!(error.starts_with("cannot take up work `other`: invalid type: boolean"), "{error}");
    }
}
