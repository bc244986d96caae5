//! Settings by each way that they can be put in force, and what proves that they were.

use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, NEWEST, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{
    SAMPLED, Workdir, alter_system, auto_conf, condition_of, experiment, experiment_on, show,
};

use super::SHORT;

/// Returns the values that a trial's evidence shows for a setting.
fn found<'a>(trial: &'a Value, what: &str) -> Vec<(&'a str, &'a str)> {
    let evidence = trial["evidence"].as_array().unwrap().iter();
    evidence
        .filter(|e| e["what"] == what)
        .map(|e| (e["when"].as_str().unwrap(), e["found"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_server_setting_is_applied_proved_and_undone() {
    for major in [INSTALLED, NEWEST] {
        let dir = Workdir::new();
        let server = own_primary(major);
        let dsn = fresh_database(&server);
        // A line that was there before, with a value that is not the default.
        alter_system(&dsn, "bgwriter_delay", Some("333ms"));
        let line = auto_conf(&dsn, "bgwriter_delay");
        let body = "bgwriter_delay = \"1s\", checkpoint_completion_target = 0.5, \
                    autovacuum = \"off\", log_line_prefix = \"it's 'quoted' \\\\ %m \"";
        let conditions = [("as it is", ""), ("set", body)];
        let once = "blocks = 1\nduration = \"200ms\"\naa = false";
        dir.compare(&experiment(&dsn, once, "", &conditions)).expect(0, &[]);
        for trial in dir.trials() {
            let during = ("during", "1s");
            let expected = condition_of(&trial) == "set";
            let readings = found(&trial, "bgwriter_delay");
            assert_eq!(readings.contains(&during), expected, "{readings:?}");
            assert_eq!(readings.contains(&("before", "1s")), expected);
            assert_eq!(readings.contains(&("after", "1s")), expected);
            assert_eq!(!found(&trial, "autovacuum").is_empty(), expected);
        }
        assert_eq!(auto_conf(&dsn, "bgwriter_delay"), line);
        assert_eq!(show(&dsn, "bgwriter_delay"), "333ms");
        for name in ["checkpoint_completion_target", "autovacuum", "log_line_prefix"] {
            assert_eq!(auto_conf(&dsn, name), None, "{name}");
        }
        assert_eq!(show(&dsn, "autovacuum"), "on");
        assert!(dir.journals().is_empty());
        alter_system(&dsn, "bgwriter_delay", None);
    }
}

#[test]
fn a_private_server_is_restarted_for_settings_that_need_it() {
    let dir = Workdir::new();
    let conditions = [
        // The server shows the number that it computes for -1.
        ("small", "shared_buffers = \"16MB\", wal_buffers = -1"),
        ("large", "shared_buffers = \"64MB\", wal_level = \"logical\", wal_buffers = \"64MB\""),
        // The server shows a blank after the comma.
        ("loaded", "shared_preload_libraries = \"auto_explain,pg_stat_statements\""),
    ];
    let keys = "blocks = 1\nduration = \"200ms\"\naa = false\ntelemetry = \"0s\"";
    let target = format!("private = true\npg = {INSTALLED}");
    dir.compare(&experiment_on(&target, keys, "", &conditions)).expect(0, &["large", "loaded"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 3);
    for trial in &trials {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
        let readings = |what| found(trial, what);
        match condition_of(trial) {
            "small" => {
                assert!(readings("shared_buffers").contains(&("during", "16MB")));
                assert!(readings("wal_buffers").contains(&("during", "-1")));
                assert_eq!(trial["server"]["shared_buffers"], "16MB");
            }
            "large" => {
                assert!(readings("shared_buffers").contains(&("during", "64MB")));
                assert_eq!(trial["server"]["shared_buffers"], "64MB");
                assert!(readings("wal_level").contains(&("during", "logical")));
                assert!(readings("wal_buffers").contains(&("during", "64MB")));
            }
            _ => assert!(!readings("shared_preload_libraries").is_empty()),
        }
        let invalid =
            trial["checks"].as_array().unwrap().iter().find(|c| c["verdict"] == "invalid");
        assert_eq!(invalid, None, "{}", condition_of(trial));
    }
    assert!(dir.journals().is_empty(), "a cluster that is gone has nothing to undo");
}

#[test]
fn a_list_setting_stays_a_list_in_a_session() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    let compare = |list: &str| dir.compare(&experiment(&dsn, keys, "", &[("list", list)]));
    compare("search_path = \"pg_catalog, public\"")
        .expect(4, &["`commit` have search_path = pg_catalog, pg_temp"]);
    compare("temp_tablespaces = \"pg_default, pg_default\"").expect(0, &[]);
    assert_eq!(dir.trials()[0]["settings"]["temp_tablespaces"], "pg_default, pg_default");
}

/// They would be in force nowhere, and yet the report would attribute an effect to them.
#[test]
fn settings_of_sessions_are_refused_for_work_that_has_no_session() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let device = format!("path = {:?}\nsize = \"8M\"\ntest = \"latency\"", dir.path());
    let conditions = [("as it is", ""), ("off", "synchronous_commit = \"off\"")];
    let text = experiment(&dsn, &format!("{SHORT}\n{SAMPLED}"), &device, &conditions);
    let refused = dir.compare(&text.replace("kind = \"commit\"", "kind = \"device\""));
    let why = "synchronous_commit would be set in pgio's own sessions, and the workload `device`";
    refused.expect(4, &["condition `off`", why]);
    assert!(!dir.out().exists());
}
