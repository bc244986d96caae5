//! A whole `pgio demo` as `nobody`: the right verdict, and nothing left behind; and interrupted ones as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use super::alone;
use pgio_tests::fixture::{INSTALLED, NEWEST, copy_program, pgio_exe};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{Running, Workdir, wait_until};

fn parent_and_command(pid: &str) -> Option<(i32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some((parent, String::from_utf8_lossy(&command).replace('\0', " ")))
}

/// The pids below a process, itself left out.
fn descendants(root: i32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.parse().ok()?, parent_and_command(&name)?.0))
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// The servers of a running demo, seen before it ends.
struct Servers {
    pids: Vec<i32>,
    directory: PathBuf,
}

impl Servers {
    fn find(demo: &mut Running) -> Servers {
        let mut directory = None;
        let pid = demo.pid();
        demo.wait_until("its servers run", || {
            let commands = descendants(pid);
            directory = commands.iter().find_map(|pid| {
                let (_, command) = parent_and_command(&pid.to_string())?;
                let data = command.split(' ').find(|word| {
                    word.starts_with("/var/tmp/pgio-") && word.ends_with("/standby")
                })?;
                Path::new(data).parent().map(Path::to_owned)
            });
            directory.is_some()
        });
        Servers { pids: descendants(pid), directory: directory.unwrap() }
    }

    fn assert_gone(&self) {
        assert!(!self.directory.exists(), "{}", self.directory.display());
        let directory = self.directory.to_str().unwrap();
        for pid in &self.pids {
            // A pid may be anybody's by now, but not with our directory in its command.
            wait_until(&format!("process {pid} gone"), || {
                parent_and_command(&pid.to_string())
                    .is_none_or(|(_, command)| !command.contains(directory))
            });
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the analysis of the commits.
fn check_results(dir: &Workdir, out: &Path, blocks: usize) -> Value {
    let analysis = |workload: &str| -> Value {
        let place = out.join(workload);
        let result =
            dir.pgio(&["report", place.to_str().unwrap(), "--format", "json"]).expect(0, &[]);
        serde_json::from_str(&result.out).unwrap()
    };
    for (workload, conditions) in [("commit", 5), ("slob", 3)] {
        let trials = read(&out.join(workload).join("trials.jsonl"));
        // The burn-in is stored too, where a data set is read.
        let burn_in = usize::from(workload == "slob");
        assert_eq!(trials.lines().count(), conditions * blocks + burn_in, "{workload}: all blocks");
        let analysis = analysis(workload);
        for condition in analysis["conditions"].as_array().unwrap() {
            assert_eq!(condition["trials"], blocks);
            assert_eq!((&condition["invalid"], &condition["failed"]), (&0.into(), &0.into()));
        }
        assert_eq!(analysis["baseline"], "local");
        let page = read(&out.join(workload).join("report.html"));
        assert!(page.contains("id=\"forest-plot\""), "{workload}: its page has no chart");
    }
    let index = read(&out.join("report.html"));
    for workload in ["commit", "slob"] {
        assert!(index.contains(&format!("href=\"{workload}/report.html\"")), "{index}");
    }
    let elsewhere =
        ["report", out.to_str().unwrap(), "--format", "html", "--out", "elsewhere.html"];
    dir.pgio(&elsewhere).expect(0, &[]);
    let index = read(&dir.path().join("elsewhere.html"));
    let place = out.file_name().unwrap().to_str().unwrap();
    assert!(index.contains(&format!("{place}/commit/report.html\"")), "{index}");
    let commit = analysis("commit");
    let comparisons = commit["comparisons"].as_array().unwrap();
    let on = comparisons.iter().find(|c| c["condition"] == "on" && c["primary"] == true).unwrap();
    assert_eq!(on["metric"], "commits_per_second");
    // About one half. Three blocks give no verdict.
    assert!(on["ratio"].as_f64().unwrap() < 1.0, "{on}");
    // However busy the machine is, commits wait for the standby under `on` alone.
    let waited = |name: &str| {
        let all = commit["decompositions"].as_array().unwrap();
        let commits =
            all.iter().find(|d| d["condition"] == name && d["class"] == "commit").unwrap();
        commits["parts"].as_array().unwrap().iter().any(|part| part["group"] == "sync_rep")
    };
    assert!(waited("on") && !waited("local"), "{}", commit["decompositions"]);
    let per_ten_thousand = &commit["conditions"][0]["metrics"]["seconds_per_10000_transactions"];
    assert!(per_ten_thousand["value"].as_f64().unwrap() > 0.0);
    commit
}

/// Time limit of a whole demo.
const DEMO_TIMEOUT: Duration = Duration::from_secs(400);

const EXPECTED_OUTPUT: &[&str] =
    &["local (A/A)", "remote_apply", "What does synchronous replication cost?", "What next"];

/// As `nobody` where the tests run as root, whose demos are those that are interrupted.
#[test]
fn the_demo_finds_the_cost_without_privileges_and_leaves_only_its_results() {
    let _alone = alone();
    let dir = Workdir::new();
    let version = NEWEST.to_string();
    // A directory that `nobody` can use: cargo's target may be below root's home.
    let place = tempfile::Builder::new().prefix("demo").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let program = copy_program(&pgio_exe(), place.path());
    let (out, state) = (place.path().join("out"), place.path().join("state"));
    let mut command = Command::new(&program);
    // The demo's blocks decide; three have an estimate as well.
    command.args(["demo", "--blocks", "3", "--pg", &version, "--out"]);
    command.arg(&out).current_dir(place.path()).env("PGIO_STATE_DIR", &state);
    if geteuid().is_root() {
        command.uid(65_534).gid(65_534).env("HOME", place.path());
        command.env_remove("XDG_CACHE_HOME").env_remove("PGIO_BINDIR");
    }
    let mut demo = dir.start(command);
    let servers = Servers::find(&mut demo);
    demo.wait_for(DEMO_TIMEOUT).expect(0, EXPECTED_OUTPUT);
    servers.assert_gone();
    let commit = check_results(&dir, &out, 3);
    let median = |name: &str| {
        let conditions = commit["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|c| c["name"] == name).unwrap();
        condition["metrics"]["commit_latency_p50"]["value"].as_f64().unwrap()
    };
    assert!(median("on") > median("local"), "{commit}");
    let left = |part: &str, extension: &str| {
        let entries = fs::read_dir(state.join(part)).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).count()
    };
    assert_eq!((left("journal", "journal"), left("clusters", "cluster")), (0, 0));
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let _alone = alone();
    run_in_parallel([Signal::INT, Signal::KILL], interrupt_demo);
}

fn interrupt_demo(signal: Signal) {
    let dir = Workdir::new();
    let version = INSTALLED.to_string();
    let mut demo = dir.start(dir.command(&["demo", "--pg", &version, "--out", "out"]));
    let servers = Servers::find(&mut demo);
    let first = dir.out().join("commit/trials.jsonl");
    demo.wait_until("a trial stored", || fs::metadata(&first).is_ok_and(|m| m.len() > 0));
    demo.signal(signal);
    let result = demo.wait_for(DEMO_TIMEOUT);
    assert_eq!(result.code, Some(if signal == Signal::INT { 130 } else { -9 }), "{result}");
    wait_until("its directory gone", || !servers.directory.exists());
    servers.assert_gone();
    dir.pgio(&["report", "out/commit"]).expect(0, &["local"]);
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
}
