//! The output of a program: its last lines if it failed, and what the programs of all drivers printed together.

use std::collections::BTreeMap;

use pgio_results::model::Metric;

use crate::config::command::{Combine, MetricSpec};
use crate::workload::output::ProgramOutput;

/// Number of last lines shown.
const TAIL_LINES: usize = 5;
/// Lines shown from an error on, such as LINE and HINT; at most.
const ERROR_CONTEXT_LINES: usize = 4;
const MAX_CHARACTERS: usize = 600;

/// The first line that reports an error, with the lines that explain it, and the last lines: a program may
/// go on for a while after what made it fail.
pub(super) fn cause_of_failure(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = lines.len().saturating_sub(TAIL_LINES);
    let end = last_lines(text);
    match lines.iter().position(|line| reports_an_error(line)) {
        Some(first) if first < tail => {
            let until = tail.min(first + ERROR_CONTEXT_LINES);
            let head = lines[first..until].join(" / ");
            let gap = if until < tail { " / …" } else { "" };
            format!("{}{gap} / {end}", printable::truncate(&head, MAX_CHARACTERS))
        }
        // The error is among the last lines: begin with it.
        Some(first) => {
            printable::truncate(&lines[first..].join(" / "), 2 * MAX_CHARACTERS).into_owned()
        }
        None => end,
    }
}

/// As PostgreSQL, its programs and most others write it.
fn reports_an_error(line: &str) -> bool {
    ["ERROR:", "FATAL:", "PANIC:", "error:", "fatal:", "Error:"].iter().any(|w| line.contains(w))
}

/// The last lines that are not empty, on one line.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join(" / ");
    let length = last.chars().count();
    if length > MAX_CHARACTERS {
        format!("… {}", last.chars().skip(length - MAX_CHARACTERS).collect::<String>())
    } else {
        last
    }
}

/// Returns the output of all drivers together; each has the name to show for it.
pub(super) fn combine(specs: &[MetricSpec], parts: &[(String, ProgramOutput)]) -> ProgramOutput {
    let texts = |text: fn(&ProgramOutput) -> &str| -> String {
        let all = parts.iter().map(|(name, part)| (name, text(part)));
        let written = all.filter(|(_, text)| !text.is_empty());
        written.map(|(name, text)| format!("== {name} ==\n{}\n", text.trim_end())).collect()
    };
    ProgramOutput {
        metrics: metrics(specs, parts),
        stdout: texts(|part| &part.stdout),
        stderr: texts(|part| &part.stderr),
        sessions: parts.iter().map(|(_, part)| part.sessions).sum(),
        // Each driver sees all drivers' sessions.
        unproven: parts.iter().map(|(_, part)| part.unproven).max().unwrap_or_default(),
    }
}

/// A metric has a value if all drivers have one and its specification says how they make one.
fn metrics(specs: &[MetricSpec], parts: &[(String, ProgramOutput)]) -> BTreeMap<String, Metric> {
    let values = |spec: &MetricSpec| -> Option<Vec<f64>> {
        parts.iter().map(|(_, part)| part.metrics.get(&spec.name)?.value).collect()
    };
    let shares = specs
        .iter()
        .find(|spec| spec.primary && spec.combine == Some(Combine::Sum))
        .and_then(values)
        .unwrap_or_else(|| vec![1.0; parts.len()]);
    let one = |spec: &MetricSpec| {
        let combine = spec.combine?;
        let value = values(spec).map(|values| combine_values(combine, &values, &shares));
        Some((spec.name.clone(), Metric::new(value, spec.unit.clone())))
    };
    specs.iter().filter_map(one).collect()
}

fn combine_values(combine: Combine, values: &[f64], shares: &[f64]) -> f64 {
    let all = values.iter().copied();
    match combine {
        Combine::Sum => all.sum(),
        Combine::Max => all.fold(f64::NEG_INFINITY, f64::max),
        Combine::Min => all.fold(f64::INFINITY, f64::min),
        Combine::Mean => {
            let weighted: f64 = all.zip(shares).map(|(value, share)| value * share).sum();
            weighted / shares.iter().sum::<f64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::command::{Better, Extractor, OutputSource};

    #[test]
    fn a_failure_begins_with_its_cause() {
        let cause = "pgbench: error: client 0 aborted: ERROR:  relation \"t\" does not exist";
        let explained = format!("{cause}\nLINE 1: SELECT 1 FROM t;\n         ^");
        assert!(
            cause_of_failure(&explained).starts_with(cause),
            "{}",
            cause_of_failure(&explained)
        );
        let progress: String = (0..9).map(|n| format!("progress: {n}.0 s\n")).collect();
        let cause_shown = cause_of_failure(&format!("{progress}{explained}\n{progress}"));
        assert!(
            cause_shown.starts_with(&format!("{cause} / LINE 1: SELECT 1 FROM t; / ^")),
            "{cause_shown}"
        );
        assert!(cause_shown.ends_with("/ … / progress: 4.0 s / progress: 5.0 s / progress: 6.0 s / progress: 7.0 s / progress: 8.0 s"), "{cause_shown}");
        assert_eq!(cause_of_failure("why\nso\n"), "why / so");
        let long = cause_of_failure(&format!("ERROR: {}\n{progress}", "x".repeat(1 << 20)));
        assert!(long.starts_with("ERROR: xx") && long.len() < 3 * MAX_CHARACTERS, "{}", long.len());
    }

    #[test]
    fn last_lines_are_few_and_short() {
        assert_eq!(last_lines("1\n2\n\n3\n4\n 5 \n6\n\n"), "2 / 3 / 4 / 5 / 6");
        assert_eq!(last_lines(""), "");
        let long = last_lines(&"x".repeat(5000));
        assert_eq!(long.chars().count(), MAX_CHARACTERS + 2);
    }

    fn spec(name: &str, primary: bool, combine: Option<Combine>) -> MetricSpec {
        MetricSpec {
            name: name.to_owned(),
            unit: "x".to_owned(),
            better: Better::Higher,
            extractor: Extractor::Json(Vec::new()),
            source: OutputSource::Stdout,
            scale: 1.0,
            primary,
            named_primary: false,
            optional: false,
            combine,
        }
    }

    /// The output of a driver with these values of `rate` and `latency`.
    fn output(rate: f64, latency: Option<f64>) -> ProgramOutput {
        let metric = |value| Metric::new(value, "x".to_owned());
        ProgramOutput {
            metrics: BTreeMap::from([
                ("rate".to_owned(), metric(Some(rate))),
                ("latency".to_owned(), metric(latency)),
            ]),
            stdout: format!("rate {rate}\n"),
            stderr: String::new(),
            sessions: 2,
            unproven: 0,
        }
    }

    fn latency(specs: &[MetricSpec], outputs: [ProgramOutput; 2]) -> Option<Option<f64>> {
        let parts = outputs.map(|output| ("driver".to_owned(), output));
        metrics(specs, &parts).get("latency").map(|metric| metric.value)
    }

    #[test]
    fn rates_add_up_and_means_are_weighted_by_them() {
        let specs =
            [spec("rate", true, Some(Combine::Sum)), spec("latency", false, Some(Combine::Mean))];
        let parts = [
            ("driver 0".to_owned(), output(300.0, Some(1.0))),
            ("driver 1".to_owned(), output(100.0, Some(5.0))),
        ];
        let all = combine(&specs, &parts);
        assert_eq!(all.metrics["rate"].value, Some(400.0));
        assert_eq!(all.metrics["latency"].value, Some(2.0), "(300 × 1 + 100 × 5) / 400");
        assert_eq!(all.stdout, "== driver 0 ==\nrate 300\n== driver 1 ==\nrate 100\n");
        assert_eq!((all.stderr.as_str(), all.sessions), ("", 4));
    }

    #[test]
    fn means_are_unweighted_if_the_primary_metric_is_not_a_sum() {
        let outputs = || [output(300.0, Some(1.0)), output(100.0, Some(5.0))];
        let combined = |primary, combine| {
            latency(&[spec("rate", true, primary), spec("latency", false, combine)], outputs())
        };
        assert_eq!(combined(Some(Combine::Max), Some(Combine::Mean)), Some(Some(3.0)));
        assert_eq!(combined(Some(Combine::Sum), Some(Combine::Max)), Some(Some(5.0)));
        assert_eq!(combined(Some(Combine::Sum), Some(Combine::Min)), Some(Some(1.0)));
        assert_eq!(
            combined(Some(Combine::Sum), None),
            None,
            "percentiles of parts make no percentile"
        );
    }

    #[test]
    fn a_metric_missing_from_one_driver_is_missing_from_the_total() {
        let specs =
            [spec("rate", true, Some(Combine::Sum)), spec("latency", false, Some(Combine::Sum))];
        assert_eq!(latency(&specs, [output(3.0, None), output(1.0, Some(5.0))]), Some(None));
    }
}
