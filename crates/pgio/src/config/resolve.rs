//! Resolves stacked layers to complete settings, one struct per use.
//!
//! The sources in order of precedence are flags, `[workload]`, pgio.conf, the data set's mark and
//! defaults. Callers stack the first four with `Layer::over`; this module adds the defaults and makes
//! the checks that need more than one key. `dataset` checks later, against the server, whether the
//! data set matches.

use std::time::Duration;

use super::engine::Engine;
use super::keys::{Layer, Use, required};
use super::kinds::{COMMIT, SLOB};
use super::slob;
use super::value::{ConnectString, Decimal};
use crate::exit_code::{HasExitCode, USAGE};
use pgio_results::units::layout::WIDEST_UPDATED;
use pgio_results::units::{Layout, Scale};

pub use super::slob::{Extent, Features, HotSpot, HotTable, KeyDistribution, SlobSettings, Think};

/// Settings of the workload `commit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSettings {
    pub sessions: u32,
    pub rows_per_transaction: u32,
    /// Bytes per row.
    pub payload: u32,
    /// Whether the table has a primary key.
    pub index: bool,
    pub engine: Engine,
    pub extent: Extent,
    pub warmup: Duration,
    /// Absent: drawn and recorded.
    pub seed: Option<u64>,
}

/// Settings of `setup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSettings {
    pub scale: Scale,
    pub num_schemas: u32,
    /// Tables loaded in parallel.
    pub num_threads: u32,
    pub create_base_table: bool,
    pub tablespace: Option<String>,
    pub layout: Layout,
    /// Size of the scan table; absent: no scan table.
    pub scan_scale: Option<Scale>,
    /// Absent: drawn and recorded in the data set's mark.
    pub seed: Option<u64>,
}

impl SlobSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        if layer.run_time.is_some() && layer.work_loop.is_some() {
            return Err(Contradiction::RunLength.into());
        }
        let all = layer.with_defaults(Use::Work(SLOB));
        let settings = Self {
            engine: Engine::resolve(&all, SLOB)?,
            update_pct: required(all.update_pct),
            run_time: required(all.run_time),
            warmup: required(all.warmup),
            num_schemas: required(all.num_schemas),
            num_threads: required(all.num_threads),
            sessions: all.sessions,
            work_unit: required(all.work_unit),
            update_work_unit: required(all.update_work_unit),
            scale: required(all.scale.clone()),
            access: required(all.access),
            commit_every: required(all.commit_every),
            batch: required(all.batch),
            features: Features::default(),
            seed: all.seed,
        };
        if settings.batch > 1 && settings.work_unit != 1 {
            return Err(ResolveError::BatchRequiresSingleBlocks(settings.work_unit));
        }
        let filler_width = required(all.filler_width);
        let layout = Layout { filler_width, ..Layout::default() };
        if settings.update_pct > 0 && !layout.has_room_for_updates() {
            return Err(ResolveError::NoRoomForUpdates(filler_width));
        }
        let units =
            [("WORK_UNIT", settings.work_unit), ("UPDATE_WORK_UNIT", settings.update_work_unit)];
        match units.into_iter().find(|(_, unit)| *unit > settings.scale.blocks()) {
            Some((key, unit)) => {
                Err(ResolveError::UnitOverScale { key, unit, scale: settings.scale })
            }
            None => {
                let features = slob::resolve(&all, &settings)?;
                if features.update_width > filler_width {
                    return Err(ResolveError::UpdateOverFiller(
                        features.update_width,
                        filler_width,
                    ));
                }
                Ok(Self { features, ..settings })
            }
        }
    }
}

impl CommitSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        let all = layer.with_defaults(Use::Work(COMMIT));
        Ok(Self {
            engine: Engine::resolve(&all, COMMIT)?,
            index: required(all.index),
            sessions: required(all.sessions),
            rows_per_transaction: required(all.rows_per_transaction),
            payload: required(all.payload),
            extent: match all.transactions {
                Some(number) => Extent::Transactions(number),
                None => Extent::Time(required(all.run_time)),
            },
            warmup: required(all.warmup),
            seed: all.seed,
        })
    }
}

impl LoadSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        let all = layer.with_defaults(Use::Load);
        let layout = Layout {
            filler: required(all.filler),
            filler_width: required(all.filler_width),
            fillfactor: required(all.fillfactor),
            unlogged: required(all.unlogged),
        };
        if !layout.is_alone() {
            return Err(ResolveError::RowsShareBlocks {
                fillfactor: layout.fillfactor,
                width: layout.filler_width,
                largest: layout.largest_fillfactor().unwrap_or(layout.fillfactor),
            });
        }
        Ok(Self {
            scale: required(all.scale),
            num_schemas: required(all.num_schemas),
            num_threads: required(all.num_threads),
            create_base_table: required(all.create_base_table),
            tablespace: all.tablespace,
            layout,
            scan_scale: all.scan_scale,
            seed: all.seed,
        })
    }
}

/// Returns the connect string of a pgio.conf: CONNECT_STRING, else DBNAME, else the original's
/// default. Do not use it without a pgio.conf: then the PG* variables apply.
pub fn connect_string(conf: &Layer) -> ConnectString {
    let below =
        Layer { connect_string: conf.dbname.clone().map(ConnectString::new), ..Layer::default() };
    required(conf.clone().over(below).with_defaults(Use::Connect).connect_string)
}

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

impl HasExitCode for ResolveError {
    fn code(&self) -> u8 {
        USAGE
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Access;

    fn scale(text: &str) -> Option<Scale> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn empty_layers_give_the_originals_defaults() {
        let slob = SlobSettings::resolve(Layer::default()).unwrap();
        assert_eq!(
            slob,
            SlobSettings {
                update_pct: 0,
                run_time: Duration::from_secs(300),
                warmup: Duration::ZERO,
                num_schemas: 1,
                num_threads: 1,
                sessions: None,
                work_unit: 255,
                update_work_unit: 255,
                scale: "128G".parse().unwrap(),
                access: Access::Index,
                commit_every: 1,
                batch: 1,
                features: Features::default(),
                engine: Engine::Server,
                seed: None,
            }
        );
        let load = LoadSettings::resolve(Layer::default()).unwrap();
        assert_eq!(load.scale, "4G".parse().unwrap());
        assert!(load.create_base_table);
        assert_eq!((load.layout, load.scan_scale), (Layout::default(), None));
        let commit = CommitSettings::resolve(Layer::default()).unwrap();
        assert_eq!(commit.extent, Extent::Time(Duration::from_secs(300)));
        assert_eq!((commit.sessions, commit.rows_per_transaction, commit.payload), (1, 1, 0));
    }

    #[test]
    fn keys_override_defaults() {
        let layer = Layer { transactions: Some(10_000), sessions: Some(4), ..Layer::default() };
        let commit = CommitSettings::resolve(layer).unwrap();
        assert_eq!(commit.extent, Extent::Transactions(10_000));
        assert_eq!(commit.sessions, 4);
    }

    #[test]
    fn batch_requires_a_work_unit_of_one() {
        let batch = Layer { batch: Some(50), scale: scale("8M"), ..Layer::default() };
        let refused = SlobSettings::resolve(batch.clone()).unwrap_err();
        assert_eq!(refused, ResolveError::BatchRequiresSingleBlocks(255));
        assert!(SlobSettings::resolve(Layer { work_unit: Some(1), ..batch }).is_ok());
    }

    #[test]
    fn sessions_are_per_table_or_in_total() {
        let settings = |num_schemas: u32, num_threads: u32, sessions: Option<u32>| {
            let (num_schemas, num_threads) = (Some(num_schemas), Some(num_threads));
            let layer = Layer { num_schemas, num_threads, sessions, ..Layer::default() };
            let settings = SlobSettings::resolve(layer).unwrap();
            (settings.sessions(), settings.tables_per_session())
        };
        assert_eq!(settings(4, 2, None), (8, 1));
        assert_eq!(settings(4, 2, Some(6)), (6, 1));
        assert_eq!(settings(4096, 1, Some(64)), (64, 64));
        assert_eq!(settings(7, 1, Some(3)), (3, 3));
    }

    #[test]
    fn rows_that_share_a_block_are_refused() {
        let resolve = |fillfactor: u8, filler_width: Option<u32>| {
            let fillfactor = Some(fillfactor);
            LoadSettings::resolve(Layer { fillfactor, filler_width, ..Layer::default() })
        };
        assert_eq!(resolve(26, None).unwrap().layout.fillfactor, 26);
        assert_eq!(
            resolve(27, None).unwrap_err().to_string(),
            "with FILLFACTOR=27, two rows of FILLER_WIDTH=1024 share a block, but each visit must touch exactly one row; \
             the largest FILLFACTOR for this width is 26"
        );
        assert!(resolve(100, Some(8116)).is_ok());
    }

    #[test]
    fn updates_require_room_for_a_second_row_version() {
        let wide = |update_pct: u8, filler_width: u32| {
            let (update_pct, filler_width) = (Some(update_pct), Some(filler_width));
            SlobSettings::resolve(Layer { update_pct, filler_width, ..Layer::default() })
        };
        assert!(wide(0, 8116).is_ok());
        let written = |update_width: u32| {
            let (update_pct, update_width) = (Some(10), Some(update_width));
            let filler_width = Some(500);
            let layer = Layer { update_pct, filler_width, update_width, ..Layer::default() };
            SlobSettings::resolve(layer)
        };
        assert!(written(500).is_ok());
        assert_eq!(written(501).unwrap_err(), ResolveError::UpdateOverFiller(501, 500));
        assert!(wide(1, 4028).is_ok());
        assert_eq!(
            wide(1, 4029).unwrap_err().to_string(),
            "rows with FILLER_WIDTH=4029 leave no room in their block for an updated version: each update would move its row \
             to another block and the tables would grow; set UPDATE_PCT=0, or load with FILLER_WIDTH=4028 or less"
        );
    }

    #[test]
    fn work_units_larger_than_the_scale_are_refused() {
        let fits = Layer { work_unit: Some(1024), scale: scale("8M"), ..Layer::default() };
        assert!(SlobSettings::resolve(fits.clone()).is_ok());
        let read = Layer { work_unit: Some(1025), ..fits.clone() };
        assert_eq!(
            SlobSettings::resolve(read).unwrap_err().to_string(),
            "WORK_UNIT (1025 blocks) is larger than SCALE (8M, 1024 blocks); lower WORK_UNIT or \
             load a larger SCALE"
        );
        let update = Layer { update_work_unit: Some(2000), ..fits };
        assert_eq!(
            SlobSettings::resolve(update).unwrap_err().to_string(),
            "UPDATE_WORK_UNIT (2000 blocks) is larger than SCALE (8M, 1024 blocks); lower \
             UPDATE_WORK_UNIT or load a larger SCALE"
        );
    }

    #[test]
    fn connect_string_overrides_dbname() {
        let layer = |connect: Option<&str>, dbname: Option<&str>| Layer {
            connect_string: connect.map(ConnectString::new),
            dbname: dbname.map(str::to_owned),
            ..Layer::default()
        };
        assert_eq!(connect_string(&layer(Some("host=a"), Some("b"))).expose(), "host=a");
        assert_eq!(connect_string(&layer(Some(""), Some("b"))).expose(), "");
        assert_eq!(connect_string(&layer(None, Some("b"))).expose(), "b");
        assert_eq!(connect_string(&layer(None, None)).expose(), "pg10");
    }
}
