//! The stored form of a trial, `pgio.trial/1`: one JSON object on one line of trials.jsonl.
//!
//! Readers accept any record of major version 1 and ignore unknown fields. A record of another
//! major version is an error. The JSON schema in docs/schema/ is generated from these types.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::model::{
    Check, DatabaseCounters, DatasetInfo, Evidence, Metric, Outcome, ServerInfo, SessionTotals,
    Slice, Trial, TrialPosition, Warning, Window, WorkloadInfo,
};
use super::telemetry::Telemetry;
use crate::histogram::{BUCKETS, Counts, Histogram};

pub const TRIAL_SCHEMA: &str = "pgio.trial/1";

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("{at} is not a pgio trial record")]
    Syntax { at: String, source: serde_json::Error },
    #[error("{at} has format {found}; this pgio {} reads {TRIAL_SCHEMA}, use the pgio that wrote it", env!("CARGO_PKG_VERSION"))]
    Version { at: String, found: String },
    #[error("{at}: histogram `{class}` has bucket {bucket}, which this format does not define")]
    Bucket { at: String, class: String, bucket: usize },
}

/// `pgio.trial/1`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialV1 {
    /// Always `pgio.trial/1`.
    pub schema: String,
    /// The version of pgio that wrote it.
    pub pgio: String,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TrialPosition>,
    pub outcome: Outcome,
    pub started_at: String,
    pub window: Window,
    pub workload: WorkloadInfo,
    pub dataset: Option<DatasetInfo>,
    pub seed: u64,
    pub server: ServerInfo,
    pub settings: BTreeMap<String, String>,
    pub metrics: BTreeMap<String, Metric>,
    pub histograms: BTreeMap<String, HistogramV1>,
    pub sessions: Vec<SessionTotals>,
    pub timeline: Vec<Slice>,
    pub database: Option<DatabaseCounters>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    pub evidence: Vec<Evidence>,
    pub checks: Vec<Check>,
    pub warnings: Vec<Warning>,
}

/// Sixteen buckets per doubling; bucket b is centered on 2^((b-17)/16) µs.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramV1 {
    pub count: u64,
    pub sum_seconds: f64,
    pub max_seconds: f64,
    /// Pairs of bucket (numbered from 1) and count; empty buckets are omitted.
    pub buckets: Vec<(usize, u64)>,
    /// Operations cut off by the end of the window, with lower bounds of their latencies; not
    /// included in the counts above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub censored: Option<CensoredV1>,
}

/// The same buckets for operations that took at least that long.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CensoredV1 {
    pub count: u64,
    pub sum_seconds: f64,
    pub max_seconds: f64,
    pub buckets: Vec<(usize, u64)>,
}

/// Pairs of bucket and nonzero count.
fn pairs(counts: &[u64]) -> Vec<(usize, u64)> {
    (1..).zip(counts).filter(|(_, n)| **n > 0).map(|(bucket, n)| (bucket, *n)).collect()
}

impl From<&Histogram> for HistogramV1 {
    fn from(h: &Histogram) -> Self {
        HistogramV1 {
            count: h.count(),
            sum_seconds: h.sum_ns() / 1e9,
            max_seconds: h.max_ns().unwrap_or(0.0) / 1e9,
            buckets: pairs(h.counts()),
            censored: h.censored().map(|c| CensoredV1 {
                count: c.count(),
                sum_seconds: c.sum_ns() / 1e9,
                max_seconds: c.max_ns() / 1e9,
                buckets: pairs(c.counts()),
            }),
        }
    }
}

impl HistogramV1 {
    fn into_memory(self, at: &str, class: &str) -> Result<Histogram, WireError> {
        let read = |buckets: Vec<(usize, u64)>, sum_seconds: f64, max_seconds: f64| {
            let mut counts = vec![0; BUCKETS];
            for (bucket, n) in buckets {
                let slot = bucket.checked_sub(1).and_then(|i| counts.get_mut(i));
                *slot.ok_or_else(|| WireError::Bucket {
                    at: at.to_owned(),
                    class: class.to_owned(),
                    bucket,
                })? = n;
            }
            Ok(Counts::from_parts(&counts, sum_seconds * 1e9, max_seconds * 1e9)
                .expect("the number of counts is BUCKETS"))
        };
        let answered = read(self.buckets, self.sum_seconds, self.max_seconds)?;
        let censored = self.censored.map(|c| read(c.buckets, c.sum_seconds, c.max_seconds));
        Ok(Histogram::new(answered, censored.transpose()?))
    }
}

/// The record as one line of JSON, without a newline.
pub fn to_json(trial: &Trial) -> String {
    serde_json::to_string(&stored(trial)).expect("plain data with string keys always serializes")
}

/// The record as indented JSON, for people.
pub fn to_json_pretty(trial: &Trial) -> String {
    serde_json::to_string_pretty(&stored(trial))
        .expect("plain data with string keys always serializes")
}

fn stored(trial: &Trial) -> TrialV1 {
    let t = trial.clone();
    TrialV1 {
        schema: TRIAL_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        run_id: t.run_id,
        place: t.place,
        outcome: t.outcome,
        started_at: t.started_at,
        window: t.window,
        workload: t.workload,
        dataset: t.dataset,
        seed: t.seed,
        server: t.server,
        settings: t.settings,
        metrics: t.metrics,
        histograms: t.histograms.iter().map(|(class, h)| (class.clone(), h.into())).collect(),
        sessions: t.sessions,
        timeline: t.timeline,
        database: t.database,
        telemetry: t.telemetry,
        series: t.series,
        environment: Arc::unwrap_or_clone(t.environment),
        evidence: t.evidence,
        checks: t.checks,
        warnings: t.warnings,
    }
}

/// Reads one record; `at` names it in errors, such as `trials.jsonl line 3`.
pub fn from_json(text: &str, at: &str) -> Result<Trial, WireError> {
    #[derive(Deserialize)]
    struct Tag {
        schema: String,
    }
    let syntax = |source| WireError::Syntax { at: at.to_owned(), source };
    let other = |found| WireError::Version { at: at.to_owned(), found };
    // Parse a second time only after an error.
    let t = match serde_json::from_str::<TrialV1>(text) {
        Ok(t) if t.schema == TRIAL_SCHEMA => t,
        Ok(t) => return Err(other(t.schema)),
        Err(source) => {
            let tag: Tag = serde_json::from_str(text).map_err(syntax)?;
            return Err(if tag.schema == TRIAL_SCHEMA {
                syntax(source)
            } else {
                other(tag.schema)
            });
        }
    };
    let mut histograms = BTreeMap::new();
    for (class, h) in t.histograms {
        let memory = h.into_memory(at, &class)?;
        histograms.insert(class, memory);
    }
    Ok(Trial {
        run_id: t.run_id,
        place: t.place,
        outcome: t.outcome,
        started_at: t.started_at,
        window: t.window,
        workload: t.workload,
        dataset: t.dataset,
        seed: t.seed,
        server: t.server,
        settings: t.settings,
        sessions: t.sessions,
        timeline: t.timeline,
        histograms,
        metrics: t.metrics,
        database: t.database,
        telemetry: t.telemetry,
        series: t.series,
        environment: Arc::new(t.environment),
        evidence: t.evidence,
        checks: t.checks,
        warnings: t.warnings,
        rejudged: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{DrbdState, DrbdUse, HostUse, Probes};
    use crate::test_support::full_trial;
    use proptest::prelude::*;

    #[test]
    fn a_record_is_one_line_and_reads_back() {
        let trial = full_trial();
        let line = to_json(&trial);
        assert!(!line.contains('\n'));
        let read = from_json(&line, "here").unwrap();
        assert_eq!(to_json(&read), line);
        assert_eq!(read.place, trial.place);
        assert_eq!(read.histograms["commit"].counts(), trial.histograms["commit"].counts());
        assert_eq!(to_json(&from_json(&to_json_pretty(&trial), "here").unwrap()), line);
    }

    #[test]
    fn documented_names_are_stored() {
        let value: serde_json::Value = serde_json::from_str(&to_json(&full_trial())).unwrap();
        assert_eq!(value["schema"], "pgio.trial/1");
        assert_eq!(value["outcome"], serde_json::json!({"state": "complete"}));
        assert_eq!(value["warnings"][0]["try"], "lengthen it");
        assert_eq!(value["metrics"]["commits_per_second"]["unit"], "commits/s");
        assert_eq!(value["histograms"]["commit"]["buckets"], serde_json::json!([[17, 2], [33, 1]]));
    }

    /// Names and order of all fields, as earlier versions stored them.
    #[test]
    fn the_stored_form_is_unchanged() {
        let mut trial = full_trial();
        trial.place.as_mut().unwrap().point.insert("sessions".to_owned(), "4".into());
        trial.histograms.get_mut("commit").unwrap().record_censored(5000.0, 2);
        trial.timeline.push(Slice { at: 2.0, seconds: 1.0, messages: 3, ..Slice::default() });
        trial.series = Some("series/0001.json".to_owned());
        trial.environment = Arc::new([("host.kernel".to_owned(), "6.1.0".to_owned())].into());
        let drbd = DrbdUse {
            resource: Some("r0".to_owned()),
            states: vec![DrbdState {
                role: "Primary".to_owned(),
                peer_role: "Secondary".to_owned(),
                connection: "Connected".to_owned(),
                replication: "Established".to_owned(),
                disk: "UpToDate".to_owned(),
                peer_disk: "UpToDate".to_owned(),
                protocol: Some("C".to_owned()),
                congested: Some(false),
                samples: 120,
                ..DrbdState::default()
            }],
            ..DrbdUse::default()
        };
        let host = HostUse { drbd: [("drbd1".to_owned(), drbd)].into(), ..HostUse::default() };
        let hosts = [("local".to_owned(), host)].into();
        let probes = Some(Probes { flush_seconds: Some(0.001), ..Probes::default() });
        trial.telemetry = Some(Telemetry { hosts, probes, ..Telemetry::default() });
        let version = concat!("\"pgio\": \"", env!("CARGO_PKG_VERSION"), "\"");
        let text = to_json_pretty(&trial).replace(version, "\"pgio\": \"VERSION\"");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn an_unknown_field_is_ignored() {
        let mut value: serde_json::Value = serde_json::from_str(&to_json(&full_trial())).unwrap();
        value["of_a_later_version"] = serde_json::json!({"x": 1});
        assert!(from_json(&value.to_string(), "here").is_ok());
    }

    #[test]
    fn another_version_is_reported_even_if_nothing_else_parses() {
        let error = from_json(r#"{"schema":"pgio.trial/2","all":"new"}"#, "line 3").unwrap_err();
        assert!(matches!(&error, WireError::Version { found, .. } if found == "pgio.trial/2"));
        let text = error.to_string();
        assert!(text.starts_with("line 3 has format pgio.trial/2; "), "{text}");
    }

    #[test]
    fn an_invalid_record_is_named() {
        for text in ["", "{", "[]", r#"{"schema":"pgio.trial/1"}"#] {
            let error = from_json(text, "trials.jsonl line 7").unwrap_err();
            assert!(matches!(error, WireError::Syntax { .. }), "{text}");
            assert_eq!(error.to_string(), "trials.jsonl line 7 is not a pgio trial record");
        }
    }

    #[test]
    fn a_bucket_beyond_the_format_is_refused() {
        for bucket in [0, BUCKETS + 1] {
            let mut value: serde_json::Value =
                serde_json::from_str(&to_json(&full_trial())).unwrap();
            value["histograms"]["commit"]["buckets"] = serde_json::json!([[bucket, 1]]);
            let error = from_json(&value.to_string(), "here").unwrap_err();
            assert!(matches!(error, WireError::Bucket { bucket: b, .. } if b == bucket));
        }
    }

    proptest! {
        #[test]
        fn histograms_read_back(
            latencies in prop::collection::vec(0.0f64..1e12, 0..40),
            cut_off in prop::collection::vec(0.0f64..1e12, 0..5),
        ) {
            let mut trial = full_trial();
            let mut h = Histogram::default();
            latencies.iter().for_each(|ns| h.record(*ns));
            cut_off.iter().for_each(|ns| h.record_censored(*ns, 2));
            trial.histograms.insert("read".to_owned(), h.clone());
            let read = from_json(&to_json(&trial), "here").unwrap();
            prop_assert_eq!(read.histograms["read"].counts(), h.counts());
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
            prop_assert!(near(read.histograms["read"].sum_ns(), h.sum_ns()));
            let censored = |h: &Histogram| h.censored().map(|c| c.counts().to_vec());
            prop_assert_eq!(censored(&read.histograms["read"]), censored(&h));
            let sums = [&read.histograms["read"], &h].map(Histogram::observed_sum_ns);
            prop_assert!(near(sums[0], sums[1]));
        }
    }
}
