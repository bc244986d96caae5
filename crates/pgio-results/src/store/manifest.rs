//! manifest.json, `pgio.manifest/1`: what the experiment was, as far as reading its trials needs it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::reading::open;
use super::{StoreError, before, io};
use crate::change::Change;
use crate::metrics::DeclaredMetric;
use crate::sweep::{NOWHERE, Point, Sweep};

pub const MANIFEST_SCHEMA: &str = "pgio.manifest/1";

/// What the experiment was, as far as reading its trials needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    pub schema: String,
    pub pgio: String,
    pub name: String,
    pub created_at: String,
    pub seed: u64,
    pub blocks: u32,
    pub baseline: String,
    /// The name of the baseline's twin, when it was run twice a block.
    pub aa: Option<String>,
    pub primary_metric: String,
    /// In the order of the experiment file, the A/A twin right after its baseline.
    pub conditions: Vec<ConditionInfo>,
    /// What the metrics mean that its command prints; none of a workload of pgio's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<DeclaredMetric>,
    /// The environment as found: server version, settings that matter, the machine.
    pub environment: BTreeMap<String, String>,
    /// What the loop was told beside the number of blocks.
    #[serde(default)]
    pub rules: Rules,
    /// Each time it was continued after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumed>,
    /// What was varied beside the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

impl Manifest {
    /// Where the primary metric is judged.
    pub fn middle(&self) -> &Point {
        self.sweep.as_ref().map_or(&NOWHERE, Sweep::middle)
    }

    /// All points, the middle one first; without a sweep that one alone.
    pub fn points(&self) -> &[Point] {
        match &self.sweep {
            Some(sweep) if !sweep.points.is_empty() => &sweep.points,
            _ => std::slice::from_ref(&NOWHERE),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules {
    /// Of a ratio: 0.05 is ±5 %. Absent: the number of blocks was fixed.
    pub precision: Option<f64>,
    /// The limit of blocks where a precision was asked for.
    pub max_blocks: Option<u32>,
    /// How often an invalid trial was to be repeated.
    #[serde(default)]
    pub repeats: u32,
    /// `checkpoint`, `vacuum`, `reload` or `recreate`: what came before each trial.
    #[serde(default)]
    pub reset: String,
    /// `before`, `spread` or `none`; empty in records of before there was a choice, when it was `before`.
    #[serde(default)]
    pub checkpoint: String,
    /// Checks that were to warn only.
    #[serde(default)]
    pub tolerate: Vec<String>,
    /// The conditions whose primary comparison answers the question; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judge: Vec<String>,
    /// Metrics that are judged beside the primary one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_judge: Vec<String>,
    /// The effect to plan for, of a ratio: 0.05 is 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
}

impl Rules {
    /// Whether this comparison is among those that answer the experiment's question.
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
    /// The line of trials.jsonl that it began with, counted from 1.
    pub from_trial: usize,
    /// What was no longer as before.
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
    /// Each change in words, such as `synchronous_commit = local`.
    pub fn treatments(&self) -> Vec<String> {
        self.changes.iter().map(Change::to_string).collect()
    }
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StoredCondition {
    name: String,
    /// Each treatment in words, such as `synchronous_commit = local`.
    treatments: Vec<String>,
    /// The same by its parts; earlier versions stored the words alone.
    #[serde(default)]
    changes: Option<Vec<Change>>,
}

impl From<StoredCondition> for ConditionInfo {
    fn from(stored: StoredCondition) -> ConditionInfo {
        let StoredCondition { name, treatments, changes } = stored;
        let in_words = || treatments.iter().map(|words| before::change(words)).collect();
        ConditionInfo { name, changes: changes.unwrap_or_else(in_words) }
    }
}

impl From<ConditionInfo> for StoredCondition {
    fn from(info: ConditionInfo) -> StoredCondition {
        let treatments = info.treatments();
        StoredCondition { name: info.name, treatments, changes: Some(info.changes) }
    }
}

/// A file of more bytes is not one.
const LIMIT: u64 = 64 << 20;

/// The file's text.
pub(super) fn text(manifest: &Manifest) -> String {
    serde_json::to_string_pretty(manifest).expect("plain data always serializes") + "\n"
}

pub fn read_manifest(dir: &Path) -> Result<Manifest, StoreError> {
    #[derive(Deserialize)]
    struct Tag {
        schema: String,
    }
    let path = dir.join("manifest.json");
    let read = open(dir, "manifest.json")?.read(Path::new("manifest.json"), LIMIT);
    let text = read.map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            StoreError::NotResults { dir: dir.to_owned(), missing: "manifest.json" }
        }
        _ => io("read", &path, source),
    })?;
    let broken = |source| StoreError::Manifest { path: path.clone(), source };
    let tag: Tag = serde_json::from_str(&text).map_err(broken)?;
    if tag.schema != MANIFEST_SCHEMA {
        return Err(StoreError::ManifestVersion { path, found: tag.schema });
    }
    serde_json::from_str(&text).map_err(broken)
}
