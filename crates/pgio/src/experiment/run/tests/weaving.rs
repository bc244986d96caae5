use super::*;

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
