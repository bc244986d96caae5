//! The benches against the original: their arguments, and its files, which run from the checkout that the user names.
//! None is copied into this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio::cli::exit::{CONNECT, Failure, Outcome, TRIAL, USAGE};
use pgio::cli::output;
use pgio::config::Layer;
use pgio::pg::private::VersionRequest;
use pgio::workload::Workload;
use pgio_connect::Client;
use pgio_results::units::Scale;

use super::server::{Bench, metric, spread};

#[derive(Debug, clap::Args)]
pub(super) struct UpstreamArgs {
    /// A checkout of the original pgio 1.0
    #[arg(long, value_name = "DIR")]
    pub(super) upstream: PathBuf,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Length of each run, if it has one
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub(super) seconds: u64,
    /// Size of each table
    #[arg(long, value_name = "SIZE")]
    pub(super) scale: Option<Scale>,
    #[arg(long, value_name = "VERSION", default_value = "15")]
    pub(super) pg: VersionRequest,
}

/// Returns the error of a checkout that lacks something.
pub(super) fn missing(what: &str) -> Failure {
    Failure::message(USAGE, format!("--upstream: {what}"))
}

/// Returns the directory of its scripts: the checkout itself, or its archive unpacked to pgio/.
pub(super) fn scripts(dir: &Path) -> Result<PathBuf, Failure> {
    let candidates = [dir.join("pgio"), dir.to_owned()];
    candidates
        .into_iter()
        .find(|d| d.join("setup.sh").is_file() && sql(d).join("pgio.sql").is_file())
        .ok_or_else(|| missing(&format!("{} has no setup.sh and pgio.sql", dir.display())))
}

/// Returns the directory of its SQL files: sql/ in the archive, the scripts' directory in the
/// repository.
fn sql(scripts: &Path) -> PathBuf {
    let below = scripts.join("sql");
    if below.is_dir() { below } else { scripts.to_owned() }
}

/// Creates mypgio() in the session's database.
pub(super) fn create_functions(scripts: &Path, client: &mut Client) -> Result<(), Failure> {
    // Its files begin by dropping their objects, which must exist.
    let failed = |e: pgio_connect::Error| {
        Failure::new(CONNECT, e).context("cannot create the original's functions")
    };
    client
        .batch_execute(
            "DROP TYPE IF EXISTS pgio_return CASCADE; CREATE TYPE pgio_return AS (n int)",
        )
        .map_err(failed)?;
    for file in ["pgio_get_rand.sql", "pgio.sql"] {
        let path = sql(scripts).join(file);
        let text = fs::read_to_string(&path)
            .map_err(|e| missing(&format!("cannot read {}: {e}", path.display())))?;
        client.batch_execute(&text).map_err(failed)?;
    }
    Ok(())
}

// Compares block visits/s of one session on a cached table: the original's function against pgio's, in turn on the
// same table and server. The original's `BETWEEN k AND k + N` touches N + 1 rows and counts N. Both ratios are
// printed: by its count, and by the rows that it touches.

/// The original's work units, and pgio's batches.
const CASES: &[(u64, u32)] = &[(1, 1), (1, 100), (8, 1), (255, 1)];

pub(super) fn run(args: &UpstreamArgs) -> Outcome {
    let scripts = scripts(&args.upstream)?;
    let scale = match &args.scale {
        Some(scale) => scale.clone(),
        None => "200M".parse::<Scale>().expect("a valid size"),
    };
    let mut bench = Bench::start(
        Some(args.pg),
        &[("shared_buffers", "1GB"), ("max_wal_size", "4GB"), ("autovacuum", "off")],
    )?;
    bench.load(&scale, 1, false)?;
    // The original finds its tables and functions by search_path.
    let mut theirs = pgio_connect::connect(&bench.params)?;
    create_functions(&scripts, &mut theirs)?;
    output::line(&format!(
        "one session, table of {scale} in shared buffers, {} pairs of {} s\n",
        args.rounds, args.seconds
    ));
    output::line(
        "WORK_UNIT  batch  ours/original as it counts         ours/original by rows touched",
    );
    for (work_unit, batch) in CASES {
        let layer = Layer {
            update_pct: Some(0),
            work_unit: Some(*work_unit),
            batch: Some(*batch),
            num_schemas: Some(1),
            num_threads: Some(1),
            run_time: Some(Duration::from_secs(args.seconds)),
            ..Layer::default()
        };
        let ours: Arc<dyn Workload> = Arc::new(bench.loaded(layer)?);
        let (mut counted, mut touched) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let original = original(&mut theirs, &scale, *work_unit, args.seconds)?;
            let trial = bench.trial(&ours, Duration::from_millis(300))?;
            let ratio = metric(&trial, "block_visits_per_second") / original;
            counted.push(ratio);
            touched.push(ratio * *work_unit as f64 / (*work_unit + 1) as f64);
        }
        output::line(&format!(
            "{work_unit:9}  {batch:5}  {:33}  {}",
            spread(&counted, 2),
            spread(&touched, 2)
        ));
    }
    Ok(())
}

/// Returns visits/s as the original counts them.
fn original(client: &mut Client, scale: &Scale, unit: u64, seconds: u64) -> Result<f64, Failure> {
    let call = format!(
        "SELECT select_blk_touch_cnt FROM mypgio('pgio1', 0, {seconds}, {}, {unit}, 8)",
        scale.blocks()
    );
    let begun = Instant::now();
    let row = client
        .query_one(&call, &[])
        .map_err(|e| Failure::new(TRIAL, e).context("the original's function failed"))?;
    Ok(row.get::<_, i64>(0) as f64 / begun.elapsed().as_secs_f64())
}
