//! `pgio doctor` on real servers: what it finds there, and that it changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::schema;
use crate::sshd::Sshd;
use pgio_tests::fixture::{
    INSTALLED, connect, fresh_database, own_primary, shared_pair, shared_primary,
};
use pgio_tests::workdir::{
    Workdir, alter_system, experiment, experiment_on, pgio_sessions, show, wait_until,
};

fn doctor(dir: &Workdir, args: &[&str], code: i32) -> Value {
    let result = dir.pgio(&[&["doctor", "--format", "json"], args].concat()).expect(code, &[]);
    let found = serde_json::from_str(&result.out).unwrap();
    schema::assert_valid("pgio.doctor/1", &found);
    found
}

/// The checks of the last section, which is the server's.
fn of_server(found: &Value) -> Vec<Value> {
    let last = found["sections"].as_array().unwrap().last().unwrap();
    last["checks"].as_array().unwrap().clone()
}

fn check(found: &Value, id: &str) -> Value {
    let check = of_server(found).into_iter().find(|c| c["id"] == id);
    check.unwrap_or_else(|| panic!("no check {id} in {found:#}"))
}

#[test]
fn doctor_reports_a_missing_data_set_and_passes_a_ready_server() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let found = doctor(&dir, &["--connect-string", &dsn], 4);
    assert_eq!(found["schema"], "pgio.doctor/1");
    assert_eq!(found["verdict"], "invalid");
    let data = check(&found, "data-set");
    assert_eq!(data["verdict"], "invalid");
    assert!(data["remedy"].as_str().unwrap().contains("pgio setup"));

    dir.pgio(&["setup", "--connect-string", &dsn, "--scale", "1024"]).expect(0, &[]);
    let args = ["doctor", "--connect-string", &dsn, "--work-unit", "8", "--run-time", "10"];
    let result = dir.pgio(&args).expect(0, &["This machine"]);
    let server = result.out.split_once("Server: ").unwrap().1;
    let rows = server.lines().skip(3).take_while(|line| !line.is_empty());
    let server = rows.collect::<Vec<_>>().join("\n");
    let server = crate::setup_cmd::replace(
        &server,
        &[
            // Remedies, continued lines, widths: they follow verdicts, and those what other tests do.
            (r"\n +→ [^\n]*", ""),
            (r"\n {10,}", " "),
            (r"(?m)^(ok|warning) +(\S+) +", "[verdict] $2: "),
            (r"PostgreSQL \d.*", "PostgreSQL [version]"),
            (r"\d+ connected, none active|\d+ of \d+ are active", "[others]"),
            (r"\n\[verdict\] sessions-of-pgio: .*", ""),
            (r"(storage: \w+): .*", "$1: [place]"),
            (r"room-for-data: .*", "room-for-data: [room]"),
            (r"\d+ are free", "[n] are free"),
            (r"takes [\d.,]+ .?s;", "takes [time];"),
            (r"memory [\d.]+ GiB", "memory [size]"),
            (r"on, idle|\d+ workers .*", "[autovacuum]"),
        ],
    );
    insta::assert_snapshot!(server, @r"
    [verdict] server-reachable: PostgreSQL [version]
    [verdict] privileges: the role is a superuser
    [verdict] standbys: commits wait for no standby; no standby connected
    [verdict] durability: fsync and full_page_writes are on or set by the condition
    [verdict] checkpoints: a checkpoint starts within 10s if WAL exceeds 53.9 MiB/s
    [verdict] autovacuum: [autovacuum]
    [verdict] connections: [n] are free, 5 are needed
    [verdict] clock-cost: reading the server's clock takes [time]; track_io_timing is off
    [verdict] other-sessions: [others]
    [verdict] data-set: 1 table of 8 MiB
    [verdict] cache: 8.08 MiB of data, shared_buffers 128 MiB, memory [size]: shared_buffers serves all reads; no disk is measured
    [verdict] storage: data: [place]
    [verdict] storage: wal: [place]
    [verdict] room-for-data: [room]
    ");

    // The server would refuse each UPDATE, after the run has begun.
    connect(&dsn).batch_execute("CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
    let refusal = "publication `everything`";
    let updating = ["--connect-string", &dsn, "--work-unit", "8", "--update-pct", "20"];
    dir.pgio(&[&["doctor"][..], &updating].concat()).expect(4, &[refusal]);
    dir.pgio(&[&["run"][..], &updating].concat()).expect(4, &[refusal]);
    let plan = |pct: u32, code| {
        let keys = format!("update_pct = {pct}\nwork_unit = 8\nupdate_work_unit = 8");
        let text = experiment(&dsn, "blocks = 1", &keys, &[("a", "")]);
        dir.write("e.toml", &text.replace("\"commit\"", "\"slob\""));
        dir.pgio(&["compare", "e.toml", "--plan"]).expect(code, &[])
    };
    assert!(plan(20, 4).err.contains(refusal));
    plan(0, 0);
    dir.pgio(&["destroy", "--connect-string", &dsn]).expect(0, &[]);
}

#[test]
fn doctor_checks_an_experiment_without_changing_anything() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let look = |body: &str, code| {
        let keys = "blocks = 1\nduration = \"10m\"";
        dir.write("e.toml", &experiment(&dsn, keys, "sessions = 3", &[("a", body)]));
        doctor(&dir, &["e.toml"], code)
    };
    let found = look("wal_writer_delay = \"150ms\"", 0);
    assert_eq!(check(&found, "conditions")["verdict"], "ok");
    assert_eq!(check(&found, "checkpoints")["verdict"], "warning", "10 min of 5");
    assert_eq!(show(&dsn, "wal_writer_delay"), "200ms");
    wait_until("no session is left", || pgio_sessions(&dsn) == 0);
    let found = look("shared_buffers = \"64MB\"", 4);
    let refused = check(&found, "conditions");
    assert_eq!(refused["verdict"], "invalid");
    assert!(refused["message"].as_str().unwrap().contains("a: "), "{refused}");

    // The server sends the SQLSTATE of a missing privilege also if the system refuses it a file.
    let file = cluster.data_dir().join("postgresql.auto.conf");
    let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o400);
    let keys = "blocks = 1\nduration = \"300ms\"";
    let refused =
        dir.compare(&experiment(&dsn, keys, "", &[("a", "wal_writer_delay = \"150ms\"")]));
    assert!(refused.err.contains("Permission denied"), "{refused}");
    assert!(!refused.err.contains("GRANT"), "{refused}");
    set_mode(0o600);

    // Declared, it is what is measured.
    alter_system(&dsn, "fsync", Some("off"));
    wait_until("off", || show(&dsn, "fsync") == "off");
    assert_eq!(check(&look("fsync = \"off\"", 0), "durability")["verdict"], "ok");
    alter_system(&dsn, "synchronous_standby_names", Some("nobody"));
    wait_until("set", || show(&dsn, "synchronous_standby_names") == "nobody");
    let found = look("", 4);
    assert_eq!(check(&found, "durability")["verdict"], "invalid");
    assert_eq!(check(&found, "standbys")["verdict"], "invalid");
}

#[test]
fn a_private_server_needs_its_directories() {
    let dir = Workdir::new();
    let nowhere = "'/no/such/place'";
    for key in [
        format!("directory = {nowhere}"),
        format!("wal_directory = {nowhere}"),
        format!("standbys = [{{ name = 'a', directory = {nowhere} }}]"),
    ] {
        let target = format!("private = true\n{key}");
        dir.write("e.toml", &experiment_on(&target, "blocks = 1", "", &[("a", "")]));
        dir.pgio(&["compare", "e.toml"]).expect(4, &["/no/such/place is not a directory"]);
        assert!(!dir.path().join("pgio-results").exists());
    }
    // That it checks each of them is tested with the section of a private server.
    assert_eq!(check(&doctor(&dir, &["e.toml"], 4), "directory")["verdict"], "invalid");
}

#[test]
fn unreachable_servers_standbys_and_missing_privileges_are_judged() {
    let dir = Workdir::new();
    let found = doctor(&dir, &["--connect-string", "host=/nonexistent dbname=x"], 4);
    assert_eq!(check(&found, "server-reachable")["verdict"], "invalid");

    let pair = fresh_database(shared_pair(INSTALLED));
    let found = doctor(&dir, &["--connect-string", &pair], 4);
    assert_eq!(check(&found, "standbys")["verdict"], "ok");

    let server = fresh_database(shared_primary(INSTALLED));
    connect(&server).batch_execute("CREATE ROLE doctored LOGIN").unwrap_or(());
    let dsn = server.replace("user=postgres", "user=doctored");
    let found = doctor(&dir, &["--connect-string", &dsn], 4);
    let privileges = check(&found, "privileges");
    assert_eq!(privileges["verdict"], "warning");
    let remedy = privileges["remedy"].as_str().unwrap();
    assert!(remedy.contains("GRANT pg_monitor") && remedy.contains("GRANT pg_checkpoint"));
}

#[test]
fn an_abandoned_journal_and_an_unreachable_host_are_invalid() {
    let dir = Workdir::new();
    let hosts = "\n[hosts.db]\nssh = \"nobody@host.invalid\"\n";
    let text = format!(
        "{hosts}\n[target]\nprivate = true\npg = {INSTALLED}\n\n[[condition]]\nname = \"a\"\n"
    );
    dir.write("e.toml", &text);
    fs::create_dir_all(dir.path().join("state/journal")).unwrap();
    dir.write("state/journal/r1.journal", "{ broken\n");
    let found = doctor(&dir, &["e.toml"], 4);
    let all: Vec<&Value> = found["sections"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|s| s["checks"].as_array().unwrap())
        .collect();
    let verdict = |id: &str| all.iter().find(|c| c["id"] == id).unwrap()["verdict"].clone();
    assert_eq!(verdict("journal"), "invalid");
    assert_eq!(verdict("host-reachable"), "invalid");
    assert_eq!(verdict("server-programs"), "ok");
}

#[test]
fn a_remote_host_is_checked_like_this_machine() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let (dir, mut sshd) = (Workdir::new(), Sshd::start());
    let config = sshd.config().display().to_string();
    dir.write(
        "e.toml",
        &format!(
            "[hosts.box]\nssh = 'box'\nssh_config = '{config}'\n\
             [target]\ndsn = \"{dsn}\"\nhost = 'box'\n\
             [workload]\nkind = 'commit'\n[[condition]]\nname = 'as it is'\n"
        ),
    );
    let found = doctor(&dir, &["e.toml"], 0);
    let titles: Vec<&str> =
        found["sections"].as_array().unwrap().iter().filter_map(|s| s["title"].as_str()).collect();
    assert!(titles.iter().any(|t| t.contains("box")), "{titles:?}");
    let storage = check(&found, "storage");
    assert!(storage["message"].as_str().unwrap().contains("/"), "{storage}");
    sshd.wait_until_idle();

    sshd.stop();
    let result = dir.pgio(&["doctor", "e.toml"]).expect(4, &["host box cannot be reached"]);
    assert!(result.out.contains("server-reachable"), "the rest is looked at: {}", result.out);
}
