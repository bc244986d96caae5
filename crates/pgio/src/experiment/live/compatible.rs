//! Whether servers can share a window: different servers, equal data sets, clocks that can be read well enough.
//!
//! Reads only. `check` calls it for each condition that has several servers.

use std::collections::BTreeMap;

use crate::config::resolve::Extent;
use crate::experiment::error::LiveError;
use crate::experiment::target::Target;
use crate::pg::words;
use crate::workload::clock::{APART_SHARE, ClockReading};
use pgio_results::model::DatasetInfo;

/// Refuses servers that cannot be measured together; skips targets that are not among these.
pub(super) fn check(
    title: &str,
    names: &[&String],
    work: usize,
    targets: &mut BTreeMap<String, Target>,
) -> Result<(), LiveError> {
    let refused = |why| LiveError::Joint { condition: title.to_owned(), why };
    let mut first: Option<(&String, Option<DatasetInfo>)> = None;
    for name in names.iter().copied() {
        let same = |other: &&String| {
            let identity = |name: &String| targets.get(name).map(|target| &target.identity);
            *other != name && identity(other).is_some() && identity(other) == identity(name)
        };
        if let Some(other) = names.iter().copied().take_while(|n| *n != name).find(same) {
            return Err(refused(format!("targets `{other}` and `{name}` are the same server")));
        }
        let Some(target) = targets.get_mut(name) else { continue };
        check_clock(work, target).map_err(|why| refused(format!("target `{name}`: {why}")))?;
        let data = target.workloads[work].dataset(&mut target.admin)?;
        match &first {
            None => first = Some((name, data)),
            Some((other, known)) => {
                if let Some(what) = difference(known.as_ref(), data.as_ref()) {
                    let why = format!("the data sets of `{other}` and `{name}` differ: {what}");
                    return Err(refused(why));
                }
            }
        }
    }
    Ok(())
}

/// Refuses a server whose start could not be known to a hundredth of the window.
fn check_clock(work: usize, target: &mut Target) -> Result<(), String> {
    let Extent::Time(window) = target.workloads[work].extent() else {
        return Err("a number of transactions has no common end; name a duration".to_owned());
    };
    let reading = ClockReading::take(&mut target.admin).map_err(|e| words::sentence(&e))?;
    let error = reading.round_trip / 2;
    if error > window.mul_f64(APART_SHARE) {
        return Err(format!(
            "its clock can be read to {:.0} ms only, more than 1 % of the window; use windows of at least {:.0} s",
            error.as_secs_f64() * 1e3,
            (error.as_secs_f64() / APART_SHARE).ceil()
        ));
    }
    Ok(())
}

/// Names what differs between two data sets.
fn difference(one: Option<&DatasetInfo>, other: Option<&DatasetInfo>) -> Option<String> {
    let (one, other) = (one?, other?);
    let facts = |data: &DatasetInfo| {
        [
            ("tables", data.tables.to_string()),
            ("scale", data.scale.clone()),
            ("blocks", data.blocks_per_table.to_string()),
            ("rows", data.layout.to_string()),
        ]
    };
    let pairs = facts(one).into_iter().zip(facts(other));
    let mut differing = pairs.filter(|(a, b)| a.1 != b.1);
    differing.next().map(|((what, one), (_, other))| format!("{what} {one} and {other}"))
}
