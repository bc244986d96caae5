//! What was read from the server's sources, and the summary of one window.

use std::collections::BTreeMap;
use std::time::Instant;

use super::sources::Source;
use pgio_results::Warning;
use pgio_results::series::{Moment, Track};
use pgio_results::telemetry::StandbyLag;

/// The readings of one source.
pub(super) struct Log {
    pub(super) source: &'static Source,
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<(Instant, Vec<Option<f64>>)>,
}

/// Summary of one window.
#[derive(Debug, Default)]
pub(crate) struct ServerUse {
    pub(crate) tracks: Vec<Track>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) standbys: BTreeMap<String, StandbyLag>,
    pub(crate) warnings: Vec<Warning>,
}
