#[path = "resume_tests.rs"]
mod resuming;

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use super::*;
use crate::experiment::plan::{burn_in, plan};
use pgio_results::model::{Outcome, Trial};

const ONCE: [&str; 5] = ["reset 0", "apply 0", "trial 0", "store", "undo 0"];
const FIXED: Rules = Rules { blocks: 6, repeats: 2, until_precise: false, seed: 1 };

/// Logs every call.
#[derive(Default)]
struct Fake {
    log: Vec<String>,
    /// Outcomes of the next trials; complete when empty.
    outcomes: Vec<Outcome>,
    /// Invalid cells for each check of a block.
    invalid: Vec<Vec<usize>>,
    /// The last attempt of each cell in the block.
    attempts: BTreeMap<usize, u32>,
    /// Invalid trials stay invalid.
    found: Vec<Invalid>,
    /// Whether the trials of an earlier run, all of attempt 2, are invalid.
    earlier_invalid: bool,
    /// Blocks after which the intervals are narrow enough.
    precise_after: Option<u32>,
    no_reset: bool,
    refuse: bool,
    /// While a condition is put in force.
    stopped: bool,
    full: bool,
    /// While a trial runs.
    panics: bool,
    no_undo: bool,
    stop_after: Option<usize>,
    block: u32,
    weaves: bool,
    /// The cell that fails in the first woven window.
    failing: Option<usize>,
}

impl Runner for Fake {
    type Error = String;

    fn reset(&mut self, p: &Planned) -> Result<(), String> {
        self.log.push(format!("reset {}", p.cell));
        if self.no_reset { Err("no reset".to_owned()) } else { Ok(()) }
    }

    fn put_in_force(&mut self, p: &Planned) -> Result<(), String> {
        self.log.push(format!("apply {}", p.cell));
        match (self.stopped, self.refuse) {
            (true, _) => Err("stopped".to_owned()),
            (_, true) => Err("refused".to_owned()),
            _ => Ok(()),
        }
    }

    fn run_trial(&mut self, p: &Planned) -> Trial {
        if self.block != p.block {
            self.attempts.clear();
            self.found.clear();
        }
        self.block = p.block;
        self.attempts.insert(p.cell, p.attempt);
        let again = if p.attempt > 0 { format!(" again {}", p.attempt) } else { String::new() };
        self.log.push(format!("trial {}{again}", p.cell));
        assert!(!self.panics, "a panic in a trial");
        let outcome =
            if self.outcomes.is_empty() { Outcome::Complete } else { self.outcomes.remove(0) };
        Trial { outcome, ..Trial::new() }
    }

    fn weaves(&self) -> bool {
        self.weaves
    }

    fn weave(&mut self, shared: &[Planned]) -> Result<Vec<Trial>, String> {
        let outcome = self.outcomes.pop().unwrap_or(Outcome::Complete);
        let failing = self.failing.take();
        let mut sorted: Vec<String> = shared.iter().map(|p| p.cell.to_string()).collect();
        sorted.sort();
        self.block = shared[0].block;
        self.attempts.extend(shared.iter().map(|p| (p.cell, p.attempt)));
        self.log.push(format!("weave {} attempt {}", sorted.join(" "), shared[0].attempt));
        let outcome_of = |planned: &Planned| match failing {
            Some(cell) if cell == planned.cell => Outcome::Failed { error: "gone".to_owned() },
            _ => outcome.clone(),
        };
        Ok(shared.iter().map(|p| Trial { outcome: outcome_of(p), ..Trial::new() }).collect())
    }

    fn store(&mut self, _: &Trial) -> Result<(), String> {
        self.log.push("store".to_owned());
        if self.full { Err("disk full".to_owned()) } else { Ok(()) }
    }

    fn undo(&mut self, p: &Planned) -> Result<(), String> {
        self.log.push(format!("undo {}", p.cell));
        if self.no_undo { Err("no undo".to_owned()) } else { Ok(()) }
    }

    fn stop_requested(&self) -> bool {
        self.stop_after.is_some_and(|n| self.log.len() >= n)
    }

    fn is_stop(error: &String) -> bool {
        error == "stopped"
    }

    fn invalid_trials(&mut self, block: u32) -> Vec<Invalid> {
        if self.earlier_invalid && block != self.block {
            let why = || "noise".to_owned();
            let one = |cell| Invalid { cell, attempt: 2, why: why(), checks: vec![why()] };
            return [0, 1].map(one).into();
        }
        let cells = if self.invalid.is_empty() { Vec::new() } else { self.invalid.remove(0) };
        for cell in cells {
            let attempt = self.attempts.get(&cell).copied().unwrap_or(0);
            let why = "noise".to_owned();
            let checks = vec!["steal".to_owned()];
            self.found.push(Invalid { cell, attempt, why, checks });
        }
        self.found.clone()
    }

    fn is_precise(&mut self, _: bool) -> bool {
        self.precise_after.is_some_and(|blocks| self.block >= blocks)
    }

    fn report_decision(&mut self, decision: Decision<'_>) {
        self.log.push(match decision {
            Decision::Repeats { planned, why, .. } => format!("repeat {}: {why}", planned.cell),
            Decision::RepeatsBaseline { planned } => format!("beside {}", planned.cell),
            Decision::Excludes { planned, .. } => format!("give up {}", planned.cell),
            Decision::FurtherBlock { block, .. } => format!("block {block}"),
        });
    }
}

impl Fake {
    fn run(&mut self, cells: usize, blocks: u32, rules: Rules) -> Result<Ended, String> {
        // The first is the baseline of all.
        run(&plan(cells, blocks, 1), &vec![0; cells], rules, &StoredAttempts::default(), self)
    }

    fn trials(&self) -> Vec<&str> {
        self.log.iter().filter_map(|l| l.strip_prefix("trial ")).collect()
    }
}

#[test]
fn each_trial_is_stored_and_undone_before_the_next() {
    let mut fake = Fake::default();
    assert_eq!(fake.run(1, 2, FIXED), Ok(Ended::Complete));
    assert_eq!(fake.log, [ONCE, ONCE].concat());
}

#[test]
fn a_condition_that_could_not_be_applied_is_still_undone() {
    let mut fake = Fake { refuse: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("refused".to_owned()));
    assert_eq!(fake.log, ["reset 0", "apply 0", "undo 0"]);
}

#[test]
fn a_stop_while_a_condition_is_applied_undoes_it_without_an_error() {
    let mut fake = Fake { stopped: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.log, ["reset 0", "apply 0", "undo 0"]);
}

#[test]
fn nothing_is_applied_if_the_reset_fails() {
    let mut fake = Fake { no_reset: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("no reset".to_owned()));
    assert_eq!(fake.log, ["reset 0", "undo 0"]);
}

#[test]
fn a_full_disk_ends_the_run_after_the_undo() {
    let mut fake = Fake { full: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("disk full".to_owned()));
    assert_eq!(fake.log.last().map(String::as_str), Some("undo 0"));
}

#[test]
fn a_condition_is_undone_once_after_a_panic() {
    let mut fake = Fake { panics: true, ..Fake::default() };
    let unwound = panic::catch_unwind(AssertUnwindSafe(|| fake.run(1, 2, FIXED)));
    assert!(unwound.is_err());
    assert_eq!(fake.log, ["reset 0", "apply 0", "trial 0", "undo 0"]);
}

#[test]
fn a_failed_undo_is_reported_even_after_a_stop() {
    for stopped in [false, true] {
        let mut fake = Fake { stopped, no_undo: true, ..Fake::default() };
        assert_eq!(fake.run(1, 3, FIXED), Err("no undo".to_owned()));
    }
}

#[test]
fn no_trial_begins_after_a_stop() {
    let mut fake = Fake { stop_after: Some(5), ..Fake::default() };
    assert_eq!(fake.run(1, 5, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.log.len(), 5);
}

#[test]
fn a_stop_while_the_data_is_reset_ends_it_before_anything_is_applied() {
    let mut fake = Fake { stop_after: Some(1), no_reset: true, ..Fake::default() };
    assert_eq!(fake.run(1, 5, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.log, ["reset 0"]);
}

#[test]
fn an_interrupted_trial_is_kept_and_is_the_last() {
    let mut fake = Fake { outcomes: vec![Outcome::Interrupted], ..Fake::default() };
    assert_eq!(fake.run(1, 5, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.log, ONCE);
}

#[test]
fn three_failures_in_a_row_are_enough() {
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let outcomes = vec![failed(), failed(), Outcome::Complete, failed(), failed(), failed()];
    let mut fake = Fake { outcomes, ..Fake::default() };
    assert_eq!(fake.run(1, 9, FIXED), Ok(Ended::Failing("gone".to_owned())));
    assert_eq!(fake.trials().len(), 6);
}

/// Cells and attempts after the planned trials of the first block, each round in the order of its cells.
fn repairs(fake: &Fake, planned: usize) -> Vec<String> {
    let mut rounds: Vec<String> =
        fake.trials()[planned..].iter().map(|t| (*t).to_owned()).collect();
    rounds.sort_by_key(|t| t.split(" again ").nth(1).map(str::to_owned));
    rounds
        .chunk_by_mut(|a, b| a.split(" again ").nth(1) == b.split(" again ").nth(1))
        .for_each(<[_]>::sort);
    rounds
}

#[test]
fn a_repeat_measures_the_baseline_again_beside_it() {
    let mut fake = Fake { invalid: vec![vec![2], vec![2]], ..Fake::default() };
    assert_eq!(fake.run(3, 1, FIXED), Ok(Ended::Complete));
    let expected = ["0 again 1", "2 again 1", "0 again 2", "2 again 2"];
    assert_eq!(repairs(&fake, 3), expected);
    let decided = fake.log.iter().position(|l| l == "repeat 2: noise").unwrap();
    let first = fake.log.iter().position(|l| l.contains("again")).unwrap();
    assert!(decided < first, "decided before it happens: {:?}", fake.log);
    assert_eq!(fake.log.iter().filter(|l| *l == "beside 0").count(), 2);
}

#[test]
fn an_invalid_baseline_repeats_its_block_and_a_repaired_one_its_pairs() {
    let mut fake = Fake { invalid: vec![vec![0], vec![1]], ..Fake::default() };
    assert_eq!(fake.run(3, 1, FIXED), Ok(Ended::Complete));
    // In the second round the pair of the third cell stands.
    let all = ["0 again 1", "1 again 1", "2 again 1", "0 again 2", "1 again 2"];
    assert_eq!(repairs(&fake, 3), all);
}

#[test]
fn the_order_of_a_repair_is_random_and_its_position_goes_on() {
    let baseline_first = |seed| {
        let mut fake = Fake { invalid: vec![vec![1]], ..Fake::default() };
        let rules = Rules { seed, ..FIXED };
        run(&plan(2, 1, seed), &[0, 0], rules, &StoredAttempts::default(), &mut fake).unwrap();
        fake.trials()[2] == "0 again 1"
    };
    let first = (0..40).filter(|seed| baseline_first(*seed)).count();
    assert!((8..=32).contains(&first), "{first} of 40");
}

#[test]
fn each_point_is_repaired_with_the_baseline_there() {
    let mut fake = Fake { invalid: vec![vec![3]], ..Fake::default() };
    run(&plan(4, 1, 1), &[0, 0, 2, 2], FIXED, &StoredAttempts::default(), &mut fake).unwrap();
    assert_eq!(repairs(&fake, 4), ["2 again 1", "3 again 1"]);
}

#[test]
fn a_trial_that_failed_is_an_outcome_and_is_not_repeated() {
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let order: Vec<usize> = plan(2, 1, 1).iter().map(|p| p.cell).collect();
    let outcome = |cell: &usize| if *cell == 1 { failed() } else { Outcome::Complete };
    let outcomes: Vec<Outcome> = order.iter().map(outcome).collect();
    let mut fake = Fake { outcomes, ..Fake::default() };
    assert_eq!(fake.run(2, 1, FIXED), Ok(Ended::Complete));
    assert_eq!(fake.trials().len(), 2);
}

#[test]
fn a_trial_that_stays_invalid_is_given_up_once() {
    let always = || vec![vec![0]; 9];
    let mut fake = Fake { invalid: always(), ..Fake::default() };
    assert_eq!(fake.run(1, 1, FIXED), Ok(Ended::Complete));
    assert_eq!(fake.trials(), ["0", "0 again 1", "0 again 2"]);
    assert_eq!(fake.log.iter().filter(|l| *l == "give up 0").count(), 1);

    let mut fake = Fake { invalid: always(), ..Fake::default() };
    fake.run(1, 1, Rules { repeats: 0, ..FIXED }).unwrap();
    assert_eq!(fake.trials(), ["0"]);
}

#[test]
fn a_stop_ends_the_repeats_of_invalid_trials() {
    let mut fake = Fake { invalid: vec![vec![0]; 9], stop_after: Some(6), ..Fake::default() };
    assert_eq!(fake.run(1, 1, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.trials(), ["0"]);
}

#[test]
fn blocks_go_on_until_the_intervals_are_narrow_or_the_limit_is_reached() {
    let rules = Rules { blocks: 2, until_precise: true, ..FIXED };
    for (precise_after, ended, trials) in [
        (Some(1), Ended::Precise, 2),
        (Some(2), Ended::Precise, 2),
        (Some(4), Ended::Precise, 4),
        (Some(5), Ended::Precise, 5),
        (None, Ended::BlockLimit, 5),
    ] {
        let mut fake = Fake { precise_after, ..Fake::default() };
        assert_eq!(fake.run(1, 5, rules), Ok(ended), "{precise_after:?}");
        assert_eq!(fake.trials().len(), trials, "{precise_after:?}");
        let further = fake.log.iter().filter(|l| l.starts_with("block ")).count();
        assert_eq!(further, trials - 2);
    }
}

/// One block of two cells after the burn-in of the second.
fn with_burn_in() -> Vec<Planned> {
    [vec![burn_in(1)], plan(2, 1, 1)].concat()
}

#[test]
fn a_burn_in_trial_comes_first_and_is_never_judged_or_repeated() {
    let mut fake = Fake::default();
    let plan = with_burn_in();
    assert_eq!(remaining(&StoredAttempts::default(), &plan, &[1, 1], 1).len(), 3);
    assert_eq!(
        run(&plan, &[1, 1], FIXED, &StoredAttempts::default(), &mut fake),
        Ok(Ended::Complete)
    );
    let order: Vec<String> = plan.iter().map(|p| p.cell.to_string()).collect();
    assert_eq!(fake.trials(), order);
    assert_eq!(fake.trials()[0], "1");

    // Only block 1 is reported as invalid.
    let mut fake = Fake { invalid: vec![vec![0]], ..Fake::default() };
    run(&plan, &[1, 1], FIXED, &StoredAttempts::default(), &mut fake).unwrap();
    assert_eq!(fake.trials().len(), 5, "with the baseline beside it");

    // A failed one does not end it, and counts with those that follow at once.
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let mut fake = Fake { outcomes: vec![failed()], ..Fake::default() };
    assert_eq!(
        run(&plan, &[1, 1], FIXED, &StoredAttempts::default(), &mut fake),
        Ok(Ended::Complete)
    );
    let mut fake = Fake { outcomes: vec![failed(), failed(), failed()], ..Fake::default() };
    let ended = run(&plan, &[1, 1], FIXED, &StoredAttempts::default(), &mut fake);
    assert_eq!(ended, Ok(Ended::Failing("gone".to_owned())));
    let mut fake = Fake { outcomes: vec![Outcome::Interrupted], ..Fake::default() };
    assert_eq!(
        run(&plan, &[1, 1], FIXED, &StoredAttempts::default(), &mut fake),
        Ok(Ended::Interrupted)
    );
    assert_eq!(fake.trials().len(), 1);
}

#[test]
fn a_burn_in_trial_is_repeated_unless_it_is_complete_or_nothing_is_left() {
    let plan = with_burn_in();
    let done = |burn_in: Option<bool>, cells: usize| {
        let burn_in = burn_in.map(|complete| ((0, 1, 0), complete));
        let counted = (0..cells).map(|cell| ((1, cell, 0), true));
        StoredAttempts(burn_in.into_iter().chain(counted).collect())
    };
    for (earlier, cells, left, first) in [
        (Some(true), 1, 2, Some("1 again 1")),
        (Some(false), 1, 3, Some("1 again 1")),
        (None, 1, 3, Some("1")),
        (Some(false), 2, 0, None),
        (None, 2, 0, None),
    ] {
        let done = done(earlier, cells);
        assert_eq!(remaining(&done, &plan, &[1, 1], 1).len(), left);
        let mut fake = Fake::default();
        assert_eq!(run(&plan, &[1, 1], FIXED, &done, &mut fake), Ok(Ended::Complete));
        assert_eq!(fake.trials().len(), left);
        assert_eq!(fake.trials().first().copied(), first);
    }
}

/// Two cells, both always invalid.
fn hopeless() -> Fake {
    Fake { invalid: vec![vec![0, 1]; 99], ..Fake::default() }
}

fn none_valid(blocks: u32, trials: usize) -> Result<Ended, String> {
    let checks = BTreeMap::from([("steal".to_owned(), trials)]);
    Ok(Ended::NoneValid(NoneValid { blocks, trials, failed: 0, checks }))
}

#[test]
fn two_blocks_without_a_valid_trial_end_the_run_after_their_repeats() {
    let mut fake = hopeless();
    assert_eq!(fake.run(2, 6, FIXED), none_valid(2, 12));
    assert_eq!(fake.trials().len(), 2 * 2 * 3);
    let mut fake = hopeless();
    assert_eq!(fake.run(2, 6, Rules { repeats: 0, ..FIXED }), none_valid(2, 4));
    // With a precision, no further block is added.
    let rules = Rules { blocks: 2, until_precise: true, ..FIXED };
    let mut fake = hopeless();
    assert_eq!(fake.run(2, 6, rules), none_valid(2, 12));
    assert!(!fake.log.iter().any(|l| l.starts_with("block ")));
}

#[test]
fn a_planned_run_of_two_blocks_completes_without_valid_trials() {
    assert_eq!(hopeless().run(2, 2, Rules { blocks: 2, ..FIXED }), Ok(Ended::Complete));
}

#[test]
fn one_valid_trial_keeps_the_run_going() {
    let mut fake = Fake { invalid: vec![vec![1]; 99], ..Fake::default() };
    assert_eq!(fake.run(2, 6, FIXED), Ok(Ended::Complete));
    // Valid in the last repeat of the second block alone.
    let mut checks = vec![vec![0, 1]; 99];
    checks[5] = vec![1];
    let mut fake = Fake { invalid: checks, ..Fake::default() };
    assert_eq!(fake.run(2, 6, FIXED), Ok(Ended::Complete));
}

#[test]
fn a_continued_run_has_two_blocks_of_its_own_and_keeps_what_was_valid() {
    let plan = plan(2, 6, 1);
    let valid = |blocks: u32| {
        let both = (1..=blocks).flat_map(|block| [((block, 0, 2), true), ((block, 1, 2), true)]);
        StoredAttempts(both.collect())
    };
    let rules = Rules { repeats: 0, ..FIXED };
    let go_on = |done: &StoredAttempts, fake: &mut Fake| run(&plan, &[0, 0], rules, done, fake);
    let mut fake = Fake { earlier_invalid: true, ..hopeless() };
    assert_eq!(go_on(&valid(2), &mut fake), none_valid(2, 4));
    let mut fake = hopeless();
    assert_eq!(go_on(&valid(2), &mut fake), Ok(Ended::Complete));
    assert_eq!(fake.trials().len(), 4 * 2);
}

#[test]
fn failed_trials_alone_end_the_run_after_three_in_a_row() {
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let mut fake = Fake { outcomes: vec![failed(), failed(), failed()], ..Fake::default() };
    assert_eq!(fake.run(1, 6, FIXED), Ok(Ended::Failing("gone".to_owned())));
    // Beside invalid trials they are counted.
    let outcomes = vec![failed(), Outcome::Complete, failed(), Outcome::Complete];
    let mut fake = Fake { outcomes, invalid: vec![vec![0]; 9], ..Fake::default() };
    let rules = Rules { repeats: 0, ..FIXED };
    let alone = [0; 2];
    let plan: Vec<Planned> = (1..=6)
        .flat_map(|block| [1, 0].map(|cell| Planned { block, position: 1, cell, attempt: 0 }))
        .collect();
    let ended = run(&plan, &alone, rules, &StoredAttempts::default(), &mut fake);
    let checks = BTreeMap::from([("steal".to_owned(), 2)]);
    let expected = NoneValid { blocks: 2, trials: 4, failed: 2, checks };
    assert_eq!(ended, Ok(Ended::NoneValid(expected)));
}

#[test]
fn a_woven_block_is_one_window_and_every_trial_is_stored() {
    let mut fake = Fake { weaves: true, ..Fake::default() };
    assert_eq!(fake.run(3, 2, FIXED), Ok(Ended::Complete));
    let stored = fake.log.iter().filter(|l| *l == "store").count();
    let woven = fake.log.iter().filter(|l| *l == "weave 0 1 2 attempt 0").count();
    assert_eq!((woven, stored), (2, 6), "{:?}", fake.log);
}

#[test]
fn each_baseline_is_woven_with_its_own_conditions() {
    let mut fake = Fake { weaves: true, ..Fake::default() };
    run(&plan(4, 1, 1), &[0, 0, 2, 2], FIXED, &StoredAttempts::default(), &mut fake).unwrap();
    let woven: Vec<&String> = fake.log.iter().filter(|l| l.starts_with("weave")).collect();
    assert_eq!(woven, ["weave 0 1 attempt 0", "weave 2 3 attempt 0"]);
}

/// In a fixed order, a machine that becomes slower within a block would slow the same points each time.
#[test]
fn the_points_of_a_woven_sweep_are_in_the_order_that_was_drawn() {
    let planned = plan(4, 8, 1);
    let mut fake = Fake { weaves: true, ..Fake::default() };
    let rules = Rules { blocks: 8, ..FIXED };
    run(&planned, &[0, 0, 2, 2], rules, &StoredAttempts::default(), &mut fake).unwrap();
    let woven: Vec<&str> = fake
        .log
        .iter()
        .filter_map(|l| l.strip_prefix("weave ")?.strip_suffix(" attempt 0"))
        .collect();
    let drawn = |block: &[Planned]| {
        if block[0].cell < 2 { ["0 1", "2 3"] } else { ["2 3", "0 1"] }
    };
    let expected: Vec<&str> = planned.chunks(4).flat_map(drawn).collect();
    assert_eq!(woven, expected);
    for order in [["0 1", "2 3"], ["2 3", "0 1"]] {
        assert!(woven.chunks(2).any(|windows| *windows == order), "{order:?} in {woven:?}");
    }
}

#[test]
fn a_repair_of_a_woven_block_weaves_the_broken_pair() {
    let mut fake = Fake { weaves: true, invalid: vec![vec![2]], ..Fake::default() };
    fake.run(3, 1, FIXED).unwrap();
    let woven: Vec<&String> = fake.log.iter().filter(|l| l.starts_with("weave")).collect();
    assert_eq!(woven, ["weave 0 1 2 attempt 0", "weave 0 2 attempt 1"]);
}

#[test]
fn a_woven_block_that_fails_is_stored_and_counts_as_one_failure() {
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let outcomes = vec![failed(), failed(), failed()];
    let mut fake = Fake { weaves: true, outcomes, ..Fake::default() };
    assert_eq!(fake.run(2, 9, FIXED), Ok(Ended::Failing("gone".to_owned())));
    assert_eq!(fake.log.iter().filter(|l| *l == "store").count(), 6);
}

/// The others are invalid, since their window ended early, and are measured again without it.
#[test]
fn a_condition_that_fails_in_a_woven_block_is_not_repeated_with_the_others() {
    let invalid = vec![vec![0, 2]];
    let mut fake = Fake { weaves: true, failing: Some(1), invalid, ..Fake::default() };
    assert_eq!(fake.run(3, 1, FIXED), Ok(Ended::Complete));
    let woven: Vec<&String> = fake.log.iter().filter(|l| l.starts_with("weave")).collect();
    assert_eq!(woven, ["weave 0 1 2 attempt 0", "weave 0 2 attempt 1"]);
}
