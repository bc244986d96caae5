//! manifest.json, `pgio.manifest/1`: the definition of the experiment, as needed to read its
//! trials.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{StoreError, io};
use crate::change::Change;
use crate::factors::FactorDesign;
use crate::metrics::DeclaredMetric;
use crate::points::{ONLY_POINT, Point, Varied};

pub const MANIFEST_SCHEMA: &str = "pgio.manifest/1";

/// The definition of the experiment, as needed to read its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    pub schema: String,
    pub pgio: String,
    pub name: String,
    pub created_at: String,
    /// The same file with this seed runs in the same order.
    pub seed: u64,
    /// As requested; trials.jsonl shows how many ran.
    pub blocks: u32,
    pub baseline: String,
    /// The experiment's original baseline, if the trials are compared with another condition: see
    /// `StoredExperiment::against`. Trials were repeated beside it.
    #[serde(skip)]
    pub own_baseline: Option<String>,
    /// Name of the A/A twin, if the baseline ran twice per block.
    pub aa: Option<String>,
    pub primary_metric: String,
    /// In the order of the experiment file; the A/A twin follows its baseline.
    pub conditions: Vec<ConditionInfo>,
    /// How the private server of each condition was built: version, options of initdb, directories,
    /// settings and standbys of its target. These are no treatments; they tell targets apart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub built: BTreeMap<String, Vec<Change>>,
    /// Metrics printed by the experiment's command; empty for pgio's own workloads.
    /// Where conditions have several servers, also each server's: `METRIC@TARGET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<DeclaredMetric>,
    /// The environment: server version, relevant settings, the machine.
    /// With several targets, each name begins with the target's.
    pub environment: BTreeMap<String, String>,
    /// The rules of the experiment in addition to the number of blocks.
    #[serde(default)]
    pub rules: Rules,
    /// One entry for each continuation after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumed>,
    /// The factors varied beside the conditions.
    #[serde(rename = "sweep", default, skip_serializing_if = "Option::is_none")]
    pub varied: Option<Varied>,
    /// The factors that the conditions combine, and the design.
    #[serde(rename = "screening", default, skip_serializing_if = "Option::is_none")]
    pub design: Option<FactorDesign>,
    /// How the length of woven slices was chosen; absent unless it was to be found (`weave = "auto"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weave: Option<Calibration>,
}

impl Manifest {
    /// The point at which the primary metric is judged.
    pub fn middle(&self) -> &Point {
        self.varied.as_ref().map_or(&ONLY_POINT, Varied::middle)
    }

    /// All points, the middle one first; without axes, only the empty one.
    pub fn points(&self) -> &[Point] {
        match &self.varied {
            Some(varied) if !varied.points.is_empty() => &varied.points,
            _ => std::slice::from_ref(&ONLY_POINT),
        }
    }

    /// The length of the longest name.
    pub(super) fn longest_name(&self) -> usize {
        let Manifest { name, baseline, primary_metric, .. } = self;
        let conditions = self.conditions.iter().map(|c| c.name.len());
        let metrics = self.metrics.iter().map(|m| m.name.len());
        let own = [name, baseline, primary_metric].map(String::len);
        own.into_iter().chain(conditions).chain(metrics).max().unwrap_or(0)
    }
}

/// The longest name of an experiment, a condition or a metric. Tables and charts repeat each many times.
pub const MAX_NAME_BYTES: usize = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules {
    /// Requested precision of a ratio: 0.05 means ±5 %. Absent if the number of blocks was fixed.
    pub precision: Option<f64>,
    /// Maximum number of blocks if a precision was requested.
    pub max_blocks: Option<u32>,
    /// How often an invalid trial is repeated.
    #[serde(default)]
    pub repeats: u32,
    /// What precedes each trial: `checkpoint`, `vacuum`, `reload` or `recreate`.
    #[serde(default)]
    pub reset: String,
    /// `before`, `spread` or `none`.
    #[serde(default)]
    pub checkpoint: String,
    /// Mean length, in seconds, of the slices in which conditions took turns; absent if each trial had a
    /// window of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weave_seconds: Option<f64>,
    /// Checks that only warn.
    #[serde(default)]
    pub tolerate: Vec<String>,
    /// The question in words, if the experiment has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Conditions whose primary comparison answers the question; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judge: Vec<String>,
    /// Metrics judged in addition to the primary one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_judge: Vec<String>,
    /// The effect to plan for, as a ratio: 0.05 means 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    /// The margin: effects smaller than this share of the baseline's value do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matters: Option<f64>,
}

impl Rules {
    /// Whether this comparison is one of those that answer the experiment's question.
    pub fn judges(&self, condition: &str, metric: &str, primary: bool) -> bool {
        let condition = self.judge.is_empty() || self.judge.iter().any(|c| c == condition);
        condition && (primary || self.also_judge.iter().any(|m| m == metric))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resumed {
    /// RFC 3339.
    pub at: String,
    pub pgio: String,
    /// The first line of trials.jsonl written after the continuation, numbered from 1.
    pub from_trial: usize,
    /// Differences from the interrupted run.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredCondition", into = "StoredCondition")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "StoredCondition"))]
pub struct ConditionInfo {
    pub name: String,
    pub changes: Vec<Change>,
}

impl ConditionInfo {
    /// Each change as text, such as `synchronous_commit = local`.
    pub fn treatments(&self) -> Vec<String> {
        self.changes.iter().map(Change::to_string).collect()
    }
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StoredCondition {
    name: String,
    /// Each change as text, such as `synchronous_commit = local`.
    treatments: Vec<String>,
    /// The same changes by fields.
    changes: Vec<Change>,
}

impl From<StoredCondition> for ConditionInfo {
    fn from(stored: StoredCondition) -> ConditionInfo {
        ConditionInfo { name: stored.name, changes: stored.changes }
    }
}

impl From<ConditionInfo> for StoredCondition {
    fn from(info: ConditionInfo) -> StoredCondition {
        let treatments = info.treatments();
        StoredCondition { name: info.name, treatments, changes: info.changes }
    }
}

/// The manifest as text for its file.
pub(super) fn text(manifest: &Manifest) -> String {
    serde_json::to_string_pretty(manifest).expect("plain data always serializes") + "\n"
}

/// The lengths tried before block 1, and the one chosen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calibration {
    /// Mean length of the slices; absent if each trial has a window of its own.
    pub slice_seconds: Option<f64>,
    /// Why the conditions could not be woven at any length; absent if lengths were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The largest difference that is accepted, as a share of a rate: a quarter of the margin.
    pub limit: f64,
    /// In the order of their length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<TriedLength>,
}

/// One length of slices that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriedLength {
    /// Mean counted length of a slice.
    pub slice_seconds: f64,
    /// Slices of each condition.
    pub slices: u32,
    /// Time that trying took.
    pub seconds: f64,
    pub verdict: LengthVerdict,
    /// Differences between slices, the largest first.
    pub answers: Vec<CarryOver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LengthVerdict {
    /// All intervals lie within the limit.
    Agrees,
    /// No interval contradicts the limit, but not all lie within it.
    NotContradicted,
    /// A difference exceeds the limit.
    Contradicted,
    /// A call takes longer than a slice.
    TooShort,
}

/// Where a condition's influence would show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CarryOverQuestion {
    /// Its effect in the second halves of the slices, divided by that in the first.
    SecondHalves,
    /// The rate of the other conditions in the slices after it, divided by that in their other slices;
    /// by that in all their slices in manifests without `turns`.
    After,
    /// Its effect in all slices, divided by that in slices that follow their own settings.
    Turns,
}

/// How much a condition reaches into slices of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarryOver {
    pub condition: String,
    #[serde(rename = "place")]
    pub question: CarryOverQuestion,
    pub ratio: f64,
    /// The interval, 95 % for all answers about this length together.
    pub low: f64,
    pub high: f64,
}

// Finds the experiments below directories that collect many, such as `pgio-results`. A directory with a
// manifest.json is an experiment; any other is searched, at most `DEPTH` levels down. Links below the given
// directories are not followed. Nothing is read but names.

const MANIFEST: &str = "manifest.json";

/// A collection holds runs, and a run holds the experiments of its workloads; one level more allows for
/// collections by host.
const DEPTH: usize = 3;

/// The experiments in these directories, by name, each once. Fails if any directory holds none.
pub fn collection(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, StoreError> {
    let mut all = BTreeSet::new();
    for dir in dirs {
        let mut found = Vec::new();
        search(dir, DEPTH, &mut found)?;
        if found.is_empty() {
            return Err(StoreError::NotResults { dir: dir.clone(), missing: MANIFEST });
        }
        all.extend(found);
    }
    Ok(all.into_iter().collect())
}

fn search(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    if dir.join(MANIFEST).symlink_metadata().is_ok() {
        found.push(dir.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
            return Ok(());
        }
        // Whoever reads it learns why.
        Err(_) if depth < DEPTH => {
            found.push(dir.to_owned());
            return Ok(());
        }
        Err(source) => return Err(io("read", dir, source)),
    };
    for entry in entries {
        let entry = entry.map_err(|source| io("read", dir, source))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::test_support::manifest;

    #[test]
    fn experiments_are_found_by_name_and_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["all/b", "all/a/commit", "all/a/slob", "elsewhere"] {
            Store::create(&at(name), "", &manifest()).unwrap();
        }
        std::os::unix::fs::symlink(at("elsewhere"), at("all/link")).unwrap();
        let expected = ["all/a/commit", "all/a/slob", "all/b"].map(at);
        assert_eq!(collection(&[at("all"), at("all/b")]).unwrap(), expected);
        assert_eq!(collection(&[at("elsewhere")]).unwrap(), [at("elsewhere")]);
        fs::create_dir(at("empty")).unwrap();
        for none in ["empty", "missing"] {
            let error = collection(&[at("all"), at(none)]).unwrap_err().to_string();
            assert!(error.contains(none) && error.ends_with("manifest.json is missing"), "{error}");
        }
    }
}
