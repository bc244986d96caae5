//! Keys of `[experiment]` for the trial loop (repeats, precision, reset, checkpoints and tolerated
//! checks) and for the question that the experiment answers.

use std::time::Duration;

use benchmath::power;
use pgio_verdict::ALPHA;

use super::key::{ABOVE_ZERO, Switch, TEXT, Time, Whole};
use super::section::Section;
use super::target::Target;
use super::workload;
use super::{keys, limits};
use crate::config::value::{ConfigError, nearest};

/// Rules of the trial loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Fraction of a ratio: 0.05 is ±5 %. pgio adds blocks until every judged primary interval is as narrow.
    pub precision: Option<f64>,
    /// Blocks with which no noisy condition hides the effects of the others; the default of `blocks`.
    pub enough_blocks: u32,
    /// Maximum number of blocks; equals `blocks` without `precision`.
    pub max_blocks: u32,
    /// Maximum number of times to repeat an invalid trial.
    pub repeats: u32,
    pub reset: Reset,
    pub checkpoint: Checkpoint,
    pub weave: Weave,
    /// Ids of checks that only warn.
    pub tolerate: Vec<String>,
    pub question: Question,
}

/// What pgio restores before each trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// Only the CHECKPOINT at the start of every trial.
    Checkpoint,
    /// Vacuum dead rows, so that the next trial can reuse their space.
    Vacuum,
    /// Reload the data set.
    Reload,
    /// Drop and re-create the database. `named` repeats the database's name, so that a typo cannot
    /// drop another one; absent only if all servers are private.
    Recreate { named: Option<String> },
}

/// Checkpoints that affect a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// Issue a CHECKPOINT before each warm-up, so that windows are at the start of a cycle.
    Before,
    /// Require windows of whole checkpoint cycles.
    Spread,
    /// Issue no CHECKPOINT.
    None,
}

/// How the conditions of a block share windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weave {
    /// Each trial has a window of its own.
    Off,
    /// Conditions take turns in slices of this mean length.
    Slices(Duration),
    /// The shortest length at which slices agree is found before block 1; without one, each trial has a window
    /// of its own.
    Auto,
}

/// The shortest mean length of a slice: below it, switching takes longer than the work.
const SHORTEST_SLICE: Duration = Duration::from_millis(5);

choice! { Checkpoint: Before "before", Spread "spread", None "none" }

impl Reset {
    pub(super) const ALL: &[(&str, Reset)] = &[
        ("checkpoint", Self::Checkpoint),
        ("vacuum", Self::Vacuum),
        ("reload", Self::Reload),
        ("recreate", Self::Recreate { named: None }),
    ];

    /// Those that are valid for a single workload.
    pub(super) const OF_WORKLOAD: &[(&str, Reset)] = Self::ALL.split_at(3).0;

    pub fn name(&self) -> &'static str {
        match self {
            Reset::Checkpoint => "checkpoint",
            Reset::Vacuum => "vacuum",
            Reset::Reload => "reload",
            Reset::Recreate { .. } => "recreate",
        }
    }
}

/// The fewest blocks after which the intervals are checked for `precision`: of fewer, the narrowest are narrow by
/// chance.
const MIN_BLOCKS_OF_PRECISION: u32 = 8;

impl Rules {
    /// Returns the block after which the intervals are checked first.
    pub fn first_check(&self) -> u32 {
        self.enough_blocks.max(MIN_BLOCKS_OF_PRECISION)
    }
}

/// Returns the number of blocks and the rules. `compared` is the number of comparisons of the primary metric.
pub(super) fn parse<'a>(
    head: &Section<'_>,
    compared: usize,
    targets: impl Iterator<Item = &'a Target>,
    checks: &[&str],
    conditions: &[&str],
) -> Result<(u32, Rules), ConfigError> {
    let precision = head.read(&keys::precision)?;
    let question = parse_question(head, conditions)?;
    let per_metric = if question.judge.is_empty() { compared } else { question.judge.len() };
    let judged = per_metric * (1 + question.also_judge.len());
    let enough_blocks =
        u32::try_from(power::blocks_without_ties(ALPHA, judged)).unwrap_or(u32::MAX);
    let blocks = head.read(&keys::blocks)?.unwrap_or(enough_blocks);
    let max_blocks = match precision {
        Some(_) => head
            .read_as(&keys::max_blocks, &Whole(blocks..=limits::BLOCKS))?
            .unwrap_or(keys::max_blocks.default.max(blocks)),
        None if head.has(&keys::max_blocks) => {
            let message = "requires precision; add precision = \"5%\", or set blocks instead";
            return Err(head.error(&keys::max_blocks, message));
        }
        None => blocks,
    };
    let rules = Rules {
        precision,
        enough_blocks,
        max_blocks,
        repeats: head.get(&keys::repeats)?,
        reset: reset(head, targets)?,
        checkpoint: checkpoint(head)?,
        weave: weave(head)?,
        tolerate: tolerate(head, checks)?,
        question,
    };
    Ok((blocks, rules))
}

fn weave(head: &Section<'_>) -> Result<Weave, ConfigError> {
    let key = keys::weave.name;
    if !head.has(key) || head.read_as(key, &Switch).is_ok_and(|on| on == Some(false)) {
        return Ok(Weave::Off);
    }
    if head.read_as(key, &TEXT).is_ok_and(|text| text.as_deref() == Some("auto")) {
        return Ok(Weave::Auto);
    }
    match head.read_as(key, &Time(ABOVE_ZERO)) {
        Ok(Some(slice)) if slice >= SHORTEST_SLICE => Ok(Weave::Slices(slice)),
        Ok(Some(_)) => Err(head.error(key, "must be at least 5ms")),
        _ => {
            let message = "must be \"auto\", false or the length of a slice such as \"20ms\"";
            Err(head.error(key, message))
        }
    }
}

fn checkpoint(head: &Section<'_>) -> Result<Checkpoint, ConfigError> {
    match head.read_as(&keys::checkpoint, &TEXT)? {
        Some(text) if !Checkpoint::NAMES.contains(&text.as_str()) => {
            let names = Checkpoint::NAMES.join(", ");
            let message = format!("must be one of {names}, not `{text}`");
            Err(head.error(&keys::checkpoint, message))
        }
        _ => head.get(&keys::checkpoint),
    }
}

fn reset<'a>(
    head: &Section<'_>,
    mut targets: impl Iterator<Item = &'a Target>,
) -> Result<Reset, ConfigError> {
    let named = head.read(&keys::recreate_database)?;
    let reset = head.get(&keys::reset)?;
    let mut none = true;
    let private = targets.all(|t| {
        none = false;
        matches!(t, Target::Private(_))
    }) && !none;
    match (reset, named) {
        (Reset::Recreate { .. }, None) if !private => Err(head.error(
            &keys::reset,
            "recreate drops the database; to confirm, set recreate_database = \"NAME\"",
        )),
        (Reset::Recreate { .. }, named) => Ok(Reset::Recreate { named }),
        (reset, None) => Ok(reset),
        (_, Some(_)) => Err(head.error(&keys::recreate_database, "requires reset = \"recreate\"")),
    }
}

/// Reads the reset of a workload. `recreate` is valid only for the whole experiment.
pub(super) fn reset_of_workload(section: &Section<'_>) -> Result<Option<Reset>, ConfigError> {
    let key = &workload::keys::reset;
    if section.read_as(key, &TEXT)?.as_deref() == Some("recreate") {
        let message = "recreate is valid only in [experiment], where it applies to every workload";
        return Err(section.error(key, message));
    }
    section.read(key)
}

fn tolerate(head: &Section<'_>, checks: &[&str]) -> Result<Vec<String>, ConfigError> {
    let tolerated = head.read(&keys::tolerate)?.unwrap_or_default();
    match tolerated.iter().find(|id| !checks.contains(&id.as_str())) {
        Some(id) => {
            let message = format!(
                "`{id}` is not a check that can make a trial invalid; {}",
                nearest(id, checks)
            );
            Err(head.error(&keys::tolerate, message))
        }
        None => Ok(tolerated),
    }
}

/// The question that the experiment answers, fixed before the first trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    /// Conditions whose primary comparison is judged; empty: all of them, as one family. A single
    /// condition is judged by its own test.
    pub judge: Vec<String>,
    /// Metrics that are judged in addition to the primary one, in the same family.
    pub also_judge: Vec<String>,
    /// The question in words.
    pub text: Option<String>,
    /// The effect as a fraction: 0.05 is 5 %. The report shows how many blocks detect it.
    pub effect: Option<f64>,
    /// The margin, as a fraction: the report decides whether an effect exceeds it.
    pub matters: Option<f64>,
}

fn parse_question(head: &Section<'_>, conditions: &[&str]) -> Result<Question, ConfigError> {
    let judge = head.read(&keys::judge)?.unwrap_or_default();
    if head.has(&keys::judge) && judge.is_empty() {
        return Err(
            head.error(&keys::judge, "names no condition; name one, or remove judge to judge all")
        );
    }
    if let Some(unknown) = judge.iter().find(|name| !conditions.contains(&name.as_str())) {
        let nearest = nearest(unknown, conditions);
        let message = format!("`{unknown}` is not a condition other than the baseline; {nearest}");
        return Err(head.error(&keys::judge, message));
    }
    let also_judge = head.read(&keys::also_judge)?.unwrap_or_default();
    let duplicate = |all: &[String]| {
        all.iter().enumerate().find(|(i, name)| all[..*i].contains(name)).map(|(_, n)| n.clone())
    };
    for (key, all) in [(keys::judge, &judge), (keys::also_judge, &also_judge)] {
        if let Some(name) = duplicate(all) {
            return Err(head.error(&key, format!("names `{name}` twice")));
        }
    }
    let text = head.read(&keys::question)?;
    let effect = head.read(&keys::effect)?;
    let matters = head.read(&keys::matters)?;
    Ok(Question { text, judge, also_judge, effect, matters })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::experiment::tests::{CHECKS, TREATMENTS, error_of, read};
    use crate::config::experiment::{Checkpoint, Question, Reset, parse};

    #[test]
    fn telemetry_may_be_off() {
        let cadence = |text: &str| {
            read(&format!("[experiment]\ntelemetry = {text}\n[[condition]]\nname = 'a'\n"))
                .telemetry
        };
        assert_eq!(cadence("'500ms'"), Duration::from_millis(500));
        assert_eq!(cadence("0"), Duration::ZERO);
    }

    #[test]
    fn burn_in_runs_by_default_if_trials_share_a_data_set() {
        for (workload, key, expected) in [
            ("kind = 'slob'", "", true),
            ("kind = 'commit'", "", false),
            ("kind = 'command'\npreset = 'pgbench'", "", false),
            ("kind = 'command'\npreset = 'pgbench-S'", "", true),
            ("kind = 'slob'", "burn_in = false", false),
            ("kind = 'commit'", "burn_in = true", true),
        ] {
            let text =
                format!("[experiment]\n{key}\n[workload]\n{workload}\n[[condition]]\nname = 'a'\n");
            let Ok(experiment) = parse(&text, "x.toml", "x", TREATMENTS, CHECKS) else {
                panic!("{text}: {:?}", parse(&text, "x.toml", "x", TREATMENTS, CHECKS))
            };
            assert_eq!(experiment.burns_in(&experiment.workloads[0]), expected, "{text}");
        }
    }

    #[test]
    fn checkpoint_takes_before_spread_or_none() {
        let mode = |key: &str| {
            let text = format!("[experiment]\n{key}\n[[condition]]\nname = 'a'\n");
            parse(&text, "x.toml", "x", TREATMENTS, CHECKS).map(|e| e.rules.checkpoint)
        };
        assert_eq!(mode("").unwrap(), Checkpoint::Before);
        assert_eq!(mode("checkpoint = 'spread'").unwrap(), Checkpoint::Spread);
        assert_eq!(mode("checkpoint = 'none'").unwrap(), Checkpoint::None);
        let error = mode("checkpoint = 'never'").unwrap_err();
        assert_eq!(error.message, "must be one of before, spread, none, not `never`");
    }

    #[test]
    fn a_baseline_must_be_a_condition() {
        assert_eq!(
            error_of("[experiment]\nbaseline = 'aa'"),
            "x.toml:2: experiment.baseline: `aa` is not a condition; the nearest valid one is `a`"
        );
    }

    #[test]
    fn loop_rules_are_read_with_their_defaults() {
        let rules = |lines: &str| {
            read(&format!("[experiment]\n{lines}\n[[condition]]\nname = 'a'\n")).rules
        };
        let parsed = rules(
            "precision = '2.5 %'\nrepeats = 0\nreset = 'reload'\ntolerate = ['foreign-load']",
        );
        assert_eq!(parsed.precision, Some(0.025));
        assert_eq!((parsed.max_blocks, parsed.repeats), (30, 0));
        assert_eq!(parsed.reset, Reset::Reload);
        assert_eq!(parsed.tolerate, ["foreign-load"]);
        assert_eq!(rules("blocks = 40\nprecision = '5%'").max_blocks, 40);
        assert_eq!(rules("precision = '5%'\nmax_blocks = 8").max_blocks, 8);
        assert_eq!(rules("precision = '5%'").first_check(), 8);
        let named = Reset::Recreate { named: Some("bench".to_owned()) };
        assert_eq!(rules("reset = 'recreate'\nrecreate_database = 'bench'").reset, named);
        let private = "[experiment]\nreset = 'recreate'\n[target]\nprivate = true\n[[condition]]\nname = 'a'\n";
        assert_eq!(read(private).rules.reset, Reset::Recreate { named: None });
    }

    #[test]
    fn the_default_number_of_blocks_depends_on_the_comparisons() {
        let blocks = |conditions: usize, lines: &str| {
            let conditions: String =
                (0..conditions).map(|n| format!("[[condition]]\nname = 'c{n}'\n")).collect();
            let e = read(&format!("[experiment]\n{lines}\n{conditions}"));
            (e.blocks, e.rules.enough_blocks, e.rules.first_check())
        };
        // The twin is compared as well.
        let with_twin = [1, 2, 3, 4, 6, 7, 12, 13].map(|n| blocks(n, "").0);
        assert_eq!(with_twin, [6, 7, 7, 8, 8, 9, 9, 10]);
        assert_eq!(blocks(4, "aa = false"), (7, 7, 8));
        assert_eq!(blocks(4, "judge = ['c1']"), (6, 6, 8));
        assert_eq!(blocks(4, "also_judge = ['commit_latency_p99']"), (9, 9, 9));
        assert_eq!(blocks(4, "blocks = 3"), (3, 8, 8));
    }

    #[test]
    fn invalid_rules_are_refused() {
        let error_of = |line: &str| error_of(&format!("[experiment]\n{line}"));
        insta::assert_snapshot!(error_of("precision = '5'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `5`");
        insta::assert_snapshot!(error_of("precision = '0%'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `0%`");
        insta::assert_snapshot!(error_of("matters = '0%'"), @"x.toml:2: experiment.matters: must be a share from 0.1% to 50% such as \"5%\", not `0%`");
        insta::assert_snapshot!(error_of("matters = '51 %'"), @"x.toml:2: experiment.matters: must be a share from 0.1% to 50% such as \"5%\", not `51 %`");
        insta::assert_snapshot!(error_of("max_blocks = 9"), @"x.toml:2: experiment.max_blocks: requires precision; add precision = \"5%\", or set blocks instead");
        insta::assert_snapshot!(error_of("max_blocks = 5\nprecision = '5%'"), @"x.toml:2: experiment.max_blocks: must be a whole number from 7 to 10000, not `5`");
        insta::assert_snapshot!(error_of("reset = 'relaod'"), @"x.toml:2: experiment.reset: cannot be `relaod`; the nearest valid one is `reload`");
        insta::assert_snapshot!(error_of("reset = 'recreate'"), @"x.toml:2: experiment.reset: recreate drops the database; to confirm, set recreate_database = \"NAME\"");
        insta::assert_snapshot!(error_of("recreate_database = 'x'"), @"x.toml:2: experiment.recreate_database: requires reset = \"recreate\"");
        insta::assert_snapshot!(error_of("tolerate = ['forein-load']"), @"x.toml:2: experiment.tolerate: `forein-load` is not a check that can make a trial invalid; the nearest valid one is `foreign-load`");
        insta::assert_snapshot!(error_of("tolerate = 'all'"), @"x.toml:2: experiment.tolerate: must be an array of strings, but is of type string");
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn each_workload_runs_a_condition_that_is_judged() {
        let file = |judge: &str, more: &str, workloads: &str| {
            let text = format!(
                "[experiment]\njudge = {judge}\n{more}\n{workloads}\n[[condition]]\nname = 'base'\n\
                 [[condition]]\nname = 'x'\n[[condition]]\nname = 'y'\n"
            );
            parse(&text, "f.toml", "f", &[], &[]).map(drop).map_err(|error| error.to_string())
        };
        let both = "[[workload]]\nname = 'a'\n[[workload]]\nname = 'b'\nconditions = ['base', 'y']";
        assert_eq!(
            file("['x']", "", both).unwrap_err(),
            "f.toml:2: experiment.judge: names no condition of the workload `b`; name one that it runs (y), \
             or add `x` to its conditions"
        );
        file("['x', 'y']", "", both).unwrap();
        file("['y']", "", both).unwrap();
        // With the baseline alone there is nothing to judge, whatever is named.
        file("['x']", "", &both.replace(", 'y'", "")).unwrap();
        // The twin of the baseline is none of the conditions that are named.
        file("['x']", "aa = false", both).unwrap_err();
        let one = |conditions: &str| format!("[workload]\nconditions = {conditions}");
        file("['x']", "", "").unwrap();
        file("['x']", "", &one("['base', 'x']")).unwrap();
        assert!(
            file("['x']", "", &one("['base', 'y']")).unwrap_err().contains("the workload `slob`")
        );
        // Another baseline leaves the first condition to be judged.
        file("['base']", "baseline = 'x'", &one("['base', 'x']")).unwrap();
        // A list of values makes points, not conditions.
        let swept = |conditions: &str| format!("{}\nupdate_pct = [0, 20]", one(conditions));
        file("['x']", "", &swept("['base', 'x']")).unwrap();
        file("['x']", "", &swept("['base', 'y']")).unwrap_err();
    }

    #[test]
    fn judged_conditions_and_metrics_must_exist() {
        let file = |head: &str| {
            format!(
                "[experiment]\n{head}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n\
                 [[condition]]\nname = 'c'\n"
            )
        };
        let question =
            |head: &str| parse(&file(head), "f.toml", "f", &[], &[]).map(|e| e.rules.question);
        let parsed =
            question("judge = ['c']\nalso_judge = ['riops']\neffect = '5%'\nmatters = '50%'")
                .unwrap();
        let expected = Question {
            judge: vec!["c".to_owned()],
            text: None,
            also_judge: vec!["riops".to_owned()],
            effect: Some(0.05),
            matters: Some(0.5),
        };
        assert_eq!(parsed, expected);
        for (head, message) in [
            ("judge = ['d']", "`d` is not a condition other than the baseline"),
            ("judge = ['a']", "`a` is not a condition other than the baseline"),
            ("judge = []", "names no condition"),
            ("judge = ['b', 'b']", "names `b` twice"),
            ("effect = '0%'", "must be a share from 0.1% to below 100%"),
            ("effect = 'five'", "must be a share from 0.1% to below 100%"),
        ] {
            let error = question(head).unwrap_err().to_string();
            assert!(error.contains(message), "{head}: {error}");
        }
    }
}
