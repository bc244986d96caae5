//! The recipes of `pgio example`: each is run, with its durations cut down and its servers replaced by
//! those at hand, and nothing else changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pgio::pg::private::PrivateCluster;
use tempfile::TempDir;

use crate::examples::{self, SHORT, conditions, example, replace_keys, stored};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, pgio, shared_pair, shared_primary};
use pgio_tests::workdir::{failed_checks, metric};

const RECIPES: [&str; 14] = [
    "versions",
    "checksums",
    "wal-compression",
    "checkpoints",
    "archive",
    "two-servers",
    "two-standbys",
    "wal-device",
    "background-work",
    "backup",
    "replica-reads",
    "my-tables",
    "managed-server",
    "ci-gate",
];

/// [`SHORT`] for work that would take every processor from other tests.
const MODEST: &[(&str, &str)] = &[
    ("blocks", "1"),
    ("warmup", "\"0s\""),
    ("duration", "\"1s\""),
    ("scale", "\"8M\""),
    ("num_threads", "1"),
];

/// Without a data set.
const BRIEF: &[(&str, &str)] = &[("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"300ms\"")];

/// Without the trial before the first block, of which a recipe says nothing.
fn compare(text: &str, workload: &str) -> (TempDir, PathBuf) {
    let text = text.replacen("\n[experiment]\n", "\n[experiment]\nburn_in = false\n", 1);
    examples::compare(&text, workload)
}

fn recipe(name: &str) -> String {
    example(&format!("{name}.toml"))
}

fn names(all: &[&'static str]) -> BTreeSet<&'static str> {
    all.iter().copied().collect()
}

/// The report of stored results, as text.
fn report(results: &Path) -> String {
    let output = pgio().args(["report", "--all"]).arg(results).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // One line per sentence, however it was wrapped.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_begins_with_a_question_and_ends_with_its_answer() {
    let listed = pgio().arg("example").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in RECIPES {
        let text = recipe(name);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("# ") && first.contains('?'), "{name}: {first}");
        let (_, answer) = text.split_once("\n# How to read the answer\n#\n").expect(name);
        assert!(answer.lines().all(|line| line.starts_with("# ")), "{name} ends with it");
        assert!(listed.contains(&format!("{name} ")), "{name} is not listed");
    }
}

/// Three of the six versions: those that are at hand. The others are read.
#[test]
fn versions() {
    let all = recipe("versions");
    let parsed =
        pgio::config::experiment::parse(&all, "versions.toml", "versions", &[], &[]).unwrap();
    assert_eq!((parsed.conditions.len(), parsed.targets.len()), (6, 6));
    let is_left = |paragraph: &&str| {
        !["14", "16", "17"].iter().any(|version| {
            paragraph.starts_with(&format!("[targets.pg{version}]"))
                || paragraph.contains(&format!("target = \"pg{version}\""))
        })
    };
    let three = all.split("\n\n").filter(is_left).collect::<Vec<_>>().join("\n\n");
    let (dir, commits) = compare(&replace_keys(&three, SHORT), "commit");
    let expected = names(&["13", "13 (A/A)", "15", "18"]);
    assert_eq!(conditions(&stored(&commits)), expected);
    assert_eq!(conditions(&stored(&dir.path().join("out/slob"))), expected);
    let text = report(&commits);
    assert!(text.contains("differ in PostgreSQL 18."), "{text}");
    assert!(text.contains("nothing else was found to differ"), "{text}");
    assert!(!text.contains("environment-differs"), "{text}");
}

#[test]
fn checksums() {
    let (_dir, results) = compare(&replace_keys(&recipe("checksums"), SHORT), "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), names(&["with", "without", "without (A/A)"]));
    for trial in &trials {
        let is_with = trial["place"]["condition"] == "with";
        let found = &trial["environment"]["setting.data_checksums"];
        assert_eq!(found, if is_with { "on" } else { "off" });
    }
    let text = report(&results);
    let declared =
        "differ in initdb --data-checksums here only, initdb --no-data-checksums there only;";
    assert!(text.contains(declared), "{text}");
}

/// Its conditions change the settings of sessions alone.
fn on_a_shared_server(text: &str, dsn: &str) -> String {
    assert!(text.contains("\nprivate = true\n"));
    text.replace("\nprivate = true\n", &format!("\ndsn = {dsn:?}\n"))
}

/// A database with a small data set.
fn loaded_database(server: &PrivateCluster) -> String {
    let dsn = fresh_database(server);
    let setup = ["setup", "--scale", "8M", "--create-base-table", "FALSE"];
    let dir = tempfile::tempdir().unwrap();
    let loaded =
        pgio().args(setup).args(["--connect-string", &dsn]).current_dir(dir.path()).output();
    assert!(loaded.unwrap().status.success());
    dsn
}

#[test]
fn wal_compression() {
    let text = replace_keys(&recipe("wal-compression"), SHORT);
    let text = on_a_shared_server(&text, &loaded_database(shared_primary(INSTALLED)));
    let (_dir, results) = compare(&text, "");
    assert_eq!(conditions(&stored(&results)), names(&["off", "off (A/A)", "on"]));
}

/// Windows of whole cycles take minutes: here checkpoints are left to the server.
#[test]
fn checkpoints() {
    let text = replace_keys(&recipe("checkpoints"), &[("checkpoint", "\"none\"")]);
    let (_dir, results) = compare(&replace_keys(&text, SHORT), "");
    assert_eq!(conditions(&stored(&results)), names(&["1 minute", "5 minutes"]));
}

#[test]
fn archive() {
    let place = tempfile::Builder::new().prefix("a").tempdir_in("/var/tmp").unwrap();
    let archive = place.path().join("archive");
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let text = recipe("archive").replace("/tmp/pgio-archive", archive.to_str().unwrap());
    let (_dir, results) = compare(&replace_keys(&text, BRIEF), "");
    assert_eq!(conditions(&stored(&results)), names(&["cp", "no archive", "no archive (A/A)"]));
    assert!(!archive.exists(), "undone");
}

#[test]
fn two_servers() {
    let servers = [shared_primary(INSTALLED), shared_pair(INSTALLED)];
    let mut text = replace_keys(&recipe("two-servers"), BRIEF);
    for (server, dsn) in servers.iter().zip(["host=db1 dbname=pgio", "host=db2 dbname=pgio"]) {
        let own = loaded_database(server);
        text = text.replace(&format!("dsn = \"{dsn}\""), &format!("dsn = {own:?}"));
    }
    let (dir, commits) = compare(&text, "commit");
    let expected = names(&["new", "old", "old (A/A)"]);
    assert_eq!(conditions(&stored(&commits)), expected);
    assert_eq!(conditions(&stored(&dir.path().join("out/slob"))), expected);
}

#[test]
fn two_standbys() {
    let text = replace_keys(
        &recipe("two-standbys"),
        &[("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"400ms\"")],
    );
    let (_dir, results) = compare(&text, "");
    let trials = stored(&results);
    assert_eq!(
        conditions(&trials),
        names(&["a alone", "both", "none", "none (A/A)", "the faster"])
    );
    for trial in &trials {
        let standbys = &trial["telemetry"]["standbys"];
        let state =
            |name: &str| standbys[name]["sync_state"].as_str().unwrap_or("absent").to_owned();
        let states = [state("a"), state("b"), state("c")];
        let expected = match trial["place"]["condition"].as_str().unwrap() {
            "a alone" => ["sync", "potential", "async"],
            "both" => ["sync", "sync", "async"],
            "the faster" => ["quorum", "quorum", "async"],
            _ => ["async"; 3],
        };
        assert_eq!(states, expected, "{standbys:#}");
        assert_eq!(standbys["c"]["from"], "a");
        assert!(standbys["b"]["storage"]["mount_point"].is_string(), "{standbys:#}");
        assert!(standbys["c"]["mean_bytes_behind"].is_number(), "{standbys:#}");
    }
    let text = report(&results);
    assert!(text.contains("Standbys") && text.contains("from a"), "{text}");
}

#[test]
fn wal_device() {
    let place = tempfile::Builder::new().prefix("w").tempdir_in("/var/tmp").unwrap();
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(place.path(), open()).unwrap();
    let mut text = replace_keys(&recipe("wal-device"), SHORT);
    let directories = ["data", "wal"].map(|name| place.path().join(name));
    for (directory, name) in directories.iter().zip(["/srv/data", "/srv/wal"]) {
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, open()).unwrap();
        fs::write(directory.join("mine"), "precious").unwrap();
        text = text.replace(name, directory.to_str().unwrap());
    }
    let (_dir, commits) = compare(&text, "commit");
    let trials = stored(&commits);
    assert_eq!(conditions(&trials), names(&["apart", "together", "together (A/A)"]));
    for trial in &trials {
        let storage = trial["telemetry"]["storage"].as_array().unwrap();
        let wal = storage.iter().find(|s| s["role"] == "wal").unwrap();
        let there = Path::new(wal["directory"].as_str().unwrap()).starts_with(&directories[1]);
        assert_eq!(there, trial["place"]["condition"] == "apart", "{wal}");
    }
    for directory in &directories {
        let left: Vec<PathBuf> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [directory.join("mine")], "nothing else was touched");
    }
}

#[test]
fn background_work() {
    // Counts of work in the background arrive once a second; a shorter window may contain none.
    let (_dir, results) = compare(&replace_keys(&recipe("background-work"), MODEST), "");
    let mut trials = stored(&results);
    // On a busy machine, counts of a whole window may be missing at first; such a trial is repeated.
    trials.retain(|trial| failed_checks(trial, "invalid").is_empty());
    assert_eq!(conditions(&trials), names(&["noisy", "quiet", "quiet (A/A)", "scans"]));
    for trial in &trials {
        let background = &trial["background"];
        match trial["place"]["condition"].as_str().unwrap() {
            "noisy" => {
                assert!(background["writer"]["value"].as_f64().unwrap() > 0.0, "{background}");
                assert_eq!(background["writer"]["target"], "n1");
                assert!(background["reader"].is_null());
            }
            "scans" => {
                assert_eq!(background["reader"]["metric"], "block_visits_per_second");
                assert!(background["reader"]["value"].as_f64().unwrap() > 0.0, "{background}");
            }
            _ => assert!(background.is_null(), "{background}"),
        }
    }
    assert!(report(&results).contains("Background work"));
}

/// The output of the program that ran beside this trial.
fn output(results: &Path, number: usize, name: &str) -> String {
    fs::read_to_string(results.join(format!("output/{number:04}.{name}"))).unwrap_or_default()
}

#[test]
fn backup() {
    let text = replace_keys(&recipe("backup"), MODEST);
    // What it would say of its progress is on stderr.
    let text = text.replace("pg_dump --format", "pg_dump --verbose --format");
    let (_dir, results) = compare(&text, "");
    let trials = stored(&results);
    assert_eq!(
        conditions(&trials),
        names(&["no backup", "no backup (A/A)", "pg_basebackup", "pg_dump"])
    );
    for (number, trial) in (1..).zip(&trials) {
        let background = &trial["background"];
        let name = match trial["place"]["condition"].as_str().unwrap() {
            "pg_dump" => "dump",
            "pg_basebackup" => "copy",
            _ => {
                assert!(background.is_null(), "{background}");
                continue;
            }
        };
        assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial:#}");
        assert_eq!(background[name]["metric"], "share_of_window");
        assert!(background[name]["value"].as_f64().unwrap() > 0.0, "{background}");
        let said = output(&results, number, "dump.stderr").contains("pg_dump: ");
        assert_eq!(said, name == "dump", "{number}");
    }
    assert!(report(&results).contains("share of window"));
}

#[test]
fn replica_reads() {
    let (_dir, results) = compare(&replace_keys(&recipe("replica-reads"), MODEST), "");
    let mut trials = stored(&results);
    trials.retain(|trial| failed_checks(trial, "invalid").is_empty());
    let quiet = ["on", "remote_apply", "remote_apply (A/A)"];
    let read = ["on and reads", "remote_apply and reads"];
    assert_eq!(conditions(&trials), names(&[&quiet[..], &read[..]].concat()));
    for trial in &trials {
        let reads = &trial["background"]["reads"];
        if read.contains(&trial["place"]["condition"].as_str().unwrap()) {
            assert_eq!(
                (&reads["target"], &reads["standby"]),
                (&"target".into(), &"standby".into())
            );
            assert!(reads["value"].as_f64().unwrap() > 0.0, "{reads}");
        } else {
            assert!(reads.is_null(), "{reads}");
        }
    }
    assert!(report(&results).contains("target, standby"));
}

#[test]
fn my_tables() {
    let primary = shared_primary(INSTALLED);
    let dsn = fresh_database(primary);
    let sql = "CREATE TABLE orders AS SELECT id, id % 7 AS state FROM generate_series(1, 1000) id";
    connect(&dsn).batch_execute(sql).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("orders.sql");
    fs::write(&script, "SELECT state, count(*) FROM orders GROUP BY state ORDER BY 1;\n").unwrap();
    let text = replace_keys(&recipe("my-tables"), BRIEF).replace("\"300ms\"", "\"1s\"");
    let text = text.replace("\"host=db1 dbname=shop\"", &format!("{dsn:?}"));
    let text = text.replace("/home/me/orders.sql", script.to_str().unwrap());
    let (_dir, results) = compare(&text, "");
    let trials = stored(&results);
    assert_eq!(conditions(&trials), names(&["4MB", "4MB (A/A)", "64MB"]));
    assert!(trials.iter().all(|t| metric(t, "transactions_per_second") > 0.0));
}

#[test]
fn managed_server() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let of_it = "\"host=db.example.com dbname=pgio user=me sslmode=require\"";
    let text = replace_keys(&recipe("managed-server"), BRIEF).replace(of_it, &format!("{dsn:?}"));
    let (_dir, results) = compare(&text, "");
    assert_eq!(conditions(&stored(&results)), names(&["off", "on", "on (A/A)"]));
}

/// Its exit code is decided by the blocks; that a gate decides is tested in `gating`.
#[test]
fn ci_gate() {
    let text = replace_keys(&recipe("ci-gate"), BRIEF);
    let text = on_a_shared_server(&text, &fresh_database(shared_primary(INSTALLED)));
    let (_dir, results) = compare(&text, "");
    assert_eq!(conditions(&stored(&results)), names(&["after", "before", "before (A/A)"]));
    let gate = pgio().arg("report").arg(&results).arg("--gate").output().unwrap();
    assert!(matches!(gate.status.code(), Some(0 | 8 | 9)), "{gate:?}");
}
