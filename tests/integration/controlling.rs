//! Servers of the user's that pgio may stop and start: `[target] control = "pg_ctl"`.
//!
//! The servers are made here as a user makes them, by initdb and pg_ctl, as another user where the
//! tests run as root. systemd is only made up, in the unit tests of `pg::control`. Next: `controlling_undo`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgio::pg::private::{VersionRequest, find};
use pgio::rng::SplitMix64;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::killing::kills;
use pgio_tests::fixture::{INSTALLED, connect};
use pgio_tests::timing;
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, auto_conf, experiment_on, failed_checks, show, shows,
    wait_until,
};

/// A server as `pg_ctl start -l` leaves it; stopped and removed with this value.
pub(crate) struct Managed {
    directory: TempDir,
    bin: PathBuf,
}

impl Managed {
    /// `options` is what `pg_ctl -o` takes.
    pub(crate) fn start(options: &str) -> Managed {
        Managed::start_in("/var/tmp", options)
    }

    pub(crate) fn start_in(base: &str, options: &str) -> Managed {
        let bin = find(Some(VersionRequest::major(INSTALLED))).unwrap().directory;
        Managed::start_with(base, &bin, options)
    }

    pub(crate) fn start_with(base: &str, bin: &Path, options: &str) -> Managed {
        timing::begin();
        let directory = tempfile::Builder::new().prefix("pgio-test-").tempdir_in(base).unwrap();
        let server = Managed { directory, bin: bin.to_owned() };
        server.own(server.path());
        server.create(options);
        server
    }

    fn create(&self, options: &str) {
        let data = self.data();
        // The usual arguments, which `.ci/run` has a copy for.
        let usual =
            "--no-sync --username=postgres --auth=trust --encoding=UTF8 --no-locale --pgdata";
        let arguments = usual.split(' ').chain([data.to_str().unwrap()]).collect::<Vec<_>>();
        self.run("initdb", &arguments);
        let conf = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&conf).unwrap();
        text += &format!(
            "unix_socket_directories = '{}'\nlisten_addresses = ''\n",
            self.path().display()
        );
        fs::write(&conf, text).unwrap();
        self.start_again(options);
    }

    /// Another cluster in the place of this one, at the same address.
    pub(crate) fn create_another(&self) {
        self.stop();
        fs::remove_dir_all(self.data()).unwrap();
        self.create("");
    }

    /// A standby of it that looks for its server every second, not every five.
    pub(crate) fn standby(&self) -> Managed {
        let directory =
            tempfile::Builder::new().prefix("pgio-test-").tempdir_in("/var/tmp").unwrap();
        let standby = Managed { directory, bin: self.bin.clone() };
        standby.own(standby.path());
        let (data, from) = (standby.data(), format!("{} application_name=s1", self.dsn()));
        let data = data.to_str().unwrap();
        self.run("pg_basebackup", &["-c", "fast", "-N", "-R", "-D", data, "-d", &from]);
        let socket = standby.path().display();
        standby.start_again(&format!(
            "-c unix_socket_directories='{socket}' -c wal_retrieve_retry_interval=1s"
        ));
        standby
    }

    pub(crate) fn start_again(&self, options: &str) {
        let (data, log) = (self.data(), self.log());
        let [data, log] = [&data, &log].map(|path| path.to_str().unwrap());
        self.run("pg_ctl", &["start", "-w", "-s", "-D", data, "-l", log, "-o", options]);
    }

    pub(crate) fn stop(&self) {
        self.stop_as("fast");
    }

    /// Without a checkpoint: the next start has to recover, as after a power failure.
    pub(crate) fn crash(&self) {
        self.stop_as("immediate");
    }

    fn stop_as(&self, mode: &str) {
        self.run("pg_ctl", &["stop", "-s", "-m", mode, "-D", self.data().to_str().unwrap()]);
    }

    pub(crate) fn promote(&self) {
        self.run("pg_ctl", &["promote", "-w", "-s", "-D", self.data().to_str().unwrap()]);
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data dir")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    pub(crate) fn dsn(&self) -> String {
        format!("host='{}' user=postgres dbname=postgres", self.path().display())
    }

    pub(crate) fn target(&self) -> String {
        format!("dsn = {:?}\ncontrol = \"pg_ctl\"\nhost = \"local\"", self.dsn())
    }

    /// None while it is down.
    pub(crate) fn process(&self) -> Option<String> {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid = pid.lines().next()?.to_owned();
        Path::new("/proc").join(&pid).exists().then_some(pid)
    }

    fn arguments(&self) -> Vec<u8> {
        fs::read(format!("/proc/{}/cmdline", self.process().unwrap())).unwrap()
    }

    fn own(&self, path: &Path) {
        if geteuid().is_root() {
            assert!(Command::new("chown").arg("postgres:").arg(path).status().unwrap().success());
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let program = self.bin.join(program);
        let mut command =
            if geteuid().is_root() { Command::new("runuser") } else { Command::new("env") };
        if geteuid().is_root() {
            command.args(["-u", "postgres", "--"]);
        }
        let output = command.arg(program).args(arguments).current_dir("/").output().unwrap();
        let log = || fs::read_to_string(self.log()).unwrap_or_default();
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", log());
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if self.process().is_some() {
            self.stop();
        }
    }
}

/// A condition could not be put in force.
pub(crate) const REFUSED: i32 = 4;
/// Without telemetry, whose samplers cost more than all else.
pub(crate) const QUICK: &str = "blocks = 1\nduration = \"100ms\"\naa = false\ntelemetry = \"0s\"";

#[test]
fn a_users_server_is_restarted_for_a_setting_and_restored() {
    let server = Managed::start("-c \"work_mem=7MB\" -c 'cluster_name=it''s a \"test\"'");
    let (arguments, first, dir) = (server.arguments(), server.process(), Workdir::new());
    let conditions = [("a", ""), ("small", "shared_buffers = \"16MB\", max_connections = 50")];
    let text = experiment_on(&server.target(), QUICK, "", &conditions);
    dir.compare(&text).expect(0, &["small"]);
    assert_eq!(dir.trials().len(), 2);
    for trial in dir.trials() {
        assert!(failed_checks(&trial, "invalid").is_empty(), "{trial}");
    }
    assert_ne!(server.process(), first, "it was restarted");
    assert_eq!(server.arguments(), arguments, "as it was");
    assert_eq!(show(&server.dsn(), "work_mem"), "7MB");
    assert_eq!(show(&server.dsn(), "shared_buffers"), "128MB");
    assert_eq!(auto_conf(&server.dsn(), "shared_buffers"), None);
    let log = fs::read_to_string(server.log()).unwrap();
    assert!(log.matches("ready to accept connections").count() >= 3, "{log}");
    assert!(dir.journals().is_empty());

    let without = text.replace("control = \"pg_ctl\"", "");
    Workdir::new().compare(&without).expect(4, &["control = \"pg_ctl\""]);
}

/// EDB's server has another name, and packages of Red Hat start `postmaster`.
#[test]
fn a_server_whose_program_has_another_name_is_found_and_restarted() {
    let (server, dir) = (Managed::start(""), Workdir::new());
    let target = server.target().replace("\nhost = \"local\"", "");
    let keys = QUICK.replace("0s", "1s");
    let text = experiment_on(&target, &keys, "", &[("a", "max_connections = 50"), ("b", "")]);
    for name in ["edb-postgres", "postmaster"] {
        let program = server.path().join(name);
        symlink(server.bin.join("postgres"), &program).unwrap();
        server.stop();
        let arguments = ["-p", program.to_str().unwrap(), "-D", server.data().to_str().unwrap()]
            .map(str::to_owned);
        let log = server.log().display().to_string();
        let start = ["start", "-w", "-s", "-l", &log];
        server.run("pg_ctl", &[&start[..], &arguments.each_ref().map(String::as_str)].concat());
        let process = server.process().unwrap();
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
        assert_eq!(comm.trim(), name);
        let _ = fs::remove_dir_all(dir.out());
        dir.compare(&text).expect(0, &[]);
        for trial in dir.trials() {
            assert!(failed_checks(&trial, "invalid").is_empty(), "{trial}");
        }
        let storage = &dir.trials()[0]["telemetry"]["storage"];
        assert!(!storage.as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn a_condition_without_connections_for_its_sessions_is_refused_before_the_first_trial() {
    let server = Managed::start("");
    let (first, dir) = (server.process(), Workdir::new());
    let conditions = [("a", ""), ("small", "max_connections = 50")];
    let text = experiment_on(&server.target(), QUICK, "sessions = 64", &conditions);
    let small = ["condition `small`", "64 sessions are needed", "of 50 connections free"];
    dir.write("e.toml", &text);
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(REFUSED, &small);
    dir.compare(&text).expect(REFUSED, &small);
    assert_eq!(server.process(), first, "it was not restarted");
    assert!(!dir.out().exists() && dir.journals().is_empty());
}

#[test]
fn a_restart_waits_for_the_standby_that_commits_wait_for() {
    let server = Managed::start("-c synchronous_commit=local");
    let _standby = server.standby();
    alter_system(&server.dsn(), "synchronous_standby_names", Some("s1"));
    let sync = "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("synchronous", || connect(&server.dsn()).query_one(sync, &[]).unwrap().get(0));
    let conditions = [
        ("plain", "synchronous_commit = \"on\""),
        ("small", "synchronous_commit = \"on\", shared_buffers = \"16MB\""),
    ];
    let text = experiment_on(&server.target(), QUICK, "", &conditions);
    let dir = Workdir::new();
    dir.write("e.toml", &text);
    dir.pgio(&["doctor", "e.toml"]).expect(0, &["2 can be put in force"]);
    dir.compare(&text).expect(0, &[]);
    for trial in dir.trials() {
        assert!(failed_checks(&trial, "invalid").is_empty(), "{trial}");
    }
}

#[test]
fn killed_during_a_restart_the_server_runs_again_as_before() {
    let server = Managed::start("-c work_mem=7MB");
    let arguments = server.arguments();
    let text = experiment_on(
        &server.target(),
        QUICK,
        "",
        &[("b", "max_connections = 50"), ("c", "max_connections = 60")],
    );
    let mut random = SplitMix64::new(3);
    let mut down = 0;
    let kills = kills(4);
    for _ in 0..kills {
        let dir = Workdir::new();
        let mut running = dir.start_compare(&text);
        running.wait_until("journaled", || !dir.journals().is_empty());
        thread::sleep(Duration::from_millis(random.next_u64() % 700));
        running.kill();
        // Processes that it had started may or may not end.
        thread::sleep(Duration::from_millis(300));
        down += usize::from(server.process().is_none());
        dir.pgio(&["undo"]).expect(0, &[]);
        wait_until("up", || server.process().is_some());
        assert_eq!(show(&server.dsn(), "max_connections"), "100");
        assert_eq!(auto_conf(&server.dsn(), "max_connections"), None);
        assert_eq!(server.arguments(), arguments);
        assert!(dir.journals().is_empty());
    }
    println!("{down} of {kills} kills left it down");
}

#[test]
fn undo_starts_a_stopped_server() {
    let server = Managed::start("");
    let dir = Workdir::new();
    let text = experiment_on(
        &server.target(),
        &QUICK.replace("100ms", "60s"),
        "",
        &[("b", "max_connections = 50")],
    );
    let mut running = dir.start_compare(&text);
    running.wait_until("in force", || shows(&server.dsn(), "max_connections", "50"));
    running.kill();
    server.stop();
    dir.pgio(&["undo"]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(show(&server.dsn(), "max_connections"), "100");
    assert_eq!(connect(&server.dsn()).query_one("SELECT 1", &[]).unwrap().get::<_, i32>(0), 1);
}

/// The journal of a killed run, in which `change` replaces the beginning.
pub(crate) fn change_journal(dir: &Workdir, change: impl FnOnce(&mut serde_json::Value)) {
    let journal = dir.journals().remove(0);
    let text = fs::read_to_string(&journal).unwrap();
    let (begin, rest) = text.split_once('\n').unwrap();
    let mut begin = serde_json::from_str(begin).unwrap();
    change(&mut begin);
    fs::write(&journal, format!("{begin}\n{rest}")).unwrap();
}

/// Killed while `max_connections = 50` is in force.
pub(crate) fn killed_with_a_restart(server: &Managed) -> Workdir {
    let dir = Workdir::new();
    let keys = QUICK.replace("100ms", "60s");
    let condition = [("b", "max_connections = 50, work_mem = \"7MB\"")];
    let mut running = dir.start_compare(&experiment_on(&server.target(), &keys, "", &condition));
    running.wait_until("in force", || shows(&server.dsn(), "max_connections", "50"));
    running.kill();
    dir
}

#[test]
fn a_setting_stays_in_the_journal_until_the_server_was_restarted() {
    let server = Managed::start("");
    let dsn = server.dsn();
    type Change = fn(&mut serde_json::Value);
    let unreachable: Change = |begin| {
        begin["control"]["host"] = "far".into();
        begin["hosts"]["far"] = serde_json::json!({ "ssh": "nobody@no-such-host.invalid" });
    };
    let without: Change = |begin| {
        begin.as_object_mut().unwrap().remove("control");
    };
    for (why, change) in [("no-such-host.invalid", unreachable), ("does not say how", without)] {
        let dir = killed_with_a_restart(&server);
        change_journal(&dir, change);
        for _ in 0..2 {
            dir.pgio(&["undo"]).expect(6, &["runs with the former value", "max_connections", why]);
            assert_eq!(auto_conf(&dsn, "max_connections"), None);
            assert_eq!((show(&dsn, "max_connections").as_str(), dir.journals().len()), ("50", 1));
        }
        server.stop();
        server.start_again("");
        dir.pgio(&["undo"]).expect(0, &["Restored max_connections: absent"]);
        assert_eq!(show(&dsn, "max_connections"), "100");
    }
}

#[test]
fn a_server_that_does_not_start_with_a_condition_runs_again_without_it() {
    let server = Managed::start("");
    alter_system(&server.dsn(), "work_mem", Some("7MB"));
    let file = || fs::read_to_string(server.data().join("postgresql.auto.conf")).unwrap();
    let before = file();
    let dir = Workdir::new();
    let conditions =
        [("typo", "shared_preload_libraries = \"no_such_library\", max_connections = 50")];
    let text = experiment_on(&server.target(), QUICK, "", &conditions);
    dir.compare(&text).expect(REFUSED, &["no_such_library"]);
    assert_eq!(file(), before);
    assert_eq!(show(&server.dsn(), "max_connections"), "100");
    assert!(dir.journals().is_empty());

    // Killed where the server is down with these lines, and cannot be started.
    let dir = Workdir::new();
    let mut running = dir.start_compare(&text);
    running.wait_until("stopped", || server.process().is_none());
    running.kill();
    thread::sleep(Duration::from_millis(300));
    dir.pgio(&["undo"]).expect(0, &["Restored shared_preload_libraries: absent"]);
    assert_eq!(file(), before);
    assert_eq!(show(&server.dsn(), "max_connections"), "100");
}

/// With `max_wal_senders` alone the server does not start.
#[test]
fn settings_that_need_each_other_are_restored_before_the_restart() {
    let server = Managed::start("");
    server.stop();
    let conf = server.data().join("postgresql.conf");
    let text = fs::read_to_string(&conf).unwrap() + "wal_level = minimal\nmax_wal_senders = 0\n";
    fs::write(&conf, text).unwrap();
    server.start_again("");
    let dir = Workdir::new();
    let conditions = [("a", ""), ("replica", "max_wal_senders = 10, wal_level = \"replica\"")];
    dir.compare(&experiment_on(&server.target(), QUICK, "", &conditions)).expect(0, &["replica"]);
    assert_eq!(show(&server.dsn(), "wal_level"), "minimal");
    assert_eq!(show(&server.dsn(), "max_wal_senders"), "0");
    for name in ["wal_level", "max_wal_senders"] {
        assert_eq!(auto_conf(&server.dsn(), name), None);
    }
}

#[test]
fn a_setting_that_would_stop_a_standby_is_refused() {
    let server = Managed::start("");
    let refused = |condition: &str, expected: &[&str]| {
        let dir = Workdir::new();
        let text = experiment_on(&server.target(), QUICK, "", &[("b", condition)]);
        dir.compare(&text).expect(4, expected);
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let standby = server.standby();
    wait_until("streaming", || {
        let ask = "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'";
        connect(&server.dsn()).query_one(ask, &[]).unwrap().get(0)
    });
    refused("max_connections = 150", &["max_connections cannot be raised", "standby follows"]);
    refused("max_wal_senders = 0, wal_level = \"minimal\"", &["wal_level cannot be lowered"]);
    let dir = Workdir::new();
    let lower = experiment_on(&server.target(), QUICK, "", &[("b", "max_connections = 50")]);
    dir.compare(&lower).expect(0, &[]);
    drop(standby);
    server.stop();
    server.start_again("-c archive_mode=on -c archive_command=true");
    refused("archive_mode = \"off\"", &["archive_mode cannot be changed", "archives its WAL"]);
    let elsewhere = "archive_command = \"cp %p /tmp/%f\"";
    refused(elsewhere, &["archive_command cannot be changed", "archives its WAL"]);
    let slot = "SELECT pg_create_physical_replication_slot('s1')";
    connect(&server.dsn()).execute(slot, &[]).unwrap();
    refused("max_slot_wal_keep_size = \"1GB\"", &["max_slot_wal_keep_size", "replication slots"]);
}

#[test]
fn pending_settings_of_others_are_never_put_in_force() {
    let server = Managed::start("-c max_wal_senders=7");
    let conf = server.data().join("postgresql.conf");
    let before = fs::read_to_string(&conf).unwrap();
    let restart = "max_connections = 50";
    let reload = "wal_writer_delay = \"150ms\"";
    let refused = |lines: &str, target: &str, condition: &str, name: &str| {
        fs::write(&conf, format!("{before}{lines}")).unwrap();
        let dir = Workdir::new();
        let text = experiment_on(target, QUICK, "", &[("b", condition)]);
        let result = dir.compare(&text).expect(4, &["someone prepared", name]);
        assert!(!result.to_string().contains("geheim"), "{result}");
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let (with, without) = (server.target(), format!("dsn = {:?}", server.dsn()));
    refused("max_worker_processes = 9\n", &with, restart, "(max_worker_processes)");
    refused("work_mem = '9MB'\n", &with, restart, "(work_mem)");
    refused("work_mem = '9MB'\n", &without, reload, "(work_mem)");
    refused("primary_conninfo = 'password=geheim'\n", &without, reload, "(primary_conninfo)");
    refused("no_such_setting = 1\n", &with, restart, "(no_such_setting)");
    // A reload that is still to come would read the next file while it is written.
    let reload_files = || {
        let ask = |sql: &str| connect(&server.dsn()).query_one(sql, &[]).unwrap();
        let loaded = || ask("SELECT pg_conf_load_time()::text").get::<_, String>(0);
        let before = loaded();
        ask("SELECT pg_reload_conf()");
        wait_until("reloaded", || loaded() != before);
    };
    // A reload has noticed that the line is gone, and names neither the setting nor a file.
    fs::write(&conf, before.replace("\nshared_buffers", "\n#shared_buffers")).unwrap();
    reload_files();
    let text = experiment_on(&with, QUICK, "", &[("b", restart)]);
    Workdir::new().compare(&text).expect(4, &["someone prepared", "(shared_buffers)"]);
    fs::write(&conf, &before).unwrap();
    reload_files();
    // A reload leaves alone what waits for a restart.
    fs::write(&conf, format!("{before}max_worker_processes = 9\n")).unwrap();
    Workdir::new().compare(&experiment_on(&without, QUICK, "", &[("b", reload)])).expect(0, &[]);
    // A comment changes nothing, nor does a line that the command line overrides.
    let lines = "# max_connections = 60\nwork_mem = '4096kB'\nmax_wal_senders = 9\n";
    fs::write(&conf, format!("{before}{lines}")).unwrap();
    let both = [("a", reload), ("b", restart)];
    Workdir::new().compare(&experiment_on(&server.target(), QUICK, "", &both)).expect(0, &[]);

    // Prepared while the other condition is in force, whose undo reloads nothing.
    let dir = Workdir::new();
    let keys = QUICK.replace("= 1", "= 30").replace("100ms", "1s");
    let text = experiment_on(&server.target(), &keys, "", &[("plain", ""), ("b", reload)]);
    let mut running = dir.start_compare(&text);
    let plain = || show(&server.dsn(), "wal_writer_delay") != "150ms";
    running.wait_until("at work", || active_sessions(&server.dsn()) > 0 && plain());
    fs::write(&conf, format!("{before}work_mem = '9MB'\n")).unwrap();
    running.wait().expect(4, &["(work_mem)"]);
    assert!(dir.journals().is_empty());
    assert_eq!(show(&server.dsn(), "work_mem"), "4MB");
}

#[test]
fn a_server_that_cannot_be_restarted_is_refused_before_any_change() {
    let server = Managed::start("");
    let refused = |target: &str, expected: &[&str]| {
        let dir = Workdir::new();
        let text = experiment_on(target, QUICK, "", &[("b", "max_connections = 50")]);
        dir.compare(&text).expect(4, expected);
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let dsn = server.dsn();
    let empty = [("b", "shared_preload_libraries = \"\"")];
    let text = experiment_on(&server.target(), QUICK, "", &empty);
    Workdir::new().compare(&text).expect(4, &["to an empty list"]);
    refused(
        &format!("dsn = {dsn:?}\ncontrol = \"systemctl no-such-unit\"\nhost = \"local\""),
        &["has no active unit no-such-unit.service"],
    );
    connect(&dsn)
        .batch_execute("CREATE ROLE plain LOGIN; GRANT ALL ON SCHEMA public TO plain")
        .unwrap();
    let plain = dsn.replace("user=postgres", "user=plain");
    let target = format!("dsn = {plain:?}\ncontrol = \"pg_ctl\"\nhost = \"local\"");
    refused(&target, &["GRANT pg_read_all_settings"]);
    fs::remove_file(server.log()).unwrap();
    refused(&server.target(), &["(deleted)", "pg_ctl start -l FILE"]);
}
