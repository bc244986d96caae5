//! Servers as they are: roles that may little, and pooling proxies in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgio::pg::server;
use serde_json::Value;

use crate::command_workload;
use pgio_tests::fixture::{
    INSTALLED, NEWEST, connect, fresh_database, own_primary, shared_pair, shared_primary,
};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{
    Workdir, auto_conf, condition_of, experiment, failed_checks, wait_until,
};

const ONCE: &str = "blocks = 1\nduration = \"300ms\"\naa = false";

/// A connection string for a role that may log in and make tables in a schema of its own, no more.
pub(crate) fn plain_role(dsn: &str, role: &str) -> String {
    let mut client = connect(dsn);
    client
        .batch_execute(&format!(
            "DO $$ BEGIN CREATE ROLE {role} LOGIN; \
                EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$; \
             REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE SCHEMA {role}; \
             GRANT USAGE, CREATE ON SCHEMA {role} TO {role};"
        ))
        .unwrap();
    dsn.replace("user=postgres", &format!("user={role}"))
}

fn warnings(analysis: &Value) -> String {
    analysis["warnings"].to_string()
}

/// Most of the time is that of starts and windows.
fn on_each_version(test: impl Fn(u32) + Sync) {
    run_in_parallel([13, INSTALLED, NEWEST], test);
}

#[test]
fn a_role_without_privileges_measures_with_warnings() {
    on_each_version(|major| {
        let server = fresh_database(shared_primary(major));
        let dsn = plain_role(&server, "plain");
        assert_ne!(dsn, server);
        let dir = Workdir::new();
        let small = ["--connect-string", &dsn, "--scale", "1024", "--create-base-table", "false"];
        let small = [&small[..], &["--no-space-check"]].concat();
        dir.pgio(&[&["setup"], &small[..]].concat()).expect(0, &[]);
        let run = ["--connect-string", &dsn, "--run-time", "300ms", "--update-pct", "50"];
        let run = [&["run", "--json", "trial.json"], &run[..], &["--work-unit", "8"]].concat();
        dir.pgio(&run).expect(
            0,
            &["RIOPS", "GRANT pg_checkpoint"].map(|text| {
                if major < 15 && text.starts_with("GRANT") { "use a superuser" } else { text }
            }),
        );
        let conditions = [
            ("local", "synchronous_commit = \"local\""),
            ("sorted", "work_mem = \"1MB\", synchronous_commit = \"off\""),
        ];
        dir.compare(&experiment(&dsn, ONCE, "", &conditions)).expect(0, &["sorted"]);
        for trial in dir.trials() {
            assert!(failed_checks(&trial, "invalid").is_empty(), "{}", condition_of(&trial));
            assert!(trial["metrics"]["wal_bytes_per_second"]["value"].as_f64().unwrap() > 0.0);
        }
        let remedy = if major < 15 { "use a superuser" } else { "GRANT pg_checkpoint" };
        assert!(warnings(&dir.analysis()).contains(remedy), "{major}");
        dir.pgio(&["destroy", "--connect-string", &dsn]).expect(0, &[]);
    });
}

#[test]
fn a_setting_that_needs_a_privilege_is_refused_with_the_grant() {
    on_each_version(|major| {
        let own = (major >= 15).then(|| own_primary(major));
        let server = fresh_database(own.as_deref().unwrap_or_else(|| shared_primary(major)));
        let dsn = plain_role(&server, "plain");
        let refused = |body: &str, texts: &[&str]| {
            let dir = Workdir::new();
            let text = experiment(&dsn, ONCE, "", &[("a", ""), ("set", body)]);
            dir.compare(&text).expect(4, texts);
            assert!(!dir.out().exists());
        };
        refused(
            "wal_writer_delay = \"1s\"",
            &["GRANT ALTER SYSTEM ON PARAMETER wal_writer_delay TO ROLE"],
        );
        refused("commit_delay = 100", &["GRANT SET ON PARAMETER commit_delay TO ROLE"]);
        if major < 15 {
            return;
        }
        // Following the advice helps, a step at a time.
        let mut admin = connect(&server);
        admin.batch_execute("CREATE ROLE granted LOGIN").unwrap_or(());
        let dsn = plain_role(&server, "granted");
        let refused = |text: &str| {
            let dir = Workdir::new();
            let body = "max_standby_streaming_delay = \"31s\"";
            let experiment = experiment(&dsn, ONCE, "", &[("set", body)]);
            dir.compare(&experiment).expect(4, &[text]);
        };
        refused("GRANT ALTER SYSTEM ON PARAMETER max_standby_streaming_delay");
        admin
            .batch_execute("GRANT ALTER SYSTEM ON PARAMETER max_standby_streaming_delay TO granted")
            .unwrap();
        refused("GRANT EXECUTE ON FUNCTION pg_reload_conf()");
        admin.batch_execute("GRANT EXECUTE ON FUNCTION pg_reload_conf() TO granted").unwrap();
        refused("GRANT SELECT ON pg_file_settings");
        admin
            .batch_execute(
                "GRANT SELECT ON pg_file_settings TO granted; \
                 GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO granted; \
                 GRANT SET ON PARAMETER commit_delay TO granted;",
            )
            .unwrap();
        let dir = Workdir::new();
        let body = "max_standby_streaming_delay = \"31s\", commit_delay = 100";
        dir.compare(&experiment(&dsn, ONCE, "", &[("set", body)])).expect(0, &[]);
        assert!(failed_checks(&dir.trials()[0], "invalid").is_empty());
        assert_eq!(auto_conf(&server, "max_standby_streaming_delay"), None);
    });
}

#[test]
fn sessions_of_other_roles_use_connections_too() {
    on_each_version(|major| {
        let superuser = fresh_database(shared_primary(major));
        // No other test has sessions of this role.
        let dsn = plain_role(&superuser, "counting");
        let others: Vec<_> = (0..10).map(|_| connect(&superuser)).collect();
        let found = server::connections(&mut connect(&dsn)).unwrap();
        assert!(found.used > others.len() as i64, "{major}: {found:?}");
    });
}

#[test]
fn a_role_that_may_not_see_standbys_gets_a_warning() {
    let server = fresh_database(shared_pair(INSTALLED));
    let dsn = plain_role(&server, "plain");
    let dir = Workdir::new();
    let conditions = [("apply", "synchronous_commit = \"remote_apply\"")];
    dir.compare(&experiment(&dsn, ONCE, "", &conditions)).expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["GRANT pg_monitor"]);
    assert!(failed_checks(&dir.trials()[0], "invalid").is_empty());
    connect(&server).batch_execute("GRANT pg_monitor TO plain").unwrap();
    let dir = Workdir::new();
    let result = dir.compare(&experiment(&dsn, ONCE, "", &conditions)).expect(0, &[]);
    assert!(!result.out.contains("pg_monitor"), "{result}");
    connect(&server).batch_execute("REVOKE pg_monitor FROM plain").unwrap();
}

/// pgbouncer in front of a server, as an unprivileged user where we are root; ended when dropped.
struct Pooler {
    process: Child,
    dsn: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pgbouncer() -> Option<PathBuf> {
    let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: pgbouncer is not installed");
    }
    found
}

/// The value of a keyword in a connection string of the fixture's, which quotes nothing.
fn keyword<'a>(dsn: &'a str, name: &str) -> &'a str {
    dsn.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

/// `ignored` are startup parameters that it drops beside one that libpq-like drivers of Java send.
fn start_pooler(program: &Path, server: &str, (mode, ignored): (&str, &str), dir: &Path) -> Pooler {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = keyword(server, "dbname");
    fs::write(
        dir.join("pgbouncer.ini"),
        format!(
            "[databases]\n{database} = host={} port={} dbname={database} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = {mode}\ndefault_pool_size = 4\n\
             ignore_startup_parameters = extra_float_digits{ignored}\n",
            keyword(server, "host"),
            keyword(server, "port"),
        ),
    )
    .unwrap();
    // It refuses to run as root, and only the server's user may enter the socket's directory.
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        use std::os::unix::fs::MetadataExt;
        let owner = fs::metadata(keyword(server, "host")).unwrap();
        command.uid(owner.uid()).gid(owner.gid());
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let process = command
        .arg("-q")
        .arg(dir.join("pgbouncer.ini"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pooler = Pooler {
        process,
        dsn: format!("host=127.0.0.1 port={port} user=postgres dbname={database} sslmode=disable"),
    };
    wait_until("pgbouncer answers", || pgio_connect::Client::connect(&pooler.dsn).is_ok());
    pooler
}

#[test]
fn a_transaction_pooling_proxy_is_refused_and_a_session_pooling_one_is_not() {
    let Some(program) = pgbouncer() else { return };
    let server = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    dir.pgio(&["setup", "--connect-string", &server, "--scale", "1024"]).expect(0, &[]);
    let run = |pooler: &Pooler| {
        let keys = ["--run-time", "1", "--work-unit", "8", "--update-pct", "20", "--num-threads"];
        dir.pgio(&[&["run", "--connect-string", &pooler.dsn], &keys[..], &["3"]].concat())
    };
    for mode in ["transaction", "transaction\nserver_round_robin = 1"] {
        let config = tempfile::tempdir().unwrap();
        let transaction = start_pooler(&program, &server, (mode, ""), config.path());
        // It keeps the processes that serve these at the same time.
        let mut together = [(); 3].map(|()| connect(&transaction.dsn));
        together.iter_mut().for_each(|client| client.batch_execute("BEGIN; SELECT 1").unwrap());
        together.iter_mut().for_each(|client| client.batch_execute("COMMIT").unwrap());
        drop(together);
        run(&transaction).expect(4, &["transaction pooler"]);
        let text = experiment(&transaction.dsn, ONCE, "sessions = 3", &[("a", "")]);
        dir.compare(&text).expect(4, &["transaction pooler"]);
        assert!(!dir.out().exists());
    }

    let config = tempfile::tempdir().unwrap();
    let session = start_pooler(&program, &server, ("session", ""), config.path());
    run(&session).expect(0, &["RIOPS"]);
    let text = experiment(&session.dsn, ONCE, "sessions = 3", &[("a", "")]);
    dir.compare(&text).expect(0, &[]);
}

/// The usual advice against "unsupported startup parameter: options" makes a pooler drop them without a word.
#[test]
fn a_command_is_refused_where_a_pooler_drops_its_options() {
    let Some(program) = pgbouncer() else { return };
    let server = fresh_database(shared_primary(INSTALLED));
    connect(&server)
        .batch_execute("CREATE TABLE pgbench_accounts AS SELECT 'precious' AS mine")
        .unwrap();
    let config = tempfile::tempdir().unwrap();
    let pooler = start_pooler(&program, &server, ("session", ",options"), config.path());
    let dir = Workdir::new();
    let compare = |workload: &str, setting: &str| {
        let target = format!("dsn = {:?}", pooler.dsn);
        dir.compare(&command_workload::experiment(
            &target,
            "blocks = 1\naa = false\nduration = \"1s\"",
            workload,
            &[("a", ""), ("b", setting)],
        ))
    };
    let preset = "preset = \"pgbench\"\nsessions = 1\nparameters = { scale = 1 }";
    compare(preset, "").expect(4, &["search_path", "drops the options"]);
    let sql = "SELECT mine, to_regnamespace('pgio_command') IS NULL FROM pgbench_accounts";
    let row = connect(&server).query_one(sql, &[]).unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, bool>(1)), ("precious", true));
    let program = command_workload::prints("psql -qAtX -c 'SELECT 1' && echo rate 1");
    compare(&program, "synchronous_commit = \"off\"")
        .expect(4, &["synchronous_commit was on instead of off", "drops the options"]);
    assert!(!dir.out().exists());
    // Nothing is asked of the sessions.
    compare(&program, "").expect(0, &[]);
}
