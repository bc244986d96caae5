//! A run without any valid trial ends after two blocks; any other runs to its end.

use super::*;

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
    let of = |blocks: u32| {
        let both = (1..=blocks).flat_map(|block| [((block, 0, 2), true), ((block, 1, 2), true)]);
        StoredAttempts(both.collect())
    };
    let rules = Rules { repeats: 0, ..FIXED };
    let go_on = |done: &StoredAttempts, fake: &mut Fake| run(&plan, &[0, 0], rules, done, fake);
    let mut fake = Fake { earlier_invalid: true, ..hopeless() };
    assert_eq!(go_on(&of(2), &mut fake), none_valid(2, 4));
    let mut fake = hopeless();
    assert_eq!(go_on(&of(2), &mut fake), Ok(Ended::Complete));
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
