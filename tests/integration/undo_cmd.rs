//! `pgio undo`: whenever pgio is killed, its changes are found and undone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgio::pg::private::{PrivateCluster, Spec};
use pgio::rng::SplitMix64;
use pgio_connect::{Client, Endpoint, Env, resolve};
use rustix::process::{Pid, Signal, kill_process};

use crate::controlling::{Managed, change_journal};
use crate::disk::{self, is_root};
use crate::killing::kills;
use crate::sshd::Sshd;
use pgio_tests::fixture::{
    INSTALLED, NEWEST, OwnPrimary, connect, fresh_database, own_primary, pgio_exe, spec,
};
use pgio_tests::workdir::{
    SAMPLED, Workdir, active_sessions, alter_system, auto_conf, experiment, pgio_sessions, show,
    wait_until,
};

const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false";

fn cluster(major: u32) -> OwnPrimary {
    own_primary(major)
}

/// Killed while two settings of the server are changed.
fn killed_in_mid_trial(dsn: &str) -> Workdir {
    let dir = Workdir::new();
    let body = "wal_writer_delay = \"150ms\", checkpoint_timeout = \"11min\"";
    let mut running = dir.start_compare(&experiment(dsn, LONG, "", &[("set", body)]));
    running.wait_until("in the window", || active_sessions(dsn) > 0);
    running.kill();
    assert_eq!(show(dsn, "wal_writer_delay"), "150ms");
    assert_eq!(show(dsn, "checkpoint_timeout"), "11min");
    assert_eq!(dir.journals().len(), 1);
    dir
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn after_kill_9_the_prior_lines_are_restored() {
    for major in [INSTALLED, NEWEST] {
        let cluster = cluster(major);
        let dsn = format!("{} password=geheim", cluster.primary_conninfo());
        alter_system(&dsn, "wal_writer_delay", Some("333ms"));
        wait_until("333ms", || show(&dsn, "wal_writer_delay") == "333ms");
        let line = auto_conf(&dsn, "wal_writer_delay");
        let dir = killed_in_mid_trial(&dsn);

        let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
        dir.write("again.toml", &experiment(&dsn, keys, "", &[("a", "")]));
        dir.pgio(&["compare", "again.toml"]).expect(6, &["pgio undo"]);
        for command in ["run", "setup", "destroy"] {
            dir.pgio(&[command, "--connect-string", &dsn]).expect(6, &["pgio undo"]);
        }
        dir.pgio(&["compare", "again.toml", "--plan"]).expect(6, &["pgio undo"]);
        dir.pgio(&["compare", "again.toml", "--plan", "--offline"]).expect(0, &[]);

        dir.pgio(&["undo"])
            .expect(0, &["Restored wal_writer_delay: `333", "Restored checkpoint_timeout: absent"]);
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), line);
        assert_eq!(auto_conf(&dsn, "checkpoint_timeout"), None);
        assert_eq!(show(&dsn, "wal_writer_delay"), "333ms");
        wait_until("reloaded", || show(&dsn, "checkpoint_timeout") == "5min");
        assert!(dir.journals().is_empty());

        let result = dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(result.out, dir.nothing_to_undo());
        dir.pgio(&["compare", "again.toml", "--out", "again"]).expect(0, &[]);

        for file in files(dir.path()).iter().filter(|f| f.extension().is_none_or(|e| e != "toml")) {
            let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
            assert!(!text.contains("geheim"), "the password is in {}", file.display());
        }
        let stored = fs::read_to_string(dir.path().join("again/experiment.toml")).unwrap();
        assert!(stored.contains("[[condition]]") && !stored.contains("geheim"), "{stored}");
    }
}

#[test]
fn a_journal_is_undone_on_its_server_only() {
    let [changed, other] = [cluster(INSTALLED), cluster(INSTALLED)];
    let [changed, other] = [&changed, &other].map(|server| server.primary_conninfo());
    alter_system(&other, "wal_writer_delay", Some("150ms"));
    let dir = killed_in_mid_trial(&changed);
    dir.pgio(&["undo", "--connect", &other]).expect(6, &["but the run changed server"]);
    assert_eq!(auto_conf(&other, "wal_writer_delay").as_deref(), Some("150ms"));
    assert_eq!(show(&changed, "wal_writer_delay"), "150ms");
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay: absent"]);
    assert_eq!(auto_conf(&changed, "wal_writer_delay"), None);
}

#[test]
fn undo_finds_the_primary_where_a_standby_comes_first_in_the_list() {
    let cluster = PrivateCluster::start(&Spec { standby: true, ..spec(INSTALLED) }).unwrap();
    let primary = cluster.primary_conninfo();
    let places = [&cluster.standby_conninfo().unwrap(), &primary].map(|conninfo| {
        let params = resolve(conninfo, &Env::default()).unwrap();
        let Endpoint::Socket { dir, port } = &params.hosts[0] else { panic!() };
        (dir.display().to_string(), *port)
    });
    let params = resolve(&primary, &Env::default()).unwrap();
    let list = format!(
        "host={},{} port={},{} user={} dbname={} target_session_attrs=read-write",
        places[0].0, places[1].0, places[0].1, places[1].1, params.user, params.dbname
    );
    let dir = killed_in_mid_trial(&list);
    let without = list.replace(" target_session_attrs=read-write", "");
    dir.pgio(&["undo", "--connect", &without]).expect(6, &["is a standby"]);
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay: absent"]);
    assert_eq!(auto_conf(&primary, "wal_writer_delay"), None);
    wait_until("reloaded", || show(&primary, "checkpoint_timeout") == "5min");
}

#[test]
fn undo_asks_about_a_setting_changed_since() {
    let cluster = cluster(INSTALLED);
    let dsn = cluster.primary_conninfo();
    for (flag, expected) in [("--keep", "777ms"), ("--restore", "200ms")] {
        let dir = killed_in_mid_trial(&dsn);
        alter_system(&dsn, "wal_writer_delay", Some("777ms"));
        wait_until("777ms", || show(&dsn, "wal_writer_delay") == "777ms");
        for _ in 0..2 {
            dir.pgio(&["undo"]).expect(6, &["wal_writer_delay", "777", "--keep", "--restore"]);
            assert_eq!(show(&dsn, "wal_writer_delay"), "777ms");
            assert_eq!(dir.journals().len(), 1);
        }
        let word = if flag == "--keep" { "Kept" } else { "Restored" };
        dir.pgio(&["undo", flag]).expect(0, &[&format!("{word} wal_writer_delay")]);
        wait_until(expected, || show(&dsn, "wal_writer_delay") == expected);
        wait_until("the other", || show(&dsn, "checkpoint_timeout") == "5min");
        assert_eq!(auto_conf(&dsn, "checkpoint_timeout"), None);
        assert!(dir.journals().is_empty());
        alter_system(&dsn, "wal_writer_delay", None);
    }
}

#[test]
fn a_failed_undo_ends_the_experiment() {
    let cluster = cluster(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 3\nduration = \"2s\"\naa = false";
    let conditions = [("set", "wal_writer_delay = \"150ms\"")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    assert_eq!(show(&dsn, "wal_writer_delay"), "150ms");
    alter_system(&dsn, "wal_writer_delay", Some("777ms"));
    running.wait().expect(6, &["777", "--keep", "--restore"]);
    assert_eq!(dir.trials().len(), 1, "the trial is kept");
    assert_eq!(show(&dsn, "wal_writer_delay"), "777ms");
    dir.pgio(&["undo", "--restore"]).expect(0, &["Restored"]);
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
}

#[test]
fn killed_at_any_moment_all_is_restored() {
    let cluster = cluster(INSTALLED);
    let dsn = cluster.primary_conninfo();
    alter_system(&dsn, "wal_writer_delay", Some("333ms"));
    wait_until("333ms", || show(&dsn, "wal_writer_delay") == "333ms");
    let line = auto_conf(&dsn, "wal_writer_delay");
    let keys = "blocks = 3\nduration = \"100ms\"\naa = false";
    let body = "wal_writer_delay = \"150ms\", checkpoint_timeout = \"11min\", bgwriter_delay = 500";
    let text = experiment(&dsn, keys, "", &[("a", ""), ("b", body)]);
    let lasting = experiment(&dsn, LONG, "", &[("b", body)]);
    let mut random = SplitMix64::new(7);
    let mut unfinished = 0;
    for round in 0..kills(10) {
        let dir = Workdir::new();
        let mut running = dir.start_compare(if round == 0 { &lasting } else { &text });
        running.wait_until("connected", || pgio_sessions(&dsn) > 0);
        match round {
            0 => running.wait_until("changed", || auto_conf(&dsn, "wal_writer_delay") != line),
            _ => thread::sleep(Duration::from_millis(random.next_u64() % 900)),
        }
        running.kill();
        unfinished += dir.journals().len();
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), line);
        assert_eq!(auto_conf(&dsn, "checkpoint_timeout"), None);
        assert_eq!(auto_conf(&dsn, "bgwriter_delay"), None);
        let settings = ["wal_writer_delay", "checkpoint_timeout", "bgwriter_delay"];
        wait_until("reloaded", || {
            settings.map(|s| show(&dsn, s)) == ["333ms", "5min", "200ms"].map(str::to_owned)
        });
        assert!(dir.journals().is_empty());
    }
    assert!(unfinished > 0, "the first moment lies inside a change");
}

/// Makes a server end all sessions and accept none for about 5 s: so long it waits for a stopped process of its own.
fn crash_a_backend(dsn: &str) {
    let mut sessions = [connect(dsn), connect(dsn)];
    let pids = sessions.each_mut().map(|session| {
        let row = session.query_one("SELECT pg_backend_pid()", &[]).unwrap();
        Pid::from_raw(row.get(0)).unwrap()
    });
    kill_process(pids[0], Signal::STOP).unwrap();
    kill_process(pids[1], Signal::KILL).unwrap();
    wait_until("in recovery", || Client::connect(dsn).is_err());
}

#[test]
fn a_server_that_recovers_is_waited_for() {
    let cluster = cluster(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let restored = || {
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
        wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
    };
    let dir = Workdir::new();
    let text = experiment(&dsn, LONG, "", &[("set", "wal_writer_delay = \"150ms\"")]);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    crash_a_backend(&dsn);
    running.wait().expect(5, &["FAILED"]);
    assert!(dir.journals().is_empty());
    restored();

    let dir = killed_in_mid_trial(&dsn);
    crash_a_backend(&dsn);
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay: absent"]);
    assert!(dir.journals().is_empty());
    restored();
}

#[test]
fn an_unreachable_server_keeps_its_journal() {
    let cluster = PrivateCluster::start(&spec(INSTALLED)).unwrap();
    let dsn = cluster.primary_conninfo();
    let dir = killed_in_mid_trial(&dsn);
    drop(cluster);
    let result = dir.pgio(&["undo"]).expect(6, &["the changes could not be undone"]);
    // Two settings and the table of the workload.
    assert_eq!(result.out.matches("Still in place: ").count(), 3, "{result}");
    assert!(result.out.contains(": cannot reach the server"), "{result}");
    assert!(result.out.contains(" must be undone first"), "{result}");
    assert_eq!(dir.journals().len(), 1);
}

#[test]
fn the_journal_of_a_server_that_is_gone_can_be_forgotten() {
    let server = Managed::start("");
    let dir = killed_in_mid_trial(&server.dsn());
    let journal = dir.journals().remove(0);
    let run = journal.file_stem().unwrap().to_str().unwrap();
    let again = experiment(&server.dsn(), "blocks = 1\nduration = \"100ms\"", "", &[("a", "")]);
    dir.write("again.toml", &again);
    dir.pgio(&["compare", "again.toml"]).expect(6, &["pgio undo"]);
    // A test's server, thrown away and made again.
    server.create_another();
    dir.pgio(&["compare", "again.toml", "--out", "again"]).expect(0, &["unrelated changes"]);
    let hint = format!("`pgio undo --forget {run}`");
    let expected = ["but the run changed server", journal.to_str().unwrap(), &hint];
    dir.pgio(&["undo"]).expect(6, &expected);
    dir.pgio(&["undo", "--forget", "nothing"]).expect(2, &["no interrupted run nothing"]);
    // Two runs began in the same second.
    let second = run.split('-').next().unwrap();
    let twin = journal.with_file_name(format!("{second}-1-00000000.journal"));
    fs::copy(&journal, &twin).unwrap();
    let both = ["may be any of the runs", run, "-1-00000000"];
    dir.pgio(&["undo", "--forget", second]).expect(2, &both);
    assert!(journal.exists());
    fs::remove_file(twin).unwrap();
    let expected = [
        "Left in place: wal_writer_delay (",
        "before: absent",
        "table public.pgio_commit",
        "Removed",
    ];
    dir.pgio(&["undo", "--forget", run]).expect(0, &expected);
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
    assert_eq!(auto_conf(&server.dsn(), "wal_writer_delay"), None);

    // A table is gone with its server.
    fs::remove_dir_all(dir.out()).unwrap();
    let text = experiment(&server.dsn(), LONG, "", &[("a", "")]);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&server.dsn()) > 0);
    running.kill();
    server.create_another();
    dir.pgio(&["undo"]).expect(0, &["Still in place: table public.pgio_commit", "--forget"]);
    server.stop();
    dir.pgio(&["undo"]).expect(0, &["Still in place: table public.pgio_commit", "--forget"]);
}

#[test]
fn an_unreachable_host_does_not_block_the_undo_on_others() {
    let (server, sshd) = (own_primary(INSTALLED), Sshd::start());
    let dsn = fresh_database(&server);
    let dir = Workdir::new();
    // From the directory in which the experiment was started.
    fs::copy(sshd.config(), dir.path().join("ssh_config")).unwrap();
    let [here, there] = ["here", "there"].map(|name| dir.path().join(name));
    let command = |name: &str, host: &str, file: &Path| {
        format!(
            "{{ name = {name:?}, host = {host:?}, apply = [\"touch\", {file:?}], verify = [\"test\", \"-e\", {file:?}], undo = [\"rm\", {file:?}] }}"
        )
    };
    let text = experiment(&dsn, LONG, "", &[("set", "")])
        + &format!(
            "command = [{}, {}]\n[hosts.box]\nssh = \"box\"\nssh_config = \"ssh_config\"\n",
            command("here", "local", &here),
            command("there", "box", &there)
        );
    let mut running = dir.start_compare(&text);
    running.wait_until("both in force", || here.exists() && there.exists());
    running.kill();
    let keys = fs::read(sshd.path("authorized_keys")).unwrap();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let undo = || {
        let mut undo = dir.command(&["undo"]);
        undo.current_dir("/");
        dir.start(undo).wait()
    };
    let result = undo()
        .expect(6, &["Restored command `here` on host local", "some changes could not be undone"]);
    let left =
        "Still in place: command `there` on host box: host box refuses a login without a password";
    assert!(result.out.contains(left), "{result}");
    assert!(!here.exists() && there.exists());
    assert_eq!(dir.journals().len(), 1);
    fs::write(sshd.path("authorized_keys"), keys).unwrap();
    let result = undo().expect(0, &["Restored command `there` on host box"]);
    assert!(!result.out.contains("`here`"), "once is enough: {result}");
    assert!(!there.exists() && dir.journals().is_empty());
}

#[test]
fn steps_of_another_machine_are_left_to_it() {
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let dir = Workdir::new();
    let flag = dir.path().join("flag");
    let command = format!(
        "command = {{ name = \"flag\", apply = [\"touch\", {flag:?}], verify = [\"test\", \"-e\", {flag:?}], undo = [\"rm\", {flag:?}] }}\n"
    );
    let keys = format!("{LONG}\n{SAMPLED}");
    let text = experiment(&dsn, &keys, "", &[("set", "")]) + &command;
    let mut running = dir.start_compare(&text);
    running.wait_until("in force", || flag.exists());
    running.kill();
    let mut here = serde_json::Value::Null;
    change_journal(&dir, |begin| {
        here = begin["machine"].take();
        begin["machine"] = serde_json::json!({ "name": "other", "id": "another one" });
    });
    dir.pgio(&["undo"]).expect(6, &["the run was on machine other", "run `pgio undo` there"]);
    assert!(flag.exists() && dir.journals().len() == 1);
    // What is wrong with the connection is no matter of the host's.
    assert!(here["name"].as_str().is_some_and(|name| !name.is_empty()), "{here}");
    change_journal(&dir, |begin| begin["machine"] = here.clone());
    let mut undo = dir.command(&["undo"]);
    undo.env("PGPORT", "no port").env("PGSERVICE", "no-such-service");
    dir.start(undo).wait();
    assert!(!flag.exists());
    dir.pgio(&["undo"]).expect(0, &[]);
}

#[test]
fn a_full_disk_does_not_stop_an_undo_halfway() {
    let cluster = cluster(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = killed_in_mid_trial(&dsn);
    let journal = dir.journals().remove(0);
    let text = fs::read_to_string(&journal).unwrap();
    // A few bytes of the next line go to the file, and no more.
    let limit = format!("--fsize={}", text.len() + 7);
    let mut undo = Command::new("sh");
    undo.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", "prlimit", &limit])
        .arg(pgio_exe())
        .arg("undo")
        .current_dir(dir.path())
        .env("PGIO_STATE_DIR", dir.path().join("state"));
    let put_back = ["Restored wal_writer_delay", "Restored checkpoint_timeout"];
    dir.start(undo).wait().expect(6, &[put_back[0], put_back[1], "make room"]);
    wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
    wait_until("reloaded", || show(&dsn, "checkpoint_timeout") == "5min");
    assert_eq!(fs::read_to_string(&journal).unwrap(), text, "as it was");
    // Once more does no harm.
    dir.pgio(&["undo"]).expect(0, &put_back);
    assert!(dir.journals().is_empty());
}

#[test]
fn a_full_state_directory_is_a_matter_of_files() {
    if !is_root("a full state directory") {
        return;
    }
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let dir = Workdir::new();
    let (state, flag) = (dir.path().join("state"), dir.path().join("flag"));
    fs::create_dir(&state).unwrap();
    let at = state.to_str().unwrap();
    disk::run("mount", &["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", at]);
    let keys = format!("blocks = 1\nduration = \"100ms\"\naa = false\n{SAMPLED}");
    let flag_text = flag.display();
    let command = format!(
        "command = {{ name = \"flag\", apply = \"touch {flag_text}\", verify = \"test -e {flag_text}\", \
         undo = \"rm {flag_text}\" }}\n"
    );
    let text = experiment(&dsn, &keys, "", &[("set", "")]) + &command;
    let mut results = Vec::new();
    // First there is no room for a lock, then none for the journal.
    for free in [0, 4, 8, 12, 16] {
        fs::write(state.join("fill"), vec![0; (64 - free) << 10]).unwrap();
        results.push(dir.compare(&text));
        fs::remove_file(state.join("fill")).unwrap();
        let _ = fs::remove_dir_all(dir.out());
    }
    disk::run("umount", &["-l", at]);
    assert!(!flag.exists());
    let about_journal = results.iter().filter(|result| result.err.contains("the journal"));
    assert!(about_journal.count() > 0, "{:?}", results.iter().map(|r| &r.err).collect::<Vec<_>>());
    for result in results {
        if result.err.contains("No space left on device") {
            result.expect(7, &[]);
        }
    }
}

#[test]
fn a_failed_undo_is_reported_at_once() {
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let dir = Workdir::new();
    let keys = format!("blocks = 1\nduration = \"100ms\"\naa = false\n{SAMPLED}");
    let command =
        r#"command = { name = "flag", apply = "false", verify = "false", undo = "false" }"#;
    let text = experiment(&dsn, &keys, "", &[("set", "")]) + command + "\n";
    dir.compare(&text).expect(6, &["apply of command `flag`", "run `pgio undo` first"]);
    dir.pgio(&["undo", "--keep"]).expect(0, &["Kept command `flag`"]);
    assert!(dir.journals().is_empty());
}

#[test]
fn a_journal_without_a_change_is_nothing_to_undo() {
    let dir = Workdir::new();
    fs::create_dir_all(dir.path().join("state/journal")).unwrap();
    // Killed between making the file and writing its first line.
    dir.write("state/journal/1-1.journal", "");
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
    assert!(dir.journals().is_empty());
}
