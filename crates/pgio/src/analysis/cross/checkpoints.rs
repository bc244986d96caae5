//! Did a checkpoint hit some trials and not others?
//!
//! Where nothing that is compared decides it, that is chance, and such a trial must not count. Where a
//! condition sets max_wal_size or the like differently from the baseline, its checkpoints are its effect, and so
//! are those that the baseline has in its place; likewise where pgio is told to force none.

use std::collections::BTreeMap;

use super::super::{findings, pairing};
use super::is_at;
use crate::results::checks::decides_checkpoints;
use crate::results::store::{ConditionInfo, Manifest};
use crate::results::sweep::Point;
use crate::results::{Check, Outcome, Trial};

const ID: &str = "checkpoint-in-one-condition";

pub(super) fn checks(manifest: &Manifest, trials: &[Trial], point: &Point) -> Vec<(usize, Check)> {
    let effects = effects(manifest);
    let begun = |t: &Trial| t.metrics.get("checkpoints").and_then(|m| m.value);
    let hit = |t: &Trial| t.outcome == Outcome::Complete && begun(t).is_some_and(|n| n > 0.0);
    let arms = pairing::arms_at(manifest, trials, point);
    let by_chance = arms.iter().filter(|(name, _)| !effects.contains_key(*name));
    let last: Vec<&Trial> = by_chance.flat_map(|(_, arm)| arm.last_attempts()).collect();
    let counted =
        last.iter().filter(|t| t.outcome == Outcome::Complete && begun(t).is_some()).count();
    let with = last.iter().filter(|t| hit(t)).count();
    let is_usual = with * 2 > counted;

    let check = |t: &Trial| -> Option<Check> {
        let began = format!(
            "{} began inside the window",
            counted_checkpoints(begun(t).unwrap_or_default())
        );
        let name = t.place.as_ref().map_or("", |p| p.condition.as_str());
        let setting = effects.get(name).cloned();
        if let Some(effect) = setting.or_else(|| compared(manifest, name, &effects)) {
            let message = format!("{began}: {effect}, so this is part of the effect");
            return Some(Check::warning(
                ID,
                message,
                "longer windows tell what they cost more exactly",
            ));
        }
        if ["spread", "none"].contains(&manifest.rules.checkpoint.as_str()) {
            let mode = &manifest.rules.checkpoint;
            let message = format!("{began}: with checkpoint = \"{mode}\" the server decides when");
            let remedy = "take windows long enough that each holds as many";
            return (!is_usual).then(|| Check::warning(ID, message, remedy));
        }
        (!is_usual).then(|| {
            Check::invalid(
                ID,
                format!(
                    "{began}, as in {with} of {counted} trials: it slows some and not the others"
                ),
                "raise max_wal_size and checkpoint_timeout, or make windows long enough that each \
                 holds several",
            )
        })
    };
    let affected = trials.iter().enumerate().filter(|(_, t)| hit(t) && is_at(t, point));
    affected.filter_map(|(i, t)| Some((i, check(t)?))).collect()
}

/// Conditions whose checkpoints a setting decides that the baseline does not have, and that setting.
fn effects(manifest: &Manifest) -> BTreeMap<&str, String> {
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return BTreeMap::new();
    };
    let of = |info: &ConditionInfo| {
        let factors = findings::differing_factors(info, baseline);
        let names = factors.iter().map(|factor| {
            factor.trim_start_matches("without ").split('=').next().unwrap_or_default().trim()
        });
        let name = names.into_iter().find(|name| decides_checkpoints(name))?;
        Some(format!("`{}` and `{}` differ in {name}", info.name, baseline.name))
    };
    let others = manifest.conditions.iter().filter(|c| c.name != baseline.name);
    others.filter_map(|info| Some((info.name.as_str(), of(info)?))).collect()
}

/// The baseline and its twin are the other half of such an effect.
fn compared(manifest: &Manifest, name: &str, effects: &BTreeMap<&str, String>) -> Option<String> {
    let is_baseline = name == manifest.baseline || manifest.aa.as_deref() == Some(name);
    effects.values().next().filter(|_| is_baseline).cloned()
}

fn counted_checkpoints(n: f64) -> String {
    if n == 1.0 { "a checkpoint".to_owned() } else { format!("{n} checkpoints") }
}
