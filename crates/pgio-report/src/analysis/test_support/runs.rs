//! Many runs of one experiment, for histories: made up, and written through the real store.

use std::path::{Path, PathBuf};

use benchmath::rng::SplitMix64;
use jiff::{Timestamp, ToSpan};
use pgio_results::store::{Store, StoreError, StoredExperiment};

use super::{experiment, trial};

/// Blocks of each run.
const BLOCKS: u32 = 4;
/// The conditions and their rates.
const CONDITIONS: [(&str, f64); 3] = [("local", 2900.0), ("on", 1350.0), ("remote_apply", 1200.0)];

/// One value of a standard normal distribution, nearly: the sum of twelve uniform ones.
pub fn unit_noise(rng: &mut SplitMix64) -> f64 {
    (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
}

/// So many runs, one a night from 1 October 2026 on. All rates of a run are multiplied by `level(run)`, with
/// the runs numbered from 1; trials vary by 1 % beside that.
pub fn stored_runs(runs: u32, mut level: impl FnMut(u32) -> f64) -> Vec<StoredExperiment> {
    let first: Timestamp = "2026-10-01T02:00:00Z".parse().expect("a valid time");
    let names = CONDITIONS.map(|(name, _)| name);
    (1..=runs)
        .map(|run| {
            let at = first + (24 * (i64::from(run) - 1)).hours();
            let level = level(run);
            let mut rng = SplitMix64::new(u64::from(run));
            let blocks =
                (1..=BLOCKS).flat_map(|block| CONDITIONS.map(|(name, rate)| (block, name, rate)));
            let trials = blocks.map(|(block, name, rate)| {
                let rate = rate * level * (0.01 * unit_noise(&mut rng)).exp();
                let mut trial = trial(name, block, &[("commits_per_second", rate)]);
                trial.run_id = format!("{}-1", at.strftime("%Y%m%dT%H%M%SZ"));
                trial.started_at = at.to_string();
                trial
            });
            let mut stored = experiment(&names, trials.collect());
            stored.manifest.blocks = BLOCKS;
            stored.manifest.created_at = at.to_string();
            stored
        })
        .collect()
}

/// Writes runs as `compare` does, each into a directory of its own below `dir`.
pub fn write_runs(dir: &Path, runs: &[StoredExperiment]) -> Result<Vec<PathBuf>, StoreError> {
    (1..)
        .zip(runs)
        .map(|(number, run)| {
            let own = dir.join(format!("run-{number:04}"));
            let mut store = Store::create(&own, "# made up for a test\n", &run.manifest)?;
            run.trials.iter().try_for_each(|trial| store.append(trial))?;
            Ok(own)
        })
        .collect()
}
