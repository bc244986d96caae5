//! Trials whose condition did not hold are kept, named and never compared.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, shared_primary};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, condition_of, experiment, failed_checks, show,
    tolerate, wait_until,
};

#[test]
fn a_setting_changed_in_mid_trial_makes_it_invalid() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let conditions = [("as it is", ""), ("set", "wal_writer_delay = \"150ms\"")];
    let keys = "blocks = 1\nduration = \"3s\"\naa = false\nseed = 3\nrepeats = 0";
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
    running.wait_until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
    // Into the window, away from ours, and back before pgio takes its own line back.
    running.wait_until("in the window", || active_sessions(&dsn) == 1);
    let begun = wal(&dsn);
    running.wait_until("committing", || wal(&dsn) - begun > 100_000);
    // A session that waits for a lock keeps the window open, however long evidence takes.
    let mut locking = connect(&dsn);
    locking.batch_execute("BEGIN; LOCK TABLE pgio_commit IN SHARE MODE").unwrap();
    alter_system(&dsn, "wal_writer_delay", Some("777ms"));
    running.wait_until("disturbed", || show(&dsn, "wal_writer_delay") == "777ms");
    // Evidence is read as seldom as it is slow on a busy machine. Each reading ends with the standbys; the
    // first that ends from now on may have begun before the change, the second began after it.
    let mut looking = connect(&dsn);
    let mut since: String =
        looking.query_one("SELECT clock_timestamp()::text", &[]).unwrap().get(0);
    for _ in 0..2 {
        running.wait_until("evidence was read", || {
            let reading = "SELECT max(query_start)::text FROM pg_stat_activity \
                           WHERE query LIKE 'SELECT coalesce(application_name%' \
                           AND query_start > $1::text::timestamptz";
            let ended: Option<String> = looking.query_one(reading, &[&since]).unwrap().get(0);
            ended.map(|ended| since = ended).is_some()
        });
    }
    alter_system(&dsn, "wal_writer_delay", Some("150ms"));
    running.wait_until("back", || show(&dsn, "wal_writer_delay") == "150ms");
    locking.batch_execute("COMMIT").unwrap();
    running.wait().expect(5, &["`set` has no valid trial"]);

    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let disturbed: &[&str] =
            if condition_of(trial) == "set" { &["treatment-in-force"] } else { &[] };
        assert_eq!(failed_checks(trial, "invalid"), disturbed);
        assert_eq!(trial["outcome"]["state"], "complete");
    }

    let analysis = dir.analysis();
    let set = analysis["conditions"].as_array().unwrap().iter().find(|c| c["name"] == "set");
    let set = set.unwrap();
    assert_eq!((&set["trials"], &set["invalid"]), (&1.into(), &1.into()));
    let listed = analysis["checks"].as_array().unwrap().iter();
    let mut listed = listed.filter(|c| c["id"] == "treatment-in-force");
    let check = listed.next().unwrap();
    assert_eq!((&check["verdict"], &check["condition"]), (&"invalid".into(), &"set".into()));
    let number = check["trial"].as_u64().unwrap();
    assert_eq!(condition_of(&trials[usize::try_from(number - 1).unwrap()]), "set");
    assert!(check["message"].as_str().unwrap().contains("777"), "{check}");
    for comparison in analysis["comparisons"].as_array().unwrap() {
        assert_eq!(comparison["blocks"], 0, "{comparison}");
    }
    assert_eq!(show(&dsn, "wal_writer_delay"), "200ms");
}

#[test]
fn undeclared_loss_of_durability_makes_trials_invalid() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false\nrepeats = 0";
    // Ends after two blocks without a valid trial.
    let long = keys.replace("blocks = 1", "blocks = 6").replace("repeats = 0", "repeats = 1");
    let ends = [
        "b: invalid (durability: fsync is off",
        "; repeat 1",
        "excluded",
        "no trial of 2 blocks is valid: 8 of 8 are invalid (durability 8)",
        "tolerate = [\"durability\"]",
        "continue with --resume out",
    ];
    let without = ["`a` has no valid trial among", "`b` has no valid trial among"];
    for (name, keys_without, texts, count) in [
        ("fsync", long.as_str(), &ends[..], 2 * 2 * 2),
        ("full_page_writes", keys, &without[..], 2),
    ] {
        alter_system(&dsn, name, Some("off"));
        wait_until("off", || show(&dsn, name) == "off");

        let dir = Workdir::new();
        let conditions = [("a", ""), ("b", "synchronous_commit = \"local\"")];
        dir.compare(&experiment(&dsn, keys_without, "", &conditions)).expect(5, texts);
        let trials = dir.trials();
        assert_eq!(trials.len(), count);
        assert!(dir.journals().is_empty());
        dir.pgio(&["report", "out"])
            .expect(0, &["`a` has no valid trial", "`b` has no valid trial"]);
        assert!(trials.iter().all(|t| failed_checks(t, "invalid") == ["durability"]), "{name}");
        assert!(dir.analysis()["checks"].to_string().contains(&format!("{name} is off")));

        let dir = Workdir::new();
        let off = format!("{name} = \"off\"");
        let conditions = [("a", off.as_str()), ("b", &format!("{off}, commit_delay = 10"))];
        dir.compare(&experiment(&dsn, keys, "", &conditions)).expect(0, &[]);
        assert!(dir.trials().iter().all(|t| failed_checks(t, "invalid").is_empty()), "{name}");
        // It was off before and is so again, though not by default.
        assert_eq!(show(&dsn, name), "off");
        alter_system(&dsn, name, None);
        wait_until("on", || show(&dsn, name) == "on");
    }
}

#[test]
fn durability_lost_inside_the_window_is_noticed() {
    lose_durability("duration = \"4s\"", &[("marked", "wal_writer_delay = \"150ms\"")]);
}

#[test]
fn durability_lost_inside_a_woven_window_is_noticed() {
    let levels = [
        ("local", "synchronous_commit = \"local\""),
        ("waiting", "synchronous_commit = \"local\", commit_delay = 1000"),
    ];
    // Both conditions share the window, which is twice as long.
    lose_durability("duration = \"2s\"\nweave = \"20ms\"", &levels);
}

fn lose_durability(key: &str, conditions: &[(&str, &str)]) {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let tolerate = tolerate(&[]);
    let keys = format!("blocks = 1\naa = false\nrepeats = 0\n{key}\n{tolerate}");
    let mut running = dir.start_compare(&experiment(&dsn, &keys, "", conditions));
    // Slices that are tried before block 1 end before anything is stored.
    let manifest = dir.out().join("manifest.json");
    running.wait_until("in the window", || manifest.exists() && active_sessions(&dsn) == 1);
    // Sessions are prepared before the settings are read, and hundreds of commits follow.
    let begun = wal(&dsn);
    running.wait_until("committing", || wal(&dsn) - begun > 100_000);
    alter_system(&dsn, "fsync", Some("off"));
    running.wait().expect(5, &["invalid"]);
    // Said twice: that nothing may change, and what this change means.
    for trial in dir.trials() {
        assert_eq!(failed_checks(&trial, "invalid"), ["environment-changed", "durability"]);
    }
}

/// Bytes of WAL written so far.
fn wal(dsn: &str) -> i64 {
    let position = "SELECT (pg_current_wal_lsn() - '0/0')::bigint";
    connect(dsn).query_one(position, &[]).unwrap().get(0)
}

/// The statements of each session of a trial, as the server logged them.
fn logged_statements(dsn: &str, trial: &Value) -> Vec<Vec<String>> {
    let data = PathBuf::from(show(dsn, "data_directory"));
    let log = fs::read_to_string(data.with_extension("log")).unwrap();
    let sessions = trial["sessions"].as_array().unwrap();
    let statements = |session: &Value| {
        let pid = format!("[{}] LOG:  ", session["pid"]);
        let lines = log.lines().filter(|line| line.contains(&pid));
        lines.filter_map(|line| Some(line.split_once(&pid)?.1.to_owned())).collect()
    };
    sessions.iter().map(statements).collect()
}

/// Each further round trip between two slices would make a condition with settings slower than one without.
#[test]
fn reading_settings_costs_no_round_trip_of_its_own() {
    run_in_parallel(["server", "client"], |engine| {
        let conditions = [("plain", ""), ("set", "work_mem = \"5MB\", random_page_cost = 3")];
        let dir = Workdir::new();
        let dsn = fresh_database(shared_primary(INSTALLED));
        let logged = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', \
                      current_database()); END $$";
        connect(&dsn).batch_execute(logged).unwrap();
        // Four slices: late ones may leave out the last.
        let keys = "blocks = 1\naa = false\nduration = \"4s\"";
        let workload = format!("engine = {engine:?}");
        dir.compare(&experiment(&dsn, keys, &workload, &conditions)).expect(0, &[]);
        let trials = dir.trials();
        assert_eq!(trials.len(), 2);
        for trial in trials {
            let [statements] = &logged_statements(&dsn, &trial)[..] else {
                panic!("one session: {trial}")
            };
            let begins = |s: &String| s.contains("statement: DO") || s.contains("pgio_reading");
            let first = statements.iter().position(begins).unwrap();
            // Without the commits.
            let window = statements[first..].iter().filter(|s| !s.contains("INSERT INTO"));
            let slices = window.clone().filter(|s| begins(s)).count();
            let longest = trial["timeline"].as_array().unwrap().len();
            assert!((2..=longest).contains(&slices), "{engine}: {slices} of {longest}");
            // The server engine fetches the results of each slice. Both end with one for the statistics.
            let each = if engine == "server" { 2 } else { 1 };
            assert_eq!(window.count(), each * slices + 1, "{engine}, {}", condition_of(&trial));
        }
    });
}
