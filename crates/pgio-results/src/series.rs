//! `pgio.series/1`: the samples of one trial, one file per trial under `series/`.
//!
//! A track is one quantity of one subject over time. Times are seconds from the start of the window
//! on this machine's monotonic clock; the warm-up is negative. Series are separate from the trial's
//! record, so that records stay small. Next: `store` writes it, `report` draws it.

use serde::{Deserialize, Serialize};

pub const SERIES_SCHEMA: &str = "pgio.series/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Always `pgio.series/1`.
    pub schema: String,
    pub window_seconds: f64,
    pub tracks: Vec<Track>,
    pub moments: Vec<Moment>,
}

impl Series {
    pub fn new(window_seconds: f64) -> Series {
        Series {
            schema: SERIES_SCHEMA.to_owned(),
            window_seconds,
            tracks: Vec::new(),
            moments: Vec::new(),
        }
    }

    pub fn track(&self, source: &str, subject: &str, name: &str) -> Option<&Track> {
        self.tracks.iter().find(|t| t.source == source && t.subject == subject && t.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Track {
    /// A host's name, or `server`.
    pub source: String,
    /// A device or a standby; empty for the whole source.
    pub subject: String,
    /// Such as `reads_per_second`, `busy_share`, `wal_bytes_per_second`.
    pub name: String,
    pub unit: String,
    /// Time of each value; for a rate, the end of its interval.
    pub at: Vec<f64>,
    /// As many values as `at`; null if a sample is missing.
    pub values: Vec<Option<f64>>,
}

/// An event, such as `checkpoint` or `autovacuum`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment {
    pub at: f64,
    pub what: String,
}
