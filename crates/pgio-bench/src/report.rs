//! Measures the cost of a report by the number of trials, and the cost per trial of the loop's judging.
//!
//! Results are synthetic: two conditions, with records as large as in real trials. `pgio report`
//! runs on them as a separate process, so that its time and peak memory are what a user sees. A report
//! is linear if its time per trial does not grow.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use benchmath::summary;
use rustix::time::{ClockId, clock_gettime};

use pgio::cli::exit::{FAILED, FILES, Failure, Outcome};
use pgio::cli::output;
use pgio::experiment::judging::Judge;
use pgio::rng::SplitMix64;
use pgio_results::change::Change;
use pgio_results::histogram::Histogram;
use pgio_results::metrics;
use pgio_results::model::{
    Check, DatasetInfo, Evidence, Metric, Slice, Trial, TrialPosition, When,
};
use pgio_results::store::{
    ConditionInfo, MANIFEST_SCHEMA, Manifest, Rules, Store, StoredExperiment,
};
use pgio_results::units::Layout;
use pgio_results::wire;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Numbers of trials, one report for each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    trials: Vec<u32>,
    /// text, html, markdown, csv or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: String,
}

/// Polling interval of the report's peak memory.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Judged trials: 3,000, of which the first and the last tenth are compared.
const JUDGED_TRIALS: u32 = 3_000;

pub(super) fn run(args: &Args) -> Outcome {
    output::line(" trials  record MB  seconds  peak MB  ms a trial  of the first");
    let mut first = None;
    for trials in &args.trials {
        let dir = tempfile::tempdir().map_err(|e| files(e, "cannot make a directory"))?;
        let bytes =
            write_experiment(dir.path(), *trials).map_err(|e| files(e, "cannot write results"))?;
        let (seconds, peak) = report(dir.path(), &args.format)?;
        let each = seconds * 1e3 / f64::from(*trials);
        let ratio = each / *first.get_or_insert(each);
        let (megabytes, peak) = (bytes as f64 / 1e6, peak as f64 / 1e3);
        output::line(&format!(
            "{trials:7}  {megabytes:9.1}  {seconds:7.2}  {peak:7.1}  {each:10.3}  {ratio:12.2}"
        ));
    }
    let (begin, end) = time_judging(JUDGED_TRIALS);
    output::line(&format!(
        "judging a trial: {:.1} µs in the first tenth of {JUDGED_TRIALS}, {:.1} µs in the last",
        begin * 1e6,
        end * 1e6
    ));
    Ok(())
}

fn files(error: std::io::Error, doing: &str) -> Failure {
    Failure::new(FILES, error).context(doing.to_owned())
}

/// Writes an experiment's directory; returns the size of its records.
fn write_experiment(dir: &Path, trials: u32) -> std::io::Result<u64> {
    let store = Store::create(dir, "[experiment]\n", &manifest(trials));
    drop(store.map_err(std::io::Error::other)?);
    let path = dir.join("trials.jsonl");
    // Do not use the store, which waits for the disk after each record.
    let mut file = BufWriter::new(File::create(&path)?);
    let mut random = SplitMix64::new(1);
    for n in 0..trials {
        writeln!(file, "{}", wire::to_json(&generate_trial(n, &mut random)))?;
    }
    file.flush()?;
    Ok(fs::metadata(path)?.len())
}

/// Returns the program `pgio` of the same build, which lies beside this one.
fn pgio(bench: &Path) -> Result<PathBuf, Failure> {
    let pgio = bench.with_file_name("pgio");
    if pgio.is_file() {
        return Ok(pgio);
    }
    let text = format!("{} does not exist: build it with cargo build -p pgio", pgio.display());
    Err(Failure::message(FILES, text))
}

fn report(dir: &Path, format: &str) -> Result<(f64, u64), Failure> {
    timed(&["report".as_ref(), "--format".as_ref(), format.as_ref(), dir.as_ref()])
}

/// Runs pgio and returns its wall time and peak memory in kB.
pub(super) fn timed(arguments: &[&OsStr]) -> Result<(f64, u64), Failure> {
    let failed = |e: std::io::Error| Failure::new(FAILED, e).context("cannot run pgio");
    let exe = pgio(&std::env::current_exe().map_err(failed)?)?;
    let began = Instant::now();
    let mut child =
        Command::new(exe).args(arguments).stdout(Stdio::null()).spawn().map_err(failed)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        peak = now.unwrap_or(0).max(peak);
        if let Some(ended) = child.try_wait().map_err(failed)? {
            let seconds = began.elapsed().as_secs_f64();
            return if ended.success() {
                Ok((seconds, peak))
            } else {
                Err(Failure::message(FAILED, "pgio failed"))
            };
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the CPU time of this thread, which excludes the time of other processes.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU seconds per trial of the loop's judging, at the beginning and at the end: medians
/// over blocks, which a pause of the whole process does not affect.
fn time_judging(trials: u32) -> (f64, f64) {
    let mut random = SplitMix64::new(1);
    let manifest = manifest(trials);
    let mut stored = StoredExperiment { manifest, trials: Vec::new(), torn: false, judged: false };
    let mut judge = Judge::default();
    let mut blocks = Vec::new();
    for n in 0..trials {
        let trial = generate_trial(n, &mut random);
        let began = cpu_seconds();
        judge.add(&stored.manifest, n as usize, &trial);
        stored.trials.push(trial);
        if n % 2 == 1 {
            let cells = ["local", "on"].map(|name| pgio_results::points::Cell {
                condition: name.to_owned(),
                point: BTreeMap::new(),
            });
            std::hint::black_box(judge.invalid(&stored, n / 2 + 1, &cells));
        }
        // A block is judged after its second trial.
        if n % 2 == 1 {
            blocks.push(cpu_seconds() - began);
        }
    }
    let tenth = blocks.len() / 10;
    let median = |some: &[f64]| summary::median(some).unwrap_or(0.0);
    (median(&blocks[..tenth]), median(&blocks[blocks.len() - tenth..]))
}

pub(super) fn manifest(trials: u32) -> Manifest {
    let condition = |name: &str| ConditionInfo {
        name: name.to_owned(),
        changes: vec![Change::server("synchronous_commit", name)],
    };
    Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        name: "made up".to_owned(),
        created_at: "2026-01-01T00:00:00Z".to_owned(),
        seed: 1,
        blocks: trials / 2,
        baseline: "local".to_owned(),
        own_baseline: None,
        aa: None,
        primary_metric: "commits_per_second".to_owned(),
        conditions: vec![condition("local"), condition("on")],
        metrics: Vec::new(),
        built: BTreeMap::new(),
        environment: BTreeMap::new(),
        rules: Rules::default(),
        resumed: Vec::new(),
        varied: None,
        design: None,
        weave: None,
    }
}

/// Returns a record as large as a ten-second window's: environment, timeline, histograms, checks.
pub(super) fn generate_trial(n: u32, random: &mut SplitMix64) -> Trial {
    let on = n % 2 == 1;
    let noise = 1.0 + 0.05 * (random.next_f64() - 0.5);
    let rate = if on { 1_400.0 } else { 2_800.0 } * noise;
    let mut trial = Trial::new();
    trial.run_id = "20260101T000000Z-1".to_owned();
    trial.place = Some(TrialPosition {
        experiment: "made up".to_owned(),
        condition: if on { "on" } else { "local" }.to_owned(),
        block: n / 2 + 1,
        position: n % 2 + 1,
        attempt: 0,
        point: BTreeMap::new(),
    });
    trial.started_at = "2026-01-01T00:00:00Z".to_owned();
    (trial.window.seconds, trial.window.asked_seconds) = (10.0, Some(10.0));
    trial.workload.kind = "commit".to_owned();
    trial.workload.primary_metric = "commits_per_second".to_owned();
    trial.dataset = Some(DatasetInfo {
        tables: 2,
        scale: "1G".to_owned(),
        blocks_per_table: 131_072,
        seed: 42,
        layout: Layout::default(),
        bytes_before: 2 << 30,
        bytes_after: 2 << 30,
        bytes_used: None,
    });
    for setting in 0..60 {
        let name = format!("setting.of_the_server_number_{setting}");
        Arc::make_mut(&mut trial.environment).insert(name, format!("value {setting}"));
    }
    let slice = |second: u32| Slice {
        at: f64::from(second),
        seconds: 1.0,
        commits: (rate * (1.0 + 0.02 * random.next_f64())) as u64,
        ..Slice::default()
    };
    trial.timeline = (1..=10).map(slice).collect();
    for class in ["commit", "transaction"] {
        let mut histogram = Histogram::default();
        (0..200).for_each(|_| histogram.record(1e9 / rate * (0.5 + random.next_f64())));
        trial.histograms.insert(class.to_owned(), histogram);
    }
    for metric in metrics::all(&[]).take(30) {
        let value = Some(100.0 * (1.0 + 0.05 * random.next_f64()));
        trial.metrics.insert(metric.name.to_owned(), Metric::new(value, metric.unit));
    }
    for (name, value) in [("commits_per_second", rate), ("checkpoints", 0.0)] {
        let unit = metrics::definition(name).map_or("", |def| def.unit).to_owned();
        trial.metrics.insert(name.to_owned(), Metric::new(Some(value), unit));
    }
    for when in [When::Before, When::During, When::After] {
        trial.evidence.push(Evidence {
            when,
            what: "synchronous_commit (sessions)".to_owned(),
            found: "on".to_owned(),
            expected: Some("on".to_owned()),
        });
    }
    for id in ["treatment-in-force", "durability", "checkpoints", "data-size", "common-start"] {
        trial.checks.push(Check::ok(id, "passed, with figures as evidence"));
    }
    trial
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::store;
    use pgio_verdict::{self as analysis, trial_statuses};

    /// Reading and judging are linear: four times the trials take much less than eight times the time.
    /// The statistics of a comparison are left out; their own tests cover their growth.
    #[test]
    fn four_times_the_trials_take_less_than_eight_times_the_work() {
        let seconds = |trials: u32| {
            let dir = tempfile::tempdir().unwrap();
            write_experiment(dir.path(), trials).unwrap();
            let once = || {
                let began = cpu_seconds();
                let mut stored = store::read(dir.path()).unwrap();
                analysis::judge(&mut stored);
                let statuses = trial_statuses(&stored);
                assert_eq!(statuses.len(), trials as usize);
                cpu_seconds() - began
            };
            (0..3).map(|_| once()).fold(f64::MAX, f64::min)
        };
        let (few, many) = (seconds(60), seconds(240));
        assert!(many < 8.0 * few, "{few} s, then {many} s");
    }

    #[test]
    fn judging_a_trial_takes_no_longer_after_many() {
        let (begin, end) = time_judging(400);
        assert!(end < 4.0 * begin, "{begin} s a trial, then {end} s");
    }
}
