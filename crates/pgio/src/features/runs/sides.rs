//! Compares the results of two sides, such as last month's runs with today's, workload by workload.
//!
//! [`pair_workloads`] and [`runs_like`] find by name which directories belong together; [`compare`] refuses runs
//! that have nothing in common. Next: [`pgio_verdict::across`] has the statistics.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit_code::{HasExitCode, USAGE};
use pgio_results::Warning;
use pgio_results::store::StoredExperiment;
use pgio_verdict::across::{Across, across};

/// Why two sides cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum SideError {
    #[error("the experiments have no workload in common: name two of {}; {}", paths(a), paths(b))]
    WorkloadsDiffer { a: Vec<PathBuf>, b: Vec<PathBuf> },
    #[error(
        "a run has no workload like {} (it has {}); leave that run out, or name one that has the workload",
        workload.display(), paths(run)
    )]
    WorkloadMissing { workload: PathBuf, run: Vec<PathBuf> },
    #[error("the experiments have no condition in common: {a}; {b}")]
    ConditionsDiffer { a: ConditionNames, b: ConditionNames },
}

impl HasExitCode for SideError {
    fn code(&self) -> u8 {
        USAGE
    }
}

/// The conditions of the results in a directory.
#[derive(Debug)]
pub(super) struct ConditionNames {
    dir: PathBuf,
    names: Vec<String>,
}

impl fmt::Display for ConditionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has {}", self.dir.display(), self.names.join(", "))
    }
}

fn paths(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The workloads of two experiments.
#[derive(Debug)]
pub(super) struct WorkloadPairs {
    /// Those that both have, by the directories of their results.
    pub(super) pairs: Vec<(PathBuf, PathBuf)>,
    /// Those that only one has.
    pub(super) left_out: Vec<Warning>,
}

/// Pairs the workloads of both experiments by directory name; one workload on each side is a pair whatever its
/// name.
pub(super) fn pair_workloads(a: &[PathBuf], b: &[PathBuf]) -> Result<WorkloadPairs, SideError> {
    if let ([a], [b]) = (a, b) {
        return Ok(WorkloadPairs { pairs: vec![(a.clone(), b.clone())], left_out: Vec::new() });
    }
    let like = |one: &PathBuf, others: &[PathBuf]| {
        others.iter().find(|other| other.file_name() == one.file_name()).cloned()
    };
    let pairs: Vec<_> = a.iter().filter_map(|one| Some((one.clone(), like(one, b)?))).collect();
    if pairs.is_empty() {
        return Err(SideError::WorkloadsDiffer { a: a.to_vec(), b: b.to_vec() });
    }
    let alone = |all: &[PathBuf], others: &[PathBuf]| {
        all.iter().filter(|one| like(one, others).is_none()).cloned().collect::<Vec<_>>()
    };
    let left_out = [alone(a, b), alone(b, a)].concat();
    let left_out = left_out.iter().map(|dir| {
        Warning::new(
            format!("{} is excluded", dir.display()),
            "the other experiment has no such workload",
            "show its report separately",
        )
    });
    Ok(WorkloadPairs { pairs, left_out: left_out.collect() })
}

/// Returns the directories of one workload in all runs of a side. `side` has the workloads of each run, and `first`
/// is the workload in the first run.
pub(super) fn runs_like(first: &Path, side: &[Vec<PathBuf>]) -> Result<Vec<PathBuf>, SideError> {
    let (alone, others) = (side[0].len() == 1, &side[1..]);
    let like = |run: &Vec<PathBuf>| match run.as_slice() {
        // The first of several workloads, if the run ended early, is not each of them.
        [only] if alone => Ok(only.clone()),
        all => {
            let found = all.iter().find(|dir| dir.file_name() == first.file_name());
            found.cloned().ok_or_else(|| SideError::WorkloadMissing {
                workload: first.to_owned(),
                run: all.to_vec(),
            })
        }
    };
    let others = others.iter().map(like).collect::<Result<Vec<_>, _>>()?;
    Ok([vec![first.to_owned()], others].concat())
}

/// Compares the runs of one workload, at least one on each side. `dirs` are the directories of the first runs, for the
/// error; `named` are metrics that the user named before the comparison.
pub(super) fn compare(
    dirs: (&Path, &Path),
    a: &[StoredExperiment],
    b: &[StoredExperiment],
    named: &[String],
) -> Result<Across, SideError> {
    must_have_a_condition_in_common((dirs.0, &a[0]), (dirs.1, &b[0]))?;
    Ok(across(a, b, named))
}

/// Refuses experiments without a common condition; an empty table would look like a result.
fn must_have_a_condition_in_common(
    a: (&Path, &StoredExperiment),
    b: (&Path, &StoredExperiment),
) -> Result<(), SideError> {
    let conditions = |(dir, stored): (&Path, &StoredExperiment)| ConditionNames {
        dir: dir.to_owned(),
        names: stored.manifest.conditions.iter().map(|c| c.name.clone()).collect(),
    };
    let (a, b) = (conditions(a), conditions(b));
    if a.names.iter().any(|name| b.names.contains(name)) {
        Ok(())
    } else {
        Err(SideError::ConditionsDiffer { a, b })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::test_support::{experiment, stored_runs};

    fn dirs(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn workloads_are_paired_by_name_and_the_others_are_named() {
        let pair = |a: &[&str], b: &[&str]| pair_workloads(&dirs(a), &dirs(b));
        let alone = pair(&["old/commit"], &["new/slob"]).unwrap();
        assert_eq!((alone.pairs.len(), alone.left_out.len()), (1, 0), "one workload on each side");
        let found = pair(&["old/commit", "old/slob"], &["new/slob", "new/scan"]).unwrap();
        assert_eq!(found.pairs, [("old/slob".into(), "new/slob".into())]);
        let left_out: Vec<&str> = found.left_out.iter().map(|w| w.what.as_str()).collect();
        assert_eq!(left_out, ["old/commit is excluded", "new/scan is excluded"]);
        let error = pair(&["old/commit", "old/slob"], &["new/scan"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the experiments have no workload in common: name two of old/commit, old/slob; new/scan"
        );
    }

    #[test]
    fn a_run_without_the_compared_workload_is_refused() {
        let side = |runs: &[&[&str]]| runs.iter().map(|run| dirs(run)).collect::<Vec<_>>();
        let found = |runs: &[&[&str]]| runs_like(Path::new(runs[0][0]), &side(runs));
        assert_eq!(found(&[&["1/a", "1/b"], &["2/b", "2/a"]]).unwrap(), dirs(&["1/a", "2/a"]));
        assert_eq!(found(&[&["1"], &["2"]]).unwrap(), dirs(&["1", "2"]), "one workload in each");
        // The second run ended before its workload `a`.
        let error = found(&[&["1/a", "1/b"], &["2/b"]]).unwrap_err().to_string();
        assert_eq!(
            error,
            "a run has no workload like 1/a (it has 2/b); leave that run out, or name one that has the workload"
        );
    }

    #[test]
    fn experiments_without_a_common_condition_are_not_compared() {
        let side = |conditions: &[&str]| [experiment(conditions, Vec::new())];
        let dirs = (Path::new("old"), Path::new("new"));
        let (a, b) = (side(&["plain", "DRBD"]), side(&["bare", "ZFS"]));
        let error = compare(dirs, &a, &b, &[]).unwrap_err().to_string();
        let why = "old has plain, DRBD; new has bare, ZFS";
        assert_eq!(error, format!("the experiments have no condition in common: {why}"));
        let runs = stored_runs(1, |_| 1.0);
        assert_eq!(compare(dirs, &runs, &runs, &[]).unwrap().effects.len(), 2);
    }
}
