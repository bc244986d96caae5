//! Moves the engine's results into the trial's record.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Request;
use crate::experiment::trial_checks;
use crate::workload::Generator;
use crate::workload::ProgramOutput;
use crate::workload::{EngineError, Totals, WindowOutcome, Workload};
use pgio_results::histogram::Histogram;
use pgio_results::latency::Class;
use pgio_results::model::{Evidence, Metric, Slice, Trial, When};
use pgio_results::{latency, metrics};

const COMMITS: &str = "commits_per_second";

/// Slices in a record at most, so that the record of a window of days stays readable.
const MOST_SLICES: usize = 10_000;

/// Joins neighbors until there are few enough.
fn condensed(timeline: Vec<Slice>) -> Vec<Slice> {
    let together = timeline.len().div_ceil(MOST_SLICES);
    if together <= 1 {
        return timeline;
    }
    let joined = |slices: &[Slice]| {
        let mut all = Slice::default();
        for slice in slices {
            all.at = slice.at;
            all.seconds += slice.seconds;
            all.add_work(slice);
        }
        all
    };
    timeline.chunks(together).map(joined).collect()
}

/// Returns the condition's settings as the sessions read them back when they were prepared.
pub(super) fn session_evidence(request: &Request<'_>, trial: &Trial) -> Vec<Evidence> {
    request
        .session_settings
        .iter()
        .map(|(name, value)| {
            let (found, expected) = match trial.settings.get(name) {
                // The server accepted the value when it was set, so the value it shows is the expected one.
                Some(found) => (found.clone(), found.clone()),
                None => ("no session".to_owned(), value.clone()),
            };
            let what = format!("{name} (sessions)");
            Evidence { when: When::Before, what, found, expected: Some(expected) }
        })
        .collect()
}

/// Moves the engine's results into the record; its error, if any, is the trial's.
pub(super) fn record_run(
    request: &Request<'_>,
    trial: &mut Trial,
    ran: WindowOutcome,
) -> Result<(), EngineError> {
    trial.window.seconds = ran.seconds;
    if let Ok(started) = Timestamp::from_microsecond((ran.started * 1e6) as i64) {
        trial.started_at = started.to_string();
    }
    for (name, found) in &ran.readings {
        let expected = trial.settings.get(name).cloned();
        let what = format!("{name} (sessions)");
        for when in [When::During, When::After] {
            let evidence = Evidence {
                when,
                what: what.clone(),
                found: found.clone(),
                expected: expected.clone(),
            };
            trial.evidence.push(evidence);
        }
    }
    trial.sessions = ran.sessions;
    trial.timeline = condensed(ran.timeline);
    trial.generators = ran.generators;
    exclude_generators(trial, request);
    trial.checks.extend(ran.checks);
    record_totals(request.workload.as_ref(), trial, ran.totals, ran.seconds);
    trial.checks.extend(trial_checks::clock_step(ran.clock_moved, ran.seconds));
    trial.checks.extend(trial_checks::generator_stall(ran.stood_still, ran.seconds));
    // Slices have guards instead of a common start.
    if trial.woven.is_none() {
        trial.checks.push(trial_checks::common_start(ran.late, ran.seconds));
    }
    let cancelled = trial_checks::canceled_waits(ran.cancelled_sync_rep, ran.error.is_some());
    trial.checks.extend(cancelled);
    match ran.error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Adds the metrics of all that was done in a window of `seconds`, and its histograms.
pub(crate) fn record_totals(
    workload: &dyn Workload,
    trial: &mut Trial,
    totals: Totals,
    seconds: f64,
) {
    trial.metrics.extend(metrics_of(workload, &totals, seconds));
    trial.histograms = totals.histograms.into_iter().filter(|(_, h)| h.total_count() > 0).collect();
}

/// Returns the metrics of all that was done in a window of `seconds`.
pub(crate) fn metrics_of(
    workload: &dyn Workload,
    totals: &Totals,
    seconds: f64,
) -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::new();
    for (name, value) in workload.metrics(totals, seconds) {
        put(&mut all, name, value);
    }
    let is_primary = workload.info().primary_metric == COMMITS;
    if let Some(rate) = commit_rate(totals.commits(), seconds, is_primary) {
        put(&mut all, COMMITS, Some(rate));
    }
    for (class, h) in &totals.histograms {
        // A class without metrics is a bug that the test over all workloads finds.
        debug_assert!(Class::named(class).is_some(), "class `{class}` is unknown");
        if let Some(class) = Class::named(class) {
            put_latencies(&mut all, class, h);
        }
    }
    for (name, metric) in &mut all {
        let classes = metrics::definition(name).map_or(&[][..], |def| def.kind.classes());
        let mean = |class: &Class| totals.histograms.get(class.name()).and_then(Histogram::mean);
        if !classes.is_empty() {
            metric.at_least = classes.iter().filter_map(mean).any(|mean| mean.at_least);
        }
    }
    all
}

/// Work that commits only as an aside has no rate without commits. Where commits are what is compared, none is a
/// rate of 0: without it, the trial would be in no comparison.
fn commit_rate(commits: u64, seconds: f64, is_primary: bool) -> Option<f64> {
    let is_known = commits > 0 || (is_primary && seconds > 0.0);
    is_known.then(|| commits as f64 / seconds)
}

/// Other processes of this machine that generate the load are not foreign: they do the trial's work.
pub(super) fn exclude_generators(trial: &mut Trial, request: &Request<'_>) {
    let Generator::Others(others) = &request.generator else { return };
    if let Some(sources) = request.sources.filter(|_| !trial.generators.is_empty()) {
        let names: Vec<&str> = sources.names_of_this_machine().collect();
        subtract_generators(trial, &names, others.descend_from_this());
    }
}

/// Subtracts their CPU from the foreign load of this machine, which has these names. Where they
/// descend from this process, telemetry has counted them as its own.
fn subtract_generators(trial: &mut Trial, names: &[&str], are_descendants: bool) {
    let here = pgio_link::host_name();
    let near = trial.generators.iter().filter(|part| part.host == here && part.seconds > 0.0);
    let cores: f64 = near.map(|part| part.cpu_seconds / part.seconds).sum();
    let hosts = trial.telemetry.iter_mut().flat_map(|telemetry| &mut telemetry.hosts);
    let here = hosts.filter(|(name, _)| !are_descendants && names.contains(&name.as_str()));
    for foreign in here.filter_map(|(_, host)| host.foreign_cores.as_mut()) {
        *foreign = (*foreign - cores).max(0.0);
    }
}

/// Records a program's output and the number of sessions it was seen with.
pub(super) fn record_program_output(trial: &mut Trial, output: &ProgramOutput) {
    trial.metrics.extend(output.metrics.clone());
    trial.evidence.push(Evidence {
        when: When::During,
        what: "sessions of the command".to_owned(),
        found: output.sessions.to_string(),
        expected: None,
    });
    if output.unproven > 0 {
        trial.evidence.push(Evidence {
            when: When::During,
            what: trial_checks::UNPROVEN.to_owned(),
            found: output.unproven.to_string(),
            expected: None,
        });
    }
}

fn put_latencies(metrics: &mut BTreeMap<String, Metric>, class: Class, h: &Histogram) {
    for (name, reading) in latency::class_metrics(class, h) {
        put(metrics, name, Some(reading.seconds()));
        if let Some(metric) = metrics.get_mut(name) {
            metric.at_least = reading.at_least;
        }
    }
}

pub(super) fn put(all: &mut BTreeMap<String, Metric>, name: &str, value: Option<f64>) {
    // A name that is not in the table would have no unit and no direction: a bug that
    // the test over all workloads' metrics finds.
    if let Some(definition) = metrics::definition(name) {
        all.insert(name.to_owned(), Metric::new(value, definition.unit));
    } else {
        debug_assert!(false, "metric `{name}` is not in the table");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::joint::GeneratorPart;
    use pgio_results::telemetry::{HostUse, Telemetry};

    #[test]
    fn the_timeline_of_a_window_of_days_has_fewer_and_longer_slices() {
        let timeline = |seconds: u64| {
            let slice = |at| Slice { at: at as f64, seconds: 1.0, commits: 3, ..Slice::default() };
            condensed((1..=seconds).map(slice).collect())
        };
        let hours = timeline(10_000);
        assert_eq!((hours.len(), hours[9].at, hours[9].seconds), (10_000, 10.0, 1.0));
        let days = timeline(864_001);
        assert!((5_000..=MOST_SLICES).contains(&days.len()), "{}", days.len());
        assert_eq!((days[0].at, days[0].seconds, days[0].commits), (87.0, 87.0, 261));
        assert_eq!(days.iter().map(|slice| slice.commits).sum::<u64>(), 3 * 864_001);
        assert_eq!(days.last().map(|slice| slice.at), Some(864_001.0));
    }

    #[test]
    fn the_commit_rate_without_commits_is_zero_only_if_compared() {
        assert_eq!(commit_rate(20, 10.0, false), Some(2.0));
        assert_eq!(commit_rate(0, 10.0, true), Some(0.0));
        assert_eq!(commit_rate(0, 10.0, false), None);
        assert_eq!(commit_rate(0, 0.0, true), None, "it failed before its window");
    }

    /// Two drivers here at 0.8 core each; processes that are not below this one use 1.5 cores, or 3.1 with
    /// the drivers.
    #[test]
    fn drivers_are_subtracted_from_the_foreign_load_that_includes_them() {
        let foreign = |measured: f64, are_descendants: bool| {
            let part = |host: &str| GeneratorPart {
                host: host.to_owned(),
                seconds: 10.0,
                cpu_seconds: 8.0,
                ..GeneratorPart::default()
            };
            let here = pgio_link::host_name();
            let host = |name: &str| {
                let usage = HostUse { foreign_cores: Some(measured), ..HostUse::default() };
                (name.to_owned(), usage)
            };
            let hosts = ["db", "local", "standby"].map(host).into();
            let mut trial = Trial {
                generators: vec![part(&here), part(&here), part("elsewhere")],
                telemetry: Some(Telemetry { hosts, ..Telemetry::default() }),
                ..Trial::new()
            };
            subtract_generators(&mut trial, &["db", "local"], are_descendants);
            let hosts = trial.telemetry.unwrap().hosts;
            let cores = |name: &str| (hosts[name].foreign_cores.unwrap() * 1e6).round() / 1e6;
            ["db", "local", "standby"].map(cores)
        };
        assert_eq!(foreign(1.5, true), [1.5, 1.5, 1.5]);
        assert_eq!(foreign(3.1, false), [1.5, 1.5, 3.1]);
    }
}
