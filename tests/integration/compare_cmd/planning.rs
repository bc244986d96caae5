//! `--plan` refuses what `compare` would, with its sentence and exit code, and changes nothing.

use std::fs;

use crate::tls_server::{PASSWORD, shared};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, experiment, experiment_on};

/// The same refusal by both, the plan's before anything is there.
#[track_caller]
fn refused_alike(text: &str, code: i32, words: &[&str]) {
    let dir = Workdir::new();
    dir.write("e.toml", text);
    let left = || {
        let entries = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let plan = dir.pgio(&["compare", "e.toml", "--plan", "--out", "there"]).expect(code, words);
    assert_eq!(plan.out, "", "no plan of what would be refused");
    assert_eq!(left().len(), 3, "only the file and the test's two streams: {:?}", left());
    let run = dir.pgio(&["compare", "e.toml", "--out", "there"]).expect(code, words);
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    assert_eq!(last(&plan.err), last(&run.err));
    dir.pgio(&["compare", "e.toml", "--plan", "--offline"])
        .expect(0, &["Not checked because of --offline"]);
}

#[test]
fn a_plan_refuses_what_the_server_refuses() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let with = |treatment: &str| experiment(&dsn, "", "", &[("a", ""), ("b", treatment)]);
    refused_alike(&with("wal_writer_dely = \"1s\""), 4, &["wal_writer_dely"]);
    refused_alike(&with("wal_writer_delay = \"70000s\""), 4, &["wal_writer_delay"]);
    let nowhere = dsn.replace("dbname=", "dbname=no_");
    refused_alike(&experiment(&nowhere, "", "", &[("a", "")]), 3, &["no database `no_"]);
    let slob = |keys: &str| {
        format!(
            "[target]\ndsn = {dsn:?}\n[workload]\nkind = \"slob\"\n{keys}\n[[condition]]\nname = \"a\"\n"
        )
    };
    refused_alike(&slob(""), 4, &["setup"]);
    // Before the first workload has run.
    let dir = Workdir::new();
    let both = "[[workload]]\nkind = \"commit\"\n[[workload]]";
    dir.write("e.toml", &slob("").replace("[workload]", both));
    dir.pgio(&["compare", "e.toml", "--out", "there"]).expect(4, &["setup"]);
    assert!(!dir.path().join("there").exists());
    let beside = format!(
        "[targets.n1]\ndsn = {dsn:?}\n[targets.n2]\ndsn = {dsn:?}\n[workload]\nkind = \"commit\"\n\
         [[condition]]\nname = \"a\"\ntarget = \"n1\"\n\
         [[background]]\ntarget = \"n2\"\nconditions = [\"a\"]\nkind = \"slob\"\n"
    );
    refused_alike(&beside, 4, &["setup"]);
    let dir = Workdir::new();
    dir.pgio(&["setup", "--connect-string", &dsn, "--scale", "8M"]).expect(0, &[]);
    refused_alike(&slob("scale = \"16M\""), 4, &["SCALE requires 2048 blocks", "SCALE=8M"]);
    let device = slob("").replace("[workload]", "device = \"sdz9\"\n[workload]");
    refused_alike(&device, 4, &["device `sdz9` is not on this machine"]);
    // A valid experiment is planned without changing the server.
    let before = connect(&dsn).query_one("SELECT count(*) FROM pg_class", &[]).unwrap();
    dir.write("e.toml", &slob("scale = \"8M\""));
    let plan = dir.pgio(&["compare", "e.toml", "--plan"]).expect(0, &["each trial "]);
    assert!(!plan.out.contains("Not checked"), "{plan}");
    let after = connect(&dsn).query_one("SELECT count(*) FROM pg_class", &[]).unwrap();
    assert_eq!(before.get::<_, i64>(0), after.get::<_, i64>(0));
    assert!(!dir.path().join("state").exists() && !dir.path().join("pgio-results").exists());
}

#[test]
fn a_wrong_password_is_refused() {
    let Some(server) = shared() else { return };
    let dsn =
        format!("host=127.0.0.1 port={} user=keen dbname=postgres password=wrong-one", server.port);
    let text = experiment(&dsn, "", "", &[("a", "")]);
    refused_alike(&text, 3, &["keen", "PGPASSWORD", "~/.pgpass"]);
    assert_ne!(PASSWORD, "wrong-one");
}

#[test]
fn missing_programs_and_scripts_are_refused() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let metric = "metric = [{ name = \"m\", unit = \"s\", better = \"lower\", regex = \"x\" }]";
    let command_on = |target: &str, keys: &str| {
        format!(
            "[target]\n{target}\n[workload]\nkind = \"command\"\n{keys}\n[[condition]]\nname = \"a\"\n"
        )
    };
    let script = "preset = \"pgbench-script\"\nparameters = { script = \"/no/such.sql\" }";
    let program = format!("run = [\"pgio-no-such-program\"]\n{metric}");
    let dsn = format!("dsn = {dsn:?}");
    for (keys, word) in [(script, "/no/such.sql"), (&program, "`pgio-no-such-program`")] {
        refused_alike(&command_on(&dsn, keys), 4, &[word, "on this machine"]);
        // Nothing of a private server is needed to see it.
        let dir = Workdir::new();
        let private = format!("private = true\npg = {INSTALLED}");
        dir.write("p.toml", &command_on(&private, keys));
        dir.pgio(&["compare", "p.toml", "--plan"]).expect(4, &[word]);
        dir.pgio(&["doctor", "p.toml"]).expect(4, &["command-programs", word]);
    }
}

#[test]
fn a_plan_notes_that_the_private_server_was_not_started() {
    let dir = Workdir::new();
    let private = format!("private = true\npg = {INSTALLED}");
    dir.write("p.toml", &experiment_on(&private, "", "", &[("a", "wal_writer_dely = \"1s\"")]));
    let result = format!("is PostgreSQL {INSTALLED}");
    dir.pgio(&["compare", "p.toml", "--plan"]).expect(0, &[&result, "not started for the plan"]);
    dir.write("q.toml", &experiment_on("private = true\npg = 9", "", "", &[("a", "")]));
    let plan = dir.pgio(&["compare", "q.toml", "--plan"]);
    let run = dir.pgio(&["compare", "q.toml"]);
    assert_eq!(plan.code, run.code, "{plan}\n{run}");
    assert_ne!(plan.code, Some(0));
}

#[test]
fn offline_requires_a_plan() {
    let dir = Workdir::new();
    dir.write("e.toml", &experiment("dbname=x", "", "", &[("a", "")]));
    dir.pgio(&["compare", "e.toml", "--offline"]).expect(2, &["--plan"]);
}

#[test]
fn a_plan_shows_durations_limits_and_changes() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys =
        "blocks = 6\nduration = \"10s\"\nprecision = \"5%\"\nmax_blocks = 12\nreset = \"reload\"";
    let body = "wal_writer_delay = \"1s\", synchronous_commit = \"off\"";
    dir.write("e.toml", &experiment(&dsn, keys, "", &[("a", ""), ("b", body)]));
    let result = dir.pgio(&["compare", "e.toml", "--plan", "--out", "there"]).expect(
        0,
        &[
            "6 blocks of 3 trials in random order, each trial 10.0 s",
            "18 trials, 3.0 min",
            "at most 36 trials, 6.0 min of warm-up and windows, about 6.6 min in all (blocks are added up to 12, until every interval is within ±5 %)",
            "at most 108 trials",
            "b changes wal_writer_delay = 1s by ALTER SYSTEM and a reload; now ",
            "b changes synchronous_commit = off in the workload's sessions; now on",
            "dropped and created again, then CHECKPOINT",
            "Results go to there ",
            "journal",
        ],
    );
    assert_eq!(result.err, "");
    assert!(!dir.path().join("there").exists());
    assert!(!dir.path().join("state").exists());

    let private = format!("private = true\npg = {INSTALLED}");
    dir.write("p.toml", &experiment_on(&private, "reset = \"recreate\"", "", &[("a", body)]));
    dir.pgio(&["compare", "p.toml", "--plan"])
        .expect(0, &["private PostgreSQL", "DROP DATABASE and CREATE DATABASE", "a changes "]);
}

#[test]
fn a_plan_counts_restarts_loads_and_what_else_lies_between_the_windows() {
    let dir = Workdir::new();
    let private = format!("private = true\npg = {INSTALLED}");
    let keys = "blocks = 4\nduration = \"10s\"\naa = false\nreset = \"reload\"\nburn_in = false";
    let text = experiment_on(&private, keys, "", &[("a", ""), ("b", "shared_buffers = \"64MB\"")]);
    let text = text.replace("kind = \"commit\"", "kind = \"slob\"\nscale = \"400M\"");
    dir.write("e.toml", &text);
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(
        0,
        &[
            // 8 × 1 s, 8 restarts of 3 s, a cluster, and 9 loads of 2 s.
            "8 trials, 80.0 s of warm-up and windows, about 2.3 min in all",
            "outside the windows: 8 × checkpoint, connecting and evidence (1 s each), 8 × restart (3 s each), 1 × private cluster (6 s each), 3.52 GiB loaded or copied at 200 MiB/s",
        ],
    );
}
