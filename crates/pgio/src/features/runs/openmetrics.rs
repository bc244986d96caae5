//! OpenMetrics text, in the subset that node exporter's textfile collector reads as well.
//!
//! Only gauges, no timestamps (the collector refuses them), names with their base unit, labels escaped, one
//! `# EOF` at the end, which is a comment to the older format. Each metric is a family with a sample for
//! each condition, at the middle point of a sweep. The effects of the primary metric, the numbers of trials
//! and the start of the run are families of their own. Next: docs/FORMAT.md lists the names.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;

use pgio_report::directories::LoadedReport;
use pgio_verdict::{Analysis, Verdict};

/// Samples of one name.
#[derive(Debug)]
struct Family {
    help: String,
    /// Labels and value.
    samples: Vec<(String, f64)>,
}

pub(super) fn render(workloads: &[LoadedReport]) -> String {
    let mut families = BTreeMap::new();
    for LoadedReport { stored, analysis, .. } in workloads {
        values(&mut families, analysis);
        effects(&mut families, analysis);
        trials(&mut families, analysis);
        if let Ok(at) = stored.manifest.created_at.parse::<Timestamp>() {
            let help = "start of the run";
            let label = labels(&[("experiment", &analysis.experiment)]);
            add(
                &mut families,
                "pgio_run_start_timestamp_seconds",
                help,
                label,
                at.as_second() as f64,
            );
        }
    }
    let mut text = String::new();
    for (name, family) in &families {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {}", escaped(&family.help));
        let _ = writeln!(text, "# TYPE {name} gauge");
        for (labels, value) in &family.samples {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text + "# EOF\n"
}

type Families = BTreeMap<String, Family>;

fn add(families: &mut Families, name: &str, help: &str, labels: String, value: f64) {
    let help = help.to_owned();
    let family = families.entry(name.to_owned()).or_insert(Family { help, samples: Vec::new() });
    // A sample may appear only once, and two workloads may have the same name.
    if value.is_finite() && family.samples.iter().all(|(known, _)| *known != labels) {
        family.samples.push((labels, value));
    }
}

fn values(families: &mut Families, analysis: &Analysis) {
    for condition in &analysis.conditions {
        let labels = condition_labels(analysis, &condition.name);
        for (metric, measured) in &condition.metrics {
            // A lower bound is not a value.
            let Some(value) = measured.value.filter(|_| !measured.at_least) else { continue };
            let def = analysis.definition(metric);
            let help = format!("{}, the typical trial", def.map_or("a metric", |def| def.help));
            add(families, &name(metric, &measured.unit), &help, labels.clone(), value);
        }
    }
}

fn effects(families: &mut Families, analysis: &Analysis) {
    for c in analysis.comparisons.iter().filter(|c| c.primary) {
        let labels = condition_labels(analysis, &c.condition)
            + &format!(",metric=\"{}\"", escaped(&c.metric));
        let numbers = [
            ("pgio_effect_ratio", "the condition divided by the baseline", c.estimated_ratio()),
            ("pgio_effect_ratio_low", "lower end of its 95 % interval", c.interval.low),
            ("pgio_effect_ratio_high", "upper end of its 95 % interval", c.interval.high),
            (
                "pgio_effect_slower",
                "1 if the condition is slower than the baseline, 0 if not or not decided",
                Some(f64::from(u8::from(c.verdict == Verdict::Slower))),
            ),
        ];
        for (name, help, value) in numbers {
            if let Some(value) = value {
                add(families, name, help, labels.clone(), value);
            }
        }
    }
}

fn trials(families: &mut Families, analysis: &Analysis) {
    for condition in &analysis.conditions {
        let counts = [
            ("valid", condition.valid),
            ("invalid", condition.invalid),
            ("failed", condition.failed),
        ];
        for (state, count) in counts {
            let labels =
                condition_labels(analysis, &condition.name) + &format!(",state=\"{state}\"");
            add(families, "pgio_trials", "trials on record", labels, count as f64);
        }
    }
}

fn condition_labels(analysis: &Analysis, condition: &str) -> String {
    let baseline = (condition == analysis.baseline).to_string();
    let experiment = analysis.experiment.as_str();
    labels(&[("experiment", experiment), ("condition", condition), ("baseline", &baseline)])
}

fn labels(all: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
    all.iter().map(one).collect::<Vec<_>>().join(",")
}

/// `pgio_commit_latency_p99_seconds`; a name that a command declares may hold what Prometheus does not allow.
fn name(metric: &str, unit: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let safe: String = metric.chars().map(allowed).collect();
    let unit = match unit {
        "s" if !safe.contains("seconds") => "_seconds",
        _ => "",
    };
    format!("pgio_{safe}{unit}")
}

fn escaped(text: &str) -> String {
    // A line break could forge a sample; the backslash first, because the others add some.
    printable::line(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::store::StoredExperiment;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::demo;

    /// The rules of both formats, as far as gauges need them; returns the samples by name and labels.
    fn parse(text: &str) -> BTreeMap<String, f64> {
        let body = text.strip_suffix("# EOF\n").expect("ends with EOF");
        let is_name = |s: &str| {
            !s.is_empty()
                && !s.starts_with(|c: char| c.is_ascii_digit())
                && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let (mut samples, mut family, mut families) = (BTreeMap::new(), "", Vec::new());
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                assert!(!families.contains(&name), "{name} is in two places");
                families.push(name);
                family = name;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest, format!("{family} gauge"));
            } else {
                let (name, rest) = line.split_once('{').expect("labels");
                assert_eq!(name, family);
                let (labels, value) = rest.rsplit_once("} ").expect("a value and no timestamp");
                let mut rest = labels;
                while !rest.is_empty() {
                    let (label, quoted) = rest.split_once("=\"").expect("a label");
                    assert!(is_name(label), "{line}");
                    let mut escaping = false;
                    let end = quoted.find(|c: char| {
                        let ends = c == '"' && !escaping;
                        escaping = c == '\\' && !escaping;
                        ends
                    });
                    let end = end.expect("the label's end");
                    rest = &quoted[end + 1..];
                    rest = rest.strip_prefix(',').unwrap_or(rest);
                }
                let value: f64 = value.parse().expect("a number");
                assert!(
                    samples.insert(format!("{name}{{{labels}}}"), value).is_none(),
                    "twice: {line}"
                );
            }
        }
        samples
    }

    fn loaded(stored: &StoredExperiment) -> LoadedReport {
        LoadedReport::new("".as_ref(), stored.clone(), &[])
    }

    #[test]
    fn every_family_is_valid_and_names_cannot_forge_samples() {
        let mut stored = demo();
        let analysis = analyze(&stored);
        let samples = parse(&render(&[loaded(&stored), loaded(&stored)]));
        let rate = "pgio_commits_per_second{experiment=\"sync-commit\",condition=\"local\",baseline=\"true\"}";
        assert_eq!(
            samples[rate],
            analysis.condition("local").unwrap().metrics["commits_per_second"].value.unwrap()
        );
        assert!(
            samples.keys().any(|k| k.starts_with("pgio_commit_latency_p95_seconds{")),
            "{samples:?}"
        );
        let slower =
            samples.iter().filter(|(k, v)| k.starts_with("pgio_effect_slower") && **v == 1.0);
        assert_eq!(slower.count(), 1);
        stored.manifest.name = "a\"} 1\nforged{b=\"\\".to_owned();
        let hostile = parse(&render(&[loaded(&stored)]));
        assert_eq!(hostile.len(), samples.len());
    }

    #[test]
    fn an_effect_of_which_one_end_is_known_has_that_end_alone() {
        let mut stored = demo();
        stored.manifest.primary_metric = "commit_latency_p95".to_owned();
        for t in &mut stored.trials {
            let cut_off = t.place.as_ref().unwrap().condition == "on";
            t.metrics.get_mut("commit_latency_p95").unwrap().at_least = cut_off;
        }
        let samples = parse(&render(&[loaded(&stored)]));
        let names = |condition: &str| -> Vec<&str> {
            let label = format!("condition=\"{condition}\"");
            let effects = samples.keys().filter(|k| k.starts_with("pgio_effect_ratio"));
            effects.filter(|k| k.contains(&label)).filter_map(|k| k.split('{').next()).collect()
        };
        assert_eq!(names("on"), ["pgio_effect_ratio_low"]);
        assert_eq!(
            names("remote_write"),
            ["pgio_effect_ratio_high", "pgio_effect_ratio_low", "pgio_effect_ratio"]
        );
    }

    #[test]
    fn a_declared_name_becomes_one_that_prometheus_allows() {
        assert_eq!(name("p99.9 (ms)", "ms"), "pgio_p99_9__ms_");
        assert_eq!(name("read_latency_mean", "s"), "pgio_read_latency_mean_seconds");
        assert_eq!(
            name("seconds_per_10000_transactions", "s"),
            "pgio_seconds_per_10000_transactions"
        );
    }
}
