//! A private cluster works, and goes without a trace however its owner ends.
//!
//! The owner that is killed is this test binary, run again for [`owner_process`] alone.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use pgio::pg::private::{Error, Origin, PrivateCluster, Spec, VersionRequest, reap};
use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use tempfile::TempDir;

use pgio_tests::fixture::{
    INSTALLED, NEWEST, connect, copy_program, fresh_database, pgio_exe, shared_pair,
    shared_primary, spec,
};
use pgio_tests::timing::wait_until;

fn show(conninfo: &str, setting: &str) -> String {
    connect(conninfo).query_one(&format!("SHOW {setting}"), &[]).unwrap().get(0)
}

/// A base directory of this test's own: the clean-up must not meet other tests' clusters.
fn base() -> TempDir {
    let base = tempfile::Builder::new().prefix("t").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o777)).unwrap();
    base
}

/// The processes of a cluster: supervisor, postmasters, and their children.
#[derive(Debug)]
struct Processes {
    supervisor: i32,
    all: Vec<i32>,
}

fn processes(cluster: &Path) -> Processes {
    let postmasters = [cluster.join("primary"), cluster.join("standby")]
        .iter()
        .filter_map(|data| fs::read_to_string(data.join("postmaster.pid")).ok())
        .map(|text| text.lines().next().unwrap().parse().unwrap())
        .collect::<Vec<i32>>();
    let supervisor = parent(postmasters[0]).unwrap();
    let mut all = vec![supervisor];
    all.extend(&postmasters);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if parent(pid).is_some_and(|p| postmasters.contains(&p)) {
            all.push(pid);
        }
    }
    Processes { supervisor, all }
}

/// The first numbers after a process's state: parent, process group, session (0 once it is exiting).
/// None for a process that no longer exists or is a zombie.
fn stat(pid: i32) -> Option<[i32; 3]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    let mut number = || fields.next()?.parse().ok();
    Some([number()?, number()?, number()?])
}

fn parent(pid: i32) -> Option<i32> {
    stat(pid).map(|[parent, _, _]| parent)
}

fn session(pid: i32) -> Option<i32> {
    stat(pid).map(|[_, _, session]| session)
}

fn wait_until_gone(pids: &[i32]) {
    for pid in pids {
        wait_until(&format!("process {pid} gone"), || parent(*pid).is_none());
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn check_works(cluster: &PrivateCluster, major: u32) {
    assert_eq!(cluster.version().major, major);
    let conninfo = cluster.primary_conninfo();
    let version = show(&conninfo, "server_version");
    assert_eq!(version.split(' ').next(), Some(cluster.version().to_string().as_str()));
    assert_eq!(show(&conninfo, "fsync"), "on");
    assert_eq!(show(&conninfo, "listen_addresses"), "");
    assert_eq!(show(&conninfo, "data_directory"), cluster.data_dir().display().to_string());
    let database: String =
        connect(&conninfo).query_one("SELECT current_database()::text", &[]).unwrap().get(0);
    assert_eq!(database, "pgio");
}

#[test]
fn an_installed_server_is_used() {
    let cluster = shared_primary(INSTALLED);
    check_works(cluster, INSTALLED);
    if Path::new(&format!("/usr/lib/postgresql/{INSTALLED}/bin/postgres")).is_file() {
        let origin = &cluster.binaries().origin;
        assert!(matches!(origin, Origin::Installed(_)), "{origin:?}");
    } else {
        pgio_tests::skipped(&format!(
            "PostgreSQL {INSTALLED} is not installed, so a downloaded one was used"
        ));
    }
    assert_eq!(cluster.standby_conninfo(), None);
    assert!(matches!(cluster.stop_standby(), Err(Error::Supervisor(_))));
}

#[test]
fn the_newest_runs_with_a_synchronous_standby() {
    let cluster = shared_pair(NEWEST);
    check_works(cluster, NEWEST);
    let standby = connect(&cluster.standby_conninfo().unwrap())
        .query_one("SELECT pg_is_in_recovery()", &[])
        .unwrap();
    assert!(standby.get::<_, bool>(0));
}

#[test]
fn each_test_gets_a_database_of_its_own() {
    let cluster = shared_primary(INSTALLED);
    let (one, other) = (fresh_database(cluster), fresh_database(cluster));
    connect(&one).batch_execute("CREATE TABLE t ()").unwrap();
    let found = connect(&other).query_one("SELECT to_regclass('t') IS NULL", &[]).unwrap();
    assert!(found.get::<_, bool>(0));
}

#[test]
fn psql_reads_the_conninfo() {
    let cluster = shared_primary(INSTALLED);
    let psql = cluster.binaries().directory.join("psql");
    if !psql.is_file() {
        pgio_tests::skipped("no psql beside the server");
        return;
    }
    let output = Command::new(psql)
        .args(["-X", "-At", "-c", "SELECT 42", &cluster.primary_conninfo()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{output:?}");
}

#[test]
fn a_pair_applies_settings_survives_a_stopped_standby_and_leaves_no_trace() {
    let base = base();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let cluster = PrivateCluster::start(&Spec {
        standby: true,
        base_dir: Some(base.path().into()),
        // More than the default: the standby must get it too, or it refuses to start.
        primary_settings: vec![pair("max_connections", "150"), pair("work_mem", "5MB")],
        standby_settings: vec![pair("work_mem", "6MB")],
        ..spec(INSTALLED)
    })
    .unwrap();
    let (primary, standby) = (cluster.primary_conninfo(), cluster.standby_conninfo().unwrap());
    assert_eq!(show(&primary, "work_mem"), "5MB");
    assert_eq!(show(&standby, "work_mem"), "6MB");
    assert_eq!(show(&standby, "max_connections"), "150");

    // ALTER SYSTEM and a restart, as a treatment does it.
    connect(&primary).batch_execute("ALTER SYSTEM SET shared_buffers = '24MB'").unwrap();
    cluster.restart_primary().unwrap();
    assert_eq!(show(&primary, "shared_buffers"), "24MB");

    // A commit waits for the stopped standby, and is released by its return.
    cluster.stop_standby().unwrap();
    cluster.stop_standby().unwrap();
    let waiting = thread::spawn({
        let primary = primary.clone();
        move || connect(&primary).batch_execute("CREATE TABLE t AS SELECT 1 AS a").unwrap()
    });
    let mut watcher = connect(&primary);
    let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_until("a commit waits", || watcher.query_one(query, &[]).unwrap().get::<_, i64>(0) == 1);
    cluster.start_standby().unwrap();
    waiting.join().unwrap();
    wait_until("the standby has it", || connect(&standby).query("SELECT FROM t", &[]).is_ok());

    let processes = processes(cluster.directory());
    assert!(processes.all.len() > 10, "{processes:?}");
    // A session, such as the watcher's, must not hold it up.
    cluster.stop().unwrap();
    assert!(processes.all.iter().all(|pid| parent(*pid).is_none()), "all ended before stop did");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_does_not_start_reports_why_and_leaves_nothing() {
    let base = base();
    let error = PrivateCluster::start(&Spec {
        base_dir: Some(base.path().into()),
        primary_settings: vec![("shared_buffers".into(), "lots".into())],
        ..spec(INSTALLED)
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the primary did not start") && text.contains("shared_buffers"),
        "{text}"
    );
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

/// Not a test: what the tests below start and kill.
#[test]
#[ignore = "run by other tests as a process of its own"]
fn owner_process() {
    let Ok(base) = env::var("PGIO_TEST_BASE") else { return };
    let major = env::var("PGIO_TEST_PG").ok().map(|v| v.parse::<VersionRequest>().unwrap());
    let cluster = PrivateCluster::start(&Spec {
        pg: major,
        standby: env::var("PGIO_TEST_STANDBY").is_ok(),
        base_dir: Some(base.into()),
        ..Spec::new(env::var("PGIO_TEST_EXE").unwrap())
    })
    .unwrap();
    eprintln!("owner: {}", cluster.directory().display());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

struct OwnerProcess {
    child: Child,
    cluster: PathBuf,
}

impl OwnerProcess {
    /// In a process group of its own, as under a shell with job control.
    fn start(base: &Path, standby: bool) -> Self {
        // If the tests run in the background, their children ignore Ctrl-C.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(env::current_exe().unwrap());
        if standby {
            command.env("PGIO_TEST_STANDBY", "1");
        }
        Self::run(command, &pgio_exe(), base)
    }

    fn run(mut command: Command, pgio: &Path, base: &Path) -> Self {
        let mut child = command
            .args(["--exact", "private_cluster::owner_process", "--ignored", "--nocapture"])
            .env("PGIO_TEST_BASE", base)
            .env("PGIO_TEST_PG", INSTALLED.to_string())
            .env("PGIO_TEST_EXE", pgio)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut result = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(cluster) = line.strip_prefix("owner: ") {
                return Self { child, cluster: cluster.into() };
            }
            result += &format!("{line}\n");
        }
        let status = child.wait().unwrap();
        panic!("the owner ended with {status} and without a cluster:\n{result}");
    }

    fn signal(mut self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
        assert!(!self.child.wait().unwrap().success(), "the signal ended it");
    }
}

/// A kill -9, and Ctrl-C in a terminal, which reaches the whole process group.
#[test]
fn an_owner_that_is_killed_leaves_no_trace() {
    for (signal, standby) in [(Signal::KILL, true), (Signal::INT, false)] {
        let base = base();
        let owner = OwnerProcess::start(base.path(), standby);
        let processes = processes(&owner.cluster);
        let cluster = owner.cluster.clone();
        // Ctrl-C must leave the servers to an owner that still has something to undo there.
        let owners = session(owner.child.id().cast_signed()).unwrap();
        // A worker of the server's may have ended since it was listed.
        assert!(!processes.all.iter().any(|pid| session(*pid) == Some(owners)));
        owner.signal(signal);
        wait_until_gone(&processes.all);
        assert!(!cluster.exists(), "removed before the supervisor ended");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}

#[test]
fn with_the_supervisor_killed_too_the_servers_stop_and_the_next_start_cleans_up() {
    let base = base();
    let owner = OwnerProcess::start(base.path(), true);
    let processes = processes(&owner.cluster);
    let cluster = owner.cluster.clone();
    assert!(reap(base.path()).is_empty(), "a live cluster is not removed");
    kill(processes.supervisor);
    wait_until_gone(&processes.all);
    owner.signal(Signal::KILL);
    assert!(cluster.exists(), "nobody was left to remove it");

    let spec = Spec { base_dir: Some(base.path().into()), ..spec(INSTALLED) };
    let next = PrivateCluster::start(&spec).unwrap();
    assert!(!cluster.exists());
    next.stop().unwrap();
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

/// Killed a moment ago, the servers may still be stopping: the clean-up waits for them.
#[test]
fn a_clean_up_waits_for_servers_that_are_still_stopping() {
    let base = base();
    let owner = OwnerProcess::start(base.path(), false);
    let processes = processes(&owner.cluster);
    kill(processes.supervisor);
    owner.signal(Signal::KILL);
    // Its lock is released when its last thread ends, a moment after the process looks dead.
    wait_until("removed", || reap(base.path()).len() == 1);
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    wait_until_gone(&processes.all);
}

/// Id of the user that the servers run as.
fn server_ids() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = passwd.lines().find(|l| l.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(|f| f.parse().unwrap());
        Some((fields.next()?, fields.next()?))
    };
    of("postgres").or_else(|| of("nobody")).unwrap()
}

/// A process of the servers' user plants links wherever it may write, all the time, while root makes
/// and restarts the servers.
#[test]
fn links_that_the_server_user_plants_are_not_followed_by_root() {
    if !geteuid().is_root() {
        pgio_tests::skipped("not root, so there is nothing to be gained");
        return;
    }
    let base = base();
    let victim = base.path().join("victim");
    let (uid, gid) = server_ids();
    let script = r#"while :; do for d in "$1"/pgio-*; do for f in primary.log standby.log relay; do
            [ -L "$d/$f" ] || ln -s "$1/victim" "$d/$f" || { rm -f "$d/$f"; ln -s "$1/victim" "$d/$f"; }
        done; done 2>/dev/null; sleep 0.01; done"#;
    let mut attacker = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(base.path())
        .uid(uid)
        .gid(gid)
        .current_dir("/")
        .spawn()
        .unwrap();
    fs::write(&victim, "precious").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    let spec = Spec { standby: true, base_dir: Some(base.path().into()), ..spec(INSTALLED) };
    let cluster = PrivateCluster::start(&spec).unwrap();
    cluster.restart_primary().unwrap();
    cluster.stop().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let mode = fs::metadata(&victim).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    attacker.kill().unwrap();
    attacker.wait().unwrap();
}

#[test]
fn other_local_users_are_kept_out() {
    if !geteuid().is_root() {
        pgio_tests::skipped("not root, so there is no other user to be");
        return;
    }
    let base = base();
    let spec = Spec { base_dir: Some(base.path().into()), ..spec(INSTALLED) };
    let cluster = PrivateCluster::start(&spec).unwrap();
    let psql = cluster.binaries().directory.join("psql");
    if !psql.is_file() {
        pgio_tests::skipped("no psql beside the server");
        return;
    }
    let (uid, gid) = server_ids();
    let ask = |uid, gid| {
        let conninfo = cluster.primary_conninfo();
        let args = ["-X", "-At", "-c", "SELECT 42", &conninfo];
        Command::new(&psql).args(args).uid(uid).gid(gid).current_dir("/").output().unwrap()
    };
    for (uid, gid) in [(0, 0), (uid, gid)] {
        let output = ask(uid, gid);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{uid}: {output:?}");
    }
    // Somebody else, and a member of the server user's group.
    for gid in [12345, gid] {
        let output = ask(12345, gid);
        let result = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && result.contains("Permission denied"), "{output:?}");
        let look = |path: &Path| {
            let mut ls = Command::new("ls");
            ls.arg(path).uid(12345).gid(gid).output().unwrap().status.success()
        };
        assert!(!look(cluster.directory()) && !look(&cluster.data_dir()));
    }
    cluster.stop().unwrap();
}

/// PostgreSQL runs as another user when we are root; here it must not try to.
#[test]
fn an_unprivileged_user_has_clusters_too() {
    if !geteuid().is_root() {
        pgio_tests::skipped("not root, so every other test shows it");
        return;
    }
    let base = base();
    // The build directory may lie where others cannot go.
    let test = copy_program(&env::current_exe().unwrap(), base.path());
    let pgio = copy_program(&pgio_exe(), base.path());
    let clusters = base.path().join("c");
    fs::create_dir(&clusters).unwrap();
    fs::set_permissions(&clusters, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(test);
    command.uid(65534).gid(65534).current_dir("/").env("HOME", "/nonexistent");
    let owner = OwnerProcess::run(command, &pgio, &clusters);
    let processes = processes(&owner.cluster);
    owner.signal(Signal::KILL);
    wait_until_gone(&processes.all);
    assert_eq!(fs::read_dir(&clusters).unwrap().count(), 0);
}
