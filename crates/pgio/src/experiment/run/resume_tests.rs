//! An interrupted block is completed in new pairs; its complete pairs stay.

use proptest::prelude::*;

use super::*;

/// Complete trials of an earlier run: block, cell and attempt.
fn complete(trials: &[(u32, usize, u32)]) -> StoredAttempts {
    StoredAttempts(trials.iter().map(|trial| (*trial, true)).collect())
}

/// Cells and attempts still to run in block 1, in the order of the cells.
fn due(cells: usize, baselines: &[usize], done: &StoredAttempts) -> Vec<(usize, u32)> {
    let left = remaining(done, &plan(cells, 1, 1), baselines, 1);
    let mut due: Vec<(usize, u32)> = left.iter().map(|p| (p.cell, p.attempt)).collect();
    due.sort_unstable();
    due
}

/// The baseline before the interruption belongs to another time, and perhaps to another cluster.
#[test]
fn conditions_that_never_ran_have_the_baseline_measured_beside_them() {
    let done = complete(&[(1, 0, 0)]);
    assert_eq!(due(3, &[0; 3], &done), [(0, 1), (1, 1), (2, 1)]);
    let mut fake = Fake::default();
    assert_eq!(run(&plan(3, 1, 1), &[0; 3], FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(repairs(&fake, 0), ["0 again 1", "1 again 1", "2 again 1"]);
}

#[test]
fn a_complete_pair_stays() {
    assert_eq!(due(3, &[0; 3], &complete(&[(1, 0, 0), (1, 2, 0)])), [(0, 1), (1, 1)]);
    // Also if the baseline's next trial did not complete.
    let mut done = complete(&[(1, 0, 0), (1, 2, 0)]);
    done.0.insert((1, 0, 1), false);
    assert_eq!(due(3, &[0; 3], &done), [(0, 2), (1, 2)]);
    done.0.extend(complete(&[(1, 0, 2), (1, 1, 2)]).0);
    assert_eq!(due(3, &[0; 3], &done), []);
}

#[test]
fn a_condition_whose_baseline_did_not_run_is_measured_again() {
    assert_eq!(due(3, &[0; 3], &complete(&[(1, 1, 0)])), [(0, 1), (1, 1), (2, 1)]);
    // The baseline was interrupted, and so was the run after it.
    let mut done = complete(&[(1, 1, 0), (1, 0, 1)]);
    done.0.insert((1, 0, 0), false);
    assert_eq!(due(3, &[0; 3], &done), [(0, 2), (1, 2), (2, 2)]);
}

#[test]
fn a_repair_that_was_cut_is_begun_again_as_a_pair() {
    // The condition alone.
    let done = complete(&[(1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 1, 1)]);
    assert_eq!(due(3, &[0; 3], &done), [(0, 2), (1, 2)]);
    // The baseline alone: the first pair is complete, and invalid.
    let done = complete(&[(1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 0, 1)]);
    assert_eq!(due(3, &[0; 3], &done), []);
    let mut fake = Fake { invalid: vec![vec![1]], ..Fake::default() };
    assert_eq!(run(&plan(3, 1, 1), &[0; 3], FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(repairs(&fake, 0), ["0 again 2", "1 again 2"]);
}

/// What never ran begins at attempt 1, and may be repeated as often as in a run without the interruption.
#[test]
fn an_interruption_uses_up_no_repeat() {
    let mut fake = Fake { invalid: vec![vec![1], vec![1]], ..Fake::default() };
    let rules = Rules { repeats: 1, ..FIXED };
    run(&plan(2, 1, 1), &[0; 2], rules, &complete(&[(1, 0, 0)]), &mut fake).unwrap();
    let mut trials = fake.trials();
    trials.sort();
    assert_eq!(trials, ["0 again 1", "0 again 2", "1 again 1", "1 again 2"]);
}

#[test]
fn each_point_is_completed_for_itself() {
    let baselines = [0, 0, 2, 2];
    assert_eq!(due(4, &baselines, &complete(&[(1, 0, 0), (1, 1, 0)])), [(2, 0), (3, 0)]);
    let done = complete(&[(1, 0, 0), (1, 1, 0), (1, 2, 0)]);
    assert_eq!(due(4, &baselines, &done), [(2, 1), (3, 1)]);
}

/// In the planned order, a baseline that ran already would be the first each time.
#[test]
fn the_order_of_what_is_missing_is_drawn_anew() {
    let done = complete(&[(1, 0, 0), (1, 1, 0)]);
    let baseline_first = |seed| {
        let mut fake = Fake::default();
        let rules = Rules { seed, ..FIXED };
        run(&plan(3, 1, seed), &[0; 3], rules, &done, &mut fake).unwrap();
        fake.trials()[0] == "0 again 1"
    };
    let first = (0..40).filter(|seed| baseline_first(*seed)).count();
    assert!((8..=32).contains(&first), "{first} of 40");
}

#[test]
fn a_block_whose_baseline_was_interrupted_is_run_as_a_whole() {
    let plan = plan(3, 1, 1);
    let (first, last) = (plan[0].cell, plan[2].cell);
    // The plan has the baseline second; where not, the test would show something else.
    let baseline = plan[1].cell;
    let done = [((1, first, 0), true), ((1, baseline, 0), false)];
    let mut fake = Fake::default();
    let baselines = vec![baseline; 3];
    let done = StoredAttempts(BTreeMap::from(done));
    assert_eq!(run(&plan, &baselines, FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(fake.trials(), [first, baseline, last].map(|cell| format!("{cell} again 1")));
}

#[test]
fn complete_blocks_are_not_repeated_after_an_interruption() {
    let plan = plan(2, 4, 1);
    // The first block is complete, the second but for a failure, the third was cut short.
    let done = StoredAttempts(BTreeMap::from([
        ((1, 0, 0), true),
        ((1, 1, 0), true),
        ((2, 0, 0), true),
        ((2, 1, 1), false),
        ((3, plan[4].cell, 0), true),
    ]));
    assert_eq!(remaining(&done, &plan, &[0, 0], 4).len(), 6);
    let mut fake = Fake::default();
    assert_eq!(run(&plan, &[0, 0], FIXED, &done, &mut fake), Ok(Ended::Complete));
    // What failed or is missing is measured with its baseline beside it.
    let again = |round: u32| move |p: &Planned| format!("{} again {round}", p.cell);
    let (second, third) = (plan[2..4].iter().map(again(2)), plan[4..6].iter().map(again(1)));
    let fourth = plan[6..].iter().map(|p| p.cell.to_string());
    assert_eq!(fake.trials(), second.chain(third).chain(fourth).collect::<Vec<_>>());
}

#[test]
fn a_resumed_run_repeats_invalid_trials_of_the_last_block() {
    let plan = plan(1, 2, 1);
    let done = complete(&[(1, 0, 0), (2, 0, 0)]);
    assert_eq!(remaining(&done, &plan, &[0], 2), []);
    // The run was stopped before it could repeat what was invalid in it.
    let mut fake = Fake { invalid: vec![vec![0]], ..Fake::default() };
    assert_eq!(run(&plan, &[0], FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(fake.trials(), ["0 again 1"]);
}

/// On a new private server, as after an interruption right before the repeat or the further block.
#[test]
fn the_burn_in_also_precedes_a_repeat_or_a_further_block_alone() {
    let plan = [vec![burn_in(0)], plan(1, 3, 1)].concat();
    let mut done = complete(&[(0, 0, 0), (0, 0, 1), (1, 0, 0), (2, 0, 0)]);
    done.expire_burn_in();
    assert_eq!(remaining(&done, &plan, &[0], 2), []);
    let mut fake = Fake { invalid: vec![vec![0]], ..Fake::default() };
    assert_eq!(run(&plan[..3], &[0], FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(fake.trials(), ["0 again 2", "0 again 1"]);

    let rules = Rules { blocks: 2, until_precise: true, ..FIXED };
    let mut fake = Fake { precise_after: Some(3), ..Fake::default() };
    assert_eq!(run(&plan, &[0], rules, &done, &mut fake), Ok(Ended::Precise));
    assert_eq!(fake.trials(), ["0 again 2", "0"]);

    // Where nothing follows, there is no burn-in.
    let mut fake = Fake { precise_after: Some(0), ..Fake::default() };
    assert_eq!(run(&plan, &[0], rules, &done, &mut fake), Ok(Ended::Precise));
    assert!(fake.trials().is_empty());
}

#[test]
fn a_further_block_that_was_begun_is_finished() {
    let rules = Rules { blocks: 1, until_precise: true, ..FIXED };
    let plan = plan(2, 4, 1);
    let begun = plan[2].cell;
    let done = complete(&[(1, 0, 0), (1, 1, 0), (2, begun, 0)]);
    let mut fake = Fake { precise_after: Some(2), ..Fake::default() };
    assert_eq!(run(&plan, &[0, 0], rules, &done, &mut fake), Ok(Ended::Precise));
    assert_eq!(fake.trials(), [begun, 1 - begun].map(|cell| format!("{cell} again 1")));
}

proptest! {
    /// Wherever a run is cut, going on measures just what has no pair, and later blocks in the planned order.
    #[test]
    fn a_resumed_run_measures_exactly_what_has_no_pair(
        cells in 1usize..5, blocks in 1u32..6, seed: u64, cut in 0usize..25,
    ) {
        let plan = plan(cells, blocks, seed);
        let cut = cut.min(plan.len());
        let done = plan[..cut].iter().map(|p| ((p.block, p.cell, 0), true));
        let done = StoredAttempts(done.collect());
        let mut fake = Fake::default();
        let baselines = vec![0; cells];
        run(&plan, &baselines, FIXED, &done, &mut fake).unwrap();
        let ran = cut % cells;
        let (begun, later) = plan[cut - ran..].split_at(if ran > 0 { cells } else { 0 });
        // Where the baseline ran, what ran is paired, and the rest has the baseline beside it.
        let has_pairs = begun[..ran].iter().any(|p| p.cell == 0);
        let stays = |(at, p): (usize, &Planned)| has_pairs && at < ran && p.cell != 0;
        let again = begun.iter().enumerate().filter(|(at, p)| !stays((*at, *p)));
        let mut again: Vec<String> = again.map(|(_, p)| format!("{} again 1", p.cell)).collect();
        prop_assert_eq!(
            remaining(&done, &plan, &baselines, blocks).len(), again.len() + later.len()
        );
        let trials = fake.trials();
        let (first, rest) = trials.split_at(again.len());
        let mut first = first.to_vec();
        // A part of a block is in an order of its own.
        if again.len() < cells {
            again.sort();
            first.sort_unstable();
        }
        prop_assert_eq!(first, again);
        let later: Vec<String> = later.iter().map(|p| p.cell.to_string()).collect();
        prop_assert_eq!(rest.to_vec(), later);
    }
}
