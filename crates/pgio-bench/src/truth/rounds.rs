//! Runs experiments one after the other, compares each with the truth, and checks how many cover it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgio::cli::exit::{FAILED, FILES, Failure, Outcome, USAGE};
use pgio::cli::setup::{self, Lines};
use pgio::cli::{flags, jobs, output, signals};
use pgio::config::ConnectString;
use pgio::experiment::admin::open_admin;
use pgio::experiment::application::{Run, Start};
use pgio::experiment::event::Event;
use pgio::experiment::state;
use pgio::host::stop::Stop;
use pgio::pg::private::{PrivateCluster, VersionRequest};
use pgio::workload::Progress;
use pgio_report::directories;
use pgio_results::units::{Scale, exact_duration};
use pgio_verdict::{Analysis, Comparison, Verdict};
use tempfile::TempDir;

use crate::server;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Plan {
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) experiments: usize,
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub(super) blocks: u32,
    /// Length of each window
    #[arg(long = "seconds", value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(super) window: Duration,
    /// Keep the results here, a directory for each experiment
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Accept trials that fail this check, such as foreign-load
    #[arg(long, value_name = "CHECK")]
    pub(super) tolerate: Vec<String>,
    /// Let the conditions of a block take turns: auto, or a mean length such as 20ms
    #[arg(long, value_name = "LENGTH")]
    pub(super) weave: Option<String>,
    /// The share of the experiments that must cover the truth
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub(super) required: f64,
    #[arg(long, value_name = "VERSION")]
    pub(super) pg: Option<VersionRequest>,
}

/// A shorter window has a warm-up of its own length.
const WARMUP: Duration = Duration::from_millis(500);

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

impl Plan {
    /// Returns `[experiment]` with the keys of every case; the case appends its own.
    pub(super) fn head(&self, name: &str, aa: bool) -> String {
        let window = exact_duration(self.window);
        let weave = self.weave.iter().map(|length| format!("weave = {length:?}\n"));
        format!(
            "[experiment]\nname = \"{name}\"\nblocks = {}\nduration = \"{window}\"\n\
             warmup = \"{}\"\naa = {aa}\ntolerate = {:?}\n{}",
            self.blocks,
            exact_duration(WARMUP.min(self.window)),
            self.tolerate,
            weave.collect::<String>()
        )
    }

    /// Returns how many experiments must give the right answer.
    pub(super) fn required_count(&self, experiments: usize) -> usize {
        // The product may be a rounding error above a whole number.
        (experiments as f64 * self.required - 1e-9).ceil() as usize
    }

    /// The next experiment, unless the user has requested a stop. `scratch` holds results that are
    /// not kept.
    pub(super) fn round<'a>(
        &self,
        name: &str,
        scratch: &Path,
        stop: &'a Stop,
    ) -> Result<Round<'a>, Failure> {
        let out = self.out.as_deref().unwrap_or(scratch).join(name);
        let round = Round { out, stop, pg: self.pg };
        round.check_interrupted()?;
        Ok(round)
    }
}

/// The result of one experiment, and the truth. Unknown numbers are NaN.
#[derive(Debug, Clone)]
pub(super) struct RoundResult {
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) verdict: Verdict,
    pub(super) truth: f64,
    /// Additional information.
    pub(super) remark: String,
}

impl RoundResult {
    /// Judges a ratio.
    pub(super) fn for_ratio(found: Option<&Comparison>, truth: f64) -> RoundResult {
        RoundResult::new(found, |c| [c.ratio, c.interval.low, c.interval.high], 1.0, truth)
    }

    /// Judges a difference in other units; `scale` converts from the metric's unit.
    pub(super) fn for_difference(
        found: Option<&Comparison>,
        scale: f64,
        truth: f64,
    ) -> RoundResult {
        let interval = |c: &Comparison| [c.difference, c.difference_low, c.difference_high];
        RoundResult::new(found, interval, scale, truth)
    }

    pub(super) fn new(
        found: Option<&Comparison>,
        values: impl Fn(&Comparison) -> [Option<f64>; 3],
        scale: f64,
        truth: f64,
    ) -> RoundResult {
        let [estimate, low, high] =
            found.map_or([None; 3], values).map(|v| v.map_or(f64::NAN, |v| v * scale));
        let verdict = found.map_or(Verdict::NotApplicable, |c| c.verdict);
        RoundResult { estimate, low, high, verdict, truth, remark: String::new() }
    }

    fn covered(&self) -> bool {
        self.low <= self.truth && self.truth <= self.high
    }

    fn line(&self, number: usize) -> String {
        let covered = if self.covered() {
            "covered"
        } else if self.low.is_nan() {
            "nothing"
        } else {
            "MISSED"
        };
        let line = format!(
            "{number:10}  {:9.4}  {:8.4} to {:8.4}  {:13}  {:8.4}  {covered:7}  {}",
            self.estimate,
            self.low,
            self.high,
            verdict(self.verdict),
            self.truth,
            self.remark
        );
        line.trim_end().to_owned()
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Higher => "higher",
        Verdict::Lower => "lower",
        Verdict::NoDifference => "no difference",
        Verdict::TooFewBlocks => "few blocks",
        Verdict::NotApplicable => "no ratio",
        Verdict::NotJudged => "not judged",
    }
}

/// The directory for an experiment's results, and its stop signal.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) out: PathBuf,
    pub(crate) stop: &'a Stop,
    pub(crate) pg: Option<VersionRequest>,
}

impl Round<'_> {
    /// Fails once the user requests a stop.
    pub(super) fn check_interrupted(&self) -> Outcome {
        if self.stop.requested() { Err(Failure::interrupted()) } else { Ok(()) }
    }

    pub(super) fn analysis(&self, text: &str) -> Result<Analysis, Failure> {
        self.analyze_with_events(text, &mut |_| {})
    }

    pub(super) fn analyze_with_events(
        &self,
        text: &str,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Analysis, Failure> {
        Ok(directories::analyze(&self.results(text, on_event)?)?)
    }

    /// Runs an experiment of one workload and returns the directory of its results.
    pub(crate) fn results(
        &self,
        text: &str,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<PathBuf, Failure> {
        let job = jobs::parse(text, "truth.toml", "truth")?;
        let run = Run { out: &self.out, start: Start::New, stop: self.stop, pg: self.pg };
        let dirs = jobs::perform(&job, &run, on_event)?;
        Ok(dirs.into_iter().next().expect("an experiment has a workload, and each a directory"))
    }
}

/// Returns when the window of this progress event opened.
pub(super) fn opened_at(progress: &Progress) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs_f64(progress.elapsed)).unwrap_or(now)
}

/// Returns a temporary directory for results that are not kept.
pub(crate) fn scratch() -> Result<TempDir, Failure> {
    tempfile::tempdir()
        .map_err(|e| Failure::new(FILES, e).context("cannot make a temporary directory"))
}

/// Runs the experiments, prints a line for each and the total; `what` names the estimate.
pub(super) fn run_rounds(
    plan: &Plan,
    what: &str,
    mut one: impl FnMut(&Round<'_>) -> Result<RoundResult, Failure>,
) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    output::line(&format!(
        "experiment  {what:>9}  {:20}  {:13}  {:>8}",
        "95 % interval", "verdict", "truth"
    ));
    let mut all = Vec::new();
    for number in 1..=plan.experiments {
        let round = plan.round(&format!("{number:03}"), scratch.path(), &stop)?;
        let judged = one(&round)?;
        output::line(&judged.line(number));
        all.push(judged);
    }
    sum_up(&all, plan.required_count(all.len()))
}

fn sum_up(all: &[RoundResult], required: usize) -> Outcome {
    let covered = all.iter().filter(|j| j.covered()).count();
    let decided = all.iter().filter(|j| j.verdict.is_decided()).count();
    let text = format!(
        "{covered} of {} intervals cover the truth, {required} are required; {decided} verdicts \
         claim a difference",
        all.len()
    );
    if covered < required {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

/// Reads of a small table in shared buffers, by one session.
pub(super) const CACHED_READS: &str = r#"
[workload]
kind = "slob"
scale = "32M"
work_unit = 8
update_pct = 0
num_schemas = 1
num_threads = 1
create_base_table = false
"#;

/// Starts a private server for the case.
pub(super) fn private(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
    settings: &[(&str, &str)],
) -> Result<PrivateCluster, Failure> {
    server::private(pg, base_dir, settings, false)
}

/// Starts a private server with a synchronous standby.
pub(super) fn private_pair(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
) -> Result<PrivateCluster, Failure> {
    server::private(pg, base_dir, &[], true)
}

/// Loads the one-table data set on a case's private server.
pub(super) fn load(cluster: &PrivateCluster, scale: &str) -> Outcome {
    load_at(cluster.primary_conninfo(), scale)
}

pub(super) fn load_at(dsn: String, scale: &str) -> Outcome {
    let run_id = state::new_run_id();
    let params = flags::params(&ConnectString::new(dsn), &run_id)?;
    let (mut admin, _) = open_admin(&params, &run_id)?;
    let scale: Scale = scale.parse().map_err(|e| Failure::new(USAGE, e))?;
    let spec = server::data_set(&scale, 1, false);
    setup::load(&mut admin, &params, &spec, &Stop::new(), Lines::None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        plan: Plan,
    }

    fn judged(low: f64, high: f64) -> RoundResult {
        let (estimate, truth) = (1.0, 0.95);
        let (verdict, remark) = (Verdict::NoDifference, String::new());
        RoundResult { estimate, low, high, verdict, truth, remark }
    }

    #[test]
    fn check_interrupted_fails_after_a_stop_request() {
        let stop = Stop::new();
        let round = Round { out: PathBuf::new(), stop: &stop, pg: None };
        assert!(round.check_interrupted().is_ok());
        stop.request();
        assert_eq!(round.check_interrupted().unwrap_err().sentence(), "stopped");
    }

    #[test]
    fn a_tenth_of_intervals_may_miss_and_an_absent_one_counts_as_a_miss() {
        let plan = |args: &[&str]| Parsed::parse_from([&["truth"], args].concat()).plan;
        assert_eq!([40, 20, 3].map(|all| plan(&[]).required_count(all)), [36, 18, 3]);
        assert_eq!(plan(&["--required", "0.93"]).required_count(200), 186);
        assert!(judged(0.94, 0.95).covered());
        assert!(!judged(0.951, 1.0).covered());
        assert!(!judged(f64::NAN, f64::NAN).covered());
        let hits = |n| std::iter::repeat_n(judged(0.9, 1.0), n).collect::<Vec<_>>();
        let misses = |n| std::iter::repeat_n(judged(1.0, 1.1), n).collect::<Vec<_>>();
        assert!(sum_up(&[hits(18), misses(2)].concat(), 18).is_ok());
        assert!(sum_up(&[hits(17), misses(3)].concat(), 18).is_err());
    }

    #[test]
    fn the_weave_option_reaches_the_experiment_file() {
        let head = |args: &[&str]| {
            let plan = Parsed::parse_from([&["truth"], args].concat()).plan;
            plan.head("x", false)
        };
        assert!(!head(&[]).contains("weave"));
        assert!(head(&["--weave", "20ms"]).ends_with("weave = \"20ms\"\n"));
    }
}
