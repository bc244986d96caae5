//! Resolves stacked layers to complete settings, one struct per use.
//!
//! The sources in order of precedence are flags, `[workload]`, pgio.conf, the data set's mark and
//! defaults. Callers stack the first four with `Layer::over`; this module adds the defaults and makes
//! the checks that need more than one key. `dataset` checks later, against the server, whether the
//! data set matches.

mod error;
mod feature_keys;
mod features;
mod mail;
mod slob;

use std::time::Duration;

pub use self::error::{Contradiction, ResolveError};
pub use self::features::{Features, HotSpot, HotTable, KeyDistribution, Think};
pub use self::mail::resolve as resolve_mail;
pub use self::slob::{Extent, SlobSettings};
use super::engine::Engine;
use super::keys::{Layer, Use, required};
use super::kinds::WorkloadKind;
use super::value::{ConnectString, DeviceTest, DeviceTests};
use pgio_results::units::{BLOCK_BYTES, Layout, Scale};

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

/// Settings of the workload `device`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeviceSettings {
    /// Absent: the target's device.
    pub path: Option<String>,
    pub test: DeviceTest,
    /// Bytes.
    pub size: u64,
    /// Bytes per read or write.
    pub block_size: u64,
    pub depth: u32,
    pub destroy: bool,
    pub uuid: Option<String>,
    pub run_time: Duration,
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
        let all = layer.with_defaults(Use::Work(WorkloadKind::Slob));
        let settings = Self {
            engine: Engine::resolve(&all, WorkloadKind::Slob)?,
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
                let features = feature_keys::resolve(&all, &settings)?;
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
        let all = layer.with_defaults(Use::Work(WorkloadKind::Commit));
        Ok(Self {
            engine: Engine::resolve(&all, WorkloadKind::Commit)?,
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

impl DeviceSettings {
    pub fn resolve(layer: Layer) -> Self {
        let all = layer.with_defaults(Use::Work(WorkloadKind::Device));
        let test = match required(all.test) {
            DeviceTests::One(test) => test,
            // The experiment parser has split `all` into one workload per test.
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
            size: required(all.size).0,
            block_size: all.block_size.map_or(block_size, |b| b.0),
            depth: required(all.depth),
            destroy: required(all.destroy),
            uuid: all.uuid,
            run_time: required(all.run_time),
        }
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

#[cfg(test)]
mod tests;
