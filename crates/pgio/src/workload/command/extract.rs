//! Extracts numbers from a program's output by JSON pointer or regular expression. Pure.
//!
//! A missing or malformed number fails the trial, and so does 0 or below in the primary metric, which has
//! no ratio: otherwise an experiment would run for hours before it reports the error.

use std::collections::BTreeMap;

use regex_lite::RegexBuilder;
use serde_json::Value;

use super::CommandError;
use super::output::last_lines;
use crate::config::command::{Better, Extractor, MatchChoice, MetricSpec, OutputSource};
use crate::host::json::{self, Document};
use pgio_results::model::Metric;

/// The output to be searched.
#[derive(Debug)]
pub(super) struct CapturedOutput<'a> {
    pub(super) stdout: &'a str,
    pub(super) stderr: &'a str,
    /// The files, in the order of the metrics that use them.
    pub(super) files: Vec<String>,
}

pub(super) fn metrics(
    specs: &[MetricSpec],
    captured: &CapturedOutput<'_>,
) -> Result<BTreeMap<String, Metric>, CommandError> {
    let mut files = captured.files.iter();
    let mut all = BTreeMap::new();
    for spec in specs {
        let (text, place) = match &spec.source {
            OutputSource::Stdout => (captured.stdout, "stdout"),
            OutputSource::Stderr => (captured.stderr, "stderr"),
            OutputSource::File(path) => (files.next().map_or("", String::as_str), path.text()),
        };
        let value = extract_value(spec, text).map_err(|why| CommandError::Metric {
            name: spec.name.clone(),
            why,
            place: place.to_owned(),
            excerpt: excerpt(&spec.source, text, captured.stderr),
        })?;
        all.insert(spec.name.clone(), Metric::new(value, spec.unit.clone()));
    }
    Ok(all)
}

/// Returns the end of the text that lacks a number, and of stderr, which may say why.
fn excerpt(source: &OutputSource, text: &str, stderr: &str) -> String {
    let (lines, errors) = (last_lines(text), last_lines(stderr));
    let lines = if lines.is_empty() { "nothing".to_owned() } else { lines };
    match source {
        OutputSource::Stdout | OutputSource::File(_) if !errors.is_empty() => {
            format!("{lines}; end of stderr: {errors}")
        }
        _ => lines,
    }
}

/// Returns `None` for an optional metric that was not measured.
fn extract_value(spec: &MetricSpec, text: &str) -> Result<Option<f64>, String> {
    let wrong = |why: String| format!("{why}; {}", remedy(spec));
    let found = match &spec.extractor {
        Extractor::Json(pointers) => extract_by_pointers(text, pointers, spec.optional),
        Extractor::Regex { pattern, take, skip } => extract_by_regex(text, pattern, *take, *skip),
    };
    let Some(found) = found.map_err(wrong)? else {
        if spec.optional {
            return Ok(None);
        }
        let hint = if spec.is_primary() { "" } else { ", or write optional = true" };
        return Err(wrong(describe_missing(&spec.extractor)) + hint);
    };
    let value = found * spec.scale;
    let has_no_ratio = value <= 0.0 && spec.better != Better::Neither;
    match value {
        _ if !value.is_finite() => Err(wrong(format!("{found} is not a finite number"))),
        _ if spec.is_primary() && value <= 0.0 => Err(format!(
            "{value} has no ratio, which a judged metric needs; find out why so little was measured, or {}",
            other_primary(spec)
        )),
        _ if spec.optional && has_no_ratio => Ok(None),
        _ => Ok(Some(value)),
    }
}

/// Returns how another metric becomes the primary one.
fn other_primary(spec: &MetricSpec) -> &'static str {
    if spec.named_primary {
        "name another metric as primary in [experiment]"
    } else {
        "set primary = true for another metric"
    }
}

/// Returns a hint of where to look and which key to correct.
fn remedy(spec: &MetricSpec) -> String {
    let look = match &spec.source {
        OutputSource::Stdout | OutputSource::Stderr => {
            "see its complete output in output/ of the results"
        }
        OutputSource::File(_) => "see the contents of the file",
    };
    let key = match &spec.extractor {
        Extractor::Json(_) => "json",
        Extractor::Regex { .. } => "regex",
    };
    format!("{look} and correct {key}")
}

fn describe_missing(extractor: &Extractor) -> String {
    match extractor {
        Extractor::Json(pointers) => format!("no value at {}", pointers.join(" and ")),
        Extractor::Regex { pattern, skip: 0, .. } => format!("nothing matches `{pattern}`"),
        Extractor::Regex { pattern, skip, .. } => {
            format!("`{pattern}` has no matches after the {skip} that are skipped")
        }
    }
}

fn extract_by_regex(
    text: &str,
    pattern: &str,
    take: MatchChoice,
    skip: u64,
) -> Result<Option<f64>, String> {
    let regex = RegexBuilder::new(pattern).multi_line(true).build().map_err(|e| e.to_string())?;
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let numbers = regex.captures_iter(text).skip(skip).map(|found| {
        let group = found.get(1).or_else(|| found.get(0)).map_or("", |m| m.as_str());
        parse_number(group)
            .ok_or_else(|| format!("`{pattern}` matches `{group}`, which is not a number"))
    });
    let numbers = numbers.collect::<Result<Vec<f64>, String>>()?;
    let sum = || (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>());
    Ok(match take {
        MatchChoice::Last => numbers.last().copied(),
        MatchChoice::First => numbers.first().copied(),
        MatchChoice::Sum => sum(),
        MatchChoice::Mean => sum().map(|sum| sum / numbers.len() as f64),
    })
}

fn extract_by_pointers(
    text: &str,
    pointers: &[String],
    optional: bool,
) -> Result<Option<f64>, String> {
    let Some(document) = last_json(text) else {
        return if optional { Ok(None) } else { Err("the output contains no JSON".to_owned()) };
    };
    let mut sum = None;
    for pointer in pointers {
        let found = values_at(&document, pointer);
        if found.is_empty() {
            return Ok(None);
        }
        for value in found {
            let number = match value {
                Value::Number(n) => n.as_f64(),
                Value::String(text) => parse_number(text),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            };
            let not_a_number =
                || format!("{pointer} is {}, which is not a number", abbreviate(value));
            *sum.get_or_insert(0.0) += number.ok_or_else(not_a_number)?;
        }
    }
    Ok(sum)
}

/// Returns the last JSON document that is complete, as a regular expression takes the last match by default: some
/// programs print one after each interval. A document begins a line or follows another on it, and after an array
/// nothing else is there: `[0.000123] start` is text.
fn last_json(text: &str) -> Option<Value> {
    let (mut last, mut at, mut follows) = (None, 0, false);
    while at < text.len() {
        let line_end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
        let rest = match text[at..line_end].find('{').filter(|_| follows) {
            Some(next) => &text[at + next..],
            None => text[at..].trim_start_matches(['\u{feff}', ' ', '\t']),
        };
        let start = text.len() - rest.len();
        (at, follows) = (line_end, false);
        if !rest.starts_with(['{', '[']) {
            continue;
        }
        match json::first(rest) {
            Document::Complete(found, length) => {
                let after = rest[length..].trim_start_matches([' ', '\r']);
                if found.is_object() || after.is_empty() || after.starts_with(['\n', '[', '{']) {
                    (last, at, follows) = (Some(found), start + length, true);
                }
            }
            // What looks like a document may be a part of it.
            Document::Unfinished => break,
            Document::Other => {}
        }
    }
    last
}

/// Returns all values that the pointer matches; `*` stands for all members of an array or object.
fn values_at<'a>(value: &'a Value, pointer: &str) -> Vec<&'a Value> {
    let Some((before, after)) = split_at_star(pointer) else {
        return value.pointer(pointer).into_iter().collect();
    };
    match value.pointer(before) {
        Some(Value::Array(items)) => items.iter().flat_map(|item| values_at(item, after)).collect(),
        Some(Value::Object(members)) => {
            members.values().flat_map(|item| values_at(item, after)).collect()
        }
        _ => Vec::new(),
    }
}

/// Splits the pointer at the first step that is `*`.
fn split_at_star(pointer: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let found = from + pointer[from..].find("/*")?;
        let after = &pointer[found + 2..];
        if after.is_empty() || after.starts_with('/') {
            return Some((&pointer[..found], after));
        }
        from = found + 2;
    }
}

/// Parses as Rust does, including `nan` and `inf`; the caller refuses these with their name.
fn parse_number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn abbreviate(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 {
        format!("{} …", text.chars().take(40).collect::<String>())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::command::Template;
    use crate::config::experiment::parse;
    use proptest::prelude::*;

    fn spec(extractor: Extractor) -> MetricSpec {
        MetricSpec {
            name: "m".to_owned(),
            unit: "s".to_owned(),
            better: Better::Lower,
            extractor,
            source: OutputSource::Stdout,
            scale: 1.0,
            primary: true,
            named_primary: false,
            optional: false,
            combine: None,
        }
    }

    fn regex(pattern: &str, take: MatchChoice) -> Extractor {
        Extractor::Regex { pattern: pattern.to_owned(), take, skip: 0 }
    }

    fn pointers(all: &[&str]) -> Extractor {
        Extractor::Json(all.iter().map(|p| (*p).to_owned()).collect())
    }

    fn read(spec: &MetricSpec, stdout: &str) -> Result<Option<f64>, String> {
        let written = CapturedOutput { stdout, stderr: "", files: Vec::new() };
        let all = metrics(std::slice::from_ref(spec), &written).map_err(|e| e.to_string())?;
        assert_eq!(all["m"].unit, "s");
        Ok(all["m"].value)
    }

    const PGBENCH: &str = "latency average = 1.147 ms\ntps = 871.5 (including connections)\n\
                           tps = 880.25 (excluding connections)\n";

    #[test]
    fn take_chooses_among_several_matches() {
        let tps = |take| read(&spec(regex("^tps = ([0-9.]+)", take)), PGBENCH).unwrap().unwrap();
        assert_eq!(tps(MatchChoice::Last), 880.25);
        assert_eq!(tps(MatchChoice::First), 871.5);
        assert_eq!(tps(MatchChoice::Sum), 1751.75);
        assert_eq!(tps(MatchChoice::Mean), 875.875);
        let whole = spec(regex("[0-9.]+(?: ms)?$", MatchChoice::First));
        assert!(read(&whole, PGBENCH).unwrap_err().contains("`1.147 ms`, which is not a number"));
        let scaled =
            MetricSpec { scale: 0.001, ..spec(regex("= ([0-9.]+) ms", MatchChoice::Last)) };
        assert!((read(&scaled, PGBENCH).unwrap().unwrap() - 0.001_147).abs() < 1e-12);
        let extractor = Extractor::Regex {
            pattern: "^tps = (\\S+)".to_owned(),
            take: MatchChoice::Mean,
            skip: 1,
        };
        assert_eq!(read(&spec(extractor.clone()), PGBENCH).unwrap(), Some(880.25));
        let one = PGBENCH.rsplit_once("tps").unwrap().0;
        let error = read(&spec(extractor), one).unwrap_err();
        assert!(error.contains("has no matches after the 1 that are skipped"), "{error}");
    }

    #[test]
    fn json_is_found_between_other_text_and_a_star_is_every_member() {
        let text = "note: [no JSON]\n{\"jobs\": [{\"read\": {\"iops\": 10.5, \"bw\": \"7\"}},\n\
                    {\"read\": {\"iops\": 1, \"bw\": 3}}], \"a/b\": 5, \"*x\": 6}\ndone { }\n";
        let sum = |all: &[&str]| read(&spec(pointers(all)), text).unwrap().unwrap();
        assert_eq!(sum(&["/jobs/0/read/iops"]), 10.5);
        assert_eq!(sum(&["/jobs/*/read/iops"]), 11.5);
        assert_eq!(sum(&["/jobs/*/read/*"]), 21.5);
        assert_eq!(sum(&["/jobs/0/read/bw", "/a~1b"]), 12.0);
        assert_eq!(sum(&["/*x"]), 6.0);
        assert!(read(&spec(pointers(&[""])), "  17\n[4]").unwrap_err().contains("not a number"));
        for (pointer, why) in [
            ("/jobs/7/read/iops", "no value at /jobs/7/read/iops"),
            ("/jobs", "/jobs is [{\"read\":{"),
        ] {
            let error = read(&spec(pointers(&[pointer])), text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let error = read(&spec(pointers(&["/a"])), "no JSON\nat all").unwrap_err();
        assert_eq!(
            error,
            "metric `m`: the output contains no JSON; see its complete output in output/ of the results and \
             correct json; end of stdout: no JSON / at all"
        );
    }

    #[test]
    fn the_last_complete_document_counts() {
        let m = |text: &str| read(&spec(pointers(&["/m"])), text);
        for text in [
            "{ \"m\": 1 }\n{ \"m\": 2 }\n{ \"m\": 7 }\n",
            "{\"m\": 1}{\"m\": 7}",
            "\u{feff}{\n\t\"m\": 7,\n\t\"x\": [\n\t\t{\"m\": 2}\n\t]\n}\r\n",
            "{\"m\": 1}, [x] {\"m\": 7}; {end}",
            "{\n  \"m\": 1,\n  \"x\": [\n    {\"m\": 2}\n  ]\n}\n{\n  \"m\": 7\n}\n{\n  \"m\": 8,\n",
            "[0.000123] start\n[12:30] x\n[WARN\n{\"m\": 7}\n[5] end\n",
            "{\"level\": \"info\"}\n{\"m\": 7, \"other\": NaN, \"more\": [-Infinity]} done\n",
        ] {
            assert_eq!(m(text), Ok(Some(7.0)), "{text}");
        }
        assert!(m("{\"m\": 1}\n{\"m\": NaN}").unwrap_err().contains("/m is null"));
        assert_eq!(read(&spec(pointers(&["/0"])), "[1]\n[7]\n"), Ok(Some(7.0)));
    }

    #[test]
    fn postal_reports_messages_and_errors_per_minute() {
        let text = "[workload]\nkind = 'command'\npreset = 'postal'\n\
                    parameters = { server = 'x', users = 'y' }\n[[condition]]\nname = 'a'\n";
        let mut experiment = parse(text, "x.toml", "x", &[], &[]).unwrap();
        let specs = experiment.workloads.remove(0).command.unwrap().metrics;
        let stdout = "time,messages,data(K),errors,connections,SSL connections\n\
                      10:01,50,3500,7,25,0\n10:02,200,14000,1,100,0\n10:03,220,15400,2,110,0\n";
        let written = CapturedOutput { stdout, stderr: "", files: Vec::new() };
        let all = metrics(&specs, &written).unwrap();
        assert_eq!(all["messages_per_minute"].value, Some(210.0));
        assert_eq!(all["postal_errors"].value, Some(3.0));
    }

    #[test]
    fn a_value_without_ratio_fails_if_a_ratio_is_needed() {
        let judged = spec(regex("x=(\\S+)", MatchChoice::Last));
        for (text, why) in [
            ("x=0", "0 has no ratio"),
            ("x=-3.5", "-3.5 has no ratio"),
            ("x=nan", "NaN is not a finite number"),
            ("x=inf", "inf is not a finite number"),
            ("x=1e999", "inf is not a finite number"),
            ("x=fast", "matches `fast`, which is not a number"),
            ("y=1", "nothing matches `x=(\\S+)`"),
            ("", "end of stdout: nothing"),
        ] {
            let error = read(&judged, text).unwrap_err();
            assert!(error.starts_with("metric `m`: ") && error.contains(why), "{text}: {error}");
        }
        let plain = MetricSpec { primary: false, better: Better::Neither, ..judged };
        assert_eq!(read(&plain, "x=0").unwrap(), Some(0.0));
        assert_eq!(read(&plain, "x=-1").unwrap(), Some(-1.0));
        assert!(read(&plain, "x=nan").is_err() && read(&plain, "").is_err());
        let optional = MetricSpec { optional: true, ..plain };
        assert_eq!((read(&optional, ""), read(&optional, "x=0")), (Ok(None), Ok(Some(0.0))));
        let directed = MetricSpec { better: Better::Higher, ..optional };
        assert_eq!(read(&directed, "x=0"), Ok(None));
        let json = MetricSpec { extractor: pointers(&["/a"]), ..directed };
        assert_eq!(read(&json, "nothing"), Ok(None));
        assert!(read(&json, "{\"a\": null}").unwrap_err().contains("/a is null"));
    }

    #[test]
    fn a_metric_that_the_experiment_names_as_primary_needs_a_ratio() {
        let own = spec(regex("x=(\\S+)", MatchChoice::Last));
        let other = MetricSpec { primary: false, better: Better::Higher, ..own };
        assert_eq!(read(&other, "x=0"), Ok(Some(0.0)));
        let named = MetricSpec { named_primary: true, ..other };
        assert_eq!(read(&named, "x=2"), Ok(Some(2.0)));
        let error = read(&named, "x=0").unwrap_err();
        let why = "0 has no ratio, which a judged metric needs; find out why so little was measured, \
                   or name another metric as primary in [experiment]";
        assert!(error.contains(why), "{error}");
        assert!(!read(&named, "").unwrap_err().contains("optional"));
    }

    #[test]
    fn a_failure_has_a_hint() {
        let judged = spec(regex("x=(\\S+)", MatchChoice::Last));
        let file = OutputSource::File(Template::new("x"));
        let plain = MetricSpec { primary: false, ..judged.clone() };
        let in_file = MetricSpec { source: file, extractor: pointers(&["/a"]), ..plain.clone() };
        let reason = |spec: &MetricSpec, text: &str| extract_value(spec, text).unwrap_err();
        for (error, ends) in [
            (reason(&judged, ""), "in output/ of the results and correct regex"),
            (reason(&plain, ""), "and correct regex, or write optional = true"),
            (reason(&plain, "x=fast"), "in output/ of the results and correct regex"),
            (
                reason(&in_file, "{}"),
                "see the contents of the file and correct json, or write optional = true",
            ),
            (reason(&judged, "x=0"), "or set primary = true for another metric"),
        ] {
            assert!(error.ends_with(ends), "{error}");
        }
    }

    #[test]
    fn each_metric_has_its_own_source() {
        let extractor = || regex("[0-9]+", MatchChoice::Last);
        let named =
            |name: &str, source| MetricSpec { name: name.to_owned(), source, ..spec(extractor()) };
        let file = |path: &str| OutputSource::File(Template::new(path));
        let specs = [
            named("a", file("x")),
            named("b", OutputSource::Stderr),
            named("c", file("y")),
            named("d", OutputSource::Stdout),
        ];
        let files = vec!["1".to_owned(), "3".to_owned()];
        let all = metrics(&specs, &CapturedOutput { stdout: "4", stderr: "2", files }).unwrap();
        let values: Vec<f64> = all.values().filter_map(|m| m.value).collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn fuzzed_output_is_read_or_refused() {
        let json = r#"{"a": [{"0": 1.5}, {"~": "2"}], "x": 1e3}"#;
        pgio_fuzz::fuzz(&[PGBENCH, json], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for extractor in [
                pointers(&["/a/*/0", "/a/1/~0", "/x"]),
                regex("^tps = ([0-9.]+)", MatchChoice::Mean),
                regex("(\\S+)", MatchChoice::Sum),
            ] {
                if let Err(why) = read(&spec(extractor), &text) {
                    assert!(!why.is_empty());
                }
            }
        });
    }

    proptest! {
        #[test]
        fn a_printed_number_is_read_back(value in 1e-9f64..1e12) {
            prop_assert_eq!(read(&spec(regex("x (\\S+)", MatchChoice::Last)), &format!("x {value}")), Ok(Some(value)));
            let by_json = read(&spec(pointers(&["/x"])), &format!("{{\"x\": {value}}}"));
            // Equal except for the last bit.
            prop_assert!((by_json.unwrap().unwrap() / value - 1.0).abs() < 1e-15);
        }
    }
}
