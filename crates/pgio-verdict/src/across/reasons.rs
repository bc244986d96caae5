//! Lists the differences that may make two experiments incomparable, the most severe first.
//!
//! Compared are metrics, conditions and treatments, the workload, the data, the window, the server, the
//! environment and pgio; not the seed, which each run draws. The baseline's first complete trial at the middle point describes an
//! experiment: another condition may have another server, and which of them ran first was drawn. Nothing is
//! judged here: an upgraded kernel may be exactly what the user wants to compare.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::metrics::{self, MetricDef};
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_results::units::human;
use pgio_results::{Outcome, Trial};
use serde::{Deserialize, Serialize};

/// A difference between the two sides besides the date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    pub what: String,
    /// The value in A; null if absent.
    pub a: Option<String>,
    pub b: Option<String>,
}

/// Facts of the manifest's environment that are listed separately or always differ.
const LISTED_ELSEWHERE: &[&str] = &["pgio", "server_version", "target"];

/// Compares the first runs of both sides, and the runs of each side with its first.
pub(super) fn all(a: &[StoredExperiment], b: &[StoredExperiment]) -> Vec<Reason> {
    let mut found = between(&a[0], &b[0]);
    for (name, runs) in [("A", a), ("B", b)] {
        for (number, run) in (2..).zip(&runs[1..]) {
            found.extend(between(&runs[0], run).into_iter().map(|r| Reason {
                what: format!("{} (run {number} of {name} against its first)", r.what),
                ..r
            }));
        }
    }
    found
}

fn between(a: &StoredExperiment, b: &StoredExperiment) -> Vec<Reason> {
    let mut found = question(&a.manifest, &b.manifest);
    let work = |stored: &StoredExperiment| first(stored).map(described).unwrap_or_default();
    found.extend(maps("", &work(a), &work(b)));
    found.extend(maps("", &server(a), &server(b)));
    found.extend(maps("", &environment(a), &environment(b)));
    found.extend(differs("pgio", &a.manifest.pgio, &b.manifest.pgio));
    found
}

fn question(a: &Manifest, b: &Manifest) -> Vec<Reason> {
    let mut found = Vec::new();
    found.extend(differs("primary metric", &a.primary_metric, &b.primary_metric));
    for ours in &a.metrics {
        let Some(theirs) = metrics::find(&b.metrics, &ours.name) else { continue };
        found.extend(definition(&ours.definition(), &theirs));
    }
    found.extend(differs("baseline", &a.baseline, &b.baseline));
    let middle = |m: &Manifest| {
        m.varied.as_ref().map_or_else(|| "none".to_owned(), |s| s.describe_point(s.middle()))
    };
    found.extend(differs("middle point of the sweep", &middle(a), &middle(b)));
    for ours in &a.conditions {
        let Some(theirs) = b.conditions.iter().find(|c| c.name == ours.name) else { continue };
        let words = |treatments: &[String]| match treatments {
            [] => "none".to_owned(),
            some => some.join("; "),
        };
        let what = format!("treatments of {}", ours.name);
        found.extend(differs(&what, &words(&ours.treatments()), &words(&theirs.treatments())));
    }
    found
}

/// How two definitions of a metric differ. Values of the two are not compared if they do.
pub(crate) fn definition(a: &MetricDef<'_>, b: &MetricDef<'_>) -> Vec<Reason> {
    let unit = differs(&format!("unit of {}", a.name), a.unit, b.unit);
    let (better_a, better_b) = (a.direction.name(), b.direction.name());
    let better = differs(&format!("better direction of {}", a.name), better_a, better_b);
    unit.into_iter().chain(better).collect()
}

fn differs(what: &str, a: &str, b: &str) -> Option<Reason> {
    (a != b).then(|| Reason { what: what.to_owned(), a: Some(a.to_owned()), b: Some(b.to_owned()) })
}

/// Names and values, in order.
pub(crate) type Described = Vec<(String, String)>;

fn maps(prefix: &str, a: &Described, b: &Described) -> Vec<Reason> {
    let value = |side: &Described, name: &str| {
        side.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    };
    let mut seen = BTreeSet::new();
    let names = a.iter().chain(b).map(|(name, _)| name).filter(|n| seen.insert(n.as_str()));
    let reason = |name: &String| {
        let (in_a, in_b) = (value(a, name), value(b, name));
        (in_a != in_b).then(|| Reason { what: format!("{prefix}{name}"), a: in_a, b: in_b })
    };
    // A side without a description has nothing to compare.
    if a.is_empty() || b.is_empty() { Vec::new() } else { names.filter_map(reason).collect() }
}

/// The baseline's first trial, or another condition's without one: the work is the same for all.
pub(crate) fn first(stored: &StoredExperiment) -> Option<&Trial> {
    baseline_trial(stored).or_else(|| counted(stored).next())
}

fn baseline_trial(stored: &StoredExperiment) -> Option<&Trial> {
    let baseline = &stored.manifest.baseline;
    counted(stored).find(|t| t.is_of(baseline))
}

fn counted(stored: &StoredExperiment) -> impl Iterator<Item = &Trial> {
    let middle = stored.manifest.middle();
    let there =
        move |t: &&Trial| t.place.as_ref().is_some_and(|p| p.point == *middle && !p.is_burn_in());
    stored.trials.iter().filter(|t| t.outcome == Outcome::Complete).filter(there)
}

/// Workload, data and window.
fn described(trial: &Trial) -> Described {
    let mut all = workload(trial);
    all.extend(data_size(trial));
    all.extend(data_seed(trial).filter(|_| !is_private(&trial.server.target)));
    all.extend(data_rows(trial));
    all.extend(window(trial));
    all
}

/// The workload and its data: what makes two numbers comparable. Not the seed of the data.
pub(crate) fn work(trial: &Trial) -> Described {
    workload(trial).into_iter().chain(data_size(trial)).chain(data_rows(trial)).collect()
}

fn workload(trial: &Trial) -> Described {
    let mut all = vec![("workload".to_owned(), trial.workload.kind.clone())];
    for (key, value) in &trial.workload.keys {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        all.push((key.clone(), text));
    }
    all
}

fn data_size(trial: &Trial) -> Option<(String, String)> {
    let data = trial.dataset.as_ref()?;
    let size = human::bytes(data.blocks_per_table * 8192);
    Some(("data set".to_owned(), format!("{} tables of {size}", data.tables)))
}

pub(crate) fn data_seed(trial: &Trial) -> Option<(String, String)> {
    let data = trial.dataset.as_ref()?;
    Some(("seed of the data set".to_owned(), data.seed.to_string()))
}

fn data_rows(trial: &Trial) -> Option<(String, String)> {
    let data = trial.dataset.as_ref()?;
    Some(("rows of the data set".to_owned(), data.layout.to_string()))
}

pub(crate) fn window(trial: &Trial) -> Described {
    let window = trial.window.asked_seconds.map(|s| format!("{s} s"));
    let window = window.unwrap_or_else(|| "a number of transactions".to_owned());
    vec![
        ("window".to_owned(), window),
        ("warm-up".to_owned(), format!("{} s", trial.window.warmup_seconds)),
    ]
}

/// The baseline's server; empty without a trial of the baseline, because another condition's may be another.
pub(crate) fn server(stored: &StoredExperiment) -> Described {
    let Some(trial) = baseline_trial(stored) else { return Vec::new() };
    vec![
        ("server version".to_owned(), trial.server.version.clone()),
        ("server".to_owned(), without_drawn(&trial.server.target)),
        ("shared_buffers".to_owned(), trial.server.shared_buffers.clone()),
    ]
}

/// The environment of the manifest, completed by the environment of the baseline's first trial. Settings of other
/// conditions are their treatments.
pub(crate) fn environment(stored: &StoredExperiment) -> Described {
    let m = &stored.manifest;
    let mut all: BTreeMap<&String, &String> =
        m.environment.iter().filter(|(k, _)| !LISTED_ELSEWHERE.contains(&k.as_str())).collect();
    if let Some(trial) = baseline_trial(stored) {
        for (name, value) in trial.environment.iter() {
            all.entry(name).or_insert(value);
        }
        all.retain(|name, _| !(*name == "system_identifier" && is_private(&trial.server.target)));
    }
    all.into_iter().map(|(name, value)| (without_drawn(name), without_drawn(value))).collect()
}

/// What a private server draws anew in each run: its directory, and with that its identifier and its data set.
const PRIVATE: &str = "/pgio-";

fn is_private(target: &str) -> bool {
    target.contains(PRIVATE)
}

/// `/var/tmp/pgio-SJRNaQ/run` becomes `/var/tmp/pgio-*/run`.
fn without_drawn(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut parts = text.split(PRIVATE);
    kept.push_str(parts.next().unwrap_or_default());
    for part in parts {
        kept.push_str(PRIVATE);
        match part.find('/') {
            Some(end) if part[..end].chars().all(char::is_alphanumeric) => {
                kept.push('*');
                kept.push_str(&part[end..]);
            }
            _ => kept.push_str(part),
        }
    }
    kept
}
