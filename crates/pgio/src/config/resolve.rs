//! From stacked layers to complete settings, one struct for each use.
//!
//! The order of sources is flags, `[workload]`, pgio.conf, the data set's mark, defaults:
//! the caller stacks the first four with `Layer::over`, the defaults come in here, and so
//! do the checks that need more than one key. Whether the data set fits is checked later,
//! against the server, in `dataset`.

mod features;
mod mail;

use std::time::Duration;

pub use self::features::{Contradiction, Features, HotSpot, HotTable, Think, Visits};
use super::engine::Engine;
use super::keys::{Layer, Use};
use super::value::{Access, ConnectString, DeviceTest, DeviceTests};
use crate::units::layout::WIDEST_UPDATED;
use crate::units::{BLOCK_BYTES, Layout, Scale};

pub use mail::{MailSettings, Maildir, MessageSizes, SMALLEST_MESSAGE};

/// Settings that are right one by one and wrong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error(
        "{key} ({unit} blocks) is larger than SCALE ({scale}, {} blocks): lower {key} or load a \
         larger SCALE", scale.blocks()
    )]
    UnitOverScale { key: &'static str, unit: u64, scale: Scale },
    #[error(
        "BATCH draws every block of a statement on its own, so it goes with WORK_UNIT=1 only (WORK_UNIT is {0})"
    )]
    BatchOfRanges(u64),
    #[error(
        "with FILLFACTOR={fillfactor} two rows of FILLER_WIDTH={width} share a block, and a visit is to be of one: \
         the largest FILLFACTOR for this width is {largest}"
    )]
    RowsShareBlocks { fillfactor: u8, width: u32, largest: u8 },
    #[error(
        "rows with FILLER_WIDTH={0} leave no room for their next version: each update would move its row \
         to another block and the tables would grow; set UPDATE_PCT=0, or load with FILLER_WIDTH={widest} or less",
        widest = WIDEST_UPDATED
    )]
    NoRoomForUpdates(u32),
    #[error(
        "UPDATE_WIDTH ({0}) is more than the filler that a row has (FILLER_WIDTH={1}): lower it"
    )]
    UpdateOverFiller(u32, u32),
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    #[error("{0}")]
    Mail(String),
    #[error("{0} is of the client-side engine: set ENGINE=client too, or leave it out")]
    NeedsClient(String),
    #[error("{0} is not known to the client-side engine: leave it out, or set ENGINE=server")]
    NeedsServer(String),
    #[error(
        "SESSIONS={sessions} is less than NUM_SCHEMAS={tables}, and a session of the client-side engine stays at its table: set SESSIONS to {tables} or more, or ENGINE=server"
    )]
    TablesInTurn { sessions: u32, tables: u32 },
    #[error("ARRIVALS says how the calls of a RATE lie in time: set RATE too, or leave it out")]
    ArrivalsWithoutRate,
}

/// What `slob` runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlobSettings {
    pub update_pct: u8,
    pub run_time: Duration,
    pub warmup: Duration,
    pub num_schemas: u32,
    pub num_threads: u32,
    /// In all; absent: NUM_THREADS on each table.
    pub sessions: Option<u32>,
    /// Blocks.
    pub work_unit: u64,
    /// Blocks.
    pub update_work_unit: u64,
    pub scale: Scale,
    pub access: Access,
    /// Update calls; 0 is one transaction per session.
    pub commit_every: u32,
    pub batch: u32,
    /// Beyond uniform visits in reads and updates.
    pub features: Features,
    pub engine: Engine,
    /// Absent: to be drawn and recorded.
    pub seed: Option<u64>,
}

/// What `commit` runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSettings {
    pub sessions: u32,
    pub rows_per_transaction: u32,
    /// Bytes in each row.
    pub payload: u32,
    /// Whether the table has a primary key.
    pub index: bool,
    pub engine: Engine,
    pub extent: Extent,
    pub warmup: Duration,
    /// Absent: to be drawn and recorded.
    pub seed: Option<u64>,
}

/// What `device` runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Absent: the target's device.
    pub path: Option<String>,
    pub test: DeviceTest,
    /// Bytes.
    pub size: u64,
    /// Bytes of each read or write.
    pub block_size: u64,
    pub depth: u32,
    pub destroy: bool,
    pub uuid: Option<String>,
    pub run_time: Duration,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Time(Duration),
    /// In all sessions together.
    Transactions(u64),
    /// In each session.
    Calls(u64),
}

impl Extent {
    /// Calls of an open loop.
    pub fn calls_at(self, per_second: f64, sessions: u32) -> f64 {
        match self {
            Extent::Time(window) => per_second * window.as_secs_f64(),
            Extent::Transactions(n) => n as f64,
            Extent::Calls(n) => n as f64 * f64::from(sessions),
        }
    }
}

/// What `setup` loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSettings {
    pub scale: Scale,
    pub num_schemas: u32,
    /// Tables loaded at a time.
    pub num_threads: u32,
    pub create_base_table: bool,
    pub tablespace: Option<String>,
    pub layout: Layout,
    /// Size of the scan table; absent: none.
    pub scan_scale: Option<Scale>,
    /// Absent: to be drawn and recorded in the data set's mark.
    pub seed: Option<u64>,
}

impl SlobSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        if layer.run_time.is_some() && layer.work_loop.is_some() {
            return Err(Contradiction::Lengths.into());
        }
        let all = layer.with_defaults(Use::Slob);
        let settings = Self {
            engine: Engine::resolve(&all, Use::Slob)?,
            update_pct: given(all.update_pct),
            run_time: given(all.run_time),
            warmup: given(all.warmup),
            num_schemas: given(all.num_schemas),
            num_threads: given(all.num_threads),
            sessions: all.sessions,
            work_unit: given(all.work_unit),
            update_work_unit: given(all.update_work_unit),
            scale: given(all.scale.clone()),
            access: given(all.access),
            commit_every: given(all.commit_every),
            batch: given(all.batch),
            features: Features::default(),
            seed: all.seed,
        };
        if settings.batch > 1 && settings.work_unit != 1 {
            return Err(ResolveError::BatchOfRanges(settings.work_unit));
        }
        let filler_width = given(all.filler_width);
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
                let features = features::resolve(&all, &settings)?;
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

    /// Tables that are worked on.
    pub fn tables(&self) -> u32 {
        if self.features.single_table { 1 } else { self.num_schemas }
    }

    pub fn sessions(&self) -> u32 {
        self.sessions.unwrap_or(self.num_schemas * self.num_threads)
    }

    /// That a session visits in turn: several only where there are fewer sessions than tables.
    pub fn tables_each(&self) -> u32 {
        self.tables().div_ceil(self.sessions())
    }

    pub fn extent(&self) -> Extent {
        match self.features.work_loop {
            Some(calls) => Extent::Calls(calls),
            None => Extent::Time(self.run_time),
        }
    }

    /// Whether it changes nothing.
    pub fn read_only(&self) -> bool {
        self.update_pct == 0 && self.features.turnover_pct.is_zero()
    }
}

impl CommitSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        let all = layer.with_defaults(Use::Commit);
        Ok(Self {
            engine: Engine::resolve(&all, Use::Commit)?,
            index: given(all.index),
            sessions: given(all.sessions),
            rows_per_transaction: given(all.rows_per_transaction),
            payload: given(all.payload),
            extent: match all.transactions {
                Some(number) => Extent::Transactions(number),
                None => Extent::Time(given(all.run_time)),
            },
            warmup: given(all.warmup),
            seed: all.seed,
        })
    }
}

impl DeviceSettings {
    pub fn resolve(layer: Layer) -> Self {
        let all = layer.with_defaults(Use::Device);
        let test = match given(all.test) {
            DeviceTests::One(test) => test,
            // A file with all of them has been parsed into one workload for each.
            DeviceTests::All => DeviceTest::Throughput,
        };
        let block_size = match test {
            DeviceTest::Throughput => 1 << 20,
            DeviceTest::Latency => 4096,
            DeviceTest::RandomRead | DeviceTest::RandomWrite => BLOCK_BYTES,
        };
        Self {
            path: all.path,
            test,
            size: given(all.size).0,
            block_size: all.block_size.map_or(block_size, |b| b.0),
            depth: given(all.depth),
            destroy: given(all.destroy),
            uuid: all.uuid,
            run_time: given(all.run_time),
        }
    }
}

impl LoadSettings {
    pub fn resolve(layer: Layer) -> Result<Self, ResolveError> {
        let all = layer.with_defaults(Use::Load);
        let layout = Layout {
            filler: given(all.filler),
            filler_width: given(all.filler_width),
            fillfactor: given(all.fillfactor),
            unlogged: given(all.unlogged),
        };
        if !layout.is_alone() {
            return Err(ResolveError::RowsShareBlocks {
                fillfactor: layout.fillfactor,
                width: layout.filler_width,
                largest: layout.largest_fillfactor().unwrap_or(layout.fillfactor),
            });
        }
        Ok(Self {
            scale: given(all.scale),
            num_schemas: given(all.num_schemas),
            num_threads: given(all.num_threads),
            create_base_table: given(all.create_base_table),
            tablespace: all.tablespace,
            layout,
            scan_scale: all.scan_scale,
            seed: all.seed,
        })
    }
}

/// Where a pgio.conf says to connect: CONNECT_STRING, else DBNAME, else the original's
/// default. Not for a layer without a pgio.conf: there the PG* variables decide.
pub fn connect_string(conf: &Layer) -> ConnectString {
    let below =
        Layer { connect_string: conf.dbname.clone().map(ConnectString::new), ..Layer::default() };
    given(conf.clone().over(below).with_defaults(Use::Connect).connect_string)
}

pub(super) fn given<T>(value: Option<T>) -> T {
    value.expect("the table has a default for every key that settings hold without Option")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> Option<Scale> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn nothing_said_gives_the_originals_defaults() {
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
    fn what_is_said_is_taken() {
        let layer = Layer { transactions: Some(10_000), sessions: Some(4), ..Layer::default() };
        let commit = CommitSettings::resolve(layer).unwrap();
        assert_eq!(commit.extent, Extent::Transactions(10_000));
        assert_eq!(commit.sessions, 4);
    }

    #[test]
    fn a_batch_is_of_single_visits() {
        let batch = Layer { batch: Some(50), scale: scale("8M"), ..Layer::default() };
        let refused = SlobSettings::resolve(batch.clone()).unwrap_err();
        assert_eq!(refused, ResolveError::BatchOfRanges(255));
        assert!(SlobSettings::resolve(Layer { work_unit: Some(1), ..batch }).is_ok());
    }

    #[test]
    fn sessions_are_so_many_on_each_table_or_so_many_in_all() {
        let settings = |num_schemas: u32, num_threads: u32, sessions: Option<u32>| {
            let (num_schemas, num_threads) = (Some(num_schemas), Some(num_threads));
            let layer = Layer { num_schemas, num_threads, sessions, ..Layer::default() };
            let settings = SlobSettings::resolve(layer).unwrap();
            (settings.sessions(), settings.tables_each())
        };
        assert_eq!(settings(4, 2, None), (8, 1));
        assert_eq!(settings(4, 2, Some(6)), (6, 1));
        assert_eq!(settings(4096, 1, Some(64)), (64, 64));
        assert_eq!(settings(7, 1, Some(3)), (3, 3));
    }

    #[test]
    fn rows_that_would_share_a_block_are_refused_with_what_would_do() {
        let asked = |fillfactor: u8, filler_width: Option<u32>| {
            let fillfactor = Some(fillfactor);
            LoadSettings::resolve(Layer { fillfactor, filler_width, ..Layer::default() })
        };
        assert_eq!(asked(26, None).unwrap().layout.fillfactor, 26);
        assert_eq!(
            asked(27, None).unwrap_err().to_string(),
            "with FILLFACTOR=27 two rows of FILLER_WIDTH=1024 share a block, and a visit is to be of one: \
             the largest FILLFACTOR for this width is 26"
        );
        assert!(asked(100, Some(8116)).is_ok());
    }

    #[test]
    fn rows_without_room_for_a_next_version_are_not_updated() {
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
            "rows with FILLER_WIDTH=4029 leave no room for their next version: each update would move its row \
             to another block and the tables would grow; set UPDATE_PCT=0, or load with FILLER_WIDTH=4028 or less"
        );
    }

    #[test]
    fn a_unit_over_the_scale_is_refused() {
        let fits = Layer { work_unit: Some(1024), scale: scale("8M"), ..Layer::default() };
        assert!(SlobSettings::resolve(fits.clone()).is_ok());
        let read = Layer { work_unit: Some(1025), ..fits.clone() };
        assert_eq!(
            SlobSettings::resolve(read).unwrap_err().to_string(),
            "WORK_UNIT (1025 blocks) is larger than SCALE (8M, 1024 blocks): lower WORK_UNIT or \
             load a larger SCALE"
        );
        let update = Layer { update_work_unit: Some(2000), ..fits };
        assert_eq!(
            SlobSettings::resolve(update).unwrap_err().to_string(),
            "UPDATE_WORK_UNIT (2000 blocks) is larger than SCALE (8M, 1024 blocks): lower \
             UPDATE_WORK_UNIT or load a larger SCALE"
        );
    }

    #[test]
    fn connect_string_then_dbname_then_the_originals_default() {
        let said = |connect: Option<&str>, dbname: Option<&str>| Layer {
            connect_string: connect.map(ConnectString::new),
            dbname: dbname.map(str::to_owned),
            ..Layer::default()
        };
        assert_eq!(connect_string(&said(Some("host=a"), Some("b"))).expose(), "host=a");
        assert_eq!(connect_string(&said(Some(""), Some("b"))).expose(), "");
        assert_eq!(connect_string(&said(None, Some("b"))).expose(), "b");
        assert_eq!(connect_string(&said(None, None)).expose(), "pg10");
    }
}
