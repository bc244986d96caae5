//! Private servers as people build them: they are what the file says, nothing of others is touched, and
//! a kill leaves nothing that `undo` does not remove.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pgio::config::experiment::StandbyTarget;
use pgio::pg::private::{PrivateCluster, Spec};
use pgio::rng::SplitMix64;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::killing::kills;
use pgio_tests::fixture::{INSTALLED, connect, spec};
use pgio_tests::timing::wait_until;
use pgio_tests::workdir::{Workdir, show};

/// Directories that a server's user may enter, each with a file of somebody's.
struct Places {
    base: TempDir,
}

impl Places {
    fn new() -> Places {
        let base = tempfile::Builder::new().prefix("b").tempdir_in("/var/tmp").unwrap();
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        };
        open(base.path());
        for name in ["fast", "wal", "slow"] {
            let place = base.path().join(name);
            fs::create_dir(&place).unwrap();
            open(&place);
            fs::write(place.join("mine"), "precious").unwrap();
        }
        Places { base }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The directories of clusters there.
    fn clusters(&self) -> Vec<PathBuf> {
        let entries = ["fast", "wal", "slow"].map(|name| fs::read_dir(self.path(name)).unwrap());
        let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("pgio-"))
            .collect()
    }

    /// The command lines of processes that work there or name a file there.
    fn processes(&self) -> Vec<String> {
        let base = self.base.path().to_str().unwrap();
        let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let line = |process: PathBuf| {
            let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
            let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
            (cwd.starts_with(base) || line.contains(base)).then_some(line)
        };
        pids.filter_map(line).collect()
    }

    fn are_untouched(&self) -> bool {
        let mine =
            ["fast", "wal", "slow"].map(|name| fs::read_to_string(self.path(name).join("mine")));
        mine.into_iter().all(|text| text.is_ok_and(|text| text == "precious"))
    }
}

#[test]
fn a_server_is_built_as_the_file_says() {
    let places = Places::new();
    let standbys = vec![
        StandbyTarget::named("a"),
        StandbyTarget {
            directory: Some(places.path("slow")),
            apply_delay: Duration::from_secs(3600),
            archive: true,
            ..StandbyTarget::named("b")
        },
        StandbyTarget { from: Some("a".to_owned()), ..StandbyTarget::named("c") },
    ];
    let cluster = PrivateCluster::start(&Spec {
        standbys,
        initdb: vec!["--data-checksums".to_owned(), "--wal-segsize=1".to_owned()],
        primary_settings: vec![("work_mem".to_owned(), "5MB".to_owned())],
        base_dir: Some(places.path("fast")),
        wal_dir: Some(places.path("wal")),
        ..spec(INSTALLED)
    })
    .unwrap();
    let primary = cluster.primary_conninfo();
    for (setting, value) in [
        ("data_checksums", "on"),
        ("wal_segment_size", "1MB"),
        ("work_mem", "5MB"),
        ("synchronous_standby_names", "a, b"),
    ] {
        assert_eq!(show(&primary, setting), value);
    }
    let wal = fs::canonicalize(cluster.data_dir().join("pg_wal")).unwrap();
    assert!(wal.starts_with(fs::canonicalize(places.path("wal")).unwrap()), "{}", wal.display());
    let data = |name: &str| cluster.standbys().find(|(s, _)| s.name == name).unwrap().1;
    let own_wal = fs::symlink_metadata(data("a").join("pg_wal")).unwrap();
    assert!(own_wal.is_dir(), "not a link to the primary's");
    assert!(data("b").starts_with(fs::canonicalize(places.path("slow")).unwrap()));
    let names = |conninfo: &str| -> Vec<String> {
        let sql = "SELECT application_name FROM pg_stat_replication ORDER BY 1";
        connect(conninfo).query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(names(&primary), ["a", "b"]);
    assert_eq!(names(&cluster.upstream_conninfo("a").unwrap()), ["c"]);
    assert_eq!(cluster.upstream_conninfo("b"), None);
    let sql = "CREATE TABLE t (i int); SELECT pg_switch_wal()";
    connect(&primary).batch_execute(sql).unwrap();
    let archive = data("b").with_file_name("b.archive");
    wait_until("archived", || fs::read_dir(&archive).is_ok_and(|files| files.count() > 0));
    assert_eq!(places.clusters().len(), 3);
    cluster.stop().unwrap();
    assert_eq!(places.clusters(), [""; 0].map(PathBuf::from));
    assert!(places.are_untouched());
}

/// pgio and its supervisor are killed together at any moment, as by a power cut: nobody is left to remove the
/// directories. PGIO_TEST_KILLS is the number of moments; `lab/kills` has 100.
#[test]
fn undo_removes_every_directory_of_a_killed_run() {
    let places = Places::new();
    let path = |name: &str| places.path(name).display().to_string();
    let text = format!(
        "[experiment]\nblocks = 1\nduration = '60s'\naa = false\ntelemetry = '0'\n[target]\nprivate = true\n\
         pg = {INSTALLED}\ndirectory = {:?}\nwal_directory = {:?}\n\
         standbys = [{{ name = 'b', directory = {:?} }}]\n[workload]\nkind = 'commit'\n\
         [[condition]]\nname = 'a'\n",
        path("fast"),
        path("wal"),
        path("slow"),
    );
    let mut random = SplitMix64::new(3);
    for kill in 0..kills(4) {
        let dir = Workdir::new();
        let mut run = dir.start_compare(&text);
        match kill {
            0 => run.wait_until("it works", || {
                let logs = places.clusters().into_iter().map(|path| path.join("b.log"));
                logs.into_iter().any(|log| {
                    fs::read_to_string(log).is_ok_and(|text| text.contains("started streaming"))
                })
            }),
            1 => run.wait_until("one is made", || !places.clusters().is_empty()),
            _ => thread::sleep(Duration::from_millis(random.next_u64() % 2500)),
        }
        let supervisor = supervisor_of(run.pid());
        run.signal(Signal::KILL);
        if let Some(pid) = supervisor {
            // It may have noticed the end of pgio.
            let _ = kill_process(pid, Signal::KILL);
            wait_until("ended", || !is_alive(pid));
        }
        run.wait();
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(places.clusters(), [""; 0].map(PathBuf::from), "{kill}");
        assert_eq!(places.processes(), [""; 0].map(String::from), "{kill}");
        assert_eq!(dir.cluster_notes(), 0, "{kill}");
    }
    assert!(places.are_untouched());
}

fn supervisor_of(pgio: i32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pgio}/task/{pgio}/children")).unwrap();
    let is_one = |pid: &&str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.contains("supervise"))
    };
    Pid::from_raw(children.split_whitespace().find(is_one)?.parse().unwrap())
}

fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|text| !text.contains("State:\tZ"))
}

/// An initdb that hangs, as on slow storage, does not keep pgio. The supervisor removes the directory after it.
#[test]
fn an_interrupt_ends_the_start_of_a_private_server() {
    let places = Places::new();
    let dir = Workdir::new();
    let (programs, held) = (places.path("bin"), places.path("held"));
    fs::create_dir(&programs).unwrap();
    fs::set_permissions(&programs, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&held, "").unwrap();
    let hangs = format!("while [ -e '{}' ]; do sleep 0.05; done; exit 1", held.display());
    let banner = format!("echo 'postgres (PostgreSQL) {INSTALLED}.1'");
    for (name, script) in [("initdb", hangs), ("postgres", banner)] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let text = format!(
        "[experiment]\nblocks = 1\nduration = '1s'\naa = false\n[target]\nprivate = true\n\
         pg = {INSTALLED}\ndirectory = {:?}\n[workload]\nkind = 'commit'\n[[condition]]\nname = 'a'\n",
        places.path("fast").display().to_string()
    );
    dir.write("experiment.toml", &text);
    let mut command = dir.command(&["compare", "experiment.toml", "--out", "out"]);
    command.env("PGIO_BINDIR", &programs);
    let mut run = dir.start(command);
    run.wait_until("its directory is made", || !places.clusters().is_empty());
    run.signal(Signal::INT);
    run.wait_for(Duration::from_secs(20)).expect(130, &["stopped while a private PostgreSQL"]);
    fs::remove_file(&held).unwrap();
    wait_until("removed", || places.clusters().is_empty());
    assert!(places.are_untouched());
}

#[test]
fn an_interrupt_ends_the_wait_for_a_synchronous_standby() {
    let places = Places::new();
    let dir = Workdir::new();
    let mut run = dir.start_compare(&format!(
        "[experiment]\nblocks = 1\nduration = '1s'\naa = false\n[target]\nprivate = true\n\
         pg = {INSTALLED}\ndirectory = {:?}\nstandbys = [{{ name = 'b' }}]\n\
         postgres = {{ synchronous_standby_names = 'nobody' }}\n[workload]\nkind = 'commit'\n\
         [[condition]]\nname = 'a'\n",
        places.path("fast").display().to_string()
    ));
    let is_ready = |cluster: &PathBuf| {
        let pid_file = fs::read_to_string(cluster.join("b/postmaster.pid")).unwrap_or_default();
        pid_file.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    };
    run.wait_until("the standby is ready", || places.clusters().iter().any(is_ready));
    // Until pgio asks the primary for its standbys.
    thread::sleep(Duration::from_secs(1));
    run.signal(Signal::INT);
    run.wait_for(Duration::from_secs(20)).expect(130, &["stopped while a private PostgreSQL"]);
    wait_until("removed", || places.clusters().is_empty());
    assert_eq!(dir.cluster_notes(), 0);
}

#[test]
fn what_cannot_be_built_is_refused_before_anything_is_created() {
    let places = Places::new();
    let dir = Workdir::new();
    let file = |target: &str| {
        format!(
            "[target]\nprivate = true\npg = {INSTALLED}\n{target}\n[workload]\nkind = 'commit'\n[[condition]]\nname = 'a'\n"
        )
    };
    let fast = format!("directory = {:?}\n", places.path("fast").display().to_string());
    let refused = |target: &str, code: i32, texts: &[&str]| {
        let text = file(&format!("{fast}{target}"));
        for args in [&["--plan"][..], &[]] {
            dir.write("experiment.toml", &text);
            let all = [&["compare", "experiment.toml", "--out", "out"], args].concat();
            let result = dir.pgio(&all).expect(code, texts);
            assert_eq!(result.err.trim().lines().count(), 1, "one sentence: {result}");
        }
        assert!(places.clusters().is_empty() && !dir.out().exists());
    };
    refused(
        "initdb = ['--no-data-checksums']",
        4,
        &["PostgreSQL 15.", "no option `--no-data-checksums`"],
    );
    refused("standbys = [{ name = 'a' }, { name = 'a' }]", 2, &["`a` is already a standby"]);
    refused("standbys = [{ name = 'a', apply_delay = 'soon' }]", 2, &["apply_delay", "`soon`"]);
    refused("wal_directory = '/nonexistent/wal'", 4, &["/nonexistent/wal is not a directory"]);
    fs::write(places.path("wal").join("PG_VERSION"), "15\n").unwrap();
    let other = format!("wal_directory = {:?}", places.path("wal").display().to_string());
    refused(&other, 4, &["is in the data directory of another PostgreSQL"]);
    dir.pgio(&["example", "no-such"]).expect(2, &["unknown example `no-such`"]);
}
