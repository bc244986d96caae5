//! `pgio bench truth`: whole experiments of which the right answer is known.
//!
//! Each goes the way of `compare`: a text is parsed, run, stored and analysed. Counted is how often
//! the 95 % interval covers the truth; a tenth of the experiments may miss it, twice what 95 % says,
//! so that chance alone hardly ever fails the bench. One file a case, in one shape: `run`. `tail` asks
//! of single trials instead, whether a percentile shows what happened.

mod aa;
mod cache;
mod commit_delay;
mod disk;
mod read_iops;
mod stalls;
mod tail;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Outcome, output};
use crate::analysis::{Analysis, Comparison, Verdict};
use crate::cli::exit::{FAILED, FILES, Failure, USAGE};
use crate::cli::loading::{self, Lines};
use crate::cli::{connection, jobs, report, signals};
use crate::config::ConnectString;
use crate::dataset::LoadSpec;
use crate::experiment::admin::open_admin;
use crate::experiment::application::{Run, Start};
use crate::experiment::event::Event;
use crate::experiment::state;
use crate::host::stop::Stop;
use crate::pg::private::{PrivateCluster, Spec, VersionRequest};
use crate::units::{Layout, Scale, exact_duration};
use crate::workload::Progress;

/// Reads of a small table that is all in shared buffers, by one session.
const CACHED_READS: &str = r#"
[workload]
kind = "slob"
scale = "32M"
work_unit = 8
update_pct = 0
num_schemas = 1
num_threads = 1
create_base_table = false
"#;

/// The part of the experiments that must cover the truth.
const REQUIRED: f64 = 0.9;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    case: Case,
}

#[derive(Debug, clap::Subcommand)]
enum Case {
    /// Equal conditions: nothing differs
    Aa(aa::Args),
    /// Three equal conditions on data larger than the buffers: do trials read what others fetched?
    Cache(cache::Args),
    /// A disk of fewer read IOPS against another, by loop devices and cgroup v1 (needs root)
    ReadIops(read_iops::Args),
    /// commit_delay = 20 ms against none, beside a plain psql loop (needs psql)
    CommitDelay(Plan),
    /// A server that stands still for a third of the window in three trials of ten
    Stalls(Plan),
    /// A lock until after the end of an open loop's window: p99 must show it
    Tail(tail::Args),
}

#[derive(Debug, clap::Args)]
struct Plan {
    #[arg(long, value_name = "N", default_value_t = 20)]
    experiments: usize,
    #[arg(long, value_name = "N", default_value_t = 6)]
    blocks: u32,
    /// Length of each window
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    seconds: u64,
    /// Keep the results here, a directory for each experiment
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let trials count that this check makes invalid, such as foreign-load
    #[arg(long, value_name = "CHECK")]
    tolerate: Vec<String>,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.case {
        Case::Aa(args) => aa::run(args),
        Case::Cache(args) => cache::run(args),
        Case::ReadIops(args) => read_iops::run(args),
        Case::CommitDelay(plan) => commit_delay::run(plan),
        Case::Stalls(plan) => stalls::run(plan),
        Case::Tail(args) => tail::run(args),
    }
}

impl Plan {
    /// `[experiment]` of every case, to which it adds its own.
    fn head(&self, name: &str, aa: bool) -> String {
        let window = exact_duration(Duration::from_secs(self.seconds));
        format!(
            "[experiment]\nname = \"{name}\"\nblocks = {}\nduration = \"{window}\"\n\
             warmup = \"500ms\"\naa = {aa}\ntolerate = {:?}\n",
            self.blocks, self.tolerate
        )
    }
}

/// What one experiment said, beside what is true. Numbers that could not be told are NaN.
#[derive(Debug, Clone)]
struct Judged {
    estimate: f64,
    low: f64,
    high: f64,
    verdict: Verdict,
    truth: f64,
    /// What else is worth a look.
    remark: String,
}

impl Judged {
    /// Of a ratio.
    fn of_ratio(found: Option<&Comparison>, truth: f64) -> Judged {
        Judged::new(found, |c| [c.ratio, c.low, c.high], 1.0, truth)
    }

    /// Of a difference, in units of which the metric's own has `scale`.
    fn of_difference(found: Option<&Comparison>, scale: f64, truth: f64) -> Judged {
        let of = |c: &Comparison| [c.difference, c.difference_low, c.difference_high];
        Judged::new(found, of, scale, truth)
    }

    fn new(
        found: Option<&Comparison>,
        values: impl Fn(&Comparison) -> [Option<f64>; 3],
        scale: f64,
        truth: f64,
    ) -> Judged {
        let [estimate, low, high] =
            found.map_or([None; 3], values).map(|v| v.map_or(f64::NAN, |v| v * scale));
        let verdict = found.map_or(Verdict::NotApplicable, |c| c.verdict);
        Judged { estimate, low, high, verdict, truth, remark: String::new() }
    }

    fn covered(&self) -> bool {
        self.low <= self.truth && self.truth <= self.high
    }

    fn line(&self, number: usize) -> String {
        let covered = match self.covered() {
            true => "covered",
            false if self.low.is_nan() => "nothing",
            false => "MISSED",
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

/// Where one experiment's results go, and what stops it.
#[derive(Debug)]
struct Round<'a> {
    out: PathBuf,
    stop: &'a Stop,
    pg: Option<VersionRequest>,
}

impl Round<'_> {
    /// Refuses once somebody wants to stop.
    fn go_on(&self) -> Outcome {
        if self.stop.requested() { Err(Failure::interrupted()) } else { Ok(()) }
    }

    fn analysis(&self, text: &str) -> Result<Analysis, Failure> {
        self.analysis_heard(text, &mut |_| {})
    }

    fn analysis_heard(
        &self,
        text: &str,
        hear: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Analysis, Failure> {
        let job = jobs::parse(text, "truth.toml", "truth")?;
        let run = Run { out: &self.out, start: Start::New, stop: self.stop, pg: self.pg };
        let dirs = jobs::perform(&job, &run, hear)?;
        let dir = dirs.first().expect("an experiment has a workload, and each a directory");
        Ok(report::analyse(dir)?)
    }
}

/// When the window opened of which this is heard.
fn opened(progress: &Progress) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs_f64(progress.elapsed)).unwrap_or(now)
}

/// A server of the case's own.
fn private(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
    settings: &[(&str, &str)],
) -> Result<PrivateCluster, Failure> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::new(FAILED, e).context("cannot find pgio's own program file"))?;
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Ok(PrivateCluster::start(&Spec {
        pg,
        base_dir: base_dir.map(Path::to_owned),
        primary_settings: settings.iter().map(own).collect(),
        ..Spec::new(exe)
    })?)
}

/// Makes the data set of one table on a case's own server.
fn load(cluster: &PrivateCluster, scale: &str) -> Outcome {
    let run_id = state::new_run_id();
    let params = connection::params(&ConnectString::new(cluster.primary_conninfo()), &run_id)?;
    let (mut admin, _) = open_admin(&params, &run_id)?;
    let blocks = scale.parse::<Scale>().map_err(|e| Failure::new(USAGE, e))?.blocks();
    let spec = LoadSpec {
        tables: 1,
        streams: 1,
        blocks,
        scale: scale.to_owned(),
        seed: 42,
        base_table: false,
        tablespace: None,
        layout: Layout::default(),
        scan: None,
    };
    loading::load(&mut admin, &params, &spec, &Stop::new(), Lines::None)?;
    Ok(())
}

/// For results that nobody keeps.
fn scratch() -> Result<TempDir, Failure> {
    tempfile::tempdir()
        .map_err(|e| Failure::new(FILES, e).context("cannot make a temporary directory"))
}

/// The experiments one after the other, a line each and the sum; `what` names the estimate.
fn each(
    plan: &Plan,
    what: &str,
    mut one: impl FnMut(&Round<'_>) -> Result<Judged, Failure>,
) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let out = plan.out.as_deref().unwrap_or(scratch.path());
    output::line(&format!(
        "experiment  {what:>9}  {:20}  {:13}  {:>8}",
        "95 % interval", "verdict", "truth"
    ));
    let mut all = Vec::new();
    for number in 1..=plan.experiments {
        let out = out.join(format!("{number:03}"));
        let round = Round { out, stop: &stop, pg: plan.pg };
        round.go_on()?;
        let judged = one(&round)?;
        output::line(&judged.line(number));
        all.push(judged);
    }
    sum_up(&all)
}

fn sum_up(all: &[Judged]) -> Outcome {
    let covered = all.iter().filter(|j| j.covered()).count();
    let decided = all.iter().filter(|j| j.verdict.is_decided()).count();
    let required = required(all.len());
    let text = format!(
        "{covered} of {} intervals cover the truth, {required} are required; {decided} verdicts \
         say that there is a difference",
        all.len()
    );
    if covered < required {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

fn required(experiments: usize) -> usize {
    (experiments as f64 * REQUIRED).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(low: f64, high: f64) -> Judged {
        let (estimate, truth) = (1.0, 0.95);
        let (verdict, remark) = (Verdict::NoDifference, String::new());
        Judged { estimate, low, high, verdict, truth, remark }
    }

    #[test]
    fn who_wants_to_stop_is_heard_before_the_next_step() {
        let stop = Stop::new();
        let round = Round { out: PathBuf::new(), stop: &stop, pg: None };
        assert!(round.go_on().is_ok());
        stop.request();
        assert_eq!(round.go_on().unwrap_err().sentence(), "stopped");
    }

    #[test]
    fn a_tenth_may_miss_and_what_has_no_interval_does() {
        assert_eq!([required(40), required(20), required(3)], [36, 18, 3]);
        assert!(judged(0.94, 0.95).covered());
        assert!(!judged(0.951, 1.0).covered());
        assert!(!judged(f64::NAN, f64::NAN).covered());
        let hits = |n| std::iter::repeat_n(judged(0.9, 1.0), n).collect::<Vec<_>>();
        let misses = |n| std::iter::repeat_n(judged(1.0, 1.1), n).collect::<Vec<_>>();
        assert!(sum_up(&[hits(18), misses(2)].concat()).is_ok());
        assert!(sum_up(&[hits(17), misses(3)].concat()).is_err());
    }
}
