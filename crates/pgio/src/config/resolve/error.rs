//! Settings that contradict each other.

use crate::config::value::Decimal;
use pgio_results::units::Scale;
use pgio_results::units::layout::WIDEST_UPDATED;

/// Settings that are valid by themselves but contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error(
        "{key} ({unit} blocks) is larger than SCALE ({scale}, {} blocks); lower {key} or load a \
         larger SCALE", scale.blocks()
    )]
    UnitOverScale { key: &'static str, unit: u64, scale: Scale },
    #[error(
        "BATCH requires WORK_UNIT=1, because it draws every block of a statement separately (WORK_UNIT is {0})"
    )]
    BatchRequiresSingleBlocks(u64),
    #[error(
        "with FILLFACTOR={fillfactor}, two rows of FILLER_WIDTH={width} share a block, but each visit must touch exactly one row; \
         the largest FILLFACTOR for this width is {largest}"
    )]
    RowsShareBlocks { fillfactor: u8, width: u32, largest: u8 },
    #[error(
        "rows with FILLER_WIDTH={0} leave no room in their block for an updated version: each update would move its row \
         to another block and the tables would grow; set UPDATE_PCT=0, or load with FILLER_WIDTH={widest} or less",
        widest = WIDEST_UPDATED
    )]
    NoRoomForUpdates(u32),
    #[error("UPDATE_WIDTH ({0}) is larger than FILLER_WIDTH ({1}); lower UPDATE_WIDTH")]
    UpdateOverFiller(u32, u32),
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// A rule of one kind of workload.
    #[error("{0}")]
    Workload(String),
    #[error("{0} requires ENGINE=client; set ENGINE=client or remove {0}")]
    RequiresClient(String),
    #[error("{0} is not supported with ENGINE=client; remove {0} or set ENGINE=server")]
    RequiresServer(String),
    #[error(
        "SESSIONS={sessions} is less than NUM_SCHEMAS={tables}, but with ENGINE=client each session uses only one table; set SESSIONS to {tables} or more, or set ENGINE=server"
    )]
    FewerSessionsThanTables { sessions: u32, tables: u32 },
    #[error("ARRIVALS requires RATE; set RATE or remove ARRIVALS")]
    ArrivalsWithoutRate,
}

/// Keys that are valid by themselves but contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error("WORK_LOOP and RUN_TIME both set the length of a run; keep only one of them")]
    RunLength,
    #[error("HOT_SPOT and SKEW both set the distribution of visits; keep only one of them")]
    HotSpotWithSkew,
    #[error("{key} requires {requires}; set {requires} or delete {key}")]
    Requires { key: &'static str, requires: &'static str },
    #[error(
        "the hot spot (blocks {first} to {last}) is outside the table, which has {blocks} blocks; lower HOT_SPOT or HOT_OFFSET"
    )]
    HotSpotOutside { first: u64, last: u64, blocks: u64 },
    #[error(
        "a hot spot of {hot} blocks is too small for {key} = {unit}; raise HOT_SPOT or lower {key}"
    )]
    HotSpotTooSmall { hot: u64, key: &'static str, unit: u64 },
    #[error(
        "the rest of the table is too small for {key} = {unit}; lower HOT_SPOT or {key}, or send all calls to the hot spot with HOT_PCT = 100"
    )]
    NoRoomOutsideHotSpot { key: &'static str, unit: u64 },
    #[error(
        "HOT_TABLE is {number}, but the number of tables is {tables}; choose an existing table"
    )]
    NoSuchTable { number: u32, tables: u32 },
    #[error(
        "HOT_TABLE has no effect with TABLE_MODEL = single, because all sessions share one table; delete HOT_TABLE"
    )]
    HotTableWithSingleTable,
    #[error(
        "UPDATE_PCT, SCAN_PCT, INSERT_PCT and DELETE_PCT add up to {0} %; lower them to 100 % or less"
    )]
    MixOver100(Decimal),
    #[error(
        "INSERT_PCT ({inserts}) differs from DELETE_PCT ({deletes}), so the table would grow or become empty; make them equal"
    )]
    InsertsDifferFromDeletes { inserts: Decimal, deletes: Decimal },
    #[error("INSERT_PCT requires COMMIT_EVERY = 1, so that deleted rows can be removed")]
    TurnoverRequiresCommits,
    #[error(
        "BATCH cannot be combined with {0}, because it draws uniform keys in SQL; delete one of them"
    )]
    Batch(&'static str),
    #[error("THINK_MIN is longer than THINK_MAX; swap them")]
    ThinkMinOverMax,
    #[error("RAMP is longer than WARMUP, which includes it; raise WARMUP or lower RAMP")]
    RampOverWarmup,
    #[error("GAUSSIAN_SD is 0; set a larger value, or use HOT_SPOT")]
    ZeroDeviation,
}
