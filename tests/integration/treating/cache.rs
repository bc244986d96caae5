//! The treatment `cache`: a data set that is cold or warm when a trial begins.

use serde_json::Value;

use super::{check, in_namespace_or_rerun, refused};
use crate::disk::is_root;
use pgio_tests::fixture::{INSTALLED, connect, own_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment_on, tolerate, wait_until};

/// Returns the value of this evidence before the window.
fn before<'a>(trial: &'a Value, what: &str) -> &'a str {
    let mut evidence = trial["evidence"].as_array().unwrap().iter();
    let found = evidence.find(|e| e["what"] == what && e["when"] == "before");
    found.unwrap_or_else(|| panic!("no {what}: {trial}"))["found"].as_str().unwrap()
}

#[test]
fn a_cache_is_cold_or_warm_as_asked() {
    if !in_namespace_or_rerun("cache::a_cache_is_cold_or_warm_as_asked", false) {
        return;
    }
    let dir = Workdir::new();
    let result = dir.compare(&format!(
        "[experiment]\nblocks = 2\nwarmup = \"500ms\"\nduration = \"500ms\"\naa = false\nrepeats = 0\n\
         seed = 5\nburn_in = false\n{}\n\
         [target]\nprivate = true\npg = {INSTALLED}\n\
         [workload]\nkind = \"slob\"\nscale = \"32M\"\nupdate_pct = 0\n\
         [[condition]]\nname = \"cold\"\ncache = \"cold\"\n\
         [[condition]]\nname = \"warm\"\ncache = \"warm\"\n",
        tolerate(&[])
    ));
    result.expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 4);
    for trial in &trials {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
        assert_eq!(check(trial, "treatment-in-force")["verdict"], "ok", "{trial}");
        let memory = before(trial, "data set in memory");
        match condition_of(trial) {
            "cold" => {
                assert!(memory.starts_with("0 % in shared_buffers"), "{memory}");
                before(trial, "start of PostgreSQL");
                // The warm-up reads a part; the evidence shows it.
                let after = before(trial, "data set in memory after the warm-up");
                assert_ne!(after.split(' ').next(), Some("0"), "{after}");
            }
            _ => assert!(memory.starts_with("100 % in shared_buffers"), "{memory}"),
        }
    }
}

#[test]
fn an_impossible_cache_is_refused_and_changes_nothing() {
    if !in_namespace_or_rerun("cache::an_impossible_cache_is_refused_and_changes_nothing", false) {
        return;
    }
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let text = |workload: &str, cache: &str| {
        format!(
            "[experiment]\nblocks = 1\nwarmup = \"0s\"\nduration = \"300ms\"\naa = false\nburn_in = false\n{}\n\
             [target]\ndsn = {dsn:?}\n[workload]\n{workload}\n\
             [[condition]]\nname = \"a\"\ncache = {cache:?}\n",
            tolerate(&[])
        )
    };
    let dir = Workdir::new();
    let result = dir.compare(&text("kind = \"commit\"", "cold"));
    refused(&result, "a cold cache requires stopping and starting PostgreSQL");
    refused(&dir.compare(&text("kind = \"commit\"", "warm")), "has no pgio data set to warm");

    dir.pgio(&["setup", "--scale", "8M", "--create-base-table", "FALSE", "--connect-string", &dsn])
        .expect(0, &[]);
    let slob = "kind = \"slob\"\nscale = \"8M\"\nupdate_pct = 0";
    for way in ["cgroup", "huge_pages"] {
        let ballast = format!("ballast = {{ leave = \"1G\", way = \"{way}\" }}\n");
        let text =
            text(slob, "warm").replace("[target]", "[hosts.here]\n[target]\nhost = \"here\"");
        refused(&dir.compare(&(text + &ballast)), "cache = \"warm\" fills memory before a ballast");
    }
    dir.compare(&text(slob, "warm")).expect(0, &[]);
    let memory = before(&dir.trials()[0], "data set in memory").to_owned();
    assert!(memory.starts_with("100 %"), "{memory}");
    let sql = "SELECT (SELECT count(*) FROM pg_extension) + \
               (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgio%')";
    let left: i64 = connect(&dsn).query_one(sql, &[]).unwrap().get(0);
    assert_eq!(left, 1, "plpgsql alone");
    wait_until("all sessions are gone", || pgio_tests::workdir::pgio_sessions(&dsn) == 0);
}

#[test]
fn a_ballast_is_refused_where_a_setting_changes_what_it_leaves() {
    if !is_root("ballast") {
        return;
    }
    let target = format!("private = true\npg = {INSTALLED}");
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    let no_part = "huge pages are no part of the memory that a ballast";
    let too_little = "is too little: shared_buffers and processes need at least";
    // The host may have huge pages, which `try` would take.
    let large = "huge_pages = \"off\", shared_buffers = \"1GB\"";
    for (way, settings, why) in [
        ("cgroup", "huge_pages = \"on\"", no_part),
        ("cgroup", large, too_little),
        ("huge_pages", large, too_little),
    ] {
        let dir = Workdir::new();
        let text = experiment_on(&target, keys, "", &[("small", settings)]);
        let text = text + &format!("ballast = {{ leave = \"150M\", way = \"{way}\" }}\n");
        dir.compare(&text).expect(4, &["condition `small`", why]);
        assert!(!dir.out().exists());
    }
}
