use super::*;
use crate::experiment::plan::{burn_in, plan};
use crate::experiment::trial::blank;
use proptest::prelude::*;

const ONCE: [&str; 5] = ["reset 0", "apply 0", "trial 0", "store", "undo 0"];
const FIXED: Rules = Rules { blocks: 6, repeats: 2, until_precise: false };

/// Logs what is asked of it.
#[derive(Default)]
struct Fake {
    log: Vec<String>,
    /// Of the next trials; complete when none is left.
    outcomes: Vec<Outcome>,
    /// For each time that a block is looked at: the cells that are invalid in it.
    invalid: Vec<Vec<usize>>,
    /// Blocks after which the intervals are narrow.
    precise_after: Option<u32>,
    no_reset: bool,
    refuse: bool,
    /// While a condition is put in force.
    stopped: bool,
    full: bool,
    stop_after: Option<usize>,
    block: u32,
}

impl Stage for Fake {
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

    fn trial(&mut self, p: &Planned) -> Trial {
        self.block = p.block;
        let again = if p.attempt > 0 { format!(" again {}", p.attempt) } else { String::new() };
        self.log.push(format!("trial {}{again}", p.cell));
        let outcome =
            if self.outcomes.is_empty() { Outcome::Complete } else { self.outcomes.remove(0) };
        Trial { outcome, ..blank() }
    }

    fn store(&mut self, _: &Trial) -> Result<(), String> {
        self.log.push("store".to_owned());
        if self.full { Err("disk full".to_owned()) } else { Ok(()) }
    }

    fn take_back(&mut self, p: &Planned) -> Result<(), String> {
        self.log.push(format!("undo {}", p.cell));
        Ok(())
    }

    fn stop_requested(&self) -> bool {
        self.stop_after.is_some_and(|n| self.log.len() >= n)
    }

    fn is_stop(error: &String) -> bool {
        error == "stopped"
    }

    fn invalid(&mut self, _: u32) -> Vec<Invalid> {
        let cells = if self.invalid.is_empty() { Vec::new() } else { self.invalid.remove(0) };
        let why = || "noise".to_owned();
        cells.into_iter().map(|cell| Invalid { cell, why: why(), checks: Vec::new() }).collect()
    }

    fn is_precise(&mut self) -> bool {
        self.precise_after.is_some_and(|blocks| self.block >= blocks)
    }

    fn tell(&mut self, news: News<'_>) {
        self.log.push(match news {
            News::Repeats { planned, why, .. } => format!("repeat {}: {why}", planned.cell),
            News::GivesUp { planned, .. } => format!("give up {}", planned.cell),
            News::FurtherBlock { block, .. } => format!("block {block}"),
        });
    }
}

impl Fake {
    fn run(&mut self, cells: usize, blocks: u32, rules: Rules) -> Result<Ended, String> {
        run(&plan(cells, blocks, 1), rules, &Done::default(), self)
    }

    fn trials(&self) -> Vec<&str> {
        self.log.iter().filter_map(|l| l.strip_prefix("trial ")).collect()
    }
}

#[test]
fn each_trial_is_stored_and_taken_back_before_the_next() {
    let mut fake = Fake::default();
    assert_eq!(fake.run(1, 2, FIXED), Ok(Ended::Complete));
    assert_eq!(fake.log, [ONCE, ONCE].concat());
}

#[test]
fn what_could_not_be_applied_is_still_taken_back() {
    let mut fake = Fake { refuse: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("refused".to_owned()));
    assert_eq!(fake.log, ["reset 0", "apply 0", "undo 0"]);
}

#[test]
fn a_stop_while_a_condition_is_put_in_force_is_no_error_and_takes_it_back() {
    let mut fake = Fake { stopped: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Ok(Ended::Interrupted));
    assert_eq!(fake.log, ["reset 0", "apply 0", "undo 0"]);
}

#[test]
fn nothing_is_applied_on_data_that_could_not_be_reset() {
    let mut fake = Fake { no_reset: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("no reset".to_owned()));
    assert_eq!(fake.log, ["reset 0", "undo 0"]);
}

#[test]
fn a_full_disk_ends_the_run_after_taking_back() {
    let mut fake = Fake { full: true, ..Fake::default() };
    assert_eq!(fake.run(1, 2, FIXED), Err("disk full".to_owned()));
    assert_eq!(fake.log.last().map(String::as_str), Some("undo 0"));
}

#[test]
fn a_stop_between_trials_begins_no_more() {
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

#[test]
fn invalid_trials_are_repeated_at_the_end_of_their_block() {
    // Both cells at first, then one; nothing in the second block.
    let mut fake = Fake { invalid: vec![vec![0, 1], vec![1]], ..Fake::default() };
    assert_eq!(fake.run(2, 2, FIXED), Ok(Ended::Complete));
    let order: Vec<usize> = plan(2, 2, 1).iter().map(|p| p.cell).collect();
    let [a, b, c, d] = order[..] else { panic!("two blocks of two") };
    let expected = [
        format!("{a}"),
        format!("{b}"),
        format!("{a} again 1"),
        format!("{b} again 1"),
        "1 again 2".to_owned(),
        format!("{c}"),
        format!("{d}"),
    ];
    assert_eq!(fake.trials(), expected);
    let told = fake.log.iter().position(|l| l == "repeat 1: noise").unwrap();
    let first = fake.log.iter().position(|l| l.contains("again")).unwrap();
    assert!(told < first, "told before it happens: {:?}", fake.log);
}

#[test]
fn what_stays_invalid_is_given_up_once() {
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
fn a_stop_ends_the_repeating_too() {
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
        let told = fake.log.iter().filter(|l| l.starts_with("block ")).count();
        assert_eq!(told, trials - 2);
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
    assert_eq!(Done::default().left(&plan, 1).len(), 3);
    assert_eq!(run(&plan, FIXED, &Done::default(), &mut fake), Ok(Ended::Complete));
    let order: Vec<String> = plan.iter().map(|p| p.cell.to_string()).collect();
    assert_eq!(fake.trials(), order);
    assert_eq!(fake.trials()[0], "1");

    // What is invalid is said of block 1 alone.
    let mut fake = Fake { invalid: vec![vec![0]], ..Fake::default() };
    run(&plan, FIXED, &Done::default(), &mut fake).unwrap();
    assert_eq!(fake.trials().len(), 4);

    // A failed one does not end it, and counts with those that follow at once.
    let failed = || Outcome::Failed { error: "gone".to_owned() };
    let mut fake = Fake { outcomes: vec![failed()], ..Fake::default() };
    assert_eq!(run(&plan, FIXED, &Done::default(), &mut fake), Ok(Ended::Complete));
    let mut fake = Fake { outcomes: vec![failed(), failed(), failed()], ..Fake::default() };
    let ended = run(&plan, FIXED, &Done::default(), &mut fake);
    assert_eq!(ended, Ok(Ended::Failing("gone".to_owned())));
    let mut fake = Fake { outcomes: vec![Outcome::Interrupted], ..Fake::default() };
    assert_eq!(run(&plan, FIXED, &Done::default(), &mut fake), Ok(Ended::Interrupted));
    assert_eq!(fake.trials().len(), 1);
}

#[test]
fn a_burn_in_trial_is_repeated_unless_it_is_complete_or_nothing_is_left() {
    let plan = with_burn_in();
    let done = |burn_in: Option<Last>, cells: usize| {
        let burn_in = burn_in.map(|last| ((0, 1), last));
        let counted = (0..cells).map(|cell| ((1, cell), last(0, true)));
        Done(burn_in.into_iter().chain(counted).collect())
    };
    for (earlier, cells, left, first) in [
        (Some(last(0, true)), 1, 1, Some("1")),
        (Some(last(0, false)), 1, 2, Some("1 again 1")),
        (None, 1, 2, Some("1")),
        (Some(last(0, false)), 2, 0, None),
        (None, 2, 0, None),
    ] {
        let done = done(earlier, cells);
        assert_eq!(done.left(&plan, 1).len(), left);
        let mut fake = Fake::default();
        assert_eq!(run(&plan, FIXED, &done, &mut fake), Ok(Ended::Complete));
        assert_eq!(fake.trials().len(), left);
        assert_eq!(fake.trials().first().copied(), first);
    }
}

fn last(attempt: u32, complete: bool) -> Last {
    Last { attempt, complete }
}

#[test]
fn what_is_complete_is_not_repeated_after_an_interruption() {
    let plan = plan(2, 3, 1);
    // The first block as it should be but for a failure, the second cut short.
    let (a, b) = (plan[2].cell, plan[3].cell);
    let done = Done(BTreeMap::from([
        ((1, 0), last(0, true)),
        ((1, 1), last(1, false)),
        ((2, a), last(0, true)),
    ]));
    assert_eq!(done.left(&plan, 3).len(), 4);
    let mut fake = Fake::default();
    assert_eq!(run(&plan, FIXED, &done, &mut fake), Ok(Ended::Complete));
    let third = [plan[4].cell.to_string(), plan[5].cell.to_string()];
    let expected = ["1 again 2".to_owned(), b.to_string()].into_iter().chain(third);
    assert_eq!(fake.trials(), expected.collect::<Vec<_>>());
}

#[test]
fn the_last_block_is_looked_at_again() {
    let plan = plan(1, 2, 1);
    let done = Done(BTreeMap::from([((1, 0), last(0, true)), ((2, 0), last(0, true))]));
    assert_eq!(done.left(&plan, 2), []);
    // The run was stopped before it could repeat what was invalid in it.
    let mut fake = Fake { invalid: vec![vec![0]], ..Fake::default() };
    assert_eq!(run(&plan, FIXED, &done, &mut fake), Ok(Ended::Complete));
    assert_eq!(fake.trials(), ["0 again 1"]);
}

#[test]
fn a_further_block_that_was_begun_is_finished() {
    let rules = Rules { blocks: 1, until_precise: true, ..FIXED };
    let plan = plan(2, 4, 1);
    let begun = plan[2].cell;
    let all = [((1, 0), last(0, true)), ((1, 1), last(0, true)), ((2, begun), last(0, true))];
    let mut fake = Fake { precise_after: Some(2), ..Fake::default() };
    assert_eq!(run(&plan, rules, &Done(BTreeMap::from(all)), &mut fake), Ok(Ended::Precise));
    assert_eq!(fake.trials(), [(1 - begun).to_string()]);
}

proptest! {
    /// Wherever a run is cut, going on measures just what is missing, in the same order.
    #[test]
    fn an_experiment_in_two_parts_is_the_same_experiment(
        cells in 1usize..5, blocks in 1u32..6, seed: u64, cut in 0usize..25,
    ) {
        let plan = plan(cells, blocks, seed);
        let cut = cut.min(plan.len());
        let done = plan[..cut].iter().map(|p| ((p.block, p.cell), last(0, true)));
        let done = Done(done.collect());
        let mut fake = Fake::default();
        run(&plan, FIXED, &done, &mut fake).unwrap();
        let rest: Vec<String> = plan[cut..].iter().map(|p| p.cell.to_string()).collect();
        prop_assert_eq!(fake.trials(), rest);
        prop_assert_eq!(done.left(&plan, blocks).len(), plan.len() - cut);
    }
}
