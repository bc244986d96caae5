//! `pgio.series/1`: the samples of one trial, one file each under `series/`.
//!
//! A track is one quantity of one subject over time; moments are seconds from the window's start
//! by this machine's monotonic clock (a warm-up lies below 0). Kept apart from the trial's record,
//! which stays small enough to read whole. Next: `store` writes it, `report` draws it.

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
    /// A device, a standby; empty for the source as a whole.
    pub subject: String,
    /// Such as `reads_per_second`, `busy_share`, `wal_bytes_per_second`.
    pub name: String,
    pub unit: String,
    /// The end of the interval that a rate is over.
    pub at: Vec<f64>,
    /// As many as `at`; null where a sample is missing.
    pub values: Vec<Option<f64>>,
}

/// Something that happened, such as `checkpoint` or `autovacuum`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment {
    pub at: f64,
    pub what: String,
}
