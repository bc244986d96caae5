//! Checks whether only some trials had a checkpoint inside the window.
//!
//! If no condition decides when checkpoints happen, that is chance, and the report warns. If a condition
//! changes max_wal_size or a similar setting, checkpoints are part of its effect, under the condition as
//! well as under the baseline; so they are if pgio forces none.

use std::collections::BTreeMap;

use super::tally::{CellId, Tally, checkpoints_begun, had_checkpoint};
use crate::analysis::condition::differing_factors;
use pgio_results::change::Subject;
use pgio_results::checks::decides_checkpoints;
use pgio_results::store::{ConditionInfo, Manifest};
use pgio_results::{Check, Trial};

const ID: &str = "checkpoint-in-one-condition";

pub(super) fn check(
    manifest: &Manifest,
    tally: &Tally,
    trial: &Trial,
    cell: CellId,
) -> Option<Check> {
    if !had_checkpoint(trial) {
        return None;
    }
    let effects = effects(manifest);
    let by_chance = |condition: usize| {
        let name = manifest.conditions.get(condition).map(|c| c.name.as_str());
        name.is_some_and(|name| !effects.contains_key(name))
    };
    let counts = tally.checkpoints(cell.1, by_chance);
    let is_usual = counts.with_checkpoint * 2 > counts.counted;
    let began = format!(
        "{} began inside the window",
        counted_checkpoints(checkpoints_begun(trial).unwrap_or_default())
    );
    let name = trial.place.as_ref().map_or("", |p| p.condition.as_str());
    let setting = effects.get(name).cloned();
    if let Some(effect) = setting.or_else(|| compared(manifest, name, &effects)) {
        let message = format!("{began}: {effect}, so this is part of the effect");
        let remedy = "lengthen the window to measure their cost more exactly";
        return Some(Check::warning(ID, message, remedy));
    }
    if is_usual {
        return None;
    }
    let mode = &manifest.rules.checkpoint;
    let (message, remedy) = if ["spread", "none"].contains(&mode.as_str()) {
        (
            format!("{began}: with checkpoint = \"{mode}\" the server decides when"),
            "make windows long enough that each contains the same number",
        )
    } else {
        (
            format!(
                "{began}, as in {} of {} trials: checkpoints slow only some trials",
                counts.with_checkpoint, counts.counted
            ),
            "raise max_wal_size and checkpoint_timeout, or make windows long enough that each \
             contains several",
        )
    };
    Some(Check::warning(ID, message, remedy))
}

/// Conditions with a setting that decides checkpoints and differs from the baseline, with the setting.
fn effects(manifest: &Manifest) -> BTreeMap<&str, String> {
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return BTreeMap::new();
    };
    let deciding = |info: &ConditionInfo| {
        let factors = differing_factors(info, baseline).into_iter().map(|f| f.change);
        let mut settings = factors.filter(|c| c.subject == Subject::Server).map(|c| &c.setting);
        let name = settings.find(|name| decides_checkpoints(name))?;
        Some(format!("`{}` and `{}` differ in {name}", info.name, baseline.name))
    };
    let others = manifest.conditions.iter().filter(|c| c.name != baseline.name);
    others.filter_map(|info| Some((info.name.as_str(), deciding(info)?))).collect()
}

/// The baseline and its twin have the other half of such an effect.
fn compared(manifest: &Manifest, name: &str, effects: &BTreeMap<&str, String>) -> Option<String> {
    let is_baseline = name == manifest.baseline || manifest.aa.as_deref() == Some(name);
    effects.values().next().filter(|_| is_baseline).cloned()
}

fn counted_checkpoints(n: f64) -> String {
    if n == 1.0 { "a checkpoint".to_owned() } else { format!("{n} checkpoints") }
}
