//! The published comparison in examples/published: the report of two runs of one trial
//! each, and of two stored results held against each other.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::schema;
use pgio_tests::fixture::pgio;

fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/published")
}

fn report(arguments: &[&str]) -> String {
    let output = pgio().arg("report").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// One blank wherever the text is wrapped.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn nothing_can_be_concluded_from_one_trial_each_and_two_factors_changed() {
    let dir = published();
    let text = unwrapped(&report(&[dir.to_str().unwrap(), "--all"]));
    for result in [
        "`DRBD` differs from `plain` in 2 treatments",
        "the effect cannot be attributed to one of them",
        "`DRBD` can be compared in 1 block only, and fewer than 6 cannot decide",
        "device 0 reads/s against 99,353 buffer misses/s: the operating system's cache answered \
         100 %",
    ] {
        assert!(text.contains(result), "{result}\n{text}");
    }
    assert!(!text.contains("slower"), "{text}");

    let analysis = json(&report(&[dir.to_str().unwrap(), "--format", "json"]));
    schema::assert_valid("pgio.analysis/1", &analysis);
    let primary = &analysis["comparisons"][0];
    assert_eq!(
        (&primary["metric"], &primary["verdict"]),
        (&"updates_per_second".into(), &"too_few_blocks".into())
    );
    assert_eq!(analysis["conditions"][1]["factors"].as_array().unwrap().len(), 2);
}

/// The figures are those of the page.
#[test]
fn the_published_result_is_valid_and_has_the_published_figures() {
    let read = |name: &str| fs::read_to_string(published().join(name)).unwrap();
    schema::assert_valid("pgio.manifest/1", &json(&read("manifest.json")));
    let trials: Vec<Value> = read("trials.jsonl").lines().map(json).collect();
    for (trial, (riops, hits, updated)) in
        trials.iter().zip([(99_352, 161_414, 115_470), (17_400, 31_399, 22_419)])
    {
        schema::assert_valid("pgio.trial/1", trial);
        let rate = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
        assert_eq!((rate("riops") as i64, rate("cache_hits_per_second") as i64), (riops, hits));
        assert_eq!((rate("updates_per_second") * 120.0).round() as i64, updated);
        let counters = |at: &str| trial["database"][at]["blks_read"].as_i64().unwrap();
        assert_eq!((counters("after") - counters("before")) / 120, riops);
    }
}

#[test]
fn the_published_result_is_compared_with_a_later_one() {
    let dir = published();
    let parent = tempfile::tempdir().unwrap();
    let later = parent.path().join("later");
    fs::create_dir(&later).unwrap();
    for (name, from, to) in [
        ("manifest.json", "2018-06-02", "2026-06-02"),
        ("trials.jsonl", "\"shared_buffers\": \"128MB\"", "\"shared_buffers\": \"1GB\""),
    ] {
        let text = fs::read_to_string(dir.join(name)).unwrap();
        assert!(text.contains(from));
        fs::write(later.join(name), text.replace(from, to)).unwrap();
    }
    let both = [dir.to_str().unwrap(), later.to_str().unwrap()];
    let text = unwrapped(&report(&both));
    for result in [
        "shared_buffers 128MB 1GB",
        "not-interleaved: the trials of A and B were not interleaved",
        "one thing differs besides the date",
        "not judged",
    ] {
        assert!(text.contains(result), "{result}\n{text}");
    }
    let across = json(&report(&[both[0], both[1], "--format", "json"]));
    schema::assert_valid("pgio.across/1", &across);
    assert_eq!(across["comparisons"][0]["condition"], "plain");
    let csv = report(&[both[0], both[1], "--format", "csv"]);
    assert!(csv.starts_with("condition,metric,unit,primary,a,b,"), "{csv}");
    assert!(csv.contains("plain,updates_per_second,rows/s,true,962.25"), "{csv}");
    assert!(report(&[both[0], both[1], "--format", "markdown"]).contains("| DRBD |"));
}

#[test]
fn three_experiments_are_too_many() {
    let dir = published();
    let dir = dir.to_str().unwrap();
    let output = pgio().arg("report").args([dir, dir, dir]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--against"), "{error}");
}
