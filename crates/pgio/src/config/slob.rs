//! Makes the features of `slob` from their keys and refuses keys that contradict each other.
//!
//! Sizes are resolved against the table size, so that errors are found before the run starts.

use std::time::Duration;

use super::resolve::Contradiction;
use crate::config::engine::Engine;
use crate::config::keys::{Layer, required};
use crate::config::value::{Access, Decimal, Skew, TableModel, TablePortion};
use pgio_results::units::Scale;

/// Resolves the features. `all` is complete; `base` contains the settings resolved so far.
pub(super) fn resolve(all: &Layer, base: &SlobSettings) -> Result<Features, Contradiction> {
    let single_table = required(all.table_model) == TableModel::Single;
    let features = Features {
        visits: key_distribution(all, base)?,
        hot_table: hot_table(all, base, single_table)?,
        scan_pct: required(all.scan_pct),
        turnover_pct: required(all.insert_pct),
        update_width: required(all.update_width),
        think: think(all)?,
        work_loop: all.work_loop,
        ramp: required(all.ramp),
        single_table,
    };
    check_mix(all, base)?;
    if features.update_width > 0 && base.update_pct == 0 {
        return Err(Contradiction::Requires { key: "UPDATE_WIDTH", requires: "UPDATE_PCT" });
    }
    if features.ramp > base.warmup {
        return Err(Contradiction::RampOverWarmup);
    }
    Ok(features)
}

fn key_distribution(all: &Layer, base: &SlobSettings) -> Result<KeyDistribution, Contradiction> {
    let skew = required(all.skew);
    let zipf = [("ZIPF_EXPONENT", all.zipf_exponent.is_some())];
    let gaussian = [
        ("GAUSSIAN_MEAN", all.gaussian_mean.is_some()),
        ("GAUSSIAN_SD", all.gaussian_sd.is_some()),
    ];
    let hot = [("HOT_PCT", all.hot_pct.is_some()), ("HOT_OFFSET", all.hot_offset.is_some())];
    only_with("SKEW = zipf", skew == Skew::Zipf, &zipf)?;
    only_with("SKEW = gaussian", skew == Skew::Gaussian, &gaussian)?;
    only_with("HOT_SPOT", all.hot_spot.is_some(), &hot)?;
    let (visits, key) = match (all.hot_spot, skew) {
        (Some(_), Skew::Zipf | Skew::Gaussian) => return Err(Contradiction::HotSpotWithSkew),
        (Some(size), Skew::Uniform) => {
            (KeyDistribution::HotSpot(hot_spot(size, all, base)?), "HOT_SPOT")
        }
        (None, Skew::Uniform) => return Ok(KeyDistribution::Uniform),
        (None, Skew::Zipf) => {
            let exponent = all.zipf_exponent.unwrap_or(Decimal::whole(1));
            (KeyDistribution::Zipf { exponent }, "SKEW")
        }
        (None, Skew::Gaussian) => {
            let mean = all.gaussian_mean.unwrap_or(Decimal::whole(50));
            let sd = all.gaussian_sd.unwrap_or(Decimal::whole(10));
            if sd.is_zero() {
                return Err(Contradiction::ZeroDeviation);
            }
            (KeyDistribution::Gaussian { mean, sd }, "SKEW")
        }
    };
    if base.batch > 1 { Err(Contradiction::Batch(key)) } else { Ok(visits) }
}

fn only_with(
    requires: &'static str,
    present: bool,
    keys: &[(&'static str, bool)],
) -> Result<(), Contradiction> {
    match keys.iter().find(|(_, set)| *set && !present) {
        Some((key, _)) => Err(Contradiction::Requires { key, requires }),
        None => Ok(()),
    }
}

fn hot_spot(
    size: TablePortion,
    all: &Layer,
    base: &SlobSettings,
) -> Result<HotSpot, Contradiction> {
    let pct =
        all.hot_pct.ok_or(Contradiction::Requires { key: "HOT_SPOT", requires: "HOT_PCT" })?;
    let table = base.scale.blocks();
    let (offset, blocks) = (all.hot_offset.map_or(0, |o| o.blocks(table)), size.blocks(table));
    let last = offset.saturating_add(blocks);
    if last > table || blocks == 0 {
        return Err(Contradiction::HotSpotOutside { first: offset + 1, last, blocks: table });
    }
    let mut units = vec![("WORK_UNIT", base.work_unit)];
    if base.update_pct > 0 {
        units.push(("UPDATE_WORK_UNIT", base.update_work_unit));
    }
    for (key, unit) in units {
        if unit > blocks {
            return Err(Contradiction::HotSpotTooSmall { hot: blocks, key, unit });
        }
        if unit > offset && unit > table - last && pct < Decimal::whole(100) {
            return Err(Contradiction::NoRoomOutsideHotSpot { key, unit });
        }
    }
    Ok(HotSpot { offset, blocks, pct })
}

fn hot_table(
    all: &Layer,
    base: &SlobSettings,
    single_table: bool,
) -> Result<Option<HotTable>, Contradiction> {
    let (number, pct) = match (all.hot_table, all.hot_table_pct) {
        (None, None) => return Ok(None),
        (Some(number), Some(pct)) => (number, pct),
        (Some(_), None) => {
            return Err(Contradiction::Requires { key: "HOT_TABLE", requires: "HOT_TABLE_PCT" });
        }
        (None, Some(_)) => {
            return Err(Contradiction::Requires { key: "HOT_TABLE_PCT", requires: "HOT_TABLE" });
        }
    };
    if single_table {
        return Err(Contradiction::HotTableWithSingleTable);
    }
    if number > base.num_schemas {
        return Err(Contradiction::NoSuchTable { number, tables: base.num_schemas });
    }
    Ok(Some(HotTable { number, pct }))
}

fn think(all: &Layer) -> Result<Option<Think>, Contradiction> {
    let pct = required(all.think_pct);
    if pct.is_zero() {
        let times =
            [("THINK_MIN", all.think_min.is_some()), ("THINK_MAX", all.think_max.is_some())];
        only_with("THINK_PCT", false, &times)?;
        return Ok(None);
    }
    let missing = Contradiction::Requires { key: "THINK_PCT", requires: "THINK_MAX" };
    let (shortest, longest) = (all.think_min.unwrap_or_default(), all.think_max.ok_or(missing)?);
    if shortest > longest {
        return Err(Contradiction::ThinkMinOverMax);
    }
    Ok(Some(Think { pct, shortest, longest }))
}

fn check_mix(all: &Layer, base: &SlobSettings) -> Result<(), Contradiction> {
    let (inserts, deletes) = (required(all.insert_pct), required(all.delete_pct));
    let updates = Decimal::whole(u32::from(base.update_pct));
    let sum = [updates, required(all.scan_pct), inserts, deletes].into_iter().sum();
    if sum > Decimal::whole(100) {
        return Err(Contradiction::MixOver100(sum));
    }
    if inserts != deletes {
        return Err(Contradiction::InsertsDifferFromDeletes { inserts, deletes });
    }
    if !inserts.is_zero() && base.commit_every != 1 {
        return Err(Contradiction::TurnoverRequiresCommits);
    }
    Ok(())
}

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

/// Settings of the workload `slob`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlobSettings {
    pub update_pct: u8,
    pub run_time: Duration,
    pub warmup: Duration,
    pub num_schemas: u32,
    pub num_threads: u32,
    /// Total number of sessions; absent: NUM_THREADS on each table.
    pub sessions: Option<u32>,
    /// Blocks.
    pub work_unit: u64,
    /// Blocks.
    pub update_work_unit: u64,
    pub scale: Scale,
    pub access: Access,
    /// Update calls per transaction; 0 is one transaction per session.
    pub commit_every: u32,
    pub batch: u32,
    /// Features beyond uniform reads and updates.
    pub features: Features,
    pub engine: Engine,
    /// Absent: drawn and recorded.
    pub seed: Option<u64>,
}

impl SlobSettings {
    /// Number of tables that the workload uses.
    pub fn tables(&self) -> u32 {
        if self.features.single_table { 1 } else { self.num_schemas }
    }

    pub fn sessions(&self) -> u32 {
        self.sessions.unwrap_or(self.num_schemas * self.num_threads)
    }

    /// Number of tables that a session visits in turn: more than one only if there are fewer sessions
    /// than tables.
    pub fn tables_per_session(&self) -> u32 {
        self.tables().div_ceil(self.sessions())
    }

    pub fn extent(&self) -> Extent {
        match self.features.work_loop {
            Some(calls) => Extent::Calls(calls),
            None => Extent::Time(self.run_time),
        }
    }

    /// Returns whether the workload changes no data.
    pub fn read_only(&self) -> bool {
        self.update_pct == 0 && self.features.turnover_pct.is_zero()
    }
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Extent {
    Time(Duration),
    /// Total over all sessions.
    Transactions(u64),
    /// Number per session.
    Calls(u64),
}

impl Extent {
    /// Returns the time after which the run ends; `None` if an amount of work ends it.
    pub fn time(self) -> Option<Duration> {
        match self {
            Extent::Time(window) => Some(window),
            Extent::Transactions(_) | Extent::Calls(_) => None,
        }
    }

    /// Returns the number of calls of an open loop.
    pub fn calls_at(self, per_second: f64, sessions: u32) -> f64 {
        match self {
            Extent::Time(window) => per_second * window.as_secs_f64(),
            Extent::Transactions(n) => n as f64,
            Extent::Calls(n) => n as f64 * f64::from(sessions),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Key;

    fn resolved(pairs: &[(&str, &str)]) -> Result<Features, String> {
        let mut layer = Layer::default();
        let base = [("scale", "8M"), ("work_unit", "1"), ("update_work_unit", "1")];
        for (name, text) in base.iter().chain(pairs) {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        SlobSettings::resolve(layer).map(|s| s.features).map_err(|e| e.to_string())
    }

    #[test]
    fn features_are_off_by_default() {
        assert_eq!(resolved(&[]), Ok(Features::default()));
        assert_eq!(resolved(&[("skew", "uniform"), ("scan_pct", "0")]), Ok(Features::default()));
    }

    #[test]
    fn sizes_are_resolved_against_the_table() {
        let hot = resolved(&[("hot_spot", "10%"), ("hot_offset", "50%"), ("hot_pct", "90")]);
        let spot = HotSpot { offset: 512, blocks: 102, pct: Decimal::whole(90) };
        assert_eq!(hot.unwrap().visits, KeyDistribution::HotSpot(spot));
        let zipf = resolved(&[("skew", "zipf")]).unwrap().visits;
        assert_eq!(zipf, KeyDistribution::Zipf { exponent: Decimal::whole(1) });
        let think = resolved(&[("think_pct", "5"), ("think_max", "20ms")]).unwrap().think.unwrap();
        assert_eq!((think.shortest, think.longest.as_millis()), (Duration::ZERO, 20));
    }

    #[test]
    fn contradictions_name_the_keys() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("work_loop", "9"), ("run_time", "5s")], "WORK_LOOP and RUN_TIME both set"),
            (&[("hot_spot", "9"), ("hot_pct", "9"), ("skew", "zipf")], "HOT_SPOT and SKEW"),
            (&[("hot_spot", "9")], "HOT_SPOT requires HOT_PCT"),
            (&[("hot_pct", "9")], "HOT_PCT requires HOT_SPOT"),
            (&[("zipf_exponent", "1.2")], "ZIPF_EXPONENT requires SKEW = zipf"),
            (&[("gaussian_sd", "9"), ("skew", "zipf")], "GAUSSIAN_SD requires SKEW = gaussian"),
            (&[("gaussian_sd", "0"), ("skew", "gaussian")], "GAUSSIAN_SD is 0"),
            (
                &[("hot_spot", "9"), ("hot_offset", "1020"), ("hot_pct", "9")],
                "the hot spot (blocks 1021 to 1029) is outside the table, which has 1024 blocks",
            ),
            (&[("hot_spot", "0%"), ("hot_pct", "9")], "is outside the table"),
            (
                &[("hot_spot", "9"), ("hot_pct", "9"), ("work_unit", "10")],
                "a hot spot of 9 blocks is too small for WORK_UNIT = 10",
            ),
            (
                &[("hot_spot", "100%"), ("hot_pct", "90")],
                "the rest of the table is too small for WORK_UNIT",
            ),
            (&[("hot_table", "1")], "HOT_TABLE requires HOT_TABLE_PCT"),
            (
                &[("hot_table", "2"), ("hot_table_pct", "9")],
                "HOT_TABLE is 2, but the number of tables is 1",
            ),
            (
                &[("hot_table", "1"), ("hot_table_pct", "9"), ("table_model", "single")],
                "delete HOT_TABLE",
            ),
            (
                &[("update_pct", "60"), ("scan_pct", "40.001")],
                "UPDATE_PCT, SCAN_PCT, INSERT_PCT and DELETE_PCT add up to 100.001 %",
            ),
            (&[("update_pct", "90"), ("scan_pct", "11")], "add up to 101 %"),
            (&[("insert_pct", "5")], "INSERT_PCT (5) differs from DELETE_PCT (0)"),
            (&[("insert_pct", "5"), ("delete_pct", "4")], "make them equal"),
            (&[("ramp", "3")], "RAMP is longer than WARMUP"),
            (
                &[("insert_pct", "5"), ("delete_pct", "5"), ("commit_every", "0")],
                "INSERT_PCT requires COMMIT_EVERY = 1",
            ),
            (&[("batch", "9"), ("skew", "zipf")], "BATCH cannot be combined with SKEW"),
            (&[("think_max", "9s")], "THINK_MAX requires THINK_PCT"),
            (&[("think_pct", "9")], "THINK_PCT requires THINK_MAX"),
            (
                &[("think_pct", "9"), ("think_min", "2s"), ("think_max", "1s")],
                "THINK_MIN is longer than THINK_MAX",
            ),
            (&[("ramp", "2s"), ("warmup", "1s")], "RAMP is longer than WARMUP"),
            (&[("update_width", "9")], "UPDATE_WIDTH requires UPDATE_PCT"),
        ];
        for (pairs, words) in cases {
            let error = resolved(pairs).expect_err(words);
            assert!(error.contains(words), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn shares_may_add_up_to_100_percent() {
        let full = [("update_pct", "60"), ("scan_pct", "20"), ("insert_pct", "10")];
        assert!(resolved(&[&full[..], &[("delete_pct", "10")]].concat()).is_ok());
        assert!(resolved(&[("hot_spot", "100%"), ("hot_pct", "100")]).is_ok());
    }
}
