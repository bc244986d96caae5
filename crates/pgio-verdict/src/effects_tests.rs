use super::super::test_support::{FACTORS, one_at_a_time, screened, screened_as, screened_in};
use super::super::{Analysis, Decision, Verdict, analyze, primary_comparisons};
use super::*;
use pgio_results::{Check, store::StoredExperiment};

fn effects_of(stored: &StoredExperiment) -> (Analysis, FactorEffects) {
    let analysis = analyze(stored);
    let screened = analysis.factor_effects.clone().unwrap();
    (analysis, screened)
}

fn effect<'a>(screened: &'a FactorEffects, name: &str) -> &'a Effect {
    screened.effects.iter().find(|e| e.comparison.condition == name).unwrap_or_else(|| {
        let names: Vec<&str> =
            screened.effects.iter().map(|e| e.comparison.condition.as_str()).collect();
        panic!("{name} is not among {names:?}")
    })
}

#[test]
fn the_planted_effects_are_found_ranked_and_named() {
    let mut stored = screened(6);
    stored.manifest.rules.matters = Some(0.05);
    let (analysis, found) = effects_of(&stored);
    assert_eq!((found.cells.len(), found.resolution, found.effects.len()), (16, Some(4), 6 + 7));
    assert!(analysis.comparisons.is_empty(), "no cell is compared with the baseline");
    let decided: Vec<(&str, Option<Decision>)> = found
        .effects
        .iter()
        .filter(|e| e.comparison.verdict.is_decided())
        .map(|e| (e.comparison.condition.as_str(), e.comparison.decision))
        .collect();
    let matters = Some(Decision::Matters);
    // ln 2 + ln(3/2) / 2, then half of ln(3/2) for the other two.
    assert_eq!(decided[0], ("synchronous_commit", matters));
    let mut others = vec![decided[1].0, decided[2].0];
    others.sort_unstable();
    assert_eq!(
        (others, decided.len()),
        (vec!["commit_delay", "commit_delay × synchronous_commit"], 3)
    );
    let ratio = |name: &str| effect(&found, name).comparison.ratio.unwrap();
    assert!((ratio("synchronous_commit") / (2.0 * 1.5f64.sqrt()) - 1.0).abs() < 0.01);
    assert!((ratio("commit_delay") * 1.5f64.sqrt() - 1.0).abs() < 0.01);
    for name in &FACTORS[2..] {
        let c = &effect(&found, name).comparison;
        assert_eq!(
            (c.verdict, c.decision),
            (Verdict::NoDifference, Some(Decision::DoesNotMatter)),
            "{name}"
        );
    }
}

#[test]
fn an_interaction_names_its_aliases_and_the_effect_at_each_level() {
    let (_, found) = effects_of(&screened(6));
    let both = effect(&found, "commit_delay × synchronous_commit");
    let aliases: Vec<String> = both.aliases.iter().map(|pair| title(pair)).collect();
    assert_eq!(aliases, ["wal_compression × work_mem"], "AB = CE");
    let given = both.conditional.as_ref().unwrap();
    assert_eq!(
        (given.factor.as_str(), given.given.as_str()),
        ("commit_delay", "synchronous_commit")
    );
    let close = |at: &LevelEffect, truth: f64| {
        assert!((at.ratio.unwrap() - truth).abs() < 0.02, "{at:?}");
        assert!(!at.interval.excludes(truth), "{at:?}");
    };
    close(&given.low, 2.0 / 3.0);
    close(&given.high, 1.0);
    assert!(effect(&found, "jit").conditional.is_none());
    // The name comes first that has strong factors, whichever the design lists first.
    let swapped = |high: &[bool]| match (high[2], high[4]) {
        (true, true) => 0.5,
        (true, false) | (false, true) => 0.8,
        (false, false) => 1.0,
    };
    let (_, found) = effects_of(&screened_as(6, 0.01, 3, swapped));
    let both = effect(&found, "wal_compression × work_mem");
    assert_eq!(title(&both.aliases[0]), "commit_delay × synchronous_commit");
}

#[test]
fn a_block_without_a_valid_trial_of_each_cell_does_not_count() {
    let mut stored = screened(7);
    let at = |t: &&mut pgio_results::Trial| {
        t.place.as_ref().is_some_and(|p| p.block == 3 && p.condition == "cell 5")
    };
    let trial = stored.trials.iter_mut().find(at).unwrap();
    trial.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
    let (_, found) = effects_of(&stored);
    assert!(found.effects.iter().all(|e| e.comparison.blocks == 6), "{:?}", found.effects[0]);
    let note = found.notes.iter().find(|n| n.contains("block 3 lacks cell 5"));
    assert!(note.is_some(), "{:?}", found.notes);
    // Without its baseline, a block has no ratios at all.
    let mut without = stored.clone();
    without
        .trials
        .retain(|t| t.place.as_ref().is_some_and(|p| p.block != 5 || p.condition != "all low"));
    let (_, found) = effects_of(&without);
    assert!(
        found.notes.iter().any(|n| n.contains("cell 5; block 5 lacks all low")),
        "{:?}",
        found.notes
    );
    assert!(found.effects.iter().all(|e| e.comparison.verdict == Verdict::TooFewBlocks));
    assert_eq!(list_first(&["a", "b", "c", "d", "e"].map(str::to_owned)), "a, b, c and 2 more");
    // A valid repeat beside the baseline repairs the block, however fast the machine was by then.
    for name in ["cell 5", "all low"] {
        let is_first_attempt = |t: &&pgio_results::Trial| {
            t.place.as_ref().is_some_and(|p| p.block == 3 && p.condition == name && p.attempt == 0)
        };
        let mut again = stored.trials.iter().find(is_first_attempt).unwrap().clone();
        again.checks.retain(|c| c.id != "steal");
        again.place.as_mut().unwrap().attempt = 1;
        let rate = again.metrics.get_mut("commits_per_second").unwrap();
        rate.value = rate.value.map(|v| v * 3.0);
        stored.trials.push(again);
    }
    let (_, repaired) = effects_of(&stored);
    assert!(repaired.effects.iter().all(|e| e.comparison.blocks == 7));
    // Both are low in jit: three times their rate would move that block's contrast by 0.27.
    let c = &effect(&repaired, "jit").comparison;
    assert!((c.ratio.unwrap() - 1.0).abs() < 0.02 && c.sd_log.unwrap() < 0.02, "{c:?}");
}

#[test]
fn too_few_blocks_decide_nothing_and_more_are_planned_from_the_noise() {
    let mut stored = screened_as(4, 0.3, 5, |_| 1.0);
    stored.manifest.rules.matters = Some(0.05);
    let (_, found) = effects_of(&stored);
    for e in &found.effects {
        assert_eq!(e.comparison.verdict, Verdict::TooFewBlocks);
        assert!(e.comparison.decision_blocks.is_some_and(|n| n > 6), "{:?}", e.comparison);
    }
    let mut quiet = screened_as(6, 0.02, 5, |_| 1.0);
    quiet.manifest.rules.precision = Some(0.05);
    let (analysis, found) = effects_of(&quiet);
    // A trial has a spread of 2 %, and a contrast of 16 cells half of that.
    assert!(found.minimum_detectable_effect.is_some_and(|mde| mde > 0.005 && mde < 0.04));
    assert!(analysis.checks.iter().all(|f| f.id != "precision"), "all intervals are within 5 %");
    assert_eq!(primary_comparisons(&quiet).len(), 13, "the loop sees the effects");
}

#[test]
fn a_missing_metric_and_unusable_cells_make_no_effects() {
    let mut stored = screened(6);
    stored.trials.iter_mut().for_each(|t| t.metrics.clear());
    let (_, found) = effects_of(&stored);
    assert!(found.effects.iter().all(|e| e.comparison.ratio.is_none()));
    let mut cut = screened(6);
    let design = cut.manifest.design.as_mut().unwrap();
    design.cells.pop();
    let (_, found) = effects_of(&cut);
    assert!(found.effects.is_empty());
    assert_eq!(found.resolution, Some(2));
}

#[test]
fn one_at_a_time_ranks_the_comparisons_with_the_baseline() {
    let (analysis, found) = effects_of(&one_at_a_time());
    let ranked: Vec<&str> = found.effects.iter().map(|e| e.factors[0].as_str()).collect();
    assert_eq!((ranked, found.resolution), (vec!["fsync", "jit"], None));
    assert_eq!(found.effects[0].comparison, *analysis.primary("fsync").unwrap());
    assert!(found.notes[0].contains("cannot show whether factors act together"));
}

/// High `jit` does nothing. Its ratio to the cell with high `fsync` is the ratio of low `fsync`.
#[test]
fn against_a_cell_with_a_factor_high_one_at_a_time_has_no_effects() {
    let (analysis, found) = effects_of(&one_at_a_time().with_baseline("fsync").unwrap());
    assert_eq!(found.effects, []);
    let note = "this design has no effects against the baseline `fsync`, where fsync is high: a ratio is then \
                that of two factors; --baseline 'all low' shows the effects";
    assert_eq!(found.notes, [note]);
    let differing = |analysis: &Analysis| -> Vec<Option<String>> {
        let factors = analysis.checks.iter().filter(|f| f.id == "factors");
        factors.map(|f| f.condition.clone()).collect()
    };
    assert_eq!(differing(&analysis), [Some("jit".to_owned())], "{:?}", analysis.checks);
    let (own, _) = effects_of(&one_at_a_time());
    assert!(differing(&own).is_empty(), "{:?}", own.checks);
    // The file named it as its baseline.
    let mut stored = one_at_a_time();
    stored.manifest.baseline = "fsync".to_owned();
    assert_eq!(effects_of(&stored).1.effects, []);
    let (_, low) = effects_of(&stored.with_baseline("all low").unwrap());
    let jit = effect(&low, "jit").comparison.ratio.unwrap();
    assert!((jit - 1.001).abs() < 0.005, "{jit}");
}

/// The A/A twin is no cell of the design: its changes tell which factors are high in it.
#[test]
fn the_twin_as_a_baseline_has_the_levels_of_its_cell() {
    let with_twin_of = |cell: &str| {
        let mut stored = one_at_a_time();
        let conditions = &mut stored.manifest.conditions;
        let mut twin = conditions.iter().find(|c| c.name == cell).unwrap().clone();
        twin.name = "twin".to_owned();
        conditions.push(twin);
        let cell_trials = stored.trials.iter().filter(|t| t.is_of(cell));
        let mut trials = cell_trials.cloned().collect::<Vec<_>>();
        for t in &mut trials {
            t.place.as_mut().unwrap().condition = "twin".to_owned();
        }
        stored.trials.extend(trials);
        effects_of(&stored.with_baseline("twin").unwrap()).1
    };
    assert_eq!(with_twin_of("all low").effects.len(), 2);
    assert_eq!(with_twin_of("fsync").effects, []);
}

#[test]
fn contrasts_of_all_cells_are_the_same_against_another_cell() {
    let stored = screened(6);
    let (_, own) = effects_of(&stored);
    let (_, other) = effects_of(&stored.with_baseline("cell 3").unwrap());
    assert_eq!(own.effects.len(), other.effects.len());
    for e in &own.effects {
        let (ours, theirs) = (&e.comparison, &effect(&other, &e.comparison.condition).comparison);
        let [ours_ratio, theirs_ratio] = [ours, theirs].map(|c| c.ratio.unwrap());
        assert!((ours_ratio / theirs_ratio - 1.0).abs() < 1e-9, "{ours:?} {theirs:?}");
        assert_eq!(ours.verdict, theirs.verdict, "{}", ours.condition);
    }
}

/// With nothing planted, at most one experiment in twenty may accuse any factor or interaction.
#[test]
fn the_family_holds_its_level() {
    const EXPERIMENTS: u64 = 200;
    let accuses = |seed: &u64| {
        let comparisons = primary_comparisons(&screened_as(6, 0.05, *seed, |_| 1.0));
        comparisons.iter().any(|c| c.verdict.is_decided())
    };
    let accused = (0..EXPERIMENTS).filter(accuses).count();
    // The 99.9 % point of Binomial(200, 0.05).
    assert!(accused <= 21, "{accused} of {EXPERIMENTS}");
}

/// A full design of 20 blocks with noise of 1 % and a margin of 5 %.
fn full(factors: usize, rate: impl Fn(&[bool]) -> f64) -> (Analysis, FactorEffects) {
    let design = benchmath::factorial::Design::full(factors).unwrap();
    let mut stored = screened_in(&design, DesignKind::Full, (20, 0.01, 9), rate);
    stored.manifest.rules.matters = Some(0.05);
    effects_of(&stored)
}

/// -9 % only if both are high: the averages of -4.4 % are within the margin, and the effects are not.
#[test]
fn a_factor_that_depends_on_another_is_decided_at_the_worse_level() {
    let (_, found) = full(2, |high| if high[0] && high[1] { 0.91 } else { 1.0 });
    let [a, b] = [FACTORS[0], FACTORS[1]].map(|name| effect(&found, name));
    for (e, other) in [(a, FACTORS[1]), (b, FACTORS[0])] {
        assert_eq!(e.depends_on, [other]);
        assert_eq!(e.comparison.decision, Some(Decision::Matters), "{e:?}");
        assert!((e.comparison.ratio.unwrap() - 0.955).abs() < 0.01, "{e:?}");
    }
    let both = found.effects.iter().find(|e| e.is_interaction()).unwrap();
    assert_eq!(both.comparison.decision, Some(Decision::Matters), "the whole ratio is 0.91");
    // The intervals beside the decisions belong to what was decided: both levels, and the whole ratio.
    for c in [&a.comparison, &b.comparison, &both.comparison] {
        assert!(c.within_low.unwrap() < 0.92, "{c:?}");
    }
    // Each factor has no effect while the other is low.
    let given = both.conditional.as_ref().unwrap();
    assert!(!given.low.interval.excludes(1.0) && given.high.interval.excludes(0.95), "{given:?}");
    // Without an interaction nothing depends.
    let (_, alone) = full(2, |high| if high[0] { 0.91 } else { 1.0 });
    assert!(alone.effects.iter().all(|e| e.depends_on.is_empty()), "{alone:?}");
    assert_eq!(effect(&alone, FACTORS[1]).comparison.decision, Some(Decision::DoesNotMatter));
}

/// High, the first factor runs at 0.4 of its rate in every sixth block: -10 % in all, and none in the typical block.
#[test]
fn a_factor_that_stalls_is_not_said_not_to_matter() {
    let design = benchmath::factorial::Design::full(2).unwrap();
    let mut stored = screened_in(&design, DesignKind::Full, (40, 0.01, 9), |_| 1.0);
    stored.manifest.rules.matters = Some(0.05);
    let cells = stored.manifest.design.as_ref().unwrap().cells.clone();
    let is_high = |t: &pgio_results::Trial| {
        let place = t.place.as_ref().unwrap();
        let cell = cells.iter().find(|cell| cell.condition == place.condition).unwrap();
        place.block % 6 == 1 && cell.high.iter().any(|factor| factor == FACTORS[0])
    };
    for t in &mut stored.trials {
        let stalls = is_high(t);
        let rate = t.metrics.get_mut("commits_per_second").unwrap();
        rate.value = rate.value.map(|value| if stalls { 0.4 * value } else { value });
    }
    let (_, found) = effects_of(&stored);
    let [a, b] = [FACTORS[0], FACTORS[1]].map(|name| &effect(&found, name).comparison);
    assert!(a.ratio.unwrap() > 0.97 && a.totals.unwrap().ratio < 0.92, "{a:?}");
    assert_eq!((a.decision, a.open_by_totals), (Some(Decision::Undecided), true), "{a:?}");
    assert_eq!(b.decision, Some(Decision::DoesNotMatter), "{b:?}");
    let inside = |c: &Comparison| c.within_low.unwrap() > 0.95 && c.within_high.unwrap() < 1.05;
    assert!(!inside(a) && inside(b), "{a:?} {b:?}");
}

/// -15 % only if all three are high.
#[test]
fn what_pairs_do_not_explain_is_tested_before_it_is_called_negligible() {
    let (_, found) = full(3, |high| if high.iter().all(|h| *h) { 0.85 } else { 1.0 });
    let negligible = |found: &FactorEffects| {
        let decisions = found.effects.iter().filter_map(|e| e.comparison.decision);
        decisions.filter(|d| *d == Decision::DoesNotMatter).count()
    };
    assert_eq!(negligible(&found), 0, "{:?}", found.effects);
    let note = "single factors and pairs do not explain the cells";
    assert!(found.notes.iter().any(|n| n.starts_with(note)), "{:?}", found.notes);
    let (_, quiet) = full(3, |_| 1.0);
    assert_eq!(negligible(&quiet), 6);
    let note = "no effect of three or more factors together was detected in the one contrast left";
    assert!(quiet.notes.iter().any(|n| n == note), "{:?}", quiet.notes);
}
