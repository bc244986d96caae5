//! Bad input to setup, run and destroy: one clear sentence, a documented exit code, nothing changed.
//!
//! A user's own table in the way is in `setup_cmd`, a server that goes away in `run_cmd`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use crate::loading::room::TinyFileSystem;
use crate::tls_server::{PASSWORD, shared};
use pgio_tests::command::{CommandResult, TestDatabase};
use pgio_tests::fixture::{INSTALLED, NEWEST, connect, shared_pair};

// As crates/pgio/src/cli/exit.rs documents them.
const USAGE: i32 = 2;
const CONNECT: i32 = 3;
const REFUSED: i32 = 4;
const FILES: i32 = 7;

/// A data set of one table of 8M that all of these leave alone.
fn loaded() -> &'static TestDatabase {
    static LOADED: LazyLock<TestDatabase> = LazyLock::new(|| {
        let db = TestDatabase::new(INSTALLED);
        db.load(1, "8M");
        db
    });
    &LOADED
}

/// Returns the output of a command that must not have changed anything.
#[track_caller]
fn unchanged(db: &TestDatabase, arguments: &[&str]) -> CommandResult {
    let before = db.relations();
    let quick: &[&str] = if arguments[0] == "run" { &["--telemetry", "0"] } else { &[] };
    let result = db.pgio(&[arguments, quick].concat());
    assert_eq!(db.relations(), before, "{result:?}");
    result
}

/// One of each kind: every value is tried beside the parsers, in `cli::flags` and `config::pgio_conf`.
#[test]
fn invalid_flags_and_lines_are_refused_and_named() {
    let db = loaded();
    // The line's number counts comments and blank lines.
    db.write("key.conf", "# ours\n\nNUM_SCHEMAS=1\nUPDATE_PTC=10\n");
    for (command, flag, value, result) in [
        ("setup", "--scale", "-8M", "`-8M` is not a size"),
        ("run", "--update-pct", "101", "from 0 to 100, not `101`"),
        ("destroy", "--scale", "12X", "has no effect on this command: it is for `pgio "),
    ] {
        let refused = unchanged(loaded(), &[command, flag, value]);
        refused.assert_refused(USAGE, &[flag, result]);
        assert_eq!(refused.out, "");
        unchanged(loaded(), &[command, "--connect-strin", "10"]).assert_refused(
            USAGE,
            &["'--connect-strin'", "similar argument exists: '--connect-string'"],
        );
        unchanged(loaded(), &[command, "--config", "none.conf"])
            .assert_refused(FILES, &["none.conf"]);
        let wrong = unchanged(db, &[command, "--config", "key.conf"]);
        let nearest = "the nearest valid one is `UPDATE_PCT`";
        wrong.assert_refused(USAGE, &["key.conf:4: UPDATE_PTC", nearest]);
        assert_eq!(wrong.out, "");
    }
}

#[test]
fn run_refuses_more_data_or_sessions_than_there_are() {
    let run = |arguments: &[&str]| unchanged(loaded(), &[&["run"], arguments].concat());
    run(&["--scale", "16M"]).assert_refused(REFUSED, &["2048 blocks", "SCALE=8M", "pgio setup"]);
    run(&["--num-schemas", "2"]).assert_refused(REFUSED, &["pgio2 is missing", "pgio setup"]);
    run(&["--work-unit", "1025"]).assert_refused(USAGE, &["WORK_UNIT (1025 blocks)", "SCALE (8M"]);
    let update = run(&["--work-unit", "1", "--update-work-unit", "1025"]);
    update.assert_refused(USAGE, &["UPDATE_WORK_UNIT (1025 blocks)", "SCALE (8M"]);
    run(&["--batch", "50", "--work-unit", "8"]).assert_refused(USAGE, &["BATCH", "WORK_UNIT"]);
    let result = run(&["--num-threads", "500", "--json", "many.json"]);
    result.assert_refused(REFUSED, &["500 sessions", "max_connections", "NUM_THREADS"]);
    assert_eq!(loaded().record("many.json")["outcome"]["state"], "failed");
}

#[test]
fn run_refuses_more_sessions_than_role_or_database_may_have() {
    for major in [INSTALLED, NEWEST] {
        let db = TestDatabase::new(major);
        db.load(1, "8M");
        let few = db.new_role("few", "CONNECTION LIMIT 5");
        let (role, database) = (&few.user, &db.database);
        db.client().batch_execute(&format!("GRANT SELECT ON pgio1 TO {role}")).unwrap();
        let run = ["run", "--telemetry", "0", "--run-time", "200ms", "--num-threads"];
        let refused = |limit: &str| {
            few.pgio(&[&run[..], &["5"]].concat()).assert_refused(
                REFUSED,
                &["5 sessions are needed", " of 5 connections free", "CONNECTION LIMIT", limit],
            );
        };
        // The admin session is one of the five.
        refused(&format!("role {role} (ALTER ROLE)"));
        few.succeed(&[&run[..], &["3"]].concat());

        let moved = format!(
            "ALTER ROLE {role} CONNECTION LIMIT -1; ALTER DATABASE {database} CONNECTION LIMIT 5"
        );
        db.client().batch_execute(&moved).unwrap();
        refused(&format!("database {database} (ALTER DATABASE)"));
        // Superusers are exempt.
        db.succeed(&[&run[..], &["8"]].concat());
    }
}

#[test]
fn run_refuses_altered_tables_and_names_the_fault() {
    let db = TestDatabase::new(INSTALLED);
    let run = || unchanged(&db, &["run", "--num-schemas", "2", "--run-time", "1"]);
    run().assert_refused(REFUSED, &["no data set", "pgio setup"]);
    db.load(2, "8M");
    let mut client = db.client();
    let mut change = |sql: &str| client.batch_execute(sql).unwrap();

    change("DELETE FROM pgio2 WHERE mykey > 500; ANALYZE pgio2");
    run().assert_refused(REFUSED, &["pgio2 should have 1024 rows", "pgio setup"]);
    db.load(2, "8M");
    change("DROP INDEX pgio2_idx");
    run().assert_refused(REFUSED, &["pgio2 has no valid b-tree index on mykey", "pgio setup"]);
    db.load(2, "8M");
    change("COMMENT ON TABLE pgio2 IS NULL");
    run().assert_refused(REFUSED, &["public.pgio2 exists but was not created by this pgio"]);
    unchanged(&db, &["setup", "--num-schemas", "2", "--scale", "8M"])
        .assert_refused(REFUSED, &["public.pgio2 exists but was not created by this pgio"]);
    change("DROP TABLE pgio2");
    run().assert_refused(REFUSED, &["pgio2 is missing", "set NUM_SCHEMAS=1"]);
    change("COMMENT ON TABLE pgio1 IS NULL");
    run().assert_refused(REFUSED, &["public.pgio1 exists but was not created by this pgio"]);
    change("DROP TABLE pgio1");

    // From two loads.
    let other = TestDatabase::new(INSTALLED);
    other.load(2, "16M");
    let comment = "SELECT obj_description('pgio2'::regclass)";
    let mark: String = other.client().query_one(comment, &[]).unwrap().get(0);
    db.load(2, "8M");
    change(&format!("COMMENT ON TABLE pgio2 IS '{mark}'"));
    run().assert_refused(REFUSED, &["pgio2 belongs to another load than pgio1", "pgio setup"]);
}

#[test]
fn a_missing_server_or_database_is_refused_and_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let db = loaded();
    let databases = "SELECT count(*) FROM pg_database WHERE datname = 'never_made'";
    for command in ["setup", "run", "destroy"] {
        let to = |text: &str| unchanged(db, &[command, "--connect-string", text]);
        to(&format!("host=127.0.0.1 port={free} dbname=pgio"))
            .assert_refused(CONNECT, &[&format!("cannot reach PostgreSQL at 127.0.0.1:{free}")]);
        to("host=/nowhere").assert_refused(CONNECT, &["/nowhere", "unix_socket_directories"]);
        to("never_made")
            .assert_refused(CONNECT, &["no database `never_made`", "createdb never_made"]);
        to("hots=here").assert_refused(USAGE, &["invalid connection string"]);
        let made: i64 = db.client().query_one(databases, &[]).unwrap().get(0);
        assert_eq!(made, 0);
        unchanged(db, &[command, "--dbname", "other", "--connect-string", &db.database])
            .assert_refused(REFUSED, &["DBNAME is `other`", &db.database]);
    }
}

#[test]
fn passwords_are_never_shown() {
    let Some(server) = shared() else { return };
    let port = server.port;
    let admin = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let database = format!("kept_{}", std::process::id());
    let sql = format!("CREATE DATABASE {database} OWNER keen");
    connect(&admin).batch_execute(&sql).unwrap();
    let db =
        TestDatabase::at(&format!("host=127.0.0.1 port={port} user=postgres dbname={database}"));
    let uri = |password: &str| format!("postgres://keen:{password}@127.0.0.1:{port}/{database}");

    let quoted =
        format!("host=127.0.0.1 port={port} user=keen dbname={database} password=wrong-one");
    db.write("pgio.conf", &format!("CONNECT_STRING=\"{quoted}\"\n"));
    for command in ["setup", "run", "destroy"] {
        let by_uri = [command, "--connect-string", &uri("wrong-one")];
        for result in [unchanged(&db, &[command]), unchanged(&db, &by_uri)] {
            result.assert_refused(CONNECT, &["password authentication failed", "keen"]);
            assert!(!format!("{result:?}").contains("wrong-one"), "{result:?}");
        }
    }

    // Right ones are not shown either, as given or as meant.
    let encoded = "s3cr%3Aet%5Cword";
    db.write("pgio.conf", &format!("CONNECT_STRING=\"{}\"\nSCALE=8M\n", uri(encoded)));
    let setup = db.succeed(&["setup", "--no-space-check"]);
    let run =
        db.succeed(&["run", "--telemetry", "0", "--run-time", "200ms", "--json", "trial.json"]);
    assert!(run.out.contains("Database connect string: "), "{run:?}");
    let destroy = db.succeed(&["destroy"]);
    let shown = format!("{setup:?} {run:?} {destroy:?} {}", db.read("trial.json"));
    for secret in [PASSWORD, encoded, "s3cr"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn setup_reports_a_disk_that_fills_up_while_loading() {
    let Some(mount) = TinyFileSystem::mount() else { return };
    let db = TestDatabase::new(INSTALLED);
    // One that may not read where the directory is, so that nothing is refused beforehand.
    let role = db.new_role("blind", "");
    let space = format!("{}_tiny", db.database);
    let mut client = db.client();
    for statement in [
        format!("CREATE TABLESPACE {space} LOCATION '{}'", mount.path()),
        format!("GRANT CREATE ON TABLESPACE {space} TO {}", role.user),
        format!("GRANT CREATE ON SCHEMA public TO {}", role.user),
    ] {
        client.batch_execute(&statement).unwrap();
    }
    let load = [
        "setup",
        "--no-space-check",
        "--create-base-table=FALSE",
        "--tablespace",
        &space,
        "--scale",
    ];
    role.succeed(&[&load[..], &["8M"]].concat());
    unchanged(&role, &[&load[..], &["64M"]].concat())
        .assert_refused(REFUSED, &["ran out of disk space at pgio1", "use a smaller SCALE"]);
    role.succeed(&["run", "--telemetry", "0", "--run-time", "200ms"]);
    role.succeed(&["destroy"]);
    // Two of the tables have room, and are removed with the others.
    let four = [&load[..], &["8M", "--num-schemas", "4"]].concat();
    role.pgio(&four).assert_refused(REFUSED, &["ran out of disk space at pgio3"]);
    let left = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'pgio%'";
    assert_eq!(client.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    // On the shared server nothing may point to what is unmounted now.
    client.batch_execute("CHECKPOINT").unwrap();
    client.batch_execute(&format!("DROP TABLESPACE {space}")).unwrap();
}

#[test]
fn run_refuses_unwritable_result_paths_and_writes_to_pipes() {
    // Not even root can create a directory below a file.
    let db = loaded();
    db.write("file", "");
    for flag in ["--json", "--classic-files"] {
        let result = unchanged(db, &["run", "--run-time", "600", flag, "file/of/results"]);
        result.assert_refused(FILES, &["cannot create file/of"]);
        assert_eq!(result.out, "", "nothing is measured");
    }

    // A special file is written to, not replaced.
    let pipe = db.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reading = pipe.clone();
    let reader = thread::spawn(move || fs::read_to_string(reading).unwrap());
    db.succeed(&["run", "--telemetry", "0", "--run-time", "200ms", "--json", "pipe"]);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().contains("pgio.trial/1"));
}

fn roles_that_may_not(major: u32) {
    let db = TestDatabase::new(major);
    db.load(1, "8M");
    let role = db.new_role("lacking", "");
    let name = role.user.as_str();
    let grant = |sql: &str| db.client().batch_execute(&format!("{sql} {name}")).unwrap();
    let run = || unchanged(&role, &["run", "--run-time", "200ms", "--update-pct", "50"]);

    run().assert_refused(REFUSED, &[&format!("GRANT SELECT ON public.pgio1 TO {name}")]);
    grant("GRANT SELECT ON pgio1 TO");
    run().assert_refused(REFUSED, &[&format!("GRANT UPDATE ON public.pgio1 TO {name}")]);
    let reads = unchanged(&role, &["run", "--run-time", "200ms"]);
    assert_eq!(reads.code, Some(0), "{reads:?}");
    grant("GRANT UPDATE ON pgio1 TO");
    let database = &db.database;
    let mut client = db.client();
    // Nothing is made on the server, not even for the session.
    client.batch_execute(&format!("REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")).unwrap();
    assert_eq!(run().code, Some(0));
    client.batch_execute("REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC").unwrap();
    run().assert_refused(REFUSED, &[&format!("GRANT USAGE ON LANGUAGE plpgsql TO {name}")]);
    grant("GRANT USAGE ON LANGUAGE plpgsql TO");
    assert_eq!(run().code, Some(0));

    // This role may not replace or drop tables of another role.
    unchanged(&role, &["setup", "--scale", "8M"]).assert_refused(REFUSED, &["belongs to role"]);
    unchanged(&role, &["destroy"]).assert_refused(REFUSED, &["pgio1", "connect as its owner"]);
    db.succeed(&["destroy"]);
    client.batch_execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC").unwrap();
    unchanged(&role, &["setup", "--scale", "8M"])
        .assert_refused(REFUSED, &[&format!("GRANT CREATE ON SCHEMA public TO {name}")]);
}

#[test]
fn setup_refuses_a_missing_tablespace_schema_or_free_space() {
    // The runs of other tests in a shared database would be a reason of their own to refuse.
    let db = TestDatabase::new(INSTALLED);
    let setup = |arguments: &[&str]| unchanged(&db, &[&["setup"], arguments].concat());
    setup(&["--scale", "8M", "--tablespace", "nowhere"])
        .assert_refused(REFUSED, &["tablespace nowhere does not exist"]);
    setup(&["--scale", "8T", "--num-schemas", "64"])
        .assert_refused(REFUSED, &["free", "use a smaller SCALE or fewer tables"]);
    let nowhere = format!("dbname={} options='-c search_path=nowhere'", db.database);
    setup(&["--connect-string", &nowhere]).assert_refused(REFUSED, &["search_path"]);
}

#[test]
fn a_missing_privilege_is_reported_with_the_grant() {
    roles_that_may_not(INSTALLED);
}

#[test]
fn a_missing_privilege_is_reported_with_the_grant_on_the_newest() {
    roles_that_may_not(NEWEST);
}

#[test]
fn a_standby_is_no_target() {
    let standby = TestDatabase::at(&shared_pair(NEWEST).standby_conninfo().unwrap());
    for command in ["setup", "run", "destroy"] {
        unchanged(&standby, &[command])
            .assert_refused(REFUSED, &["standby", "connect to the primary"]);
    }
}
