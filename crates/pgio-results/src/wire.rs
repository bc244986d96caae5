//! Reads and writes the stored form of a trial, `pgio.trial/1`: one JSON object on one line of
//! trials.jsonl.
//!
//! Readers accept any record of major version 1 and ignore unknown fields. A record of another
//! major version is an error. The JSON schema in docs/schema/ is generated from [`Trial`].

use std::collections::BTreeMap;

use serde::Deserialize;

use super::model::{TRIAL_SCHEMA, Trial};
use crate::histogram::HistogramV1;

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("{at} is not a pgio trial record")]
    Syntax { at: String, source: serde_json::Error },
    #[error("{at} has format {found}, but pgio {} reads {TRIAL_SCHEMA}; use the version of pgio that wrote it", env!("CARGO_PKG_VERSION"))]
    Version { at: String, found: String },
    #[error("{at}: histogram `{class}` has bucket {bucket}, which this format does not define")]
    Bucket { at: String, class: String, bucket: usize },
}

/// The record as one line of JSON, without a newline.
pub fn to_json(trial: &Trial) -> String {
    serde_json::to_string(trial).expect("plain data with string keys always serializes")
}

/// The record as indented JSON, for people.
pub fn to_json_pretty(trial: &Trial) -> String {
    serde_json::to_string_pretty(trial).expect("plain data with string keys always serializes")
}

/// Reads one record; `at` names it in errors, such as `trials.jsonl line 3`.
pub fn from_json(text: &str, at: &str) -> Result<Trial, WireError> {
    #[derive(Deserialize)]
    struct Tag {
        schema: String,
    }
    let syntax = |source| WireError::Syntax { at: at.to_owned(), source };
    let other = |found| WireError::Version { at: at.to_owned(), found };
    // Parse again only after an error.
    let source = match serde_json::from_str::<Trial>(text) {
        Ok(trial) if trial.schema == TRIAL_SCHEMA => return Ok(trial),
        Ok(trial) => return Err(other(trial.schema)),
        Err(source) => source,
    };
    let tag: Tag = serde_json::from_str(text).map_err(syntax)?;
    if tag.schema != TRIAL_SCHEMA {
        return Err(other(tag.schema));
    }
    Err(match undefined_bucket(text) {
        Some((class, bucket)) => WireError::Bucket { at: at.to_owned(), class, bucket },
        None => syntax(source),
    })
}

fn undefined_bucket(text: &str) -> Option<(String, usize)> {
    #[derive(Deserialize)]
    struct Histograms {
        histograms: BTreeMap<String, HistogramV1>,
    }
    let stored: Histograms = serde_json::from_str(text).ok()?;
    stored.histograms.into_iter().find_map(|(class, h)| Some((class, h.undefined_bucket()?)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::histogram::{BUCKETS, Histogram};
    use crate::model::Slice;
    use crate::telemetry::{DrbdState, DrbdUse, HostUse, Probes, Telemetry};
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

    /// Names and order of all fields.
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
        assert!(text.starts_with("line 3 has format pgio.trial/2, but pgio "), "{text}");
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

    #[test]
    fn fuzzed_records_are_read_or_refused() {
        let mut small = full_trial();
        (small.telemetry, small.histograms) = (None, BTreeMap::new());
        let samples = [to_json(&full_trial()), to_json(&small), to_json_pretty(&small)];
        pgio_fuzz::fuzz(&samples, |bytes| {
            match from_json(&String::from_utf8_lossy(bytes), "here") {
                Ok(trial) => drop(from_json(&to_json(&trial), "here").unwrap()),
                Err(error) => pgio_fuzz::print(&error),
            }
        });
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
            let sums = [&read.histograms["read"], &h].map(Histogram::total_sum_ns);
            prop_assert!(near(sums[0], sums[1]));
        }
    }
}
