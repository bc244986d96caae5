//! A server: connection, privileges, durability, standbys, other sessions.
//!
//! One query gathers the facts; this file judges those that affect windows, `storage` the data
//! set. The doctor's connection announces no run and ends no session.

use std::path::Path;
use std::time::Duration;

use pgio_connect::{self, Client, ConnectParams, Row};
use pgio_results::Check;
use pgio_results::units::{exact_duration, human};

use super::subject::{ServerAccess, Subject};
use super::{Section, storage};
use crate::config::Layer;
use crate::config::kinds::Sessions;
use crate::experiment::admin::check_unpooled;
use crate::experiment::application::controller;
use crate::experiment::doctor::subject::Work;
use crate::experiment::{state, trial_checks};
use crate::host::exec::{CommandLine, Exec};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL, proc};
use crate::pg::private::{self, Origin, VersionRequest};
use crate::pg::replication::{self, Replication};
use crate::pg::server::{self, FreeConnections, SLOW_CLOCK, Server};
use crate::pg::words::{self, Shown};
use crate::pg::{leftovers, session};
use crate::telemetry::{Survey, TelemetrySources};
use crate::treatment::{AdminSession, ChangedServer, Context, Control, Layout, Machines};

const FACTS: &str = include_str!("server.sql");

pub(super) fn section(subject: &Subject, hosts: &Hosts) -> Section {
    let checks = match &subject.access {
        ServerAccess::Private { major, directories } => {
            let mut checks = vec![check_programs(*major)];
            checks.extend(directories.iter().map(|directory| check_directory(directory)));
            checks.extend(check_rights(subject, hosts));
            checks
        }
        ServerAccess::Server(params) => check_server(subject, params, hosts),
    };
    Section { title: subject.title.clone(), checks }
}

/// Downloads and starts nothing.
fn check_programs(major: Option<u32>) -> Check {
    const ID: &str = "server-programs";
    match private::find_installed(major.map(VersionRequest::major)) {
        Ok(Some(found)) => {
            let place = match &found.origin {
                Origin::Installed(directory) => directory.display().to_string(),
                Origin::Downloaded(_) => "the cache".to_owned(),
            };
            Check::ok(ID, format!("PostgreSQL {} in {place}", found.version))
        }
        Ok(None) => Check::ok(ID, "no matching version is installed: one will be downloaded"),
        Err(error) => Check::invalid(ID, words::sentence(&error), "check PGIO_BINDIR"),
    }
}

/// Checks a directory of a private server.
fn check_directory(directory: &Path) -> Check {
    const ID: &str = "directory";
    let shown = directory.display();
    match state::check_writable(directory) {
        Ok(()) => Check::ok(ID, format!("the server can be created in {shown}")),
        Err(error) => Check::invalid(
            ID,
            format!("cannot create a server in {shown}: {error}"),
            state::WRITABLE_HINT,
        ),
    }
}

fn check_server(subject: &Subject, params: &ConnectParams, hosts: &Hosts) -> Vec<Check> {
    const ID: &str = "server-reachable";
    let params = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut client = match session::open(&params) {
        Ok(client) => client,
        Err(error) => {
            let remedy = "correct the connection string (--connect-string, CONNECT_STRING, dsn)";
            return vec![Check::invalid(ID, words::sentence(&error), remedy)];
        }
    };
    let is_judged = !subject.work.is_empty();
    let found = server::inspect(&mut client, &params.describe());
    let found = found.and_then(|s| if is_judged { s.require_primary() } else { Ok(s) });
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let remedy = "use a primary of PostgreSQL 13 or newer";
            return vec![Check::invalid(ID, words::sentence(&error), remedy)];
        }
    };
    let version = format!("PostgreSQL {}", found.info.version);
    // Background work may read from a standby.
    if found.is_standby {
        return vec![Check::ok(ID, format!("{version}, a standby"))];
    }
    let mut checks = vec![Check::ok(ID, version)];
    if let Err(error) = check_unpooled(&mut client, &params) {
        let remedy = "connect to the server directly, not through the pooler";
        checks.push(Check::invalid("pooler", words::sentence(&error), remedy));
        return checks;
    }
    let further = judge_facts(subject, &params, hosts, &found, &mut client);
    checks.extend(further.unwrap_or_else(|error| {
        vec![Check::invalid("server-facts", words::sentence(&error), "see the server's log")]
    }));
    checks
}

fn judge_facts(
    subject: &Subject,
    params: &ConnectParams,
    hosts: &Hosts,
    server: &Server,
    client: &mut Client,
) -> Result<Vec<Check>, pgio_connect::Error> {
    let row = client.query_one(FACTS, &[])?;
    let mut checks =
        vec![check_privileges(server, row.try_get("monitors")?, row.try_get("checkpoints")?)];
    checks.extend(replication::current(client).ok().map(|r| check_standbys(&r)));
    checks.extend(judge(subject, &row, client)?);
    checks.push(check_other_sessions(row.try_get("connected")?, row.try_get("at_work")?));
    checks.extend(check_pgio_sessions(row.try_get("ours")?));
    checks.extend(check_event_triggers(row.try_get("event_triggers").unwrap_or_default()));
    let survey =
        Survey { params, server, cadence: Duration::ZERO, hosts, host: subject.host.as_deref() };
    let sources = TelemetrySources::survey(&survey, client);
    let memory = sources.server_host().and_then(memory_bytes);
    checks.extend(storage::judge_data(subject, row.try_get("shared_buffers")?, memory, client));
    checks.extend(storage::judge(&sources, subject.device.as_deref()));
    let seen = sources.server_host().map(Host::name);
    let place = ReachedServer { params, hosts, host: subject.host.as_deref().or(seen) };
    checks.extend(check_conditions(subject, &place, client));
    Ok(checks)
}

/// A server that answers, and its host if known.
struct ReachedServer<'a> {
    params: &'a ConnectParams,
    hosts: &'a Hosts,
    host: Option<&'a str>,
}

/// Returns the memory of the host in bytes.
fn memory_bytes(host: &Host) -> Option<u64> {
    let text = host.run(&CommandLine::new("cat").arg("/proc/meminfo")).ok()?;
    proc::parse_meminfo(&text).get("total").copied()
}

fn check_privileges(server: &Server, monitors: bool, checkpoints: bool) -> Check {
    const ID: &str = "privileges";
    if server.is_superuser {
        return Check::ok(ID, "the role is a superuser");
    }
    let mut lacks = Vec::new();
    let mut grants = Vec::new();
    if !monitors {
        lacks.push("monitor other sessions and standbys");
        grants.push("GRANT pg_monitor TO ROLE");
    }
    if !checkpoints {
        lacks.push("run CHECKPOINT before a window");
        grants.push(if server.major() >= 15 {
            "GRANT pg_checkpoint TO ROLE"
        } else {
            "use a superuser (before PostgreSQL 15 only superusers may run CHECKPOINT)"
        });
    }
    if lacks.is_empty() {
        return Check::ok(ID, "pg_monitor and pg_checkpoint are granted");
    }
    Check::warning(ID, format!("the role may not {}", lacks.join(", nor ")), grants.join("; "))
}

fn check_standbys(replication: &Replication) -> Check {
    const ID: &str = "standbys";
    let names = replication.synchronous_standby_names.trim();
    let found = replication.describe();
    if names.is_empty() {
        return Check::ok(ID, format!("commits wait for no standby; {found}"));
    }
    if replication.is_hidden() {
        return Check::warning(
            ID,
            format!(
                "synchronous_standby_names is `{names}`, but this role cannot see whether a standby is in sync"
            ),
            "GRANT pg_monitor TO ROLE",
        );
    }
    if replication.has_synchronous() {
        return Check::ok(ID, format!("commits wait for {names}; {found}"));
    }
    Check::invalid(
        ID,
        format!("commits wait forever: {}", replication.missing().unwrap_or(found)),
        "start the standby, correct the name in synchronous_standby_names or in the standby's application_name, or empty synchronous_standby_names",
    )
}

fn check_other_sessions(connected: i64, at_work: i64) -> Check {
    const ID: &str = "other-sessions";
    if at_work == 0 {
        return Check::ok(ID, format!("{connected} connected, none active"));
    }
    Check::warning(
        ID,
        format!("{at_work} of {connected} are active"),
        "measure while no other session uses the server",
    )
}

fn check_pgio_sessions(ours: i64) -> Option<Check> {
    (ours > 0).then(|| {
        Check::warning(
            "sessions-of-pgio",
            format!("{ours} sessions of a running or killed pgio"),
            "wait until that run ends; if none is running, `pgio undo --connect` ends the sessions",
        )
    })
}

/// Names what superusers have made the database run in sessions of pgio, too.
fn check_event_triggers(names: Option<Shown>) -> Option<Check> {
    names.map(|Shown(names)| {
        Check::warning(
            "event-triggers",
            format!(
                "event triggers of this database run where pgio creates or drops tables: {names}"
            ),
            "use a database without them",
        )
    })
}

/// Checks each condition on the server.
fn check_conditions(
    subject: &Subject,
    place: &ReachedServer<'_>,
    client: &mut Client,
) -> Option<Check> {
    let control = subject.control.as_ref();
    let control = control.map(|way| controller(way, place.host, place.hosts, client));
    let mut control = match control.transpose() {
        Ok(control) => control,
        Err(error) => {
            let remedy = "correct control in the target, or grant what it needs";
            return Some(Check::invalid("control", words::sentence(&error), remedy));
        }
    };
    let mut refused = Vec::new();
    for condition in &subject.conditions {
        let mut context = Context {
            params: place.params,
            session: AdminSession::Open(client),
            changed: ChangedServer::default(),
            hosts: place.hosts,
            server_host: place.host,
            control: control.as_mut().map(|control| control as &mut dyn Control),
            private: false,
            layout: Layout::default(),
            streaming: None,
            is_renewed: false,
            stop: Stop::new(),
        };
        for treatment in condition.treatments.iter() {
            if let Err(error) = treatment.check(&mut context) {
                refused.push((condition.name.as_str(), words::sentence(&error)));
            }
        }
    }
    summarize_conditions(subject, &refused, "can be put in force")
}

/// Checks the rights of this user, as far as possible without the server.
fn check_rights(subject: &Subject, hosts: &Hosts) -> Option<Check> {
    let machines = Machines { hosts, server: Some(LOCAL) };
    let mut refused = Vec::new();
    for condition in &subject.conditions {
        for treatment in condition.treatments.iter() {
            if let Err(error) = treatment.check_rights(&machines) {
                refused.push((condition.name.as_str(), words::sentence(&error)));
            }
        }
    }
    summarize_conditions(subject, &refused, "need no rights that this user lacks")
}

/// `refused` holds conditions, each with the reason.
fn summarize_conditions(
    subject: &Subject,
    refused: &[(&str, String)],
    success: &str,
) -> Option<Check> {
    const ID: &str = "conditions";
    match (subject.conditions.len(), refused.is_empty()) {
        (0, _) => None,
        (n, true) => Some(Check::ok(ID, format!("{n} {success}"))),
        (_, false) => {
            let remedy = "correct the condition, or grant what it needs";
            Some(Check::invalid(ID, by_reason(refused), remedy))
        }
    }
}

/// `remote_write, remote_apply: …`, one line for each reason.
fn by_reason(refused: &[(&str, String)]) -> String {
    let mut lines: Vec<(Vec<&str>, &str)> = Vec::new();
    for (condition, why) in refused {
        match lines.iter_mut().find(|(_, known)| known == why) {
            Some((names, _)) if names.contains(condition) => {}
            Some((names, _)) => names.push(condition),
            None => lines.push((vec![condition], why)),
        }
    }
    let line = |(names, why): &(Vec<&str>, &str)| format!("{}: {why}", names.join(", "));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Connections of a run besides its sessions: admin session, samplers, checks.
const OWN_CONNECTIONS: u64 = 4;

/// WAL rate of a single busy session; a checkpoint that less WAL triggers is likely.
const LIKELY_WAL_RATE: f64 = 32.0 * 1048576.0;

pub(super) fn judge(
    subject: &Subject,
    row: &Row,
    client: &mut Client,
) -> Result<Vec<Check>, pgio_connect::Error> {
    let off = |name: &str| {
        row.try_get(name).is_ok_and(|value: &str| value == "off") && !subject.declares(name)
    };
    let off: Vec<_> = ["fsync", "full_page_writes"].into_iter().filter(|n| off(n)).collect();
    let wal = CheckpointSettings {
        timeout: row.try_get("checkpoint_timeout_s")?,
        bytes: row.try_get("max_wal_bytes")?,
        target: row.try_get("checkpoint_target")?,
    };
    let sessions = subject.work.iter().map(count_sessions).max().unwrap_or(1);
    let mut checks = vec![
        trial_checks::durability_without(&off),
        check_checkpoints(&wal, subject.longest(), subject.writes()),
        check_autovacuum(row.try_get("autovacuum")?, row.try_get("vacuum_workers")?),
    ];
    let connections = server::connections(client).ok();
    checks.extend(connections.map(|found| check_connections(sessions, &found.scarcest())));
    let io_timing: bool = row.try_get("track_io_timing")?;
    checks.extend(server::clock_reading(client).map(|cost| check_clock(cost, io_timing)));
    Ok(checks)
}

/// The settings that trigger a checkpoint.
#[derive(Debug, Clone, Copy)]
struct CheckpointSettings {
    timeout: f64,
    bytes: f64,
    target: f64,
}

/// A checkpoint runs before each window, so the next is due after the timeout, or when WAL reaches
/// max_wal_size / (1 + checkpoint_completion_target), as documented in PostgreSQL's manual.
fn check_checkpoints(wal: &CheckpointSettings, longest: Option<Duration>, writes: bool) -> Check {
    const ID: &str = "checkpoints";
    let Some(longest) = longest.filter(|l| !l.is_zero()) else {
        return Check::ok(ID, "not predictable: the length of the windows is unknown");
    };
    let (seconds, shown) = (longest.as_secs_f64(), exact_duration(longest));
    if seconds >= wal.timeout {
        return Check::warning(
            ID,
            format!("checkpoint_timeout is {:.0} s but a trial takes {shown}", wal.timeout),
            "raise checkpoint_timeout, or make windows long enough to hold several checkpoints",
        );
    }
    let rate = wal.bytes / (1.0 + wal.target) / seconds;
    let text =
        format!("a checkpoint starts within {shown} if WAL exceeds {}", human::byte_rate(rate));
    if !writes || rate >= LIKELY_WAL_RATE {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "raise max_wal_size")
    }
}

fn check_autovacuum(on: bool, workers: i64) -> Check {
    const ID: &str = "autovacuum";
    match (on, workers) {
        (_, 1..) => Check::warning(
            ID,
            format!("{workers} workers are active"),
            "wait until they finish, or set autovacuum = off in every condition",
        ),
        (true, _) => Check::ok(ID, "on, idle"),
        (false, _) => Check::ok(ID, "off"),
    }
}

/// Counts sessions from the keys alone; the number of tables is unknown here.
fn count_sessions(work: &Work) -> u64 {
    let one = |n: Option<u32>| u64::from(n.unwrap_or(1));
    let Layer { num_schemas, num_threads, sessions, .. } = work.layer;
    match work.kind.def().sessions {
        Sessions::Tables => sessions.map_or_else(|| one(num_schemas) * one(num_threads), u64::from),
        Sessions::Key => one(sessions),
        Sessions::None => 0,
    }
}

fn check_connections(sessions: u64, found: &FreeConnections) -> Check {
    const ID: &str = "connections";
    let needed = sessions + OWN_CONNECTIONS;
    let text = format!("{} are free, {needed} are needed", found.free);
    if i64::try_from(needed).is_ok_and(|needed| needed <= found.free) {
        Check::ok(ID, text)
    } else {
        Check::invalid(ID, text, format!("raise {}, or use fewer sessions", found.limit))
    }
}

fn check_clock(cost: Duration, track_io_timing: bool) -> Check {
    const ID: &str = "clock-cost";
    let io = if track_io_timing { "on" } else { "off" };
    let latency = human::latency(cost.as_nanos() as f64);
    let text = format!("reading the server's clock takes {latency}; track_io_timing is {io}");
    if cost < SLOW_CLOCK {
        return Check::ok(ID, text);
    }
    let remedy = if track_io_timing {
        "turn track_io_timing off, or check the clock source of the server's machine"
    } else {
        "check the clock source of the server's machine; leave track_io_timing off"
    };
    Check::warning(ID, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::Job;
    use crate::experiment::doctor::Scope;
    use crate::experiment::target::ConnectionKeys;
    use crate::pg::replication::Standby;
    use crate::pg::server::ConnectionLimit;
    use pgio_results::CheckVerdict::{Invalid, Ok as Fine, Warning};

    fn replication(names: &str, state: Option<&str>) -> Replication {
        let standby = Standby {
            name: "s1".to_owned(),
            state: "streaming".to_owned(),
            sync_state: state.map(str::to_owned),
        };
        Replication { synchronous_standby_names: names.to_owned(), standbys: vec![standby] }
    }

    #[test]
    fn a_missing_directory_is_invalid() {
        assert_eq!(check_directory(&std::env::temp_dir()).verdict, Fine);
        let missing = check_directory(Path::new("/no/such/place"));
        assert_eq!(missing.verdict, Invalid);
        assert!(missing.message.contains("/no/such/place: No such file"), "{}", missing.message);
        for key in [
            "directory = '/no/such/place'",
            "wal_directory = '/no/such/place'",
            "standbys = [{ name = 'a', directory = '/no/such/place' }]",
        ] {
            let text = format!(
                "[target]\nprivate = true\n{key}\n[workload]\nkind = 'commit'\n[[condition]]\nname = 'a'\n"
            );
            let job = Job::parse(&text, "x.toml", "x", ConnectionKeys::default()).unwrap();
            let scope = Scope::from_experiment(&job, &mut |_| {}).unwrap();
            let found = section(&scope.subjects[0], &Hosts::new());
            let directory = found.checks.iter().find(|check| check.id == "directory").unwrap();
            assert_eq!(directory.verdict, Invalid, "{key}");
        }
    }

    #[test]
    fn a_reason_is_given_once_for_all_its_conditions() {
        let local = "silently mean local".to_owned();
        let refused = [
            ("remote_write", local.clone()),
            ("slow", "no such device".to_owned()),
            ("remote_apply", local.clone()),
            ("remote_apply", local),
        ];
        assert_eq!(
            by_reason(&refused),
            "remote_write, remote_apply: silently mean local\nslow: no such device"
        );
    }

    #[test]
    fn commits_that_would_wait_forever_are_invalid() {
        assert_eq!(check_standbys(&replication("", Some("async"))).verdict, Fine);
        assert_eq!(check_standbys(&replication("s1", Some("sync"))).verdict, Fine);
        assert_eq!(check_standbys(&replication("s2", Some("async"))).verdict, Invalid);
        assert_eq!(check_standbys(&replication("s1", None)).verdict, Warning);
    }

    const WAL: CheckpointSettings =
        CheckpointSettings { timeout: 300.0, bytes: 1.9 * 1048576.0 * 1000.0, target: 0.9 };

    #[test]
    fn a_checkpoint_expected_in_the_window_is_a_warning() {
        let after =
            |seconds, writes| check_checkpoints(&WAL, Some(Duration::from_secs(seconds)), writes);
        assert_eq!(after(10, true).verdict, Fine);
        assert_eq!(after(100, true).verdict, Warning, "at 10 MiB/s");
        assert!(after(100, true).message.contains("10 MiB/s"), "{:?}", after(100, true));
        assert_eq!(after(100, false).verdict, Fine, "nothing is written");
        assert_eq!(after(300, false).verdict, Warning, "by time");
        assert_eq!(check_checkpoints(&WAL, None, true).verdict, Fine);
    }

    #[test]
    fn missing_durability_and_connections_are_invalid() {
        assert_eq!(trial_checks::durability_without(&["fsync"]).verdict, Invalid);
        assert_eq!(trial_checks::durability_without(&[]).verdict, Fine);
        let connections = |free| {
            let limit = ConnectionLimit::Role("app".to_owned());
            check_connections(10, &FreeConnections { limit, max: 20, free })
        };
        let few = connections(13);
        assert_eq!(few.verdict, Invalid);
        assert!(few.remedy.starts_with("raise CONNECTION LIMIT of role app"), "{}", few.remedy);
        assert_eq!(connections(14).verdict, Fine);
    }

    #[test]
    fn a_slow_clock_and_a_busy_autovacuum_are_warned_of() {
        assert_eq!(check_clock(Duration::from_nanos(40), true).verdict, Fine);
        let slow = check_clock(Duration::from_nanos(900), true);
        assert!(slow.verdict == Warning && slow.remedy.starts_with("turn track_io_timing off"));
        assert_eq!(
            [check_autovacuum(true, 0), check_autovacuum(true, 2)].map(|c| c.verdict),
            [Fine, Warning]
        );
    }
}
