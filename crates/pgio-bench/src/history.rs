//! Measures time and memory of `pgio history` over many experiments, from directories and from a results
//! database, and the time of storing them there.
//!
//! Records are synthetic and as large as records of real trials; the real store writes them. Their level
//! falls by 5 % in the middle. The database is private.

use std::ffi::OsStr;
use std::path::Path;

use jiff::{Timestamp, ToSpan};

use super::report::{generate_trial, manifest, timed};
use super::server;
use pgio::cli::exit::{FILES, Failure, Outcome};
use pgio::cli::output;
use pgio::pg::private::VersionRequest;
use pgio::rng::SplitMix64;
use pgio_results::store::{Store, StoreError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of experiments
    #[arg(long, value_name = "N", default_value_t = 1000)]
    runs: u32,
    /// Trials of each experiment
    #[arg(long, value_name = "N", default_value_t = 24)]
    trials: u32,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let dir = tempfile::tempdir()
        .map_err(|e| Failure::new(FILES, e).context("cannot make a directory"))?;
    write(dir.path(), args)?;
    output::line(&format!("{} experiments of {} trials", args.runs, args.trials));
    output::line("                          seconds  peak MB");
    let cluster = server::private(args.pg, None, &[], false)?;
    let dsn = cluster.primary_conninfo();
    let (dir, dsn): (&OsStr, &OsStr) = (dir.path().as_ref(), dsn.as_ref());
    measure("history from directories", &["history".as_ref(), dir])?;
    measure("store", &["store".as_ref(), dir, "--to".as_ref(), dsn])?;
    measure("store again", &["store".as_ref(), dir, "--to".as_ref(), dsn])?;
    measure("history from the database", &["history".as_ref(), "--store".as_ref(), dsn])
}

fn measure(what: &str, arguments: &[&OsStr]) -> Outcome {
    let (seconds, peak) = timed(arguments)?;
    output::line(&format!("{what:25} {seconds:8.2} {:8.1}", peak as f64 / 1e3));
    Ok(())
}

fn write(dir: &Path, args: &Args) -> Result<(), StoreError> {
    let mut random = SplitMix64::new(1);
    let first = Timestamp::UNIX_EPOCH + (24 * 365 * 50).hours();
    for run in 0..args.runs {
        let at = first + (24 * i64::from(run)).hours();
        let mut manifest = manifest(args.trials);
        manifest.created_at = at.to_string();
        let level = if run < args.runs / 2 { 1.0 } else { 0.95 };
        let mut store = Store::create(&dir.join(format!("run-{run:04}")), "", &manifest)?;
        for n in 0..args.trials {
            let mut trial = generate_trial(n, &mut random);
            trial.run_id = format!("{}-{run}", at.strftime("%Y%m%d%H%M%S"));
            for metric in trial.metrics.values_mut().filter(|m| m.unit.ends_with("/s")) {
                metric.value = metric.value.map(|value| value * level);
            }
            store.append(&trial)?;
        }
    }
    Ok(())
}
