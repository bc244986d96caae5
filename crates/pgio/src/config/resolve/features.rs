//! What `slob` does beyond uniform visits in reads and updates, and what contradicts what there.
//!
//! Everything is off by default, and a run that asks for none of it does exactly what it did
//! before these keys were there. Sizes are resolved against the table here, so that nothing is
//! left to be found out in mid-run. Next: `workload::slob`, which makes SQL of it.

use std::time::Duration;

use super::super::keys::Layer;
use super::super::value::{Decimal, Skew, Stretch, TableModel};
use super::{SlobSettings, given};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    pub visits: Visits,
    pub hot_table: Option<HotTable>,
    /// Of all calls, in percent.
    pub scan_pct: Decimal,
    /// Inserts, and as many deletes; of all calls, in percent.
    pub turnover_pct: Decimal,
    /// Bytes of filler.
    pub update_width: u32,
    pub think: Option<Think>,
    /// Calls of each session.
    pub work_loop: Option<u64>,
    /// Within the warm-up.
    pub ramp: Duration,
    /// All sessions are on pgio1.
    pub single_table: bool,
}

/// Where in its table a call begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Visits {
    #[default]
    Uniform,
    HotSpot(HotSpot),
    /// Key k in proportion to 1 / k^exponent.
    Zipf {
        exponent: Decimal,
    },
    /// In percent of the table; what falls outside is drawn again.
    Gaussian {
        mean: Decimal,
        sd: Decimal,
    },
}

/// Keys after the first `offset`, as many as `blocks`, get `pct` % of the calls, all others the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSpot {
    pub offset: u64,
    pub blocks: u64,
    pub pct: Decimal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotTable {
    /// From 1.
    pub number: u32,
    /// Of reads and updates.
    pub pct: Decimal,
}

/// Rests after some of the calls, each of a length drawn between the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Think {
    pub pct: Decimal,
    pub shortest: Duration,
    pub longest: Duration,
}

/// Keys that are right one by one and wrong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error("WORK_LOOP and RUN_TIME both say how long a run is: keep one of the two")]
    Lengths,
    #[error("HOT_SPOT and SKEW both say where visits go: keep one of the two")]
    TwoPlaces,
    #[error("{key} means nothing without {needs}: give that too, or delete {key}")]
    Lacks { key: &'static str, needs: &'static str },
    #[error(
        "the hot spot (blocks {first} to {last}) does not lie in a table of {blocks} blocks: lower HOT_SPOT or HOT_OFFSET"
    )]
    HotSpotOutside { first: u64, last: u64, blocks: u64 },
    #[error(
        "a hot spot of {hot} blocks has no room for {key} = {unit}: raise HOT_SPOT or lower {key}"
    )]
    HotSpotTooSmall { hot: u64, key: &'static str, unit: u64 },
    #[error(
        "beside the hot spot there is no room for {key} = {unit}: lower HOT_SPOT or {key}, or send all there by HOT_PCT = 100"
    )]
    NothingBeside { key: &'static str, unit: u64 },
    #[error("HOT_TABLE is {number} and there are {tables} tables: choose one of them")]
    NoSuchTable { number: u32, tables: u32 },
    #[error("with TABLE_MODEL single all sessions share a table already: delete HOT_TABLE")]
    HotTableAlone,
    #[error(
        "UPDATE_PCT, SCAN_PCT, INSERT_PCT and DELETE_PCT add up to {0} %: lower them to 100 at most"
    )]
    OverFull(Decimal),
    #[error(
        "INSERT_PCT is {inserts} and DELETE_PCT is {deletes}: make them the same, or the table would grow or run empty"
    )]
    Unbalanced { inserts: Decimal, deletes: Decimal },
    #[error("INSERT_PCT goes with COMMIT_EVERY = 1, so that what is deleted can be cleared away")]
    TurnoverUncommitted,
    #[error(
        "BATCH draws its keys in SQL and uniformly, so it does not go with {0}: delete one of the two"
    )]
    Batch(&'static str),
    #[error("THINK_MIN is longer than THINK_MAX: exchange them")]
    ThinkTimes,
    #[error("RAMP lies within WARMUP, and is longer here: raise WARMUP or lower RAMP")]
    RampOverWarmup,
    #[error("GAUSSIAN_SD is 0: give the visits some width, or use HOT_SPOT")]
    NoWidth,
}

/// `all` is complete; `base` holds what is resolved already.
pub(super) fn resolve(all: &Layer, base: &SlobSettings) -> Result<Features, Contradiction> {
    let single_table = given(all.table_model) == TableModel::Single;
    let features = Features {
        visits: visits(all, base)?,
        hot_table: hot_table(all, base, single_table)?,
        scan_pct: given(all.scan_pct),
        turnover_pct: given(all.insert_pct),
        update_width: given(all.update_width),
        think: think(all)?,
        work_loop: all.work_loop,
        ramp: given(all.ramp),
        single_table,
    };
    check_mix(all, base)?;
    if features.update_width > 0 && base.update_pct == 0 {
        return Err(Contradiction::Lacks { key: "UPDATE_WIDTH", needs: "UPDATE_PCT" });
    }
    if features.ramp > base.warmup {
        return Err(Contradiction::RampOverWarmup);
    }
    Ok(features)
}

fn visits(all: &Layer, base: &SlobSettings) -> Result<Visits, Contradiction> {
    let skew = given(all.skew);
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
        (Some(_), Skew::Zipf | Skew::Gaussian) => return Err(Contradiction::TwoPlaces),
        (Some(size), Skew::Uniform) => (Visits::HotSpot(hot_spot(size, all, base)?), "HOT_SPOT"),
        (None, Skew::Uniform) => return Ok(Visits::Uniform),
        (None, Skew::Zipf) => {
            let exponent = all.zipf_exponent.unwrap_or(Decimal::whole(1));
            (Visits::Zipf { exponent }, "SKEW")
        }
        (None, Skew::Gaussian) => {
            let mean = all.gaussian_mean.unwrap_or(Decimal::whole(50));
            let sd = all.gaussian_sd.unwrap_or(Decimal::whole(10));
            if sd.is_zero() {
                return Err(Contradiction::NoWidth);
            }
            (Visits::Gaussian { mean, sd }, "SKEW")
        }
    };
    if base.batch > 1 { Err(Contradiction::Batch(key)) } else { Ok(visits) }
}

fn only_with(
    needs: &'static str,
    there: bool,
    keys: &[(&'static str, bool)],
) -> Result<(), Contradiction> {
    match keys.iter().find(|(_, said)| *said && !there) {
        Some((key, _)) => Err(Contradiction::Lacks { key, needs }),
        None => Ok(()),
    }
}

fn hot_spot(size: Stretch, all: &Layer, base: &SlobSettings) -> Result<HotSpot, Contradiction> {
    let pct = all.hot_pct.ok_or(Contradiction::Lacks { key: "HOT_SPOT", needs: "HOT_PCT" })?;
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
            return Err(Contradiction::NothingBeside { key, unit });
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
            return Err(Contradiction::Lacks { key: "HOT_TABLE", needs: "HOT_TABLE_PCT" });
        }
        (None, Some(_)) => {
            return Err(Contradiction::Lacks { key: "HOT_TABLE_PCT", needs: "HOT_TABLE" });
        }
    };
    if single_table {
        return Err(Contradiction::HotTableAlone);
    }
    if number > base.num_schemas {
        return Err(Contradiction::NoSuchTable { number, tables: base.num_schemas });
    }
    Ok(Some(HotTable { number, pct }))
}

fn think(all: &Layer) -> Result<Option<Think>, Contradiction> {
    let pct = given(all.think_pct);
    if pct.is_zero() {
        let times =
            [("THINK_MIN", all.think_min.is_some()), ("THINK_MAX", all.think_max.is_some())];
        only_with("THINK_PCT", false, &times)?;
        return Ok(None);
    }
    let lacks = Contradiction::Lacks { key: "THINK_PCT", needs: "THINK_MAX" };
    let (shortest, longest) = (all.think_min.unwrap_or_default(), all.think_max.ok_or(lacks)?);
    if shortest > longest {
        return Err(Contradiction::ThinkTimes);
    }
    Ok(Some(Think { pct, shortest, longest }))
}

fn check_mix(all: &Layer, base: &SlobSettings) -> Result<(), Contradiction> {
    let (inserts, deletes) = (given(all.insert_pct), given(all.delete_pct));
    let updates = Decimal::whole(u32::from(base.update_pct));
    let sum = [updates, given(all.scan_pct), inserts, deletes].into_iter().sum();
    if sum > Decimal::whole(100) {
        return Err(Contradiction::OverFull(sum));
    }
    if inserts != deletes {
        return Err(Contradiction::Unbalanced { inserts, deletes });
    }
    if !inserts.is_zero() && base.commit_every != 1 {
        return Err(Contradiction::TurnoverUncommitted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn nothing_said_is_nothing_on() {
        assert_eq!(resolved(&[]), Ok(Features::default()));
        assert_eq!(resolved(&[("skew", "uniform"), ("scan_pct", "0")]), Ok(Features::default()));
    }

    #[test]
    fn what_is_said_is_resolved_against_the_table() {
        let hot = resolved(&[("hot_spot", "10%"), ("hot_offset", "50%"), ("hot_pct", "90")]);
        let spot = HotSpot { offset: 512, blocks: 102, pct: Decimal::whole(90) };
        assert_eq!(hot.unwrap().visits, Visits::HotSpot(spot));
        let zipf = resolved(&[("skew", "zipf")]).unwrap().visits;
        assert_eq!(zipf, Visits::Zipf { exponent: Decimal::whole(1) });
        let think = resolved(&[("think_pct", "5"), ("think_max", "20ms")]).unwrap().think.unwrap();
        assert_eq!((think.shortest, think.longest.as_millis()), (Duration::ZERO, 20));
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("work_loop", "9"), ("run_time", "5s")], "WORK_LOOP and RUN_TIME both say"),
            (&[("hot_spot", "9"), ("hot_pct", "9"), ("skew", "zipf")], "HOT_SPOT and SKEW"),
            (&[("hot_spot", "9")], "HOT_SPOT means nothing without HOT_PCT"),
            (&[("hot_pct", "9")], "HOT_PCT means nothing without HOT_SPOT"),
            (&[("zipf_exponent", "1.2")], "ZIPF_EXPONENT means nothing without SKEW = zipf"),
            (&[("gaussian_sd", "9"), ("skew", "zipf")], "GAUSSIAN_SD means nothing without"),
            (&[("gaussian_sd", "0"), ("skew", "gaussian")], "GAUSSIAN_SD is 0"),
            (
                &[("hot_spot", "9"), ("hot_offset", "1020"), ("hot_pct", "9")],
                "the hot spot (blocks 1021 to 1029) does not lie in a table of 1024 blocks",
            ),
            (&[("hot_spot", "0%"), ("hot_pct", "9")], "does not lie in a table"),
            (
                &[("hot_spot", "9"), ("hot_pct", "9"), ("work_unit", "10")],
                "a hot spot of 9 blocks has no room for WORK_UNIT = 10",
            ),
            (&[("hot_spot", "100%"), ("hot_pct", "90")], "beside the hot spot there is no room"),
            (&[("hot_table", "1")], "HOT_TABLE means nothing without HOT_TABLE_PCT"),
            (&[("hot_table", "2"), ("hot_table_pct", "9")], "HOT_TABLE is 2 and there are 1"),
            (
                &[("hot_table", "1"), ("hot_table_pct", "9"), ("table_model", "single")],
                "delete HOT_TABLE",
            ),
            (
                &[("update_pct", "60"), ("scan_pct", "40.001")],
                "UPDATE_PCT, SCAN_PCT, INSERT_PCT and DELETE_PCT add up to 100.001 %",
            ),
            (&[("update_pct", "90"), ("scan_pct", "11")], "add up to 101 %"),
            (&[("insert_pct", "5")], "INSERT_PCT is 5 and DELETE_PCT is 0"),
            (&[("insert_pct", "5"), ("delete_pct", "4")], "make them the same"),
            (&[("ramp", "3")], "RAMP lies within WARMUP"),
            (
                &[("insert_pct", "5"), ("delete_pct", "5"), ("commit_every", "0")],
                "INSERT_PCT goes with COMMIT_EVERY = 1",
            ),
            (&[("batch", "9"), ("skew", "zipf")], "so it does not go with SKEW"),
            (&[("think_max", "9s")], "THINK_MAX means nothing without THINK_PCT"),
            (&[("think_pct", "9")], "THINK_PCT means nothing without THINK_MAX"),
            (
                &[("think_pct", "9"), ("think_min", "2s"), ("think_max", "1s")],
                "THINK_MIN is longer than THINK_MAX",
            ),
            (&[("ramp", "2s"), ("warmup", "1s")], "RAMP lies within WARMUP"),
            (&[("update_width", "9")], "UPDATE_WIDTH means nothing without UPDATE_PCT"),
        ];
        for (pairs, words) in cases {
            let error = resolved(pairs).expect_err(words);
            assert!(error.contains(words), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn the_whole_mix_may_be_used_up() {
        let full = [("update_pct", "60"), ("scan_pct", "20"), ("insert_pct", "10")];
        assert!(resolved(&[&full[..], &[("delete_pct", "10")]].concat()).is_ok());
        assert!(resolved(&[("hot_spot", "100%"), ("hot_pct", "100")]).is_ok());
    }
}
