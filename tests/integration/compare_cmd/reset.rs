//! `reset =`: the same data before each trial, and no database dropped that holds anything else.

use pgio::dataset::database;

use pgio_tests::fixture::{
    INSTALLED, NEWEST, connect, fresh_database, own_primary, shared_primary,
};
use pgio_tests::workdir::{Workdir, active_sessions, experiment_on, tolerate, wait_until};

const SCALE: &str = "scale = \"8M\"\nwork_unit = 8\nupdate_work_unit = 8\nupdate_pct = 50";

fn slob(dsn: &str, keys: &str) -> String {
    let keys = format!(
        "blocks = 1\nduration = \"200ms\"\naa = false\nburn_in = false\ntelemetry = \"0s\"\n{keys}"
    );
    let workload = format!("{SCALE}\n\n[[condition]]\nname = \"a\"");
    experiment_on(&format!("dsn = {dsn:?}"), &keys, &workload, &[("b", "")])
        .replace("kind = \"commit\"", "kind = \"slob\"")
}

fn loaded(major: u32) -> (Workdir, String) {
    let dsn = fresh_database(shared_primary(major));
    (load(&dsn), dsn)
}

fn load(dsn: &str) -> Workdir {
    let dir = Workdir::new();
    let setup = [
        "setup",
        "--scale",
        "8M",
        "--num-schemas",
        "2",
        "--seed",
        "9",
        "--create-base-table=FALSE",
    ];
    dir.pgio(&[&setup[..], &["--connect-string", dsn]].concat()).expect(0, &[]);
    dir
}

fn text(dsn: &str, sql: &str) -> String {
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

fn oids(dsn: &str) -> (String, String) {
    let ask = |sql| text(dsn, sql);
    let database = ask("SELECT oid::text FROM pg_database WHERE datname = current_database()");
    (database, ask("SELECT string_agg(oid::text, ' ') FROM pg_class WHERE relname ~ '^pgio[12]$'"))
}

#[test]
fn a_reload_creates_identical_tables() {
    let (dir, dsn) = loaded(INSTALLED);
    let before = oids(&dsn);
    let comment = "SELECT obj_description('pgio2'::regclass)";
    let mark = text(&dsn, comment);
    dir.compare(&slob(&dsn, "reset = \"reload\"")).expect(0, &[]);
    let after = oids(&dsn);
    assert_eq!(after.0, before.0);
    assert_ne!(after.1, before.1);
    assert_eq!(text(&dsn, comment), mark);
    let sizes: Vec<u64> =
        dir.trials().iter().map(|t| t["dataset"]["bytes_before"].as_u64().unwrap()).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|s| *s == sizes[0]), "{sizes:?}");
    assert_eq!(dir.manifest()["rules"]["reset"], "reload");
}

#[test]
fn a_vacuum_lets_each_trial_reuse_the_space_of_the_last() {
    // Any snapshot is as old as the oldest transaction of the server, also one of another test.
    let cluster = own_primary(INSTALLED);
    let dsn = fresh_database(&cluster);
    let dir = load(&dsn);
    // The snapshot of an automatic ANALYZE would keep what it sees from being removed.
    for table in ["pgio1", "pgio2"] {
        connect(&dsn)
            .batch_execute(&format!("ALTER TABLE {table} SET (autovacuum_enabled = false)"))
            .unwrap();
    }
    let tables = oids(&dsn);
    let vacuums = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'pgio2'";
    let vacuums = || connect(&dsn).query_one(vacuums, &[]).unwrap().get::<_, i64>(0);
    let already = vacuums();
    // One transaction finds no room but its own: some twenty versions of each row, seven to a block.
    let keys = format!("reset = \"vacuum\"\nrepeats = 0\n{}", tolerate(&["data-drift"]));
    let one = format!("{SCALE}\ncommit_every = 0\nwork_loop = 5000");
    let text = slob(&dsn, &keys).replace("blocks = 1", "blocks = 2").replace(SCALE, &one);
    dir.compare(&text).expect(0, &[]);
    assert_eq!(oids(&dsn), tables);
    // Once before each trial, and again where another session kept dead rows.
    assert!(vacuums() - already >= 4);
    let sizes = |when: &str| -> Vec<u64> {
        dir.trials().iter().map(|t| t["dataset"][when].as_u64().unwrap()).collect()
    };
    let (before, after) = (sizes("bytes_before"), sizes("bytes_after"));
    let grown: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a.saturating_sub(*b)).collect();
    // The first has no such room; what it added is all but enough for each that follows.
    assert!(grown[0] > 1 << 20, "{before:?} {after:?}");
    assert!(grown[1..].iter().all(|more| *more < grown[0] / 4), "{before:?} {after:?}");
    // No space is given back.
    assert!(before[1..].iter().zip(&after).all(|(now, then)| now >= then), "{before:?} {after:?}");
    assert_eq!(dir.manifest()["rules"]["reset"], "vacuum");
}

#[test]
fn a_recreated_database_has_the_same_properties() {
    for major in [INSTALLED, NEWEST] {
        let (dir, dsn) = loaded(major);
        let name = text(&dsn, "SELECT current_database()::text");
        let role = format!("keeper_{name}");
        connect(&dsn)
            .batch_execute(&format!(
                "CREATE ROLE {role};
                 ALTER DATABASE {name} SET work_mem = '7MB';
                 ALTER DATABASE {name} SET search_path = \"$user\", public, 'odd one';
                 ALTER DATABASE {name} SET my.own = 'it''s';
                 ALTER ROLE {role} IN DATABASE {name} SET work_mem = '8MB';
                 ALTER DATABASE {name} CONNECTION LIMIT 77;
                 REVOKE TEMP ON DATABASE {name} FROM PUBLIC;
                 GRANT CREATE ON DATABASE {name} TO {role} WITH GRANT OPTION;
                 COMMENT ON DATABASE {name} IS 'kept ''well'''"
            ))
            .unwrap();
        let all = "SELECT (to_jsonb(d) - '{oid,datfrozenxid,datminmxid,datacl}'::text[])::text \
                   || (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(d.datacl) a) \
                   || shobj_description(d.oid, 'pg_database') \
                   || (SELECT string_agg(setrole || setconfig::text, ';' ORDER BY setrole) \
                         FROM pg_db_role_setting WHERE setdatabase = d.oid) \
                   FROM pg_database d WHERE datname = current_database()";
        let (was, before) = (text(&dsn, all), oids(&dsn));
        let keys = format!("reset = \"recreate\"\nrecreate_database = \"{name}\"");
        dir.compare(&slob(&dsn, &keys)).expect(0, &[]);
        assert_eq!(text(&dsn, all), was);
        let after = oids(&dsn);
        assert!(after.0 != before.0 && after.1 != before.1);
        assert!(dir.trials().iter().all(|t| t["outcome"]["state"] == "complete"));
        let left =
            format!("SELECT count(*)::text FROM pg_database WHERE datname = '{name}_pgio_new'");
        assert_eq!(text(&dsn, &left), "0");
    }
}

#[test]
fn a_recreated_database_has_no_privilege_that_was_revoked() {
    let server = shared_primary(INSTALLED);
    let dsn = fresh_database(server);
    let acl = "SELECT coalesce(datacl::text, 'defaults') FROM pg_database \
               WHERE datname = current_database()";
    let mut client = connect(&dsn);
    let row = client.query_one("SELECT current_database()::text", &[]).unwrap();
    let name: String = row.get(0);
    client
        .batch_execute(&format!(
            "REVOKE ALL ON DATABASE {name} FROM PUBLIC; REVOKE ALL ON DATABASE {name} FROM CURRENT_USER"
        ))
        .unwrap();
    let described = database::describe(&mut client, true).unwrap();
    drop(client);
    database::recreate(&mut connect(&server.primary_conninfo()), &described).unwrap();
    assert_eq!(text(&dsn, acl), "{}");
}

#[test]
fn a_session_that_is_ending_is_no_reason_to_refuse() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let (mut client, guest) = (connect(&dsn), connect(&dsn));
    let guest = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(guest);
    });
    database::describe(&mut client, true).unwrap();
    guest.join().unwrap();
}

#[test]
fn a_database_keeps_its_name_whatever_interrupts_its_re_creation() {
    let (dir, dsn) = loaded(INSTALLED);
    let name = text(&dsn, "SELECT current_database()::text");
    let keys = format!("reset = \"recreate\"\nrecreate_database = \"{name}\"");
    let copies = format!("SELECT count(*)::text FROM pg_database WHERE datname ~ '^{name}_pgio_'");
    let made = || dir.path().join("state/made").read_dir().unwrap().count();
    // What it takes some time to restore.
    let many = format!(
        "DO $$ BEGIN FOR n IN 1..200 LOOP EXECUTE format('ALTER DATABASE {name} SET my.s%s = %s', n, n); END LOOP; END $$"
    );
    connect(&dsn).batch_execute(&many).unwrap();
    let new = dsn.replace(&format!("dbname={name}"), &format!("dbname={name}_pgio_new"));
    assert_ne!(new, dsn);
    let clear = || drop(std::fs::remove_dir_all(dir.out()));
    for kills in [true, false] {
        clear();
        let mut running = dir.start_compare(&slob(&dsn, &keys));
        // A session in the new database keeps it from being renamed for a while.
        let mut guest = None;
        running.wait_until("re-created", || {
            guest = pgio_connect::Client::connect(&new).ok();
            guest.is_some()
        });
        if kills {
            std::thread::sleep(std::time::Duration::from_millis(500));
            running.kill();
        } else {
            running.wait().expect(4, &["cannot rename", "is being accessed by other users"]);
        }
        assert_eq!(text(&dsn, "SELECT count(*)::text FROM pgio2"), "1024");
        assert_eq!((text(&dsn, &copies).as_str(), made()), ("1", 1), "{kills}");
        drop(guest);
        // Another test may be re-creating a database of its own on this server.
        let mut undone = None;
        wait_until("no other run is re-creating a database", || {
            let result = dir.pgio(&["undo"]);
            let is_refused = result.out.contains("a run is at work on this server");
            undone = Some(result);
            !is_refused
        });
        undone.unwrap().expect(0, &["Restored re-creation of database"]);
        assert_eq!((text(&dsn, &copies).as_str(), made()), ("0", 0), "{kills}");
    }
    clear();
    let occupied = format!("CREATE DATABASE {name}_pgio_old");
    connect(&dsn).batch_execute(&occupied).unwrap();
    dir.compare(&slob(&dsn, &keys)).expect(4, &["_pgio_old", "pgio undo"]);
    assert_eq!(text(&dsn, &copies), "1", "nobody else's is dropped");
}

#[test]
fn tables_that_a_run_works_on_are_neither_destroyed_nor_replaced() {
    let (dir, dsn) = loaded(INSTALLED);
    let keys = "reset = \"checkpoint\"";
    let long = slob(&dsn, keys).replace("200ms", "60s");
    let mut running = dir.start_compare(&long);
    running.wait_until("at work", || active_sessions(&dsn) > 0);
    let before = oids(&dsn);
    let setup = ["setup", "--scale", "8M", "--num-schemas", "2", "--connect-string", &dsn];
    dir.pgio(&setup).expect(4, &["is at work in"]);
    assert_eq!(oids(&dsn), before);
    let destroy = ["destroy", "--yes", "--connect-string", &dsn];
    dir.pgio(&destroy).expect(4, &["is at work in"]);
    assert_eq!(text(&dsn, "SELECT count(*)::text FROM pgio2"), "1024");
    running.kill();
    dir.pgio(&destroy).expect(0, &["Dropped"]);
}

#[test]
fn a_database_with_other_objects_is_not_dropped() {
    for major in [INSTALLED, NEWEST] {
        let (dir, dsn) = loaded(major);
        let name = text(&dsn, "SELECT current_database()::text");
        let keys = format!("reset = \"recreate\"\nrecreate_database = \"{name}\"");
        let before = oids(&dsn);
        let refused = |texts: &[&str]| {
            dir.compare(&slob(&dsn, &keys)).expect(4, texts);
            assert!(!dir.out().exists());
            assert_eq!(oids(&dsn), before);
        };
        let mut client = connect(&dsn);
        refused(&["other sessions are connected (1)"]);
        let contains = "contains objects that pgio did not create";
        for (make, unmake, result) in [
            ("CREATE TABLE precious ()", "DROP TABLE precious", "relation precious"),
            ("CREATE VIEW seen AS SELECT 1", "DROP VIEW seen", "relation seen"),
            (
                "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                "DROP FUNCTION f()",
                "routine f()",
            ),
            ("CREATE SCHEMA other", "DROP SCHEMA other", "schema other"),
            ("CREATE DOMAIN d AS int", "DROP DOMAIN d", "type d"),
            ("CREATE PUBLICATION p", "DROP PUBLICATION p", "publication p"),
            ("SELECT lo_create(4711)", "SELECT lo_unlink(4711)", "large object 4711"),
            (
                "CREATE STATISTICS s ON mykey, scratch FROM pgio1",
                "DROP STATISTICS s",
                "extended statistics s",
            ),
            (
                "GRANT EXECUTE ON FUNCTION pg_reload_conf() TO PUBLIC",
                "REVOKE EXECUTE ON FUNCTION pg_reload_conf() FROM PUBLIC",
                "privileges on pg_reload_conf()",
            ),
        ] {
            client.batch_execute(make).unwrap();
            let why = database::describe(&mut client, false).unwrap_err().to_string();
            assert!(why.contains(contains) && why.contains(result), "{why}");
            client.batch_execute(unmake).unwrap();
        }
        database::describe(&mut client, false).unwrap();
        client.batch_execute("CREATE TABLE precious ()").unwrap();
        drop(client);
        refused(&[contains, "relation public.precious"]);
        connect(&dsn).batch_execute("DROP TABLE precious").unwrap();
        dir.compare(&slob(&dsn, &keys.replace(&name, "another"))).expect(4, &["names `another`"]);
        assert_eq!(oids(&dsn), before);
    }
}

#[test]
fn objects_created_between_trials_are_not_dropped() {
    let (dir, dsn) = loaded(INSTALLED);
    let name = text(&dsn, "SELECT current_database()::text");
    let keys = format!("reset = \"recreate\"\nrecreate_database = \"{name}\"");
    let experiment = slob(&dsn, &keys).replace("200ms", "2s");
    let mut running = dir.start_compare(&experiment);
    // Asked from beside it: a session in the database would be a reason of its own to refuse.
    let beside = dsn.replace(&format!("dbname={name}"), "dbname=postgres");
    assert_ne!(beside, dsn);
    let working = format!(
        "SELECT count(*)::text FROM pg_stat_activity \
         WHERE datname = '{name}' AND query LIKE '%DO $pgio$%'"
    );
    running.wait_until("in the window", || text(&beside, &working) != "0");
    connect(&dsn).batch_execute("CREATE TABLE precious ()").unwrap();
    running
        .wait()
        .expect(4, &["contains objects that pgio did not create", "relation public.precious"]);
    assert_eq!(text(&dsn, "SELECT to_regclass('precious')::text"), "precious");
    assert_eq!(dir.trials().len(), 1);
}

#[test]
fn in_a_private_cluster_the_database_need_not_be_named() {
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"200ms\"\nburn_in = false\ntelemetry = \"0s\"\nreset = \"recreate\"";
    let target = format!("private = true\npg = {INSTALLED}");
    let workload = format!("{SCALE}\ncreate_base_table = false");
    let text = experiment_on(&target, keys, &workload, &[("a", "")]);
    dir.compare(&text.replace("kind = \"commit\"", "kind = \"slob\"")).expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    for trial in trials {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
        assert_eq!(trial["dataset"]["blocks_per_table"], 1024);
    }
}
