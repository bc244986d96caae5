//! Features of `slob` beyond uniform reads and updates. All are off by default.
//!
//! Next: `feature_keys` makes them from keys, `workload::slob` generates the SQL.

use std::time::Duration;

use crate::config::value::Decimal;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    pub visits: KeyDistribution,
    pub hot_table: Option<HotTable>,
    /// Percent of all calls.
    pub scan_pct: Decimal,
    /// Inserts in percent of all calls; deletes have the same share.
    pub turnover_pct: Decimal,
    /// Bytes of filler.
    pub update_width: u32,
    pub think: Option<Think>,
    /// Calls per session.
    pub work_loop: Option<u64>,
    /// Part of the warm-up.
    pub ramp: Duration,
    /// All sessions use pgio1.
    pub single_table: bool,
}

/// The distribution of the first key of each call over the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeyDistribution {
    #[default]
    Uniform,
    HotSpot(HotSpot),
    /// The probability of key k is proportional to 1 / k^exponent.
    Zipf {
        exponent: Decimal,
    },
    /// Mean and standard deviation in percent of the table; keys outside the table are redrawn.
    Gaussian {
        mean: Decimal,
        sd: Decimal,
    },
}

/// The `blocks` keys after the first `offset` keys get `pct` % of the calls; all others share the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSpot {
    pub offset: u64,
    pub blocks: u64,
    pub pct: Decimal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotTable {
    /// Counted from 1.
    pub number: u32,
    /// Percent of reads and updates.
    pub pct: Decimal,
}

/// Pauses after a share of the calls; each length is drawn between `shortest` and `longest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Think {
    pub pct: Decimal,
    pub shortest: Duration,
    pub longest: Duration,
}
