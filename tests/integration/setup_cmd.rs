//! `pgio setup` and `pgio destroy` on real servers, as typed.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::{INSTALLED, NEWEST};

/// What differs from run to run: pattern and replacement.
const CHANGING: &[(&str, &str)] = &[
    (r"(?m)^Date: \w{3} \w{3} [ 1-3]\d \d\d:\d\d:\d\d UTC \d{4}\$$", "Date: [date]$"),
    (r"\btest\d+ *\|", "[database] |"),
    (r"\btest\d+\b", "[database]"),
    // psql aligns numbers to the right, in columns as wide as their headings.
    (r"\|  *\d+", "| [n]"),
    (r">\d+<", ">[n]<"),
    (r"(Elapsed|loading time): \d+ seconds", "$1: [n] seconds"),
];

/// Line ends shown as `$`, since blanks before them count; changing parts as `[...]`.
macro_rules! assert_printed {
    ($text:expr, @$expected:literal) => {
        insta::assert_snapshot!(redacted(&$text.replace('\n', "$\n")), @$expected)
    };
}

fn redacted(text: &str) -> String {
    replace(text, CHANGING)
}

/// Each pattern in turn, everywhere.
pub(crate) fn replace(text: &str, changing: &[(&str, &str)]) -> String {
    changing.iter().fold(text.to_owned(), |text, (pattern, replacement)| {
        let pattern = regex_lite::Regex::new(pattern).unwrap();
        pattern.replace_all(&text, *replacement).into_owned()
    })
}

/// The published configuration, but for where the database is.
fn seeds_conf(database: &str) -> String {
    format!(
        "UPDATE_PCT=10\nRUN_TIME=120\nNUM_SCHEMAS=1\nNUM_THREADS=1\nWORK_UNIT=255\n\
         UPDATE_WORK_UNIT=8\nSCALE=200M\nDBNAME={database}\nCONNECT_STRING=\"{database}\"\n\
         CREATE_BASE_TABLE=TRUE\n"
    )
}

/// Returns name and size of each table as psql's `\d+` shows them.
fn listed(db: &TestDatabase) -> Option<Vec<(String, String)>> {
    let psql = Command::new("psql").args(["-X", "-A", "-t", "-c", r"\d+", &db.conninfo]).output();
    let Ok(psql) = psql else {
        pgio_tests::skipped("psql is not installed");
        return None;
    };
    let text = String::from_utf8(psql.stdout).unwrap();
    let cells = text.lines().map(|line| line.split('|').collect::<Vec<_>>());
    // Size precedes the description in every version of psql.
    Some(cells.map(|c| (c[1].to_owned(), c[c.len() - 2].to_owned())).collect())
}

const RUNNING_SYSSTAT: &str = "Running iostat, vmstat and mpstat on current host--in background.\n";

#[test]
fn the_seeds_configuration_loads_and_runs_unchanged() {
    let db = TestDatabase::new(INSTALLED);
    db.write("pgio.conf", &seeds_conf(&db.database));
    let setup = db.succeed(&["setup", "--classic-files", "files"]);
    assert_eq!(setup.err, "");
    assert_printed!(setup.out, @r"
    $
    Job info:      Loading 200M scale into 1 schemas as per pgio.conf->NUM_SCHEMAS.$
    Batching info: Loading 1 schemas per batch as per pgio.conf->NUM_THREADS.$
    Base table loading time: [n] seconds.$
    Waiting for batch. Global schema count: 1. Elapsed: [n] seconds.$
    Waiting for batch. Global schema count: 1. Elapsed: [n] seconds.$
    $
    Group data loading phase complete.         Elapsed: [n] seconds.$
    ");
    if let Some(listed) = listed(&db) {
        let sizes = [("pgio1", "200 MB"), ("pgio_base", "29 MB")];
        assert_eq!(listed, sizes.map(|(name, size)| (name.to_owned(), size.to_owned())));
    }
    assert!(db.read("files/pgio_objects_creation.out").contains("CREATE TABLE\nCOPY 25600\n"));
    assert!(db.read("files/pgio_data_load_table_sizes.out").contains("| 200 MB "));

    let run = db.succeed(&["run", "--run-time", "1", "--classic-files", "files"]);
    // Other tests use the server.
    let own = |line: &&str| !line.contains("another run of pgio uses the server");
    assert_eq!(run.err.lines().find(own), None);
    let (classic, rest) = run.out.split_once("\n\n").unwrap();
    // Where sysstat is installed.
    let classic = classic.replace(RUNNING_SYSSTAT, "");
    assert_printed!(classic, @r#"
    Date: [date]$
    Database connect string: "[database]". $
    Shared buffers: 128MB. $
    Testing 1 schemas with 1 thread(s) accessing 200M (25600 blocks) of each schema.$
    Launching sessions. 1 schema(s) will be accessed by 1 thread(s) each.$
    pg_stat_database stats:$
              datname| blks_hit| blks_read|tup_returned|tup_fetched|tup_updated$
    BEFORE:  [database] | [n] | [n] | [n] | [n] | [n]$
    AFTER:   [database] | [n] | [n] | [n] | [n] | [n]$
    DBNAME:  [database]. 1 schemas, 1 threads(each). Run time: 1 seconds. RIOPS >[n]< CACHE_HITS/s >[n]<
    "#);
    for label in ["block visits ", "updates ", "commits ", "WAL ", "checkpoints ", "mix "] {
        assert!(rest.contains(&format!("\n{label}")) || rest.starts_with(label), "{rest}");
    }
    for class in ["\nread ", "\nupdate ", "\ncommit "] {
        assert!(rest.contains(class), "{rest}");
    }

    let detail = db.read("files/pgio_session_detail.out");
    let row = detail.lines().rfind(|line| !line.is_empty()).unwrap();
    let cells: Vec<f64> = row.split('|').map(|cell| cell.trim().parse().unwrap()).collect();
    let [_, iterations, selects, updates, _, _, blocks_read, blocks_updated] = cells[..] else {
        panic!("{detail}")
    };
    assert_eq!(iterations, selects + updates);
    assert_eq!((blocks_read, blocks_updated), (255.0 * selects, 8.0 * updates));
    assert_eq!(db.read("files/pgio_objects_creation.out"), "DO\n");
    assert!(db.read("files/pgio_data_load_table_sizes.out").contains("\"pgio1\" "));
}

#[test]
fn a_load_of_several_tables_in_batches() {
    let db = TestDatabase::new(NEWEST);
    let load = ["setup", "--scale", "8M", "--num-schemas", "4", "--num-threads", "2"];
    let result = db.succeed(&[&load[..], &["--create-base-table", "FALSE"]].concat());
    assert_printed!(result.out, @r"
    $
    Job info:      Loading 8M scale into 4 schemas as per pgio.conf->NUM_SCHEMAS.$
    Batching info: Loading 2 schemas per batch as per pgio.conf->NUM_THREADS.$
    NOTICE: Skipping creation of base table as per pgio.conf->CREATE_BASE_TABLE. Loading needs none.$
    Waiting for batch. Global schema count: 2. Elapsed: [n] seconds.$
    Waiting for batch. Global schema count: 3. Elapsed: [n] seconds.$
    Waiting for batch. Global schema count: 4. Elapsed: [n] seconds.$
    Waiting for batch. Global schema count: 4. Elapsed: [n] seconds.$
    $
    Group data loading phase complete.         Elapsed: [n] seconds.$
    ");
    // Over tables with our mark it loads again without asking; what is too many goes.
    let result = db.succeed(&["setup", "--scale", "1024", "--num-schemas", "2"]);
    assert!(
        result.err.contains("dropped pgio3") && result.err.contains("dropped pgio4"),
        "{result:?}"
    );
    let result = db.succeed(&["destroy"]);
    assert_eq!(result.out, "Dropped pgio1, pgio2, pgio_base.\n");
    assert_eq!(db.relations(), "");
    assert_eq!(db.succeed(&["destroy"]).out, "No pgio tables found.\n");
}

#[test]
fn a_users_own_table_is_never_dropped() {
    let db = TestDatabase::new(INSTALLED);
    db.load(2, "8M");
    db.client().batch_execute("CREATE TABLE pgio3 AS SELECT 42 AS answer").unwrap();
    let before = db.relations();
    for tables in ["3", "4"] {
        let result = db.pgio(&["setup", "--scale", "8M", "--num-schemas", tables]);
        result.assert_refused(
            4,
            &["public.pgio3", "was not created by this pgio", "drop it if you do not need it"],
        );
        let result = db.pgio(&["run", "--num-schemas", tables, "--run-time", "1"]);
        result.assert_refused(4, &["pgio3", "was not created by this pgio"]);
    }
    assert_eq!(db.relations(), before);
    // It disturbs no other test here.
    db.load(2, "8M");
    let result = db.succeed(&["destroy"]);
    assert_eq!(result.out, "Dropped pgio1, pgio2.\nKept, not created by pgio: pgio3.\n");
    let answer: i32 = db.client().query_one("SELECT answer FROM pgio3", &[]).unwrap().get(0);
    assert_eq!(answer, 42);
}

/// Finished tables are kept, the unfinished one is absent, and nothing keeps running.
#[test]
fn ctrl_c_keeps_the_tables_that_are_complete() {
    let db = TestDatabase::new(NEWEST);
    let arguments = ["setup", "--scale", "8M", "--num-schemas", "500", "--create-base-table=FALSE"];
    let mut load = db.command(&arguments);
    let load = load.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let load = load.spawn().unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let count = || db.client().query_one(tables, &[]).unwrap().get::<_, i64>(0);
    wait_until("two tables are there", || count() >= 2);
    // Others leave a load that lives alone.
    db.pgio(&["destroy"]).assert_refused(4, &["another pgio is loading"]);
    db.pgio(&["run", "--num-schemas", "1"]).assert_refused(4, &["another pgio is loading"]);
    let before = count();
    wait_until("the load has gone on", || count() > before + 1);
    let asked = Instant::now();
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    let result = CommandResult::from_output(load.wait_with_output().unwrap());
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(result.code, Some(130), "{result:?}");
    wait_until("the last connection is gone", || db.sessions() == 0);
    let kept = count();
    assert!((2..500).contains(&kept), "{kept}");
    assert!(
        result.err.contains(&format!("stopped: {kept} of 500 tables are complete")),
        "{result:?}"
    );
    thread::sleep(Duration::from_millis(300));
    assert_eq!(count(), kept, "nothing goes on");
    // Kept tables are complete, so a run may use them.
    db.succeed(&["run", "--num-schemas", "2", "--run-time", "200ms"]);
}
