//! pgio as a user types it: a directory of its own to stand in, a state directory of its own
//! for journals, no PG* variables; run to its end, or beside the test to be disturbed.
//!
//! No call waits forever: a pgio that hangs is killed and fails its test with its output.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use pgio_connect::types::FromSqlOwned;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{connect, pgio_exe};
pub use crate::timing::wait_until;
use crate::timing::{self, poll};

const TIMEOUT: Duration = Duration::from_secs(150);

#[derive(Debug)]
pub struct Workdir {
    dir: TempDir,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct CommandResult {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandResult {
    pub fn from_output(output: Output) -> CommandResult {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CommandResult {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Asserts that the command was refused with this exit code and one sentence with all of these words.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let sentences = self.err.lines().filter(|line| {
            line.starts_with("error: ")
                || (line.starts_with("pgio: ") && !line.starts_with("pgio: warning: "))
        });
        assert_eq!(sentences.count(), 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` in {self:?}");
        }
        assert!(!self.err.contains("db error"), "{self:?}");
    }

    /// Fails unless it ended with this code and each text is on one of its streams.
    #[track_caller]
    pub fn expect(self, code: i32, texts: &[&str]) -> CommandResult {
        assert_eq!(self.code, Some(code), "{self}");
        for text in texts {
            assert!(self.out.contains(text) || self.err.contains(text), "no `{text}` in {self}");
        }
        self
    }
}

impl std::fmt::Display for CommandResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\n--- out\n{}\n--- err\n{}", self.code, self.out, self.err)
    }
}

impl Default for Workdir {
    fn default() -> Workdir {
        timing::begin();
        Workdir { dir: tempfile::tempdir().unwrap() }
    }
}

impl Workdir {
    /// What `pgio undo` prints if it finds no journal.
    pub fn nothing_to_undo(&self) -> String {
        format!("Nothing to undo in {}.\n", self.path().join("state").display())
    }

    pub fn new() -> Workdir {
        Workdir::default()
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(pgio_exe());
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.current_dir(self.path()).env("PGIO_STATE_DIR", self.path().join("state"));
        command.args(args).args(tolerance_args(args));
        command
    }

    pub fn pgio(&self, args: &[&str]) -> CommandResult {
        self.start(self.command(args)).wait()
    }

    /// `pgio compare` of this text; the results go to `out`.
    pub fn compare(&self, experiment: &str) -> CommandResult {
        self.start_compare(experiment).wait()
    }

    pub fn start_compare(&self, experiment: &str) -> Running {
        self.write("experiment.toml", experiment);
        self.start(self.command(&["compare", "experiment.toml", "--out", "out"]))
    }

    pub fn start(&self, command: Command) -> Running {
        let stderr = File::create(self.path().join("stderr")).unwrap();
        self.start_with_stderr(command, stderr.into())
    }

    /// Unless `stderr` is the file of that name, the result has none.
    pub fn start_with_stderr(&self, mut command: Command, stderr: Stdio) -> Running {
        let file = |name| self.path().join(name);
        let [out, err] = ["stdout", "stderr"].map(file);
        command.stdin(Stdio::null()).stdout(File::create(&out).unwrap()).stderr(stderr);
        Running { child: command.spawn().unwrap(), out, err }
    }

    pub fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    pub fn manifest(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.out().join("manifest.json")).unwrap())
            .unwrap()
    }

    pub fn trials(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out().join("trials.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn analysis(&self) -> Value {
        let result = self.pgio(&["report", "out", "--format", "json"]).expect(0, &[]);
        serde_json::from_str(&result.out).unwrap()
    }

    /// The notes of private clusters, which `undo` would look for.
    pub fn cluster_notes(&self) -> usize {
        let notes = fs::read_dir(self.path().join("state/clusters"));
        let is_one = |path: &PathBuf| path.extension().is_some_and(|e| e == "cluster");
        notes.map_or(0, |all| all.map(|e| e.unwrap().path()).filter(is_one).count())
    }

    /// The journals that are there now.
    pub fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path().join("state/journal")) else {
            return Vec::new();
        };
        // The lock beside them stays.
        let is_one = |path: &PathBuf| path.extension().is_some_and(|e| e == "journal");
        entries.map(|e| e.unwrap().path()).filter(is_one).collect()
    }
}

/// pgio beside the test; killed with it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn wait(self) -> CommandResult {
        self.wait_for(TIMEOUT)
    }

    pub fn wait_for(mut self, timeout: Duration) -> CommandResult {
        let deadline = Instant::now() + timeout;
        while self.is_running() {
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("pgio did not end within {timeout:?}: {}", self.result(None));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let status: ExitStatus = self.child.wait().unwrap();
        self.result(status.code().or(status.signal().map(|s| -s)))
    }

    /// Waits for something while pgio runs; one that ends before it fails the test.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        poll(condition, || {
            assert!(self.is_running(), "pgio ended before {what}: {}", self.result(None));
            assert!(Instant::now() < deadline, "still not {what}: {}", self.result(None));
        });
    }

    fn result(&self, code: Option<i32>) -> CommandResult {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        CommandResult { code, out: read(&self.out), err: read(&self.err) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An experiment of short windows without telemetry on a server: `keys` go to [experiment], `conditions` are pairs
/// of a name and the body of `postgres`, empty for a condition without treatment.
pub fn experiment(
    conninfo: &str,
    keys: &str,
    workload: &str,
    conditions: &[(&str, &str)],
) -> String {
    // The samplers cost more than a short window does.
    let keys = if keys.contains("telemetry") {
        keys.to_owned()
    } else {
        format!("{keys}\ntelemetry = \"0s\"")
    };
    experiment_on(&format!("dsn = {conninfo:?}"), &keys, workload, conditions)
}

/// Checks that react to the other tests on the machine, which run at the same time.
pub const NEIGHBOR_CHECKS: [&str; 5] =
    ["foreign-load", "foreign-sessions", "steal", "generator-bound", "generator-stalled"];
/// Returns further arguments of `pgio run`, so that these checks do not decide its exit code.
pub fn tolerance_args(args: &[&str]) -> &'static [&'static str] {
    match args.first() {
        Some(&"run") => &["--tolerate", "generator-bound,generator-stalled,environment-changed"],
        _ => &[],
    }
}

/// Checks that react to other tests between trials.
pub const BETWEEN_TRIAL_CHECKS: [&str; 2] = ["environment-changed", "environment-differs"];

/// Returns the line `tolerate` of [experiment] with the checks in `more` and [`NEIGHBOR_CHECKS`].
pub fn tolerate(more: &[&str]) -> String {
    format!("tolerate = {:?}", [more, &NEIGHBOR_CHECKS].concat())
}

pub fn experiment_on(
    target: &str,
    keys: &str,
    workload: &str,
    conditions: &[(&str, &str)],
) -> String {
    let quiet =
        if keys.contains("tolerate") { String::new() } else { tolerate(&BETWEEN_TRIAL_CHECKS) };
    let mut text = format!(
        "[experiment]\nname = \"test\"\nwarmup = \"0s\"\n{keys}\n{quiet}\n\n[target]\n{target}\n\n\
         [workload]\nkind = \"commit\"\n{workload}\n"
    );
    for (name, postgres) in conditions {
        text += &format!("\n[[condition]]\nname = {name:?}\n");
        if !postgres.is_empty() {
            text += &format!("postgres = {{ {postgres} }}\n");
        }
    }
    text
}

/// For [`experiment`]. Telemetry also looks for the server's host, which treatments of hosts need.
pub const SAMPLED: &str = "telemetry = \"1s\"";

/// Whether a server that may be restarting shows this value.
pub fn shows(conninfo: &str, setting: &str, value: &str) -> bool {
    ask::<String>(conninfo, &format!("SHOW {setting}")).as_deref() == Some(value)
}

/// Whether pgio has sessions inside a slice on a server that may be restarting.
pub fn is_at_work(conninfo: &str) -> bool {
    ask::<i64>(conninfo, &sessions_sql(IN_A_SLICE)).is_some_and(|sessions| sessions > 0)
}

/// `None` without an answer.
fn ask<T: FromSqlOwned>(conninfo: &str, sql: &str) -> Option<T> {
    let mut client = Client::connect(conninfo).ok()?;
    client.query_one(sql, &[]).ok()?.try_get(0).ok()
}

pub fn show(conninfo: &str, setting: &str) -> String {
    connect(conninfo).query_one(&format!("SHOW {setting}"), &[]).unwrap().get(0)
}

/// The line of postgresql.auto.conf, if there is one.
pub fn auto_conf(conninfo: &str, setting: &str) -> Option<String> {
    let sql = "SELECT setting FROM pg_file_settings \
               WHERE name = $1 AND sourcefile LIKE '%postgresql.auto.conf'";
    connect(conninfo).query_opt(sql, &[&setting]).unwrap().map(|row| row.get(0))
}

/// `None` takes the line away.
pub fn alter_system(conninfo: &str, setting: &str, value: Option<&str>) {
    let mut client = connect(conninfo);
    let sql = match value {
        Some(value) => format!("ALTER SYSTEM SET {setting} = '{value}'"),
        None => format!("ALTER SYSTEM RESET {setting}"),
    };
    client.batch_execute(&sql).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").unwrap();
}

/// Counts pgio's sessions in this database; other tests may use the same server.
pub fn pgio_sessions(conninfo: &str) -> i64 {
    pgio_sessions_where(conninfo, "true")
}

/// Counts the sessions inside a slice; without a warm-up, the window is open then.
pub fn active_sessions(conninfo: &str) -> i64 {
    pgio_sessions_where(conninfo, IN_A_SLICE)
}

const IN_A_SLICE: &str = "state = 'active' AND query LIKE '%DO $pgio$%'";

pub fn sessions_waiting_for_standby(conninfo: &str) -> i64 {
    pgio_sessions_where(conninfo, "wait_event = 'SyncRep'")
}

fn pgio_sessions_where(conninfo: &str, filter: &str) -> i64 {
    connect(conninfo).query_one(&sessions_sql(filter), &[]).unwrap().get(0)
}

fn sessions_sql(filter: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name LIKE 'pgio:%' AND {filter}"
    )
}

/// The value of a metric of a stored trial.
#[track_caller]
pub fn metric(trial: &Value, name: &str) -> f64 {
    trial["metrics"][name]["value"].as_f64().unwrap_or_else(|| panic!("no {name} in {trial:#}"))
}

#[track_caller]
pub fn check<'a>(trial: &'a Value, id: &str) -> &'a Value {
    let found = trial["checks"].as_array().unwrap().iter().find(|check| check["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {trial:#}"))
}

/// The checks of a stored trial that did not pass, by their ids.
pub fn failed_checks(trial: &Value, verdict: &str) -> Vec<String> {
    let checks = trial["checks"].as_array().unwrap().iter();
    checks.filter(|c| c["verdict"] == verdict).map(|c| c["id"].as_str().unwrap().into()).collect()
}

pub fn condition_of(trial: &Value) -> &str {
    trial["place"]["condition"].as_str().unwrap()
}
