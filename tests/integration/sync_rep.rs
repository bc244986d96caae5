//! Synchronous standbys that are missing, lost or demoted, and stopping while sessions wait for
//! one: nothing waits forever, nothing of ours stays on the server, nothing is compared that did
//! not hold.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use pgio::pg::private::{PrivateCluster, Spec};
use rustix::process::Signal;

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_pair, shared_primary, spec};
use pgio_tests::workdir::{
    Running, SAMPLED, Workdir, active_sessions, alter_system, auto_conf, condition_of, experiment,
    failed_checks, pgio_sessions, sessions_waiting_for_standby, show, wait_until,
};

pub(crate) fn pair() -> PrivateCluster {
    PrivateCluster::start(&Spec { standby: true, ..spec(INSTALLED) }).unwrap()
}

pub(crate) const WAITS: &str = "wait_event = 'SyncRep'";
const IS_AT_WORK: &str = "state = 'active' AND query LIKE '%DO $pgio$%'";

/// Stops the standby as soon as such a session of the run is there. One connection asks all the
/// time, since the window must not close first.
pub(crate) fn stop_standby_once(cluster: &PrivateCluster, running: &mut Running, filter: &str) {
    let mut client = connect(&cluster.primary_conninfo());
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgio:%' AND {filter}"
    );
    running
        .wait_until("in the window", || client.query_one(&sql, &[]).unwrap().get::<_, i64>(0) > 0);
    cluster.stop_standby().unwrap();
}

/// Waits until the run has read its evidence without a standby: a round ends with the standbys.
fn until_read_without_standby(dsn: &str, running: &mut Running) {
    let mut client = connect(dsn);
    let mut count = |sql: &str| client.query_one(sql, &[]).unwrap().get::<_, i64>(0);
    running.wait_until("gone", || count("SELECT count(*) FROM pg_stat_replication") == 0);
    count("SELECT 0::bigint FROM set_config('test.gone', clock_timestamp()::text, false)");
    let rounds = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgio:%' \
                  AND query LIKE '%FROM pg_stat_replication ORDER BY 1' AND state = 'idle' \
                  AND query_start > current_setting('test.gone')::timestamptz";
    running.wait_until("read", || count(rounds) > 0);
}

pub(crate) fn has_table(dsn: &str) -> bool {
    let sql = "SELECT to_regclass('pgio_commit') IS NOT NULL";
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

/// What else is refused: `treatment/postgres/followers.rs`.
fn a_condition_that_needs_a_standby_is_refused_without_one(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    let text = |level: &str| {
        let waiting = format!("synchronous_commit = {level:?}, wal_writer_delay = 150");
        let local = "synchronous_commit = \"local\"";
        experiment(&dsn, keys, "", &[("local", local), ("waiting", &waiting)])
    };
    let dir = Workdir::new();
    dir.compare(&text("remote_write")).expect(4, &["condition `waiting`", "standby"]);
    assert!(!dir.out().exists());
    assert!(dir.journals().is_empty());
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    assert!(!has_table(&dsn));
    // Without a treatment its commits would wait forever, too.
    let as_it_is = experiment(&dsn, keys, "", &[("as it is", "")]);
    Workdir::new().compare(&as_it_is).expect(4, &["standby"]);
    alter_system(&dsn, "synchronous_standby_names", Some(""));
    wait_until("demoted", || show(&dsn, "synchronous_standby_names").is_empty());
    // Flushed on this server, as everywhere without standbys.
    Workdir::new().compare(&text("on")).expect(0, &[]);
}

#[test]
fn a_trial_counts_only_if_its_commits_waited_for_the_standby() {
    let cluster = pair();
    a_standby_lost_for_a_moment_makes_the_trial_invalid(&cluster);
    a_standby_demoted_in_mid_trial_makes_it_invalid(&cluster);
    commits_wait_for_the_standby_names_set_by_the_condition(&cluster);
}

fn commits_wait_for_the_standby_names_set_by_the_condition(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    alter_system(&dsn, "synchronous_standby_names", Some(""));
    wait_until("demoted", || show(&dsn, "synchronous_standby_names").is_empty());
    let keys = "blocks = 1\nduration = \"200ms\"\naa = false";
    let text = |body: &str| experiment(&dsn, keys, "", &[("none", ""), ("waiting", body)]);
    let level = "synchronous_commit = \"remote_apply\"";
    let names = |names: &str| format!("synchronous_standby_names = '{names}'");
    for body in [
        format!("{level}, {}", names("standby")),
        format!("{}, {level}", names("standby")),
        format!("{level}, {}", names("ANY 1 (elsewhere, \"StandBy\")")),
        format!("{}, synchronous_commit = \"remote_write\"", names("*")),
        format!("{}, synchronous_commit = \"on\"", names("FIRST 1 (*)")),
    ] {
        let dir = Workdir::new();
        dir.compare(&text(&body)).expect(0, &[]);
        for trial in dir.trials() {
            assert_eq!(failed_checks(&trial, "invalid"), [""; 0], "{trial:#}");
            let standby = trial["evidence"].as_array().unwrap().iter();
            let standby = standby.filter(|e| e["what"] == "synchronous standby");
            let synchronous = standby.filter(|e| !e["found"].as_str().unwrap().contains("async"));
            let waits = condition_of(&trial) == "waiting";
            assert_eq!(synchronous.count() > 0, waits, "{trial:#}");
        }
        assert_eq!(auto_conf(&dsn, "synchronous_standby_names").as_deref(), Some(""));
        wait_until("restored", || show(&dsn, "synchronous_standby_names").is_empty());
    }
    let dir = Workdir::new();
    dir.compare(&text(&format!("{level}, {}", names("elsewhere")))).expect(
        4,
        &["condition `waiting`", "`elsewhere` names no connected standby (connected: standby)"],
    );
    assert!(!dir.out().exists() && dir.journals().is_empty());
}

fn a_standby_lost_for_a_moment_makes_the_trial_invalid(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"3s\"\naa = false\nrepeats = 0";
    let conditions = [("on", "synchronous_commit = \"on\", wal_writer_delay = 150")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
    stop_standby_once(cluster, &mut running, IS_AT_WORK);
    running.wait_until("waiting", || sessions_waiting_for_standby(&dsn) > 0);
    until_read_without_standby(&dsn, &mut running);
    cluster.start_standby().unwrap();
    running.wait().expect(5, &["invalid"]);
    assert_eq!(failed_checks(&dir.trials()[0], "invalid"), ["treatment-in-force"]);
}

fn a_standby_demoted_in_mid_trial_makes_it_invalid(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"2s\"\naa = false";
    for level in ["on", "remote_apply"] {
        let body = format!("synchronous_commit = {level:?}, wal_writer_delay = 150");
        dir.write("e.toml", &experiment(&dsn, keys, "", &[(level, &body)]));
        let mut running = dir.start(dir.command(&["compare", "e.toml", "--out", level]));
        running.wait_until("in the window", || active_sessions(&dsn) == 1);
        alter_system(&dsn, "synchronous_standby_names", Some(""));
        // Without a name, `on` waits for nobody: its repeat is valid. remote_apply needs a standby.
        let code = if level == "on" { 0 } else { 5 };
        running.wait().expect(code, &["invalid"]);
        let report = dir.pgio(&["report", level, "--format", "json"]).expect(0, &[]).out;
        assert!(report.contains("treatment-in-force"), "{report}");
        alter_system(&dsn, "synchronous_standby_names", None);
        wait_until("synchronous", || {
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            connect(&dsn).query_one(sql, &[]).unwrap().get::<_, i64>(0) == 1
        });
    }
}

/// A compare whose sessions wait for a lost standby, with a setting of the server changed
/// if `journaled`.
fn waiting(cluster: &PrivateCluster, dir: &Workdir, journaled: bool) -> Running {
    let dsn = cluster.primary_conninfo();
    let body = if journaled { ", wal_writer_delay = 150" } else { "" };
    let body = format!("synchronous_commit = \"remote_write\"{body}");
    let keys = "blocks = 2\nduration = \"60s\"\naa = false";
    let text = experiment(&dsn, keys, "sessions = 3", &[("remote", &body)]);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&dsn) == 3);
    cluster.stop_standby().unwrap();
    running.wait_until("all waiting", || sessions_waiting_for_standby(&dsn) == 3);
    running
}

#[test]
fn sessions_that_wait_for_a_lost_standby_are_ended() {
    let cluster = pair();
    an_interrupt_while_sessions_wait_leaves_nothing(&cluster);
    leftovers_of_kill_9_are_ended_by_undo_or_the_next_start(&cluster);
    a_condition_that_needs_a_standby_is_refused_without_one(&cluster);
}

fn an_interrupt_while_sessions_wait_leaves_nothing(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    for signal in [Signal::INT, Signal::TERM] {
        let dir = Workdir::new();
        let running = waiting(cluster, &dir, true);
        running.signal(signal);
        let result = running.wait_for(Duration::from_secs(20)).expect(130, &["kept in out"]);
        wait_until("no session of ours", || pgio_sessions(&dsn) == 0);
        assert!(!has_table(&dsn), "{result}");
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
        assert_eq!(show(&dsn, "wal_writer_delay"), "200ms");
        assert!(dir.journals().is_empty());
        let trials = dir.trials();
        assert_eq!(trials[0]["outcome"]["state"], "interrupted");
        let analysis = dir.analysis();
        assert_eq!(analysis["conditions"][0]["valid"], 0, "never compared");
        cluster.start_standby().unwrap();
    }
}

fn leftovers_of_kill_9_are_ended_by_undo_or_the_next_start(cluster: &PrivateCluster) {
    let dsn = cluster.primary_conninfo();
    let leave = |journaled| {
        let dir = Workdir::new();
        waiting(cluster, &dir, journaled).kill();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(sessions_waiting_for_standby(&dsn), 3, "they outlive their client");
        dir
    };

    let dir = leave(true);
    dir.pgio(&["undo"]).expect(0, &["Ended session", "Restored wal_writer_delay: absent"]);
    wait_until("none waits", || pgio_sessions(&dsn) == 0);
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    cluster.start_standby().unwrap();

    let dir = leave(false);
    assert!(dir.journals().is_empty(), "nothing of the server was changed");
    dir.pgio(&["undo", "--connect", &dsn]).expect(0, &["Ended session"]);
    wait_until("none waits", || pgio_sessions(&dsn) == 0);
    let result = dir.pgio(&["undo", "--connect", &dsn]).expect(0, &[]);
    assert_eq!(result.out, dir.nothing_to_undo());
    cluster.start_standby().unwrap();

    leave(false);
    let dir = Workdir::new();
    let text = experiment(
        &dsn,
        "blocks = 1\nduration = \"100ms\"\naa = false",
        "",
        &[("local", "synchronous_commit = \"local\"")],
    );
    dir.compare(&text).expect(0, &[]);
    wait_until("none waits", || pgio_sessions(&dsn) == 0);
    assert!(!has_table(&dsn), "the table of the killed run is gone too");
}

/// Standbys of other tests run on this host, too.
#[test]
fn the_settings_of_the_servers_own_standby_are_read() {
    let standbys = |cluster: &PrivateCluster| -> BTreeSet<String> {
        let dir = Workdir::new();
        let keys = format!("blocks = 1\nduration = \"100ms\"\naa = false\n{SAMPLED}");
        let dsn = fresh_database(cluster);
        let text = experiment(&dsn, &keys, "", &[("a", ""), ("b", "")]);
        dir.compare(&text).expect(0, &[]);
        let trials = dir.trials();
        let environment = trials[0]["environment"].as_object().unwrap();
        let names = environment.keys().filter_map(|name| name.strip_prefix("standby."));
        names.map(|name| name.rsplit_once('.').unwrap().0.to_owned()).collect()
    };
    let pair = shared_pair(INSTALLED);
    let own = pair.standby_data_dir().unwrap().display().to_string();
    assert_eq!(standbys(pair), BTreeSet::from([own]));
    assert_eq!(standbys(shared_primary(INSTALLED)), BTreeSet::new());
}
