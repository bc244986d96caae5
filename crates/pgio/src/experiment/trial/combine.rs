//! Makes one record of the trials of several servers that shared a window.
//!
//! Counts are added and rates recomputed from the sums, latencies are of all operations (histograms merge
//! exactly), and what cannot be added (settings, environment, the server's description) is the first server's;
//! each server's own is in `targets`. A check has the worst verdict of all servers and names those
//! that failed it. What hosts and treatments prove is judged here, because a host may serve several servers.

use std::collections::BTreeMap;

use super::record::{exclude_generators, put, record_totals};
use super::{Request, TrialResult, observed};
use crate::experiment::trial_checks::{self, apart};
use crate::treatment::InForce;
use crate::workload::Totals;
use pgio_results::joint;
use pgio_results::metrics;
use pgio_results::model::{
    Check, CheckVerdict, DatabaseCounters, DatabaseRow, Evidence, Metric, Outcome, Slice,
    TargetResult, Trial, Warning,
};
use pgio_results::telemetry::{Series, Track};
use pgio_results::telemetry::{Telemetry, Waits};

/// One server's trial.
pub(super) struct ServerTrial<'a> {
    pub(super) name: &'a str,
    pub(super) request: &'a Request<'a>,
    pub(super) measured: TrialResult,
}

/// What was observed on the hosts.
pub(super) struct HostObservations {
    pub(super) telemetry: Telemetry,
    pub(super) series: Series,
    pub(super) warnings: Vec<Warning>,
}

/// Metrics of the server's counters that are added.
const ADDED: &[&str] = &[
    "riops",
    "cache_hits_per_second",
    "wal_bytes_per_second",
    "wal_full_page_images",
    "checkpoints",
];

/// Ratios of the server's counters, and the rate by which each server's counts.
const WEIGHTED: &[(&str, &str)] = &[
    ("wal_bytes_per_commit", "commits_per_second"),
    ("wal_bytes_per_update", "updates_per_second"),
    ("wal_fpi_share", "wal_bytes_per_second"),
];

/// `in_force` are the treatments of each server, in the order of the servers.
pub(super) fn combine(
    mut servers: Vec<ServerTrial<'_>>,
    observations: Option<HostObservations>,
    asked: &[&str],
    in_force: &[Vec<Box<dyn InForce>>],
) -> TrialResult {
    judge_flushes(&mut servers, observations.as_ref());
    let request = servers[0].request;
    let trials: Vec<(&str, &Trial)> = servers.iter().map(|p| (p.name, &p.measured.trial)).collect();
    let mut trial = trials[0].1.clone();
    trial.seed = servers.iter().map(|p| p.request.seed).fold(0, |all, seed| all ^ seed);
    trial.outcome = outcome(&trials);
    trial.window.seconds = trials.iter().map(|(_, t)| t.window.seconds).fold(0.0, f64::max);
    trial.metrics = BTreeMap::new();
    trial.sessions = trials.iter().flat_map(|(_, t)| t.sessions.iter().cloned()).collect();
    trial.generators = trials.iter().flat_map(|(_, t)| t.generators.iter().cloned()).collect();
    trial.timeline = timeline(&trials);
    trial.dataset = dataset(&trials);
    trial.database = database(&trials);
    trial.evidence = evidence(&trials);
    trial.checks = checks(&trials);
    trial.warnings = warnings(&trials);
    let mut series = None;
    if let Some(HostObservations { telemetry, series: of_hosts, warnings }) = observations {
        trial.warnings.extend(warnings);
        trial.telemetry = Some(telemetry_of(telemetry, &trials));
        // A server's own trial observes no hosts.
        exclude_generators(&mut trial, request);
        series = Some(of_hosts);
    }
    let is_whole = trial.outcome == Outcome::Complete && !trial_checks::lost_a_part(&trial);
    if is_whole {
        add_metrics(&mut trial, request, &servers);
    }
    trial.targets = servers.iter().map(|p| (p.name.to_owned(), result(p))).collect();
    if is_whole {
        add_shares(&mut trial, asked);
        add_start_check(&mut trial);
        let treated = trials.iter().zip(in_force).map(|((_, own), treatments)| {
            trial_checks::ServerTreatments { evidence: &own.evidence, treatments }
        });
        let treated: Vec<_> = treated.collect();
        trial_checks::judge_shared(&mut trial, request.declared, &treated);
    }
    let mut error = None;
    for ServerTrial { name, measured, .. } in servers {
        let all_series = series.get_or_insert_with(|| Series::new(trial.window.seconds));
        add_tracks(all_series, name, measured.series);
        error = error.or(measured.error);
    }
    TrialResult { trial, series, output: Vec::new(), error }
}

/// Judges the flushes of each server, by its own probes and what was observed on its host.
fn judge_flushes(servers: &mut [ServerTrial<'_>], observations: Option<&HostObservations>) {
    let hosts = observations.map(|found| found.telemetry.hosts.clone()).unwrap_or_default();
    for server in servers.iter_mut().filter(|p| p.request.workload.commits_wait_for_flush()) {
        let trial = &mut server.measured.trial;
        let check = trial_checks::flushes(trial, &hosts);
        trial.checks.extend(check);
    }
}

/// The first failure, with its server; a trial that was stopped because of it says nothing more.
fn outcome(trials: &[(&str, &Trial)]) -> Outcome {
    let failed = trials.iter().find_map(|(name, trial)| match &trial.outcome {
        Outcome::Failed { error } => {
            Some(Outcome::Failed { error: format!("target `{name}`: {error}") })
        }
        Outcome::Complete | Outcome::Interrupted => None,
    });
    let complete = trials.iter().all(|(_, trial)| trial.outcome == Outcome::Complete);
    // The others were stopped because of it, and not by the user.
    let lost = trials.iter().any(|(_, trial)| trial_checks::lost_a_part(trial));
    failed.unwrap_or(if complete || lost { Outcome::Complete } else { Outcome::Interrupted })
}

/// Adds how far apart the servers began. Where others generate the load of each, how far those were apart is known
/// already, and the worse of the two counts.
fn add_start_check(trial: &mut Trial) {
    let servers = apart::check(trial);
    match trial.checks.iter_mut().find(|check| check.id == servers.id) {
        Some(others) if others.verdict >= servers.verdict => {}
        Some(others) => *others = servers,
        None => trial.checks.push(servers),
    }
}

fn result(server: &ServerTrial<'_>) -> TargetResult {
    let trial = &server.measured.trial;
    TargetResult {
        server: trial.server.clone(),
        seconds: trial.window.seconds,
        dataset: trial.dataset.clone(),
        settings: trial.settings.clone(),
        sessions: trial.sessions.clone(),
        metrics: trial.metrics.clone(),
        share: None,
        database: trial.database.clone(),
        telemetry: trial.telemetry.clone(),
        environment: (*trial.environment).clone(),
        clock: server.request.member.as_ref().and_then(|member| member.record().clock()),
    }
}

fn add_metrics(trial: &mut Trial, request: &Request<'_>, servers: &[ServerTrial<'_>]) {
    let mut totals = Totals::default();
    for member in servers.iter().filter_map(|server| server.request.member.as_ref()) {
        totals.merge(&member.record().totals);
    }
    let seconds = trial.window.seconds;
    record_totals(request.workload.as_ref(), trial, totals, seconds);
    let values = |name: &str| -> Option<Vec<f64>> {
        servers.iter().map(|server| server.measured.trial.metrics.get(name)?.value).collect()
    };
    for name in ADDED {
        let known = servers.iter().any(|server| server.measured.trial.metrics.contains_key(*name));
        if known {
            put(&mut trial.metrics, name, values(name).map(|all| all.iter().sum()));
        }
    }
    for (name, weight) in WEIGHTED {
        if let (Some(values), Some(weights)) = (values(name), values(weight)) {
            let all: f64 = weights.iter().sum();
            let sum: f64 = values.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
            put(&mut trial.metrics, name, (all > 0.0).then(|| sum / all));
        }
    }
    observed::add_metrics(trial);
}

/// Adds the metrics of single servers that are compared between conditions, and each server's share.
fn add_shares(trial: &mut Trial, asked: &[&str]) {
    let primary = asked.first().copied().unwrap_or_default();
    let value = |metrics: &BTreeMap<String, Metric>| metrics.get(primary).and_then(|m| m.value);
    let sum = value(&trial.metrics).filter(|sum| *sum > 0.0);
    // Only rates add up.
    let is_rate = metrics::definition(primary).is_some_and(|def| def.unit.ends_with("/s"));
    for (name, target) in &mut trial.targets {
        target.share =
            value(&target.metrics).zip(sum).filter(|_| is_rate).map(|(own, sum)| own / sum);
        for metric in joint::compared_metrics(asked) {
            if let Some(found) = target.metrics.get(metric) {
                trial.metrics.insert(joint::metric_name(metric, name), found.clone());
            }
        }
        if target.share.is_some() {
            let share = Metric::new(target.share, "share");
            trial.metrics.insert(joint::metric_name(joint::SHARE, name), share);
        }
    }
}

fn timeline(trials: &[(&str, &Trial)]) -> Vec<Slice> {
    let mut all: Vec<Slice> = Vec::new();
    for (_, trial) in trials {
        for (number, slice) in trial.timeline.iter().enumerate() {
            let Some(sum) = all.get_mut(number) else {
                all.push(slice.clone());
                continue;
            };
            sum.add_parallel(slice);
        }
    }
    all
}

fn dataset(trials: &[(&str, &Trial)]) -> Option<pgio_results::model::DatasetInfo> {
    let all: Option<Vec<_>> = trials.iter().map(|(_, trial)| trial.dataset.as_ref()).collect();
    let all = all?;
    let mut sum = (*all.first()?).clone();
    sum.bytes_before = all.iter().map(|data| data.bytes_before).sum();
    sum.bytes_after = all.iter().map(|data| data.bytes_after).sum();
    sum.bytes_used = all.iter().map(|data| data.bytes_used).sum();
    Some(sum)
}

fn database(trials: &[(&str, &Trial)]) -> Option<DatabaseCounters> {
    let all: Option<Vec<_>> = trials.iter().map(|(_, trial)| trial.database.as_ref()).collect();
    let mut sum = DatabaseCounters::default();
    let add = |sum: &mut DatabaseRow, row: &DatabaseRow| {
        sum.blks_hit += row.blks_hit;
        sum.blks_read += row.blks_read;
        sum.tup_returned += row.tup_returned;
        sum.tup_fetched += row.tup_fetched;
        sum.tup_updated += row.tup_updated;
    };
    for counters in all? {
        add(&mut sum.before, &counters.before);
        add(&mut sum.after, &counters.after);
    }
    Some(sum)
}

fn evidence(trials: &[(&str, &Trial)]) -> Vec<Evidence> {
    let named = |(name, trial): &(&str, &Trial)| {
        let name = (*name).to_owned();
        let named = trial.evidence.iter().cloned();
        named
            .map(move |e| Evidence { what: format!("{name}: {}", e.what), ..e })
            .collect::<Vec<_>>()
    };
    trials.iter().flat_map(named).collect()
}

/// One check of each kind, with the worst verdict.
fn checks(trials: &[(&str, &Trial)]) -> Vec<Check> {
    let mut ids: Vec<&str> = Vec::new();
    for check in trials.iter().flat_map(|(_, trial)| &trial.checks) {
        if !ids.contains(&check.id.as_str()) {
            ids.push(&check.id);
        }
    }
    let worst = |id: &str| {
        let found = trials.iter().flat_map(|(name, trial)| {
            trial.checks.iter().filter(|check| check.id == id).map(|check| (*name, check))
        });
        merged(id, &found.collect::<Vec<_>>())
    };
    ids.into_iter().map(worst).collect()
}

/// How many servers have their own message in a failed check; the others are only named.
const SHOWN: usize = 3;

fn merged(id: &str, found: &[(&str, &Check)]) -> Check {
    let worst = found.iter().map(|(_, c)| c.verdict).max().unwrap_or(CheckVerdict::Ok);
    let those: Vec<_> = found.iter().filter(|(_, check)| check.verdict == worst).collect();
    // Those that passed are alike.
    let shown = if worst == CheckVerdict::Ok { 1 } else { SHOWN };
    let (first, others) = those.split_at(shown.min(those.len()));
    let mut texts: Vec<String> =
        first.iter().map(|(name, check)| format!("{name}: {}", check.message)).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
        texts.push(match worst {
            CheckVerdict::Ok => format!("{} more as well", others.len()),
            _ => format!("{} more likewise: {}", others.len(), others.join(", ")),
        });
    }
    let remedy = those.first().map(|(_, check)| check.remedy.clone()).unwrap_or_default();
    let behavior = found.iter().any(|(_, check)| check.behavior);
    Check { id: id.to_owned(), verdict: worst, message: texts.join("; "), remedy, behavior }
}

fn warnings(trials: &[(&str, &Trial)]) -> Vec<Warning> {
    let mut all: Vec<Warning> = Vec::new();
    for warning in trials.iter().flat_map(|(_, trial)| &trial.warnings) {
        if !all.contains(warning) {
            all.push(warning.clone());
        }
    }
    all
}

/// Adds to what was observed on hosts what was observed on servers.
fn telemetry_of(hosts: Telemetry, trials: &[(&str, &Trial)]) -> Telemetry {
    // Storage and probes of the hosts' recorder are the first server's. Probes of several servers do not add up: none
    // predicts the commits of all.
    let mut all = Telemetry { storage: Vec::new(), probes: None, ..hosts };
    for (name, trial) in trials {
        let Some(own) = &trial.telemetry else { continue };
        all.storage.extend(own.storage.iter().cloned());
        let standbys = own.standbys.iter();
        all.standbys
            .extend(standbys.map(|(standby, lag)| (format!("{name}: {standby}"), lag.clone())));
    }
    let waits = trials.iter().filter_map(|(_, trial)| trial.telemetry.as_ref()?.waits.as_ref());
    all.waits = waits_of(&waits.collect::<Vec<_>>());
    all
}

/// Adds the samples of servers. A saturated server answers the sampler more rarely, but its sessions spend as much time
/// as another's. So each server's samples count in proportion to its sessions. Their sum is the number of unweighted
/// samples that would be as precise (the effective sample size, Kish 1965), so that it shows the error of a share.
fn waits_of(servers: &[&Waits]) -> Option<Waits> {
    let mut sum = Waits { hertz: servers.first()?.hertz, ..Waits::default() };
    // A server without samples has no `Waits`.
    let samples = |waits: &Waits| waits.sightings.values().sum::<u64>() as f64;
    let sessions = |waits: &Waits| f64::from(waits.sessions.max(1));
    let all: f64 = servers.iter().map(|waits| sessions(waits)).sum();
    let squares = servers.iter().map(|waits| sessions(waits).powi(2) / samples(waits));
    let samples_per_session = all / squares.sum::<f64>();
    let mut seen: BTreeMap<String, f64> = BTreeMap::new();
    for waits in servers {
        sum.rounds += waits.rounds;
        sum.missed_rounds += waits.missed_rounds;
        sum.sessions += waits.sessions;
        let weight = samples_per_session * sessions(waits) / samples(waits);
        for (event, count) in &waits.sightings {
            *seen.entry(event.clone()).or_default() += *count as f64 * weight;
        }
    }
    sum.sightings = seen.into_iter().map(|(event, n)| (event, n.round() as u64)).collect();
    Some(sum)
}

/// Adds a server's samples, with its name.
fn add_tracks(all: &mut Series, name: &str, own: Option<Series>) {
    let Some(own) = own else { return };
    // A subject of the server is a standby.
    let named = |track: Track| {
        if track.subject.is_empty() {
            Track { source: format!("{} {name}", track.source), ..track }
        } else {
            Track { subject: format!("{name}: {}", track.subject), ..track }
        }
    };
    all.tracks.extend(own.tracks.into_iter().map(named));
    all.moments.extend(own.moments);
    all.moments.sort_by(|a, b| a.at.total_cmp(&b.at));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::telemetry::Probes;

    #[test]
    fn the_last_slice_ends_with_the_last_server() {
        let server = |seconds: f64| {
            let slice =
                |at: f64, seconds: f64| Slice { at, seconds, commits: 10, ..Slice::default() };
            let mut trial = pgio_results::test_support::full_trial();
            trial.timeline = vec![slice(1.0, 1.0), slice(1.0 + seconds, seconds)];
            trial
        };
        let (short, long) = (server(1.0), server(6.0));
        for order in [[("a", &short), ("b", &long)], [("b", &long), ("a", &short)]] {
            let last = timeline(&order).pop().unwrap();
            assert_eq!((last.at, last.seconds, last.commits), (7.0, 6.0, 20));
        }
    }

    #[test]
    fn the_probes_of_the_first_server_are_not_those_of_all() {
        let hosts = Telemetry { probes: Some(Probes::default()), ..Telemetry::default() };
        assert_eq!(telemetry_of(hosts, &[]).probes, None);
    }

    #[test]
    fn samples_of_a_server_count_by_its_sessions_however_rarely_it_answers() {
        let waits = |rounds: u64, sessions: u32, event: &str| Waits {
            rounds,
            sessions,
            sightings: [(event.to_owned(), rounds * u64::from(sessions))].into(),
            ..Waits::default()
        };
        let seen = |servers: &[&Waits]| -> Vec<(String, u64)> {
            waits_of(servers).unwrap().sightings.into_iter().collect()
        };
        let expected =
            |cpu: u64, flush: u64| vec![("CPU".to_owned(), cpu), ("IO:WalSync".to_owned(), flush)];
        let saturated = waits(100, 4, "IO:WalSync");
        let quick = waits(300, 4, "CPU");
        let both = waits_of(&[&saturated, &quick]).unwrap();
        assert_eq!((both.rounds, both.sessions), (400, 8));
        assert_eq!(seen(&[&saturated, &quick]), expected(600, 600));
        assert_eq!(seen(&[&saturated, &waits(100, 2, "CPU")]), expected(200, 400));
        assert_eq!(waits_of(&[&saturated]).as_ref(), Some(&saturated));
        assert_eq!(waits_of(&[]), None);
    }

    #[test]
    fn a_failed_check_of_a_fleet_names_every_server_but_repeats_few_messages() {
        let check = |name: &str| Check::warning("telemetry-missed", format!("{name}'s"), "wait");
        let names = ["n1", "n2", "n3", "n4", "n5"];
        let checks = names.map(check);
        let found: Vec<(&str, &Check)> = names.into_iter().zip(&checks).collect();
        let all = merged("telemetry-missed", &found);
        assert_eq!(all.message, "n1: n1's; n2: n2's; n3: n3's; 2 more likewise: n4, n5");
        assert_eq!((all.verdict, all.remedy.as_str()), (CheckVerdict::Warning, "wait"));
        assert_eq!(merged("telemetry-missed", &found[..2]).message, "n1: n1's; n2: n2's");
        // Only the worst of them are named.
        let ok = Check::ok("telemetry-missed", "fine");
        assert_eq!(merged("telemetry-missed", &[("n0", &ok), found[0]]).message, "n1: n1's");
        let fine = merged("telemetry-missed", &[("n0", &ok), ("n1", &ok)]);
        assert_eq!(fine.message, "n0: fine; 1 more as well");
    }
}
