//! `pgio history` and `pgio store`: from directories and from a real database, with the rights of an
//! ordinary role, and what they refuse.

use std::fs;
use std::path::Path;

use benchmath::rng::SplitMix64;
use pgio_results::store::StoredExperiment;
use pgio_verdict::test_support::{stored_runs, unit_noise, write_runs};
use serde_json::Value;

use crate::schema;
use crate::tls_server;
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::Workdir;

/// A step of 5 % at run 20 of 30; the runs' spread is 1.5 %.
fn runs(n: u32) -> Vec<StoredExperiment> {
    let mut rng = SplitMix64::new(7);
    stored_runs(n, |run| {
        let level = if run < 20 { 1.0 } else { 0.95 };
        level * (0.015 * unit_noise(&mut rng)).exp()
    })
}

fn json(dir: &Workdir, args: &[&str]) -> Value {
    let result = dir.pgio(&[&["history"], args, &["--format", "json"]].concat()).expect(0, &[]);
    serde_json::from_str(&result.out).unwrap()
}

fn with(dsn: &str, more: &str) -> String {
    format!("{dsn} {more}")
}

#[test]
fn a_planted_step_is_found_from_directories_and_from_the_database_alike() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    write_runs(&dir.path().join("all"), &runs(30)).unwrap();
    let history = json(&dir, &["all"]);
    schema::assert_valid("pgio.history/1", &history);
    let change = &history["conditions"][0]["changes"][0];
    assert!((19..=21).contains(&change["run"].as_u64().unwrap()), "{change}");
    assert_eq!(change["verdict"], "slower");

    let stored = dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["30 new experiments"]);
    assert!(!stored.out.contains("unchanged"), "{stored}");
    assert_eq!(json(&dir, &["--store", &dsn]), history);

    // The views that dashboards read agree with each other and with the report.
    let mut client = connect(&dsn);
    let mut count = |sql: &str| -> i64 { client.query_one(sql, &[]).unwrap().get(0) };
    assert_eq!(count("SELECT count(*) FROM pgio_results.runs"), 30);
    assert_eq!(count("SELECT count(*) FROM pgio_results.run_values WHERE is_primary"), 90);
    assert_eq!(
        count("SELECT count(*) FROM pgio_results.trial_values WHERE standing = 'counts'"),
        360
    );
    assert_eq!(
        count("SELECT count(*) FROM pgio_results.effects WHERE verdict = 'too_few_blocks'"),
        60
    );

    // Again: nothing. Continued meanwhile: replaced.
    dir.pgio(&["store", "all", "--to", &dsn])
        .expect(0, &["stored 0 new experiments, 30 unchanged; 0 trials"]);
    let trials = dir.path().join("all/run-0007/trials.jsonl");
    let text = fs::read_to_string(&trials).unwrap();
    fs::write(
        &trials,
        text.clone() + &text.lines().last().unwrap().replace("\"block\":4", "\"block\":5") + "\n",
    )
    .unwrap();
    dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["1 replaced, 29 unchanged; 13 trials"]);
    assert_eq!(
        count("SELECT trials FROM pgio_results.runs WHERE run_id = '20261007T020000Z-1'"),
        13
    );

    // Another experiment of the same id.
    let manifest = dir.path().join("all/run-0007/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let other = text.replacen("\"seed\": ", "\"seed\": 9", 1);
    assert_ne!(text, other);
    fs::write(&manifest, other).unwrap();
    dir.pgio(&["store", "all/run-0007", "--to", &dsn])
        .expect(4, &["run 20261007T020000Z-1 of", "is another experiment"]);
    fs::write(&manifest, text).unwrap();
    dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["30 unchanged"]);

    for (format, text) in [("csv", ",slower,"), ("markdown", "| run |"), ("html", "<figure")] {
        dir.pgio(&["history", "--store", &dsn, "--format", format]).expect(0, &[text]);
    }
}

/// A run was copied, and continued afterwards.
#[test]
fn a_copy_with_fewer_trials_replaces_nothing() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let whole = runs(3);
    let mut copy = whole[1].clone();
    copy.trials.truncate(6);
    write_runs(&dir.path().join("all/night"), &whole).unwrap();
    write_runs(&dir.path().join("all/night.bak"), &[copy]).unwrap();
    let kept = "all/night.bak/run-0001: kept: the stored one has more trials";
    dir.pgio(&["store", "all", "--to", &dsn])
        .expect(0, &["stored 3 new experiments, 1 kept; 36 trials", kept]);
    dir.pgio(&["store", "all", "--to", &dsn])
        .expect(0, &["stored 0 new experiments, 3 unchanged, 1 kept; 0 trials", kept]);
    let history = json(&dir, &["all/night"]);
    assert_eq!(json(&dir, &["all"]), history);
    assert_eq!(json(&dir, &["--store", &dsn]), history);

    // The copy first: the whole run replaces it.
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.pgio(&["store", "all/night.bak", "--to", &dsn])
        .expect(0, &["stored 1 new experiment; 6 trials"]);
    dir.pgio(&["store", "all/night", "--to", &dsn])
        .expect(0, &["stored 2 new experiments, 1 replaced; 36 trials"]);
    assert_eq!(json(&dir, &["--store", &dsn]), history);
}

/// The conditions of these runs are 36 MB, more than one answer over TCP may have.
#[test]
fn a_long_history_is_read_over_tcp() {
    let Some(server) = tls_server::shared() else { return };
    let dir = Workdir::new();
    let at = |database: &str| {
        let port = server.port;
        format!("host=127.0.0.1 port={port} user=postgres sslmode=disable dbname={database}")
    };
    connect(&at("postgres")).batch_execute("CREATE DATABASE long_history").unwrap();
    let dsn = at("long_history");
    write_runs(&dir.path().join("all"), &runs(24)).unwrap();
    dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["24 new experiments"]);
    let longer = "UPDATE pgio_results.conditions SET treatments = repeat('x', 500000)";
    assert_eq!(connect(&dsn).execute(longer, &[]).unwrap(), 72);
    assert_eq!(json(&dir, &["--store", &dsn]), json(&dir, &["all"]));
}

/// A writer and a reader with nothing but the documented rights.
#[test]
fn a_missing_right_is_named_and_the_documented_ones_suffice() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let all = write_runs(&dir.path().join("all"), &runs(3)).unwrap();
    let one = all[0].to_str().unwrap();
    let mut owner = connect(&dsn);
    let suffix: String = owner.query_one("SELECT current_database()::text", &[]).unwrap().get(0);
    let (writer, reader) = (format!("writer_{suffix}"), format!("reader_{suffix}"));
    owner
        .batch_execute(&format!("CREATE ROLE {writer} LOGIN; CREATE ROLE {reader} LOGIN"))
        .unwrap();
    let (by_writer, by_reader) =
        (with(&dsn, &format!("user={writer}")), with(&dsn, &format!("user={reader}")));
    let relations = |owner: &mut pgio_connect::Client| -> i64 {
        let sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                   WHERE nspname = 'pgio_results'";
        owner.query_one(sql, &[]).unwrap().get(0)
    };

    let store = |by: &str, code: i32, texts: &[&str]| {
        dir.pgio(&["store", one, "--to", by]).expect(code, texts)
    };
    store(&by_writer, 4, &["lacks CREATE on database", "GRANT CREATE ON DATABASE"]);
    dir.pgio(&["history", "--store", &by_reader]).expect(4, &["holds no results of pgio"]);
    assert_eq!(relations(&mut owner), 0);
    dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["3 new"]);

    store(&by_writer, 4, &["lacks USAGE on schema pgio_results", "GRANT USAGE ON SCHEMA"]);
    let grant = |owner: &mut pgio_connect::Client, sql: &str| {
        let sql = sql.replace("WRITER", &writer).replace("READER", &reader);
        owner.batch_execute(&sql).unwrap();
    };
    grant(
        &mut owner,
        "GRANT USAGE ON SCHEMA pgio_results TO WRITER, READER; GRANT SELECT ON pgio_results.schema_version TO WRITER, READER",
    );
    store(&by_writer, 4, &["lacks SELECT on pgio_results.experiments"]);
    dir.pgio(&["history", "--store", &by_reader]).expect(4, &["lacks SELECT on pgio_results.runs"]);
    grant(&mut owner, "GRANT SELECT, INSERT, DELETE ON pgio_results.experiments TO WRITER");
    store(&by_writer, 4, &["lacks INSERT on pgio_results.conditions"]);
    grant(
        &mut owner,
        "GRANT INSERT ON pgio_results.conditions, pgio_results.condition_metrics, pgio_results.trials, \
         pgio_results.trial_metrics, pgio_results.comparisons TO WRITER; \
         GRANT SELECT ON pgio_results.trials TO WRITER; \
         GRANT SELECT ON pgio_results.runs, pgio_results.run_conditions, pgio_results.run_values, \
         pgio_results.trial_values TO READER",
    );
    let text = fs::read_to_string(all[0].join("trials.jsonl")).unwrap();
    let added = text.lines().last().unwrap().replace("\"block\":4", "\"block\":5");
    fs::write(all[0].join("trials.jsonl"), format!("{text}{added}\n")).unwrap();
    store(&by_writer, 0, &["1 replaced"]);
    dir.pgio(&["history", "--store", &by_reader]).expect(0, &["3 runs cannot show a change"]);
    store(&by_reader, 4, &["lacks SELECT on pgio_results.experiments"]);

    // A schema of a later version, one of an earlier, and one of somebody else.
    grant(&mut owner, "INSERT INTO pgio_results.schema_version VALUES (99, '9.0')");
    for args in [["store", one, "--to", dsn.as_str()].as_slice(), &["history", "--store", &dsn]] {
        dir.pgio(args)
            .expect(4, &["have schema version 99", "use the version of pgio that created them"]);
    }
    grant(
        &mut owner,
        "DELETE FROM pgio_results.schema_version WHERE version > 1; DROP VIEW pgio_results.effects, pgio_results.trial_values, pgio_results.run_values, pgio_results.run_conditions, pgio_results.runs",
    );
    store(&by_writer, 4, &["have schema version 1 and need 2", "run `pgio store` once as"]);
    dir.pgio(&["store", "all", "--to", &dsn]).expect(0, &["3 unchanged"]);
    dir.pgio(&["history", "--store", &dsn]).expect(0, &[]);
    grant(&mut owner, "DROP TABLE pgio_results.schema_version");
    store(&dsn, 4, &["was not created by pgio"]);
    owner
        .batch_execute(&format!("DROP OWNED BY {writer}, {reader}; DROP ROLE {writer}, {reader}"))
        .unwrap();
}

#[test]
fn history_refuses_runs_that_do_not_belong_together() {
    let dir = Workdir::new();
    let mut mixed = runs(4);
    mixed[3].trials.iter_mut().for_each(|trial| trial.workload.kind = "commit".to_owned());
    write_runs(&dir.path().join("mixed"), &mixed).unwrap();
    let mut named = runs(2);
    named[1].manifest.name = "other".to_owned();
    write_runs(&dir.path().join("named"), &named).unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let refused = |args: &[&str], code: i32, texts: &[&str]| {
        let result = dir.pgio(args).expect(code, texts);
        assert_eq!((result.out.as_str(), result.err.lines().count()), ("", 1), "{result}");
    };
    refused(
        &["history", "mixed"],
        2,
        &["of different workloads: workload is slob in run", "commit in run"],
    );
    refused(
        &["history", "named"],
        2,
        &["different experiments: other (1 run), sync-commit (1 run)"],
    );
    refused(&["history", "named", "--experiment", "x"], 2, &["no run of experiment `x`"]);
    refused(
        &["history", "named", "--experiment", "other", "--metric", "tps"],
        2,
        &["no run has the metric"],
    );
    refused(&["history", "empty"], 7, &["empty contains no pgio results"]);
    refused(&["history", "missing"], 7, &["missing contains no pgio results"]);
    refused(&["store", "empty", "--to", "host=/nowhere"], 7, &["empty contains no pgio results"]);
    refused(&["history", "--store", "host=/nowhere password=hush"], 3, &["/nowhere"]);
    refused(&["history", "--store", "hots=x password=hush"], 2, &["hots"]);
    let help = dir.pgio(&["history"]).expect(2, &["<DIR>"]);
    assert!(!help.err.contains("hush"));
    dir.pgio(&["history", "named", "--experiment", "other"])
        .expect(0, &["1 run cannot show a change"]);
}

/// In a real browser, if there is one: the charts fit and nothing is fetched.
#[test]
fn the_page_has_its_charts() {
    let dir = Workdir::new();
    write_runs(&dir.path().join("all"), &runs(30)).unwrap();
    dir.pgio(&["history", "all", "--format", "html", "--out", "history.html"]).expect(0, &[]);
    let page = fs::read_to_string(dir.path().join("history.html")).unwrap();
    assert_eq!(page.matches("<figure").count(), 3);
    assert!(
        page.contains("Content-Security-Policy") && !page.contains("src=\"http"),
        "nothing is fetched"
    );
    if let Some(to) = std::env::var_os("PGIO_PAGE_PICTURES") {
        fs::copy(dir.path().join("history.html"), Path::new(&to).join("history.html")).unwrap();
    }
}
