//! Levels of synchronous_commit with a standby on the same disk: each experiment runs once with windows and
//! once woven, the first of each pair in turn.
//!
//! The mean ratios must agree within 2 % of the baseline's rate, or of the ratio if that is above 1, and no pair
//! may differ by more than its two intervals and 2 % allow. With `--disagree` the slices are expected to be
//! too short (`--weave 20ms`): then the report must say that conditions reach into each other, or that such
//! slices distort the effects.

use std::time::Duration;

use super::rounds::{Plan, scratch, seconds};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio_report::report;
use pgio_verdict::{Analysis, WEAVE_CARRY_OVER, WEAVE_SHORT};

/// Largest difference of mean ratios, as a share of the ratio if that is above 1.
const MAX_DIFFERENCE: f64 = 0.02;
/// The first is the baseline.
const LEVELS: [&str; 5] = ["local", "off", "remote_write", "on", "remote_apply"];
const COMPARED: usize = LEVELS.len() - 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plan: Plan,
    /// Counted time of each condition in a woven window, in seconds; by default the length of the windows
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    woven: Option<Duration>,
    /// Require a report of slices that are too short, instead of equal ratios
    #[arg(long, requires = "weave")]
    disagree: bool,
}

/// The ratios of one experiment, in the order of the levels, and what the headline says of its slices.
struct LevelResult {
    ratios: [f64; COMPARED],
    /// How far the intervals reach from the ratios.
    reaches: [f64; COMPARED],
    doubts: Vec<&'static str>,
}

impl LevelResult {
    fn from_analysis(analysis: &Analysis) -> LevelResult {
        let comparison = |at: usize| analysis.primary(LEVELS[at + 1]);
        let ratio = |at: usize| comparison(at).and_then(|c| c.ratio).unwrap_or(f64::NAN);
        let reach = |at: usize| {
            let interval = comparison(at)?.interval;
            Some((interval.high? - ratio(at)).max(ratio(at) - interval.low?))
        };
        let reach = |at: usize| reach(at).unwrap_or(f64::NAN);
        let headline = report::headline(analysis);
        let is_told = |id: &&str| {
            let mut found = analysis.checks.iter().filter(|finding| finding.id == **id);
            found.any(|finding| headline.iter().any(|line| line.contains(&finding.message)))
        };
        let doubts = [WEAVE_CARRY_OVER, WEAVE_SHORT].into_iter().filter(is_told).collect();
        LevelResult {
            ratios: std::array::from_fn(ratio),
            reaches: std::array::from_fn(reach),
            doubts,
        }
    }

    fn line(&self, number: usize, how: &str) -> String {
        let ratios = self.ratios.iter().zip(self.reaches);
        let ratios: Vec<String> =
            ratios.map(|(ratio, reach)| format!("{ratio:8.4} ±{reach:6.4}")).collect();
        let doubts = self.doubts.join(", ");
        format!("{number:10}  {how:7}  {}  {doubts}", ratios.join("  ")).trim_end().to_owned()
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let plan = &args.plan;
    let short = Plan { window: args.woven.unwrap_or(plan.window), ..plan.clone() };
    let text = [text(plan, "false"), text(&short, plan.weave.as_deref().unwrap_or("auto"))];
    let names: Vec<String> = LEVELS[1..].iter().map(|name| format!("{name:>16}")).collect();
    output::line(&format!("experiment  design   {}", names.join("  ")));
    let mut found: [Vec<LevelResult>; 2] = [Vec::new(), Vec::new()];
    for number in 1..=plan.experiments {
        // The first of each pair alternates.
        for woven in [number % 2, 1 - number % 2] {
            if args.disagree && woven == 0 {
                continue;
            }
            let how = ["windows", "woven"][woven];
            let round = plan.round(&format!("{number:03}-{how}"), scratch.path(), &stop)?;
            let one = LevelResult::from_analysis(&round.analysis(&text[woven])?);
            output::line(&one.line(number, how));
            found[woven].push(one);
        }
    }
    let [windows, woven] = found;
    if args.disagree {
        check_reports(&woven, plan.required_count(woven.len()))
    } else {
        check_agreement(&windows, &woven, plan.required_count(woven.len()))
    }
}

fn text(plan: &Plan, weave: &str) -> String {
    let weave = match weave {
        "false" => weave.to_owned(),
        length => format!("{length:?}"),
    };
    let plain = Plan { weave: None, ..plan.clone() };
    let mut text = format!(
        "{}weave = {weave}\nprimary = \"commits_per_second\"\nbaseline = {:?}\n\n[target]\nprivate = true\n\
         standby = true\n\n[workload]\nkind = \"commit\"\nsessions = 1\n",
        plain.head("levels", false),
        LEVELS[0]
    );
    for level in LEVELS {
        text += &format!(
            "\n[[condition]]\nname = \"{level}\"\npostgres = {{ synchronous_commit = \"{level}\" }}\n"
        );
    }
    text
}

fn mean(all: &[LevelResult], level: usize) -> f64 {
    all.iter().map(|found| found.ratios[level]).sum::<f64>() / all.len() as f64
}

/// Returns the difference of two ratios that is still called equal.
fn allowed(ratio: f64) -> f64 {
    MAX_DIFFERENCE * ratio.max(1.0)
}

fn check_agreement(windows: &[LevelResult], woven: &[LevelResult], required: usize) -> Outcome {
    let differences: [f64; COMPARED] =
        std::array::from_fn(|level| mean(woven, level) - mean(windows, level));
    let each: Vec<String> = differences
        .iter()
        .zip(&LEVELS[1..])
        .map(|(difference, name)| format!("{name} {difference:+.4}"))
        .collect();
    // How many pairs agree within the limit, and what so much of their intervals adds to it. A missing ratio is
    // NaN, which never agrees.
    let pairs = |share: f64| {
        let agree = |(a, b): &(&LevelResult, &LevelResult)| {
            (0..COMPARED).all(|level| {
                let reach = a.reaches[level].hypot(b.reaches[level]);
                let allowed = allowed(a.ratios[level]) + share * reach;
                (a.ratios[level] - b.ratios[level]).abs() <= allowed
            })
        };
        windows.iter().zip(woven).filter(agree).count()
    };
    let within = pairs(1.0);
    let text = format!(
        "mean ratios, woven less windows: {}; at most {MAX_DIFFERENCE} is allowed, or as much of a ratio above 1; all four agree \
         within that in {} of {} pairs, and within that and their intervals in {within} ({required} are required)",
        each.join(", "),
        pairs(0.0),
        windows.len()
    );
    let means_agree =
        (0..COMPARED).all(|level| differences[level].abs() <= allowed(mean(windows, level)));
    report_outcome(means_agree && within >= required, text)
}

fn check_reports(woven: &[LevelResult], required: usize) -> Outcome {
    let reporting = woven.iter().filter(|found| !found.doubts.is_empty()).count();
    let text = format!(
        "{reporting} of {} experiments report slices that are too short, {required} are required",
        woven.len()
    );
    report_outcome(reporting >= required, text)
}

fn report_outcome(is_right: bool, text: String) -> Outcome {
    if !is_right {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(remote_apply: f64, is_noticed: bool) -> LevelResult {
        let doubts = if is_noticed { vec![WEAVE_SHORT] } else { Vec::new() };
        LevelResult { ratios: [1.5, 0.8, 0.6, remote_apply], reaches: [0.01; COMPARED], doubts }
    }

    #[test]
    fn mean_ratios_agree_or_the_proof_fails() {
        let windows = [found(0.47, false), found(0.43, false)];
        let judge = |woven: [f64; 2], required| {
            check_agreement(&windows, &woven.map(|ratio| found(ratio, false)), required)
        };
        assert!(judge([0.44, 0.47], 0).is_ok());
        let failure = judge([0.48, 0.36], 0).unwrap_err();
        assert!(failure.sentence().contains("in 1 of 2 pairs"), "{}", failure.sentence());
        let failure = judge([0.40, 0.42], 0).unwrap_err();
        assert!(failure.sentence().contains("remote_apply -0.0400"), "{}", failure.sentence());
        assert!(judge([f64::NAN, 0.43], 0).is_err());
    }

    #[test]
    fn no_pair_differs_by_more_than_its_intervals_allow() {
        let windows = [found(0.47, false), found(0.43, false)];
        let judge =
            |woven: [f64; 2]| check_agreement(&windows, &woven.map(|ratio| found(ratio, false)), 2);
        // 0.02, and the intervals add 0.01 by the square root of two.
        assert!(judge([0.44, 0.46]).is_ok());
        let failure = judge([0.43, 0.47]).unwrap_err();
        assert!(
            failure.sentence().contains("their intervals in 0 (2 are"),
            "{}",
            failure.sentence()
        );
    }

    #[test]
    fn a_ratio_above_1_may_differ_by_2_percent_of_itself() {
        let off = |ratio| LevelResult { ratios: [ratio, 0.8, 0.6, 0.5], ..found(0.5, false) };
        assert!(check_agreement(&[off(17.0)], &[off(16.7)], 1).is_ok());
        assert!(check_agreement(&[off(17.0)], &[off(16.6)], 1).is_err());
    }

    #[test]
    fn slices_that_are_too_short_are_counted() {
        let woven = [found(0.4, true), found(0.4, true), found(0.4, false)];
        assert!(check_reports(&woven, 2).is_ok());
        assert!(check_reports(&woven, 3).is_err());
    }

    #[test]
    fn both_experiments_differ_in_weave_alone() {
        let plan = Plan {
            experiments: 1,
            blocks: 6,
            window: Duration::from_secs(10),
            out: None,
            tolerate: Vec::new(),
            weave: Some("20ms".to_owned()),
            required: 0.9,
            pg: None,
        };
        let woven = text(&plan, "20ms");
        assert!(woven.contains("weave = \"20ms\"\n"), "{woven}");
        assert_eq!(woven.matches("weave").count(), 1);
        assert_eq!(woven.replace("\"20ms\"", "false"), text(&plan, "false"));
    }
}
