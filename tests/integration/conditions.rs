//! Ballast, link and command as treatments of real experiments: in force while they should be, and
//! undone, also after kill -9.
//!
//! Tests that need root print that they are skipped otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgio::pg::private::PrivateCluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::sshd::Sshd;
use pgio_tests::fixture::{
    INSTALLED, OwnPrimary, connect, fresh_database, own_primary, pgio_exe, shared_primary,
};
use pgio_tests::workdir::{Running, Workdir, condition_of, experiment_on, wait_until};

fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        pgio_tests::skipped(&format!("{what} needs root"));
    }
    root
}

fn cluster() -> OwnPrimary {
    own_primary(INSTALLED)
}

/// A plain condition, and one with this line.
fn text(target: &str, keys: &str, line: &str) -> String {
    let text = experiment_on(target, keys, "", &[("plain", ""), ("treated", "")]);
    format!("{text}{line}\n")
}

/// One condition that lasts until pgio is killed.
fn endless(target: &str, line: &str) -> String {
    let keys = SHORT.replace("600ms", "60s");
    format!("{}{line}\n", experiment_on(target, &keys, "", &[("treated", "")]))
}

fn on(cluster: &PrivateCluster) -> String {
    format!("dsn = {:?}\nhost = \"local\"", cluster.primary_conninfo())
}

/// A database of a server that many tests use, for what touches the hosts alone.
fn on_shared() -> String {
    format!("dsn = {:?}\nhost = \"local\"", fresh_database(shared_primary(INSTALLED)))
}

const SHORT: &str = "blocks = 1\nduration = \"600ms\"\naa = false\ntelemetry = \"0s\"";

/// Returns the distinct values of a piece of evidence under a condition.
fn evidence(trials: &[Value], condition: &str, what: &str) -> Vec<String> {
    let mut found = Vec::new();
    for trial in trials.iter().filter(|t| condition_of(t) == condition) {
        for e in trial["evidence"].as_array().unwrap().iter().filter(|e| e["what"] == what) {
            let text = e["found"].as_str().unwrap().to_owned();
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

fn assert_complete(trials: &[Value]) {
    assert!(trials.iter().all(|t| t["outcome"]["state"] == "complete"), "{trials:#?}");
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let lists: Vec<String> = tasks.filter_map(|t| read(t.ok()?)).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|n| n.parse().ok()).collect()
}

/// With the shells that would put things back for it, as when a machine goes down.
fn kill_with_its_guards(running: Running) {
    let is_shell = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sh")
    };
    for pid in children(running.pid()).iter().filter(|pid| is_shell(pid)) {
        let pid = Pid::from_raw(*pid).unwrap();
        // It may end by itself at this moment.
        let _ = kill_process(pid, Signal::KILL);
    }
    running.kill();
}

fn postmaster(cluster: &PrivateCluster) -> String {
    let pid = fs::read_to_string(cluster.data_dir().join("postmaster.pid")).unwrap();
    pid.lines().next().unwrap().to_owned()
}

/// The server's group for the memory controller, as the kernel has it.
fn group(postmaster: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{postmaster}/cgroup")).unwrap();
    let memory =
        text.lines().find(|l| l.split(':').nth(1).unwrap().split(',').any(|c| c == "memory"));
    let line = memory.or_else(|| text.lines().find(|l| l.starts_with("0::"))).unwrap();
    line.splitn(3, ':').nth(2).unwrap().to_owned()
}

fn is_limited(postmaster: &str) -> bool {
    group(postmaster).contains("pgio-ballast-")
}

const LIMIT: &str = "ballast = { leave = \"512M\", way = \"cgroup\" }";

#[test]
fn a_server_is_limited_only_during_its_trials() {
    if !is_root("a memory limit") {
        return;
    }
    let cluster = cluster();
    let (pid, dir) = (postmaster(&cluster), Workdir::new());
    let before = group(&pid);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Processes that come and go while they are counted.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(connect(&cluster.primary_conninfo()));
            }
        });
        let result = dir.compare(&text(&on(&cluster), SHORT, LIMIT));
        done.store(true, Ordering::Relaxed);
        result.expect(0, &[]);
    });
    let trials = dir.trials();
    assert_complete(&trials);
    let found = |condition, what| evidence(&trials, condition, what);
    assert_eq!(found("treated", "memory limit of the server's group"), ["512M"]);
    assert_eq!(found("treated", "the server and that group"), ["inside"]);
    assert_eq!(found("treated", "processes of the server outside that group"), ["0"]);
    assert!(found("plain", "memory limit of the server's group").is_empty());
    assert_eq!(group(&pid), before);
    assert!(dir.journals().is_empty());

    for (line, why) in [
        ("ballast = { leave = \"150M\", way = \"cgroup\" }", "the kernel kills them"),
        ("ballast = \"900000G\"", "is more than its"),
        ("ballast = \"1M\"", "too little for the host to run"),
        ("ballast = { leave = \"1G\", host = \"nowhere\" }", "unknown host `nowhere`"),
    ] {
        let refused = Workdir::new();
        refused.compare(&text(&on(&cluster), SHORT, line)).expect(4, &["condition `treated`", why]);
        assert!(!refused.out().exists(), "a refused experiment leaves no results");
    }
}

#[test]
fn a_killed_pgio_leaves_no_limit() {
    if !is_root("a memory limit") {
        return;
    }
    let cluster = cluster();
    let pid = postmaster(&cluster);
    let before = group(&pid);

    let dir = Workdir::new();
    let mut running = dir.start_compare(&endless(&on(&cluster), LIMIT));
    running.wait_until("limited", || is_limited(&pid));
    thread::sleep(Duration::from_millis(300));
    running.kill();
    wait_until("its guard has put it back", || group(&pid) == before);
    dir.pgio(&["undo"]).expect(0, &["Restored the server's control group"]);
    assert!(dir.journals().is_empty());

    let dir = Workdir::new();
    let mut running = dir.start_compare(&endless(&on(&cluster), LIMIT));
    running.wait_until("limited", || is_limited(&pid));
    // A command that a killed guard had started would continue.
    thread::sleep(Duration::from_millis(500));
    kill_with_its_guards(running);
    assert!(is_limited(&pid));
    for _ in 0..2 {
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(group(&pid), before);
    }
    assert!(dir.journals().is_empty());
}

/// The same by ssh, whose connection breaks off with pgio.
#[test]
fn treatments_work_over_ssh() {
    if !is_root("a memory limit") {
        return;
    }
    let (cluster, sshd) = (cluster(), Sshd::start());
    let pid = postmaster(&cluster);
    let before = group(&pid);
    let target = on(&cluster).replace("local", "box");
    let hosts = format!("[hosts.box]\nssh = \"box\"\nssh_config = \"{}\"", sshd.config().display());

    let dir = Workdir::new();
    let file = a_value(&dir);
    let lines = format!("{LIMIT}\n{}\n{hosts}", command(&file));
    dir.compare(&text(&target, SHORT, &lines)).expect(0, &[]);
    let trials = dir.trials();
    assert_complete(&trials);
    assert_eq!(evidence(&trials, "treated", "the server and that group"), ["inside"]);
    assert_eq!(evidence(&trials, "treated", "command `a value`"), ["in force"]);
    assert_eq!(
        (group(&pid), fs::read_to_string(&file).unwrap()),
        (before.clone(), "as found\n".into())
    );

    let dir = Workdir::new();
    let file = a_value(&dir);
    let lines = format!("{LIMIT}\n{}\n{hosts}", command(&file));
    let mut running = dir.start_compare(&endless(&target, &lines));
    running.wait_until("in force", || fs::read_to_string(&file).unwrap() == "ours\n");
    assert!(is_limited(&pid));
    running.kill();
    wait_until("its guard there has put it back", || group(&pid) == before);
    dir.pgio(&["undo"]).expect(0, &["Restored command `a value` on host box"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "as found\n");
    assert!(dir.journals().is_empty());
}

#[test]
fn a_relay_slows_the_commits_that_wait_for_the_standby() {
    let dir = Workdir::new();
    let pair = "private = true\nstandby = true";
    let keys = SHORT.replace("600ms", "1s");
    dir.compare(&text(pair, &keys, "link = { relay = true, delay = \"5ms\" }")).expect(0, &[]);
    let trials = dir.trials();
    assert_complete(&trials);
    let streams = evidence(&trials, "treated", "how the standby streams");
    assert_eq!(streams, ["through the relay (delay 5ms)"]);
    assert!(evidence(&trials, "plain", "how the standby streams").is_empty());
    let commits = |condition: &str| -> f64 {
        let those = trials.iter().filter(|t| condition_of(t) == condition);
        those.map(|t| t["metrics"]["commits_per_second"]["value"].as_f64().unwrap()).sum()
    };
    // 10 ms there and back bound it; without them it is some hundreds at least.
    assert!(commits("treated") < commits("plain"), "{} {}", commits("treated"), commits("plain"));
    assert!(commits("treated") <= 100.0 * 1.1, "{}", commits("treated"));

    let line = "link = { relay = true, delay = \"5ms\" }";
    let dir = Workdir::new();
    let nobody_waits = format!("{pair}\npostgres = {{ synchronous_standby_names = \"\" }}");
    dir.compare(&text(&nobody_waits, SHORT, line)).expect(0, &[]);
    assert_complete(&dir.trials());
    Workdir::new().compare(&text(&on_shared(), SHORT, line)).expect(
        4,
        &["relay = true requires [target] with private = true and one standby (standby = true)"],
    );
}

fn has_netem() -> bool {
    let attempt = ["-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"];
    Command::new("unshare").args(attempt).output().is_ok_and(|output| output.status.success())
}

#[test]
fn an_impossible_link_is_refused_before_anything_is_changed() {
    let target = on_shared();
    let dir = Workdir::new();
    let line =
        |interface: &str| format!("link = {{ interface = \"{interface}\", delay = \"1ms\" }}");
    dir.compare(&text(&target, SHORT, &line("eth77")))
        .expect(4, &["host local has no interface `eth77` (known: "]);
    if has_netem() {
        pgio_tests::skipped("this kernel has netem, so there is nothing to refuse");
        return;
    }
    dir.compare(&text(&target, SHORT, &line("lo"))).expect(4, &["no netem on host local"]);
    assert!(dir.journals().is_empty());
}

#[test]
fn a_link_is_slowed_for_its_trials() {
    if !has_netem() {
        pgio_tests::skipped("netem needs root and a kernel that has it");
        return;
    }
    let cluster = cluster();
    let dir = Workdir::new();
    let line = "link = { interface = \"lo\", delay = \"1ms\" }";
    dir.compare(&text(&on(&cluster), SHORT, line)).expect(0, &[]);
    assert_eq!(evidence(&dir.trials(), "treated", "netem on lo"), ["delay 1ms"]);
    let dir = Workdir::new();
    let mut running = dir.start_compare(&endless(&on(&cluster), line));
    let shown = || {
        let shown = Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().contains("netem 7067:")
    };
    running.wait_until("slowed", shown);
    kill_with_its_guards(running);
    dir.pgio(&["undo"]).expect(0, &["Restored lo on host local"]);
    assert!(!shown());
}

/// A file as something that a command sets, shows and restores.
fn command(file: &Path) -> String {
    let file = file.display();
    format!(
        "command = {{ name = \"a value\", apply = \"echo ours >{file} # geheim\", verify = \"grep -q ours {file}\", \
         probe = [\"cat\", \"{file}\"], undo = \"echo \\\"$PGIO_PRIOR\\\" >{file}\" }}"
    )
}

fn a_value(dir: &Workdir) -> PathBuf {
    dir.write("value", "as found\n");
    dir.path().join("value")
}

#[test]
fn a_command_is_applied_verified_and_undone() {
    let (server, dir) = (own_primary(INSTALLED), Workdir::new());
    let file = a_value(&dir);
    let result = dir.compare(&text(&on(&server), SHORT, &command(&file))).expect(0, &[]);
    assert_complete(&dir.trials());
    assert_eq!(evidence(&dir.trials(), "treated", "command `a value`"), ["in force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "as found\n");
    let stored = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    for output in [result.out, result.err, stored, dir.manifest().to_string()] {
        assert!(!output.contains("geheim"), "{output}");
    }
}

#[test]
fn a_command_of_a_killed_run_is_undone_from_the_journal() {
    for (theirs, flags) in [(None, &["undo"][..]), (Some("theirs\n"), &["undo", "--restore"][..])] {
        let (server, dir) = (own_primary(INSTALLED), Workdir::new());
        let file = a_value(&dir);
        let mut running = dir.start_compare(&endless(&on(&server), &command(&file)));
        running.wait_until("applied", || fs::read_to_string(&file).unwrap() == "ours\n");
        running.kill();
        // The journal alone knows the way back.
        fs::remove_file(dir.path().join("experiment.toml")).unwrap();
        if let Some(theirs) = theirs {
            fs::write(&file, theirs).unwrap();
            dir.pgio(&["undo"]).expect(6, &["`theirs`", "--keep"]);
        }
        dir.pgio(flags).expect(0, &["Restored command `a value` on host local: `as found`"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "as found\n");
        assert!(dir.journals().is_empty());
    }
}

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";

/// Taken by the test, which leaves this machine more than [`PLENTY`].
const TAKEN: u64 = 3 << 30;
const PLENTY: u64 = 6 << 30;

fn pages() -> u64 {
    fs::read_to_string(NUMBER).unwrap().trim().parse().unwrap()
}

fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Megabytes to leave free.
fn leave() -> Option<u64> {
    if !is_root("a ballast") {
        return None;
    }
    let available = meminfo("MemAvailable:");
    let writable = rustix::fs::access(NUMBER, rustix::fs::Access::WRITE_OK).is_ok();
    if !writable || available < TAKEN + PLENTY {
        pgio_tests::skipped(&format!(
            "a ballast needs {NUMBER} and more memory than is available here"
        ));
        return None;
    }
    Some((available - TAKEN) >> 20)
}

/// One test, since a machine has one number of huge pages; only where that leaves the machine plenty.
#[test]
fn memory_is_taken_and_released() {
    let Some(leave) = leave() else { return };
    let before = pages();
    let size = format!("{leave}M");
    let dir = Workdir::new();

    // On its own: it stays, runs say so and are not refused, and it comes back in both ways.
    dir.pgio(&["ballast", &size]).expect(0, &["HugePages_Total:", "pgio ballast --release"]);
    let taken = pages();
    assert!(taken > before);
    assert!(meminfo("MemAvailable:") < (leave + 1024) << 20);
    let run = ["run", "--connect-string", "host=/nonexistent"];
    dir.pgio(&run).expect(3, &["a ballast is held on this machine", "cannot reach"]);
    // An impossible replacement is refused before the held ballast is released.
    dir.pgio(&["ballast", "1000T"]).expect(4, &["is more than its"]);
    assert_eq!(pages(), taken);
    dir.pgio(&["ballast", &size]).expect(0, &["Restored nr_hugepages", "HugePages_Total:"]);
    assert!(pages() > before);
    dir.pgio(&["ballast", "--release"]).expect(0, &["Restored nr_hugepages", "HugePages_Total:"]);
    assert_eq!(pages(), before);
    dir.pgio(&["ballast", "--release"]).expect(0, &["No ballast is held."]);

    // As the original's script, and changed by someone meanwhile.
    let shim = format!("{}/../compat/pgio_reduce_free_memory.sh", env!("CARGO_MANIFEST_DIR"));
    let path =
        format!("{}:{}", pgio_exe().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut script = Command::new("sh");
    script.args([&shim, &(leave >> 10).to_string()]).env("PATH", path);
    script.env("PGIO_STATE_DIR", dir.path().join("state"));
    dir.start(script).wait().expect(0, &["HugePages_Total:"]);
    let theirs = pages() + 7;
    fs::write(NUMBER, theirs.to_string()).unwrap();
    dir.pgio(&["undo"]).expect(6, &["nr_hugepages on host local is now", "--keep", "--restore"]);
    assert_eq!(pages(), theirs);
    dir.pgio(&["undo", "--restore"]).expect(0, &["Restored nr_hugepages"]);
    assert_eq!(pages(), before);

    // In an experiment that is killed, with its guard and without.
    let cluster = cluster();
    let experiment = endless(&on(&cluster), &format!("ballast = {size:?}"));
    let mut running = dir.start_compare(&experiment);
    running.wait_until("taken", || pages() > before);
    running.kill();
    wait_until("its guard has given it back", || pages() == before);
    dir.pgio(&["undo"]).expect(0, &["Restored nr_hugepages"]);
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment);
    running.wait_until("taken", || pages() > before);
    kill_with_its_guards(running);
    assert!(pages() > before);
    dir.pgio(&["undo"]).expect(0, &["Restored nr_hugepages"]);
    assert_eq!(pages(), before);
}
