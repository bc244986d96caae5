//! Shipped examples on real servers, with fewer and shorter trials: what they set holds there.
//!
//! That each of them runs as shipped is proved without servers, in `experiment::application::loop_tests`. Stored
//! results are validated against the checked-in schemas.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pgio::config::{experiment, keys, pgio_conf};
use serde_json::Value;

use crate::schema;
use pgio_tests::fixture::{INSTALLED, connect, own_primary, pgio, shared_pair};
use pgio_tests::workdir::{NEIGHBOR_CHECKS, tolerance_args};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

pub(crate) fn example(file: &str) -> String {
    fs::read_to_string(dir().join(file)).unwrap()
}

/// The same file with the value of some keys replaced; each must be there.
pub(crate) fn replace_keys(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (key, value) in changes {
        let is_key = |line: &str| line.split_once('=').is_some_and(|(k, _)| k.trim() == *key);
        assert!(text.lines().any(is_key), "no {key} in the example");
        let lines = text.lines().map(|line| {
            if is_key(line) { format!("{key} = {value}\n") } else { format!("{line}\n") }
        });
        text = lines.collect();
    }
    text
}

/// In a directory of its own: no pgio.conf, no other run's journal.
fn command(dir: &Path) -> Command {
    let mut command = pgio();
    command.current_dir(dir).env("PGIO_STATE_DIR", dir.join("state"));
    command
}

fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}\n{}", String::from_utf8_lossy(&stderr));
    text
}

/// Runs an experiment file and returns the stored results of one workload.
pub(crate) fn compare(text: &str, workload: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("example.toml"), tolerant(text)).unwrap();
    run(command(dir.path()).args(["compare", "example.toml", "--out", "out"]));
    let results = dir.path().join("out").join(workload);
    (dir, results)
}

/// The same file, so that the tests which run beside this one leave it valid trials.
fn tolerant(text: &str) -> String {
    let named = NEIGHBOR_CHECKS.map(|id| format!("{id:?}")).join(", ");
    if text.contains("\ntolerate = [") {
        text.replacen("\ntolerate = [", &format!("\ntolerate = [{named}, "), 1)
    } else {
        text.replacen("\n[experiment]\n", &format!("\n[experiment]\ntolerate = [{named}]\n"), 1)
    }
}

/// Holds everything stored against its schema; returns the records.
pub(crate) fn stored(results: &Path) -> Vec<Value> {
    let read = |name: &str| fs::read_to_string(results.join(name)).unwrap();
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    schema::assert_valid("pgio.manifest/1", &json(&read("manifest.json")));
    let trials: Vec<Value> = read("trials.jsonl").lines().map(json).collect();
    trials.iter().for_each(|trial| schema::assert_valid("pgio.trial/1", trial));
    let analysis = run(pgio().arg("report").arg(results).args(["--format", "json"]));
    schema::assert_valid("pgio.analysis/1", &json(&analysis));
    trials
}

/// Every trial complete; returns the names of the conditions.
pub(crate) fn conditions(trials: &[Value]) -> BTreeSet<&str> {
    for trial in trials {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
    }
    trials.iter().map(|t| t["place"]["condition"].as_str().unwrap()).collect()
}

pub(crate) const SHORT: &[(&str, &str)] =
    &[("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"300ms\""), ("scale", "\"8M\"")];

/// Without twin, burn-in and telemetry.
pub(crate) fn bare(text: &str) -> String {
    let keys = ["aa = false", "burn_in = false", "telemetry = \"0s\""];
    let missing = |key: &&str| {
        let name = key.split(' ').next().unwrap();
        !text.lines().any(|line| line.split(' ').next() == Some(name))
    };
    let added: Vec<&str> = keys.into_iter().filter(missing).collect();
    let text = text.replacen("[experiment]", &format!("[experiment]\n{}", added.join("\n")), 1);
    if text.contains("\naa = true") { replace_keys(&text, &[("aa", "false")]) } else { text }
}

/// Two values of each axis, and the two conditions between which the standby's flush lies.
#[test]
fn sync_commit() {
    let short = [
        ("blocks", "1"),
        ("warmup", "\"0s\""),
        ("duration", "\"200ms\""),
        ("sessions", "[1, 16]"),
        ("rows_per_transaction", "[1, 100]"),
    ];
    let text = replace_keys(&bare(&example("sync-commit.toml")), &short);
    let text = text.replace("values = [0, 1, 5]", "values = [0, 1]");
    let mut parts = text.split("[[condition]]");
    let head = parts.next().unwrap().to_owned();
    let kept = parts.filter(|part| ["\"local\"", "\"on\""].iter().any(|name| part.contains(name)));
    let text = kept.fold(head, |text, part| text + "[[condition]]" + part);
    let (_dir, results) = compare(&text, "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), BTreeSet::from(["local", "on"]));
    let cells: BTreeSet<String> = trials
        .iter()
        .map(|t| format!("{} {}", t["place"]["condition"], t["place"]["point"]))
        .collect();
    // Invalid trials, which other tests beside this one can make, are repeated.
    assert_eq!(cells.len(), 10);
    for trial in &trials {
        let (point, keys) = (&trial["place"]["point"], &trial["workload"]["keys"]);
        assert_eq!(point["sessions"], keys["sessions"]);
        assert_eq!(point["rows_per_transaction"], keys["rows_per_transaction"]);
        assert_eq!(point["fsync"], trial["server"]["fsync"]);
        assert_eq!(trial["sessions"].as_array().unwrap().len() as u64, point["sessions"]);
        let invalid =
            trial["checks"].as_array().unwrap().iter().find(|c| c["verdict"] == "invalid");
        assert_ne!(invalid.map(|c| &c["id"]), Some(&Value::from("durability")), "declared");
        let delay = format!("through the relay (delay {}ms)", point["delay"]);
        let evidence = trial["evidence"].as_array().unwrap();
        assert!(evidence.iter().any(|e| e["found"] == delay.as_str()), "{delay}");
    }
}

#[test]
fn hot_spot() {
    let text = replace_keys(&bare(&example("hot-spot.toml")), SHORT);
    let (dir, uniform) = compare(&text, "uniform");
    let all = BTreeSet::from(["local", "on"]);
    assert_eq!(conditions(&stored(&uniform)), all);
    for name in ["hot", "zipf"] {
        let trials = stored(&dir.path().join("out").join(name));
        assert_eq!(conditions(&trials), all);
        for trial in &trials {
            let metric = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
            let asked = metric("hot_pct_asked");
            let sessions = trial["sessions"].as_array().unwrap().iter();
            let calls = |s: &Value| s["reads"].as_u64().unwrap() + s["updates"].as_u64().unwrap();
            // Five standard errors of as many draws as a busy machine made, and one for rounding.
            let draws = sessions.map(calls).sum::<u64>() as f64;
            let limit = 5.0 * (asked * (100.0 - asked) / draws).sqrt() + 1.0;
            let off = metric("hot_pct_measured") - asked;
            assert!(off.abs() < limit, "{off} of {limit} in {draws} calls: {trial}");
        }
    }
}

/// Each factor high alone; the fraction that is shipped has the same settings.
#[test]
fn screening() {
    let text = replace_keys(&bare(&example("screening.toml")), SHORT);
    let text = replace_keys(&text, &[("duration", "\"150ms\"")])
        .replace("[experiment]", "[experiment]\ndesign = \"one-at-a-time\"");
    let (_dir, results) = compare(&text, "");
    assert_eq!(conditions(&stored(&results)).len(), 11);
}

/// Follows the example's comment about your own servers.
#[test]
fn sync_commit_quick_on_a_server_of_ones_own() {
    let pair = shared_pair(INSTALLED);
    connect(&pair.primary_conninfo()).batch_execute("CREATE DATABASE sync_commit_example").unwrap();
    let dsn = pair.primary_conninfo_to("sync_commit_example");
    let scratch = tempfile::tempdir().unwrap();
    run(command(scratch.path())
        .args(["setup", "--scale", "8M", "--create-base-table", "FALSE"])
        .args(["--connect-string", &dsn]));
    let private = "private = true\nstandby = true\n";
    let text = replace_keys(&bare(&example("sync-commit-quick.toml")), SHORT);
    assert!(text.contains(private), "the example's [target] has changed");
    let text = text.replace(private, &format!("dsn = \"{dsn}\"\n"));
    let (dir, commits) = compare(&text, "commit");
    let trials = stored(&commits);
    let all = ["local", "off", "on", "remote_apply", "remote_write"];
    assert_eq!(conditions(&trials), BTreeSet::from(all));
    assert_eq!(conditions(&stored(&dir.path().join("out/slob"))).len(), 3);
}

#[test]
fn commit_10000() {
    let short = [("blocks", "1"), ("transactions", "200")];
    let (_dir, results) = compare(&replace_keys(&bare(&example("commit-10000.toml")), &short), "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), BTreeSet::from(["local", "on"]));
    for trial in &trials {
        assert_eq!(trial["histograms"]["commit"]["count"], 200);
        assert_eq!(trial["server"]["fsync"], "off");
    }
}

#[test]
fn page_cache() {
    if !rustix::process::geteuid().is_root() {
        pgio_tests::skipped("a memory limit needs root");
        return;
    }
    let (_dir, results) = compare(&replace_keys(&bare(&example("page-cache.toml")), SHORT), "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), BTreeSet::from(["256 MB left", "all memory"]));
}

#[test]
fn link_delay() {
    let short = [("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"300ms\"")];
    let (_dir, results) = compare(&replace_keys(&bare(&example("link-delay.toml")), &short), "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), BTreeSet::from(["1 ms", "5 ms", "near"]));
}

#[test]
fn device() {
    let text = replace_keys(&bare(&example("device.toml")), &[("size", "\"8M\"")]);
    let short = [("blocks", "1"), ("warmup", "\"100ms\""), ("duration", "\"300ms\"")];
    let (dir, _) = compare(&replace_keys(&text, &short), "");
    for test in ["throughput", "latency", "random_read", "random_write"] {
        let trials = stored(&dir.path().join(format!("out/device-{test}")));
        assert_eq!(conditions(&trials), BTreeSet::from(["as it is"]));
        for trial in &trials {
            assert_eq!(trial["workload"]["keys"]["test"], test);
            assert!(trial["histograms"]["device"]["count"].as_u64().unwrap() > 0);
            let primary = trial["workload"]["primary_metric"].as_str().unwrap();
            assert!(trial["metrics"][primary]["value"].as_f64().unwrap() > 0.0, "{primary}");
        }
    }
}

#[test]
fn pgbench() {
    let text = bare(&example("pgbench.toml")).replace("scale = 10", "scale = 1");
    let short = [("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"1s\"")];
    let (_dir, results) = compare(&replace_keys(&text, &short), "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), BTreeSet::from(["off", "on"]));
    for trial in &trials {
        for metric in ["transactions_per_second", "connection_time"] {
            assert!(trial["metrics"][metric]["value"].as_f64().unwrap() > 0.0, "{trial}");
        }
    }
}

#[test]
fn sysbench() {
    if Command::new("sysbench").arg("--version").output().is_err() {
        pgio_tests::skipped("sysbench is not installed");
        return;
    }
    let text = bare(&example("sysbench.toml")).replace("table_size = 10000", "table_size = 1000");
    let short = [("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"1s\"")];
    let (_dir, results) = compare(&replace_keys(&text, &short), "");
    let all = BTreeSet::from(["compressed", "plain"]);
    assert_eq!(conditions(&stored(&results)), all);
}

#[test]
fn the_pgio_conf() {
    // The file names the database, which a private cluster has; host, port and user come from the
    // environment, as with psql. A run of another test in that database would refuse the setup.
    let primary = own_primary(INSTALLED);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pgio.conf"), example("pgio.conf")).unwrap();
    let pgio = || {
        let mut command = command(dir.path());
        for (name, value) in libpq_environment(&primary.primary_conninfo()) {
            command.env(name, value);
        }
        command
    };
    let loaded = run(pgio().args(["setup", "--scale", "16M"]));
    assert!(loaded.contains("Loading 16M scale into 1 schemas"), "{loaded}");
    let short = ["run", "--scale", "16M", "--run-time", "500ms", "--json", "trial.json"];
    let printed = run(pgio().args(short).args(tolerance_args(&short)));
    assert!(printed.contains("Testing 1 schemas with 1 thread(s) accessing 16M (2048 blocks)"));
    let trial = fs::read_to_string(dir.path().join("trial.json")).unwrap();
    let trial: Value = serde_json::from_str(&trial).unwrap();
    schema::assert_valid("pgio.trial/1", &trial);
    assert_eq!(trial["workload"]["keys"]["update_pct"], 10);
    assert_eq!(trial["workload"]["keys"]["update_work_unit"], 8);
}

/// host, port and user of a conninfo without quoted values, as PG* variables.
pub(crate) fn libpq_environment(conninfo: &str) -> Vec<(&'static str, String)> {
    let names = [("host", "PGHOST"), ("port", "PGPORT"), ("user", "PGUSER")];
    let value = |key: &str| {
        let mut words = conninfo.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(k, _)| *k == key).map(|(_, v)| v.trim_matches('\'').to_owned())
    };
    names.iter().filter_map(|(key, name)| Some((*name, value(key)?))).collect()
}

/// A line after `#` without a blank is meant to be uncommented.
#[test]
fn commented_keys_of_pgio_conf_are_valid() {
    let uncommented: String = example("pgio.conf")
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(offered) if offered.starts_with(|c: char| c.is_ascii_uppercase()) => offered,
            _ => line,
        })
        .fold(String::new(), |text, line| text + line + "\n");
    let conf = pgio_conf::parse(&uncommented, "pgio.conf").unwrap();
    assert!(conf.warnings.is_empty());
    assert_eq!(conf.layer.commit_every, Some(0));
    assert_eq!(conf.layer.tablespace.as_deref(), Some("fast"));
    for key in keys::all().filter(|key| key.is_flag()) {
        let line = format!("{}=", key.conf_name());
        assert!(uncommented.lines().any(|l| l.starts_with(&line)), "{line} is not in the example");
    }
}

#[test]
fn the_target_in_a_comment_of_an_example_parses() {
    let text = example("sync-commit-quick.toml");
    let offered: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("#     "))
        .skip_while(|line| !line.starts_with('['))
        .take_while(|line| !line.is_empty())
        .fold(String::new(), |text, line| text + line + "\n");
    let experiment = format!("{offered}[[condition]]\nname = \"a\"\n");
    let parsed = experiment::parse(&experiment, "comment", "comment", &[], &[]).unwrap();
    assert!(parsed.conditions[0].target.is_some(), "{offered}");
}
