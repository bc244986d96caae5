//! Whole experiments without a server: what is repeated, when a run ends, and what an interrupted one continues.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::BlockLimits;
use super::error::{ResumeError, RunError};
use super::job::Job;
use super::resume;
use super::scripted::{Measured, Scripted, experiment};
use crate::pg::words::sentence;
use benchmath::rng::SplitMix64;
use pgio_report::directories::{self, LoadedReport};
use pgio_report::report;
use pgio_results::BURN_IN_BLOCK;
use pgio_results::factors::DesignCell;
use pgio_results::model::{CheckVerdict, Outcome, Trial, TrialPosition};
use pgio_results::store;

const KEYS: &str = "blocks = 3\naa = false\nburn_in = false\nseed = 11";
const CONDITIONS: [(&str, &str); 2] = [("lazy", "synchronous_commit = 'off'"), ("as it is", "")];

fn steady(_: &TrialPosition, _: usize) -> Measured {
    Measured::Value(1000.0)
}

fn place(trial: &Trial) -> &TrialPosition {
    trial.place.as_ref().unwrap()
}

/// Condition at its point.
fn cell(place: &TrialPosition) -> String {
    format!("{} {:?}", place.condition, place.point)
}

/// Blocks and cells of the complete trials.
fn measured(run: &Scripted) -> BTreeSet<(u32, String)> {
    let trials = run.stored().trials;
    let complete = trials.iter().filter(|t| t.outcome == Outcome::Complete).map(place);
    complete.map(|place| (place.block, cell(place))).collect()
}

/// Seeds of the complete first attempts.
fn seeds(run: &Scripted) -> BTreeMap<(u32, String), u64> {
    let trials = run.stored().trials;
    let complete = trials.iter().filter(|t| t.outcome == Outcome::Complete);
    let first = complete.filter(|t| place(t).attempt == 0);
    first.map(|t| ((place(t).block, cell(place(t))), t.seed)).collect()
}

fn order(run: &Scripted) -> Vec<String> {
    run.stored().trials.iter().map(|t| cell(place(t))).collect()
}

/// The last attempt of each condition has its baseline's of the same number: the interruption is between no two trials of
/// a pair.
fn assert_paired(run: &Scripted) {
    let stored = run.stored();
    let complete: Vec<&TrialPosition> =
        stored.trials.iter().filter(|t| t.outcome == Outcome::Complete).map(place).collect();
    let counted = complete.iter().filter(|p| p.block != BURN_IN_BLOCK);
    for place in counted.filter(|p| p.condition != stored.manifest.baseline) {
        let same = |p: &&&TrialPosition| (p.block, cell(p)) == (place.block, cell(place));
        let last = complete.iter().filter(same).map(|p| p.attempt).max();
        let beside = complete.iter().any(|p| {
            p.condition == stored.manifest.baseline
                && (p.block, &p.point, Some(p.attempt)) == (place.block, &place.point, last)
        });
        assert!(beside, "{place:?}: {complete:?}");
    }
}

/// Cut between two trials, and inside each window, with a torn record at the end.
#[test]
#[cfg(feature = "sweep")]
fn a_run_continues_wherever_it_was_interrupted() {
    let plain = experiment(KEYS, "", &CONDITIONS);
    let with_burn_in = plain.replace("burn_in = false", "burn_in = true");
    let private = with_burn_in.replace("dsn = 'host=h dbname=d'", "private = true");
    let swept = experiment(
        &KEYS.replace("blocks = 3", "blocks = 2"),
        "sessions = [1, 2, 8]\nrows_per_transaction = [1, 5]\nmiddle = { sessions = 2 }",
        &CONDITIONS,
    );
    let cells = "[[factor]]\nname = 'jit'\nsetting = ['on', 'off']\n[[factor]]\nname = 'geqo'\nsetting = ['on', 'off']\n";
    let woven = experiment(
        "blocks = 2\nseed = 4\nburn_in = false\nweave = '100ms'\ndesign = 'one-at-a-time'",
        "",
        &[],
    ) + cells;
    for text in [&plain, &with_burn_in, &private, &swept, &woven] {
        let is_private = text.contains("private");
        let mut whole = Scripted::new();
        whole.compare(text, &mut steady).unwrap();
        let trials = whole.stored().trials.len();
        for (cut, in_window) in (1..=trials).flat_map(|n| [(n, true), (n, false)]) {
            if cut == trials && !in_window {
                continue;
            }
            let mut run = Scripted::new();
            run.stop_after = (!in_window).then_some(cut);
            let mut script = |_: &TrialPosition, number| {
                let cut_here = in_window && number == cut;
                if cut_here { Measured::Interrupted } else { Measured::Value(1000.0) }
            };
            let ended = run.compare(text, &mut script);
            if ended.is_ok() {
                // A window is not stopped between its trials.
                assert!(text.contains("weave") && !in_window, "{cut}");
                continue;
            }
            assert!(matches!(ended, Err(RunError::Interrupted)), "{ended:?}");
            let before = run.read("trials.jsonl");
            let torn = &before.lines().next().unwrap()[..500];
            let path = run.out().join("trials.jsonl");
            fs::write(&path, format!("{before}{torn}")).unwrap();
            run.stop_after = None;
            run.resume(Some(text), BlockLimits::default(), &mut steady).unwrap();

            let after = run.read("trials.jsonl");
            assert!(after.starts_with(&before), "nothing that was stored is lost");
            assert_eq!(run.read("torn-1.txt"), torn);
            assert_eq!(measured(&run), measured(&whole), "every condition in every block");
            assert_paired(&run);
            // Trials of the first attempt have the work of an uninterrupted run.
            let wanted = seeds(&whole);
            assert!(seeds(&run).iter().all(|(at, seed)| wanted.get(at) == Some(seed)));
            let stored = run.stored();
            for cut in stored.trials.iter().filter(|t| t.outcome == Outcome::Interrupted) {
                let again = |t: &&Trial| {
                    let (a, b) = (place(t), place(cut));
                    (a.block, cell(a), a.attempt) == (b.block, cell(b), 1)
                };
                assert!(stored.trials.iter().any(|t| again(&t)), "{cut:?}");
            }
            let burn_ins = stored.trials.iter().filter(|t| place(t).block == BURN_IN_BLOCK);
            let burn_ins = burn_ins.filter(|t| t.outcome == Outcome::Complete).count();
            let once = usize::from(text.contains("burn_in = true"));
            assert!(burn_ins == once || is_private && burn_ins <= 2, "{burn_ins}");
            let [resumed] = stored.manifest.resumed.as_slice() else { panic!("{stored:?}") };
            assert_eq!(resumed.from_trial, before.lines().count() + 1);
            let remarks = "the server is a new private cluster (PostgreSQL 15.4)";
            assert_eq!(resumed.remarks, if is_private { vec![remarks] } else { Vec::new() });

            // All is there now; from the stored file alone.
            run.resume(None, BlockLimits::default(), &mut steady).unwrap();
            assert_eq!(run.log.last().map(String::as_str), Some("nothing left"));
            assert_eq!(run.read("trials.jsonl"), after);
        }
    }
}

/// A run that was stopped after one trial.
fn interrupted(text: &str) -> Scripted {
    let mut run = Scripted::new();
    run.stop_after = Some(1);
    assert!(matches!(run.compare(text, &mut steady), Err(RunError::Interrupted)));
    run.stop_after = None;
    run
}

fn refusal(run: &mut Scripted, text: Option<&str>, larger: BlockLimits) -> RunError {
    run.resume(text, larger, &mut steady).unwrap_err()
}

#[test]
#[cfg(feature = "sweep")]
fn differences_are_named_and_nothing_is_changed() {
    let text = experiment(KEYS, "sessions = 1", &CONDITIONS);
    let mut run = interrupted(&text);
    let files =
        |run: &Scripted| ["experiment.toml", "manifest.json", "trials.jsonl"].map(|n| run.read(n));
    let before = files(&run);
    let plain = BlockLimits::default();
    // More blocks may be asked for, and nothing else beside.
    let edited = text.replace("blocks = 3", "blocks = 5").replace("'off'", "'local'");
    let error = refusal(&mut run, Some(&edited), plain);
    assert!(matches!(&error, RunError::Resume(ResumeError::OtherExperiment { .. })), "{error}");
    assert!(error.to_string().contains("condition[1].postgres.synchronous_commit"), "{error}");
    let dsn = text.replace("host=h", "host=other");
    assert!(refusal(&mut run, Some(&dsn), plain).to_string().contains("target.dsn was"));
    let swept = text.replace("sessions = 1", "sessions = [1, 2]");
    let error = refusal(&mut run, Some(&swept), plain).to_string();
    assert!(error.contains("holds a different experiment: workload.sessions"), "{error}");
    let fewer = text.replace("blocks = 3", "blocks = 2");
    let two = BlockLimits { blocks: Some(2), max_blocks: None };
    for (text, larger) in [(Some(fewer.as_str()), plain), (None, two)] {
        let error = refusal(&mut run, text, larger);
        assert!(matches!(&error, RunError::Resume(ResumeError::Smaller { .. })), "{error}");
        assert!(error.to_string().contains("blocks was 3 and is 2: a resumed"), "{error}");
    }
    // The same file, and another server or other conditions in the manifest.
    let version = concat!("\"pgio\": \"", env!("CARGO_PKG_VERSION"));
    for (from, to, why) in [
        (
            "\"system_identifier\": \"1\"",
            "\"system_identifier\": \"42\"",
            "cannot continue: this is another server: system_identifier was 42",
        ),
        ("\"name\": \"as it is\"", "\"name\": \"as it was\"", "cannot continue: the conditions"),
        ("pgio.manifest/1", "pgio.manifest/2", "pgio.manifest/2"),
        (version, "\"pgio\": \"1.0", "started by pgio 1.0"),
    ] {
        assert!(before[1].contains(from), "{from} in {}", before[1]);
        let path = run.out().join("manifest.json");
        fs::write(&path, before[1].replacen(from, to, 1)).unwrap();
        let error = refusal(&mut run, Some(&text), plain);
        assert!(sentence(&error).contains(why), "{why}: {error}");
        let changed = matches!(&error, RunError::Resume(ResumeError::Changed(_)));
        assert_eq!(changed, why.starts_with("cannot continue"), "{error:?}");
        fs::write(&path, &before[1]).unwrap();
    }
    assert_eq!(files(&run), before);
    run.resume(Some(&format!("# rewritten\n{text}")), plain, &mut steady).unwrap();
}

#[test]
fn an_experiment_of_two_workloads_continues_from_the_common_directory() {
    let one = experiment(KEYS, "name = 'one'", &CONDITIONS);
    let two = one.replace("[workload]", "[[workload]]")
        + "[[workload]]\nname = 'two'\nkind = 'commit'\nsessions = 2\n";
    let mut run = interrupted(&two);
    let none = BlockLimits::default();
    // Either would start again below existing results.
    let error = refusal(&mut run, Some(&one), none).to_string();
    assert!(
        error.contains("out/one holds a workload that") && error.contains("x.toml lacks"),
        "{error}"
    );
    let file = run.out().with_file_name("x.toml");
    fs::write(&file, &two).unwrap();
    let below = resume::job(&run.out().join("one"), Some(&file), none, run.base_keys.clone());
    let error = below.unwrap_err().to_string();
    assert!(
        error.contains("out/one holds the results of one workload: name the directory above it"),
        "{error}"
    );
    assert!(!run.out().join("one/one").exists() && !run.out().join("trials.jsonl").exists());

    run.resume(None, none, &mut steady).unwrap();
    // The pair that was cut is measured again.
    for (name, trials) in [("one", 7), ("two", 6)] {
        let stored = store::read(&run.out().join(name)).unwrap();
        assert_eq!(stored.trials.len(), trials, "{name}");
    }
    let error = run.compare(&two, &mut steady).unwrap_err();
    assert!(matches!(error, RunError::Store(_)), "results are not written over: {error}");
}

#[test]
fn other_work_under_the_same_file_is_refused() {
    let mut run = Scripted::new();
    (run.stop_after, run.base_keys.layer.sessions) = (Some(1), Some(1));
    run.compare(&experiment(KEYS, "", &CONDITIONS), &mut steady).unwrap_err();
    (run.stop_after, run.base_keys.layer.sessions) = (None, Some(2));
    let error = refusal(&mut run, None, BlockLimits::default());
    let expected = "cannot continue: the work changed: sessions was 1 and is 2; check ./pgio.conf and the data set";
    assert_eq!(error.to_string(), expected);
    run.base_keys.layer.sessions = Some(1);
    run.resume(None, BlockLimits::default(), &mut steady).unwrap();
}

#[test]
fn a_resumed_experiment_adds_blocks_and_keeps_earlier_ones() {
    let blocks =
        |n: u32| experiment(&KEYS.replace("blocks = 3", &format!("blocks = {n}")), "", &CONDITIONS);
    let mut whole = Scripted::new();
    whole.compare(&blocks(3), &mut steady).unwrap();
    let mut run = Scripted::new();
    run.compare(&blocks(1), &mut steady).unwrap();
    assert!(run.report().contains("undecided: 1 of 1"), "{}", run.report());
    let before = run.read("trials.jsonl");
    let two = BlockLimits { blocks: Some(2), max_blocks: None };
    run.resume(None, two, &mut steady).unwrap();
    let warns = |run: &Scripted, what: &str| run.log.iter().any(|line| line.starts_with(what));
    assert!(warns(&run, "blocks was 1 and is 2: adding blocks after looking at a result raises"));
    assert_eq!(run.stored().trials.len(), 4);
    let manifest = run.stored().manifest;
    assert_eq!(
        (manifest.blocks, manifest.resumed[0].remarks[0].as_str()),
        (2, "blocks was 1 and is 2")
    );
    // The file may set it as well; it then replaces the stored one.
    run.resume(Some(&blocks(3)), BlockLimits::default(), &mut steady).unwrap();
    assert!(warns(&run, "blocks was 2 and is 3"));
    assert!(run.read("experiment.toml").contains("blocks = 3"));
    assert!(run.read("trials.jsonl").starts_with(&before));
    assert_eq!((order(&run), seeds(&run)), (order(&whole), seeds(&whole)), "the same trials");
    run.resume(Some(&blocks(3)), BlockLimits::default(), &mut steady).unwrap();
    assert_eq!(run.log.last().unwrap(), "nothing left");
}

#[test]
fn invalid_trials_are_repeated_with_their_baseline_or_tolerated() {
    let keys = "blocks = 2\naa = false\nburn_in = false\nrepeats = 1";
    let conditions = [("declared", "fsync = 'off'"), ("not", "")];
    let mut script = |place: &TrialPosition, _| match place.condition.as_str() {
        "not" => Measured::Invalid(1000.0, "durability"),
        _ => Measured::Value(1000.0),
    };
    let mut run = Scripted::new();
    run.compare(&experiment(keys, "", &conditions), &mut script).unwrap();
    let decided = [
        "repeat not: durability: as the script says",
        "repeat declared beside it",
        "exclude not: durability: as the script says",
    ];
    assert_eq!(run.log[1..], [decided, decided].concat());
    let stored = run.stored();
    let places: Vec<(u32, &str, u32)> = stored
        .trials
        .iter()
        .map(place)
        .map(|p| (p.block, p.condition.as_str(), p.attempt))
        .collect();
    assert_eq!(places.len(), 8, "{places:?}");
    for (block, round) in [(1, &places[2..4]), (2, &places[6..8])] {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, [(block, "declared", 1), (block, "not", 1)], "{places:?}");
    }
    let failed = report::failures(&[&run.analysis()]).unwrap();
    assert!(failed.contains("`not` has no valid trial among 4 trials (durability)"), "{failed}");

    let mut run = Scripted::new();
    let tolerant = format!("{keys}\ntolerate = ['durability']");
    run.compare(&experiment(&tolerant, "", &conditions), &mut script).unwrap();
    let stored = run.stored();
    assert_eq!(stored.trials.len(), 4);
    for trial in stored.trials.iter().filter(|t| place(t).condition == "not") {
        let check = trial.checks.iter().find(|c| c.id == "durability").unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.contains("tolerated"), "{check:?}");
    }
    assert_eq!(stored.manifest.rules.tolerate, ["durability"]);
    assert_eq!(report::failures(&[&run.analysis()]), None);
    let slip = experiment(&tolerant.replace("durability", "durabilty"), "", &conditions);
    let error = sentence(&Scripted::new().compare(&slip, &mut steady).unwrap_err());
    assert!(error.starts_with("x.toml:6"), "{error}");
    assert!(error.contains("the nearest valid one is `durability`"), "{error}");
}

#[test]
fn a_run_without_any_valid_trial_ends_after_two_blocks_and_may_continue() {
    let keys = "blocks = 6\naa = false\nburn_in = false\nrepeats = 1";
    let text = experiment(keys, "", &[("a", ""), ("b", "commit_delay = 10")]);
    let mut run = Scripted::new();
    let error =
        run.compare(&text, &mut |_, _| Measured::Invalid(1000.0, "durability")).unwrap_err();
    assert!(matches!(error, RunError::NoneValid(_)), "{error}");
    for part in [
        "no trial of 2 blocks is valid: 8 of 8 are invalid (durability 8)",
        "tolerate = [\"durability\"]",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(run.stored().trials.len(), 2 * 2 * 2);
    let report = run.report();
    assert!(
        ["a", "b"].iter().all(|name| report.contains(&format!("`{name}` has no valid trial"))),
        "{report}"
    );
    // The cause is gone: the experiment goes on to its end.
    run.resume(Some(&text), BlockLimits::default(), &mut steady).unwrap();
    let first = run.stored().trials.iter().filter(|t| place(t).attempt == 0).count();
    assert_eq!(first, 12);
}

#[test]
fn three_failures_in_a_row_end_a_run_and_are_stored() {
    let mut run = Scripted::new();
    let text = experiment(KEYS, "", &CONDITIONS);
    let error = run.compare(&text, &mut |_, _| Measured::Failed).unwrap_err();
    assert!(matches!(&error, RunError::Failing(why) if why == "gone"), "{error}");
    assert_eq!(run.stored().trials.len(), 3);
    run.resume(None, BlockLimits::default(), &mut steady).unwrap();
    assert_paired(&run);
}

/// Noise of 2 %.
fn noisy(level: impl Fn(&str) -> f64) -> impl FnMut(&TrialPosition, usize) -> Measured {
    let mut random = SplitMix64::new(1);
    move |place, _| {
        Measured::Value(level(&place.condition) * (1.0 + 0.04 * (random.next_f64() - 0.5)))
    }
}

#[test]
fn blocks_are_added_until_the_intervals_are_narrow_or_the_limit_is_reached() {
    let conditions = [("a", ""), ("b", "")];
    let run = |keys: &str| {
        let keys = format!("aa = false\nburn_in = false\nseed = 5\n{keys}");
        let mut run = Scripted::new();
        run.compare(&experiment(&keys, "", &conditions), &mut noisy(|_| 1000.0)).unwrap();
        run
    };
    // The intervals are checked from eight blocks on.
    let precise = run("blocks = 2\nprecision = '99%'");
    assert_eq!(precise.stored().trials.len(), 2 * 8, "{:?}", precise.log);
    let further: Vec<String> = (3..=8).map(|block| format!("block {block}")).collect();
    assert_eq!(precise.log[1..7], further);
    assert!(precise.log[7].ends_with("within the requested ±99.0 %"), "{:?}", precise.log);
    assert_eq!(precise.stored().manifest.rules.precision, Some(0.99));
    let narrower = run("blocks = 2\nprecision = '1%'");
    assert!((9..30).contains(&(narrower.stored().trials.len() / 2)), "{:?}", narrower.log);

    let limited = run("blocks = 2\nprecision = '0.1%'\nmax_blocks = 4");
    let last = limited.log.len() - 2;
    assert!(limited.log[last].contains("has no interval yet"), "{:?}", limited.log);
    assert_eq!(limited.log[last + 1], "limit of 4 blocks");
    assert_eq!(order(&limited).len(), 8);
    // More blocks of the same seed begin with the same order.
    assert_eq!(order(&limited), order(&run("blocks = 4")));
}

#[test]
fn a_large_effect_is_found_in_six_blocks_and_an_order_is_that_of_its_seed() {
    let keys = "blocks = 6\naa = false\nbaseline = 'prompt'";
    let text = |seed: &str| {
        experiment(
            &format!("{keys}\n{seed}"),
            "",
            &[("late", "commit_delay = 100000"), ("prompt", "")],
        )
    };
    let measure = || noisy(|condition| if condition == "late" { 10.0 } else { 1000.0 });
    let mut run = Scripted::new();
    run.compare(&text(""), &mut measure()).unwrap();
    let analysis = run.analysis();
    let primary = analysis.primary("late").unwrap();
    let found = serde_json::to_value(primary).unwrap();
    assert_eq!((&found["verdict"], &found["blocks"]), (&"slower".into(), &6.into()), "{found}");
    assert!(found["high"].as_f64() < Some(1.0) && found["p"].as_f64() < Some(0.05), "{found}");
    let manifest = run.stored().manifest;
    assert_eq!((manifest.baseline.as_str(), manifest.aa), ("prompt", None));
    let again = |seed: u64| {
        let mut run = Scripted::new();
        run.compare(&text(&format!("seed = {seed}")), &mut measure()).unwrap();
        order(&run)
    };
    assert_eq!(again(manifest.seed), order(&run));
    // Another seed may draw the same; three others do not.
    assert!((1..=3).any(|seed| again(seed) != order(&run)));
    let error = run.compare(&text(""), &mut steady).unwrap_err();
    assert!(matches!(error, RunError::Store(_)), "results are not written over: {error}");
}

#[test]
fn a_burn_in_trial_is_stored_and_shown_and_never_counted() {
    let conditions = [("a", ""), ("b", "jit = 'on'"), ("c", "jit = 'off'")];
    let keys = "blocks = 3\naa = false\nrepeats = 0\nseed = 7";
    // Were it counted, it would be the worst of all and not valid.
    let mut script = |place: &TrialPosition, _| match place.block {
        BURN_IN_BLOCK => Measured::Invalid(1.0, "foreign-load"),
        _ => Measured::Value(1000.0),
    };
    let mut run = Scripted::new();
    run.compare(&experiment(&format!("{keys}\nburn_in = true"), "", &conditions), &mut script)
        .unwrap();
    let stored = run.stored();
    assert_eq!((stored.trials.len(), run.log[0].as_str()), (10, "10 trials"));
    assert_eq!(
        (place(&stored.trials[0]).block, place(&stored.trials[0]).condition.as_str()),
        (0, "a")
    );
    let seeds: BTreeSet<u64> = stored.trials.iter().map(|t| t.seed).collect();
    assert_eq!(seeds.len(), 10, "each trial draws its own stream");
    let analysis = run.analysis();
    for condition in &analysis.conditions {
        let numbers = (condition.trials, condition.valid, condition.invalid, condition.failed);
        assert_eq!(numbers, (3, 3, 0, 0), "{condition:?}");
    }
    let page = LoadedReport::new(&run.out(), run.stored(), &[]).page().unwrap();
    for (text, is_page) in [
        (report::text::render(&report::document(&analysis)), false),
        (report::markdown::render(&report::answered(&analysis), &report::lead(&analysis)), false),
        (report::csv::render(&report::csv::flat(&analysis)), false),
        (report::json::render(&analysis), false),
        (page, true),
    ] {
        assert!(!text.contains("as the script says"), "{text}");
        assert_eq!(text.contains("burn-in"), is_page, "{text}");
    }
    // One condition more, and the trials of the others draw what they drew.
    let more = [&conditions[..], &[("d", "")]].concat();
    let mut further = Scripted::new();
    further
        .compare(&experiment(&format!("{keys}\nburn_in = true"), "", &more), &mut script)
        .unwrap();
    let known = self::seeds(&further);
    assert!(self::seeds(&run).iter().all(|(at, seed)| known.get(at) == Some(seed)));
    let mut without = Scripted::new();
    without
        .compare(&experiment(&format!("{keys}\nburn_in = false"), "", &conditions), &mut script)
        .unwrap();
    assert!(without.stored().trials.iter().all(|t| place(t).block > 0));
}

#[test]
#[cfg(feature = "screening")]
fn cells_of_a_woven_design_share_a_window_in_each_block() {
    let factors = "[[factor]]\nname = 'delay'\nlow = {}\nhigh = { postgres = { commit_delay = 20 } }\n\
                   [[factor]]\nname = 'geqo'\nsetting = ['on', 'off']\n";
    let keys = "blocks = 2\nseed = 4\nburn_in = false\nweave = '100ms'\ndesign = 'one-at-a-time'";
    let mut run = Scripted::new();
    run.compare(&(experiment(keys, "", &[]) + factors), &mut steady).unwrap();
    assert_eq!(run.log[1..], ["weave 4 conditions", "weave 4 conditions"]);
    let conditions: BTreeSet<String> =
        run.stored().trials.iter().map(|t| place(t).condition.clone()).collect();
    assert_eq!(conditions, ["all low", "all low (A/A)", "delay", "geqo"].map(str::to_owned).into());
    assert_eq!(run.stored().manifest.rules.weave_seconds, Some(0.1));
}

/// As shipped but for the number of blocks.
#[test]
#[cfg(feature = "all")]
fn every_example_measures_each_condition_in_a_block() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut cells = BTreeMap::new();
    for file in fs::read_dir(dir).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        // The presets are parts of experiments.
        if !name.ends_with(".toml") || name == "command-presets.toml" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let line = |line| if str::starts_with(line, "blocks = ") { "blocks = 1" } else { line };
        let text: Vec<&str> = text.lines().map(line).collect();
        let text = text.join("\n");
        let mut run = Scripted::new();
        let ran = run.compare(&text, &mut steady);
        ran.unwrap_or_else(|error| panic!("{name}: {}", sentence(&error)));
        let job = Job::parse(&text, "x.toml", "x", run.base_keys.clone()).unwrap();
        for workload in &job.experiment.workloads {
            let stored = store::read(&job.dir_of(&run.out(), workload)).unwrap();
            let trials = stored.trials.iter().filter(|t| place(t).block != BURN_IN_BLOCK);
            let ran: BTreeSet<String> =
                trials.clone().map(|t| place(t).condition.clone()).collect();
            let named = job.experiment.conditions_of(workload).map(|c| c.name.clone());
            let twin = stored.manifest.aa.clone();
            assert_eq!(ran, named.chain(twin).collect(), "{name}");
            let distinct: BTreeSet<String> = trials.map(|t| cell(place(t))).collect();
            cells.insert(format!("{name} {}", workload.name), distinct);
            if let Some(screening) = &stored.manifest.design {
                for factor in &screening.factors {
                    let is_high = |cell: &&DesignCell| cell.high.contains(&factor.name);
                    assert_eq!(screening.cells.iter().filter(is_high).count(), 16, "{factor:?}");
                }
            }
        }
    }
    assert!(cells.len() >= 40, "{}", cells.len());
    // Every point of a sweep and every cell of a design once; the conditions of two workloads or of one, and the twin.
    for (example, counts) in [
        ("sync-commit.toml", &[46][..]),
        ("screening.toml", &[32]),
        ("drbd-arms.toml", &[4]),
        ("drbd-impact.toml", &[11, 11]),
        ("drbd-protocols.toml", &[8]),
        ("drbd-protocols-full.toml", &[8]),
        ("mail-drbd.toml", &[10]),
    ] {
        let its = cells.iter().filter(|(name, _)| name.starts_with(&format!("{example} ")));
        assert_eq!(its.map(|(_, cells)| cells.len()).collect::<Vec<_>>(), counts, "{example}");
    }
    let hosts = |file: &str| {
        let text = fs::read_to_string(format!("{dir}/{file}")).unwrap();
        text.split_once("[hosts.primary]").unwrap().1.to_owned()
    };
    assert_eq!(hosts("drbd-protocols.toml"), hosts("drbd-protocols-full.toml"));
}

#[test]
fn results_of_a_newer_version_are_refused_by_name() {
    let mut run = interrupted(&experiment(KEYS, "", &CONDITIONS));
    for (file, from, to) in [
        ("manifest.json", "pgio.manifest/1", "pgio.manifest/2"),
        ("trials.jsonl", "pgio.trial/1", "pgio.trial/2"),
    ] {
        let (path, text) = (run.out().join(file), run.read(file));
        fs::write(&path, text.replace(from, to)).unwrap();
        let read = sentence(&directories::analyze(&run.out()).unwrap_err());
        let resumed = sentence(&refusal(&mut run, None, BlockLimits::default()));
        for error in [read, resumed] {
            let parts = [to, file, "use the version of pgio that wrote it"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        fs::write(&path, text).unwrap();
    }
}

/// The stored experiment holds commands, which would run as the user who resumes it.
#[test]
fn an_experiment_that_others_may_write_is_not_resumed() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let mut run = Scripted::new();
    let text = experiment(KEYS, "", &CONDITIONS);
    run.compare(&text, &mut steady).unwrap();
    let (dir, file) = (run.out(), run.out().join("experiment.toml"));
    let none = BlockLimits::default();
    for (path, open, closed) in [(&file, 0o664, 0o644), (&dir, 0o777, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(open)).unwrap();
        let error = sentence(&refusal(&mut run, None, none));
        let parts = ["cannot trust", "other users may write", "chmod go-w"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        fs::set_permissions(path, fs::Permissions::from_mode(closed)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for path in [&file, &dir] {
        chown(path, Some(65534), None).unwrap();
        let error = sentence(&refusal(&mut run, None, none));
        assert!(
            error.contains("belongs to another user (uid 65534)") && error.contains("chown"),
            "{error}"
        );
        // With a file of one's own nothing of theirs is run.
        run.resume(Some(&text), none, &mut steady).unwrap();
        assert_eq!(run.log.last().unwrap(), "nothing left");
        chown(path, Some(0), None).unwrap();
    }
}

#[test]
#[cfg(feature = "sweep")]
fn every_block_has_every_cell_of_a_sweep_in_its_own_order() {
    let lists = "sessions = [1, 2, 8]\nrows_per_transaction = [1, 5]\nmiddle = { sessions = 2 }";
    let mut run = Scripted::new();
    run.compare(&experiment("blocks = 2\nseed = 7", lists, &CONDITIONS), &mut steady).unwrap();
    assert_eq!(run.log[0], "18 trials");
    let order = order(&run);
    let blocks: Vec<BTreeSet<&String>> = order.chunks(9).map(|b| b.iter().collect()).collect();
    assert_eq!((blocks.len(), blocks[0].len(), &blocks[0]), (2, 9, &blocks[1]), "{order:?}");
    assert_ne!(order[..9], order[9..]);
    let varied = run.stored().manifest.varied.unwrap();
    assert_eq!(serde_json::to_value(&varied).unwrap()["kind"], "one-at-a-time");
    let middle = serde_json::json!({"sessions": 2, "rows_per_transaction": 1});
    assert_eq!(serde_json::to_value(&varied.points[0]).unwrap(), middle);
    assert_eq!(varied.at_middle_only, ["lazy (A/A)"]);
    // Only the middle point is judged.
    let analysis = run.analysis();
    let condition = &analysis.conditions[0];
    assert_eq!((condition.trials, condition.valid), (2, 2));
}

/// A delay that commits wait for unless they wait for nothing.
#[test]
#[cfg(feature = "screening")]
fn effects_and_their_interaction_are_found_and_reported_from_the_record_alone() {
    let factors = "[[factor]]\nname = 'delay'\nlow = {}\n\
                   high = { postgres = { commit_delay = 20000, commit_siblings = 0 } }\n\
                   [[factor]]\nname = 'synchronous_commit'\nsetting = ['on', 'off']\n";
    let mut run = Scripted::new();
    let text = experiment("blocks = 8\nseed = 4\nmatters = '5%'", "", &[]) + factors;
    // Cell 2 has the delay alone; without waiting nothing is delayed.
    let level = |cell: &str| match cell {
        "all low" => 1000.0,
        "cell 2" => 45.0,
        _ => 5000.0,
    };
    run.compare(&text, &mut noisy(level)).unwrap();
    let manifest = run.stored().manifest;
    assert_eq!((manifest.baseline.as_str(), &manifest.aa), ("all low", &None));
    let screening = serde_json::to_value(manifest.design.unwrap()).unwrap();
    assert_eq!(screening["design"], "fractional");
    assert_eq!(screening["factors"][0]["low"], serde_json::json!([]));

    // The report needs neither the file nor a server.
    fs::remove_file(run.out().join("experiment.toml")).unwrap();
    let loaded = run.loaded();
    let found: serde_json::Value =
        serde_json::from_str(&report::json::render(&loaded.analysis)).unwrap();
    let effects = found["screening"]["effects"].as_array().unwrap();
    assert_eq!((found["screening"]["resolution"].as_u64(), effects.len()), (Some(5), 2 + 1));
    assert_eq!(found["comparisons"].as_array().unwrap().len(), 0);
    let effect =
        |name: &str| effects.iter().find(|e| e["comparison"]["condition"] == name).unwrap().clone();
    assert_eq!(effect("delay")["comparison"]["verdict"], "slower");
    assert_eq!(effect("synchronous_commit")["comparison"]["verdict"], "faster");
    let conditional = &effect("delay × synchronous_commit")["conditional"];
    let while_on = conditional["low"]["ratio"].as_f64().unwrap();
    assert!(conditional["factor"] == "delay" && while_on < 0.8, "{conditional}");

    let csv = report::csv::render(&report::csv::flat(loaded.report()));
    assert!(csv.lines().any(|l| l.contains(",delay × synchronous_commit,")), "{csv}");
    let markdown = report::markdown::render(
        &report::answered(loaded.report()),
        &report::lead(loaded.report()),
    );
    for part in ["## What matters here", "| delay × synchronous_commit | "] {
        assert!(markdown.contains(part), "{markdown}");
    }
    let page = loaded.page().unwrap();
    assert!(page.contains("What matters here") && page.contains("high against low"));
    let text = run.report();
    assert!(text.contains("What matters here: commits/s, 2 factors in 4 cells"), "{text}");
    assert!(!text.contains("compared with"), "{text}");
}
