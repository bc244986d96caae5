//! Runs one line of the table: a server, perhaps a data set, an experiment, and what disturbs it.

use std::cell::{Cell, OnceCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use tempfile::TempDir;

use super::accusations::Expected;
use super::table::{LAB_DSN, LAB_HOSTS};
use crate::truth::rounds::{Round, load_at, private, private_pair};
use pgio::cli::exit::{FAILED, FILES, Failure, Outcome, TRIAL};
use pgio::experiment::event::Event;
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::pg::private::PrivateCluster;
use pgio_bench::loop_disk::LoopDisk;
use pgio_report::directories;
use pgio_verdict::Analysis;

const DISK_BYTES: u64 = 4 << 30;
/// How long a reloaded setting may take to show.
const RELOAD: Duration = Duration::from_secs(20);

/// Where the server of a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Server,
    /// On a loop device of its own. Needs root.
    LoopDisk,
    /// Where files of this process's mount namespace replace the machine's. Needs root.
    Namespace,
    Lab,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Workload {
    /// Commits of one session, or of two.
    Commit(u32),
    Slob {
        scale: &'static str,
        work_unit: u32,
        update_pct: u32,
        more: &'static str,
    },
}

/// A rule, and how it is broken.
#[derive(Debug)]
pub(super) struct Fault {
    /// The number of the rule, from 1.
    pub(super) rule: u32,
    pub(super) what: &'static str,
    pub(super) expected: Expected,
    pub(super) place: Place,
    pub(super) standby: bool,
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// Keys of `[experiment]`.
    pub(super) keys: &'static str,
    pub(super) workload: Workload,
    pub(super) conditions: &'static [&'static str],
    /// Keys of the last condition.
    pub(super) last: &'static str,
    /// Before the experiment, when the data set is loaded.
    pub(super) prepare: fn(&Setup) -> Outcome,
    pub(super) before_trial: fn(&Setup, Next) -> Outcome,
    /// In each window of the last condition, at these seconds from its start.
    pub(super) inside: &'static [(f64, Injection)],
    /// Whatever the experiment's end.
    pub(super) after: fn(&Setup) -> Outcome,
}

/// Injects a fault into the experiment that runs.
pub(super) type Injection = fn(&Setup) -> Outcome;

/// The trial that begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) is_b: bool,
    pub(super) block: u32,
    /// Trials that began, this one included.
    pub(super) number: u32,
}

/// One experiment of the bench.
pub(super) struct Case<'a> {
    pub(super) round: Round<'a>,
    pub(super) tolerate: &'a [String],
}

/// What a fault acts on. The server ends before its disk.
pub(super) struct Setup {
    pub(super) dsn: String,
    pub(super) cluster: Option<PrivateCluster>,
    pub(super) disk: Option<LoopDisk>,
    pub(super) replaced: OnceCell<Replaced>,
    pub(super) busy: Arc<AtomicBool>,
    done: Cell<bool>,
}

/// Runs the experiment of a fault and analyzes what it stored, also if no trial counts.
pub(super) fn analyze(fault: &Fault, case: &Case<'_>) -> Result<Analysis, Failure> {
    let setup = Setup::start(fault, case)?;
    (fault.prepare)(&setup)?;
    let disturbed = fault.conditions.last().expect("a fault has a condition");
    let (mut trials, mut next_step, mut is_disturbed) = (0, 0, false);
    let (mut injected, mut injections) = (Ok(()), 0);
    let mut observe = |event: &Event<'_>| {
        let acted = match event {
            Event::Begins { condition, planned } => {
                (trials, next_step, is_disturbed) = (trials + 1, 0, condition == disturbed);
                let block = planned.iter().map(|p| p.block).max().unwrap_or(1);
                let next = Next { is_b: *condition == "b", block, number: trials };
                (fault.before_trial)(&setup, next)
            }
            Event::Progress { progress, .. } if is_disturbed => {
                let mut acted = Ok(());
                while let Some((_, action)) =
                    fault.inside.get(next_step).filter(|(at, _)| *at <= progress.elapsed)
                {
                    (next_step, injections) = (next_step + 1, injections + 1);
                    acted = acted.and(action(&setup));
                }
                acted
            }
            _ => Ok(()),
        };
        if injected.is_ok() {
            injected = acted;
        }
    };
    let results = match case.round.results(&text(fault, case, &setup), &mut observe) {
        Err(failure) if failure.code() == TRIAL => Ok(case.round.out.clone()),
        results => results,
    };
    (fault.after)(&setup)?;
    injected?;
    let dir = results?;
    if injections < fault.inside.len() {
        return Err(Failure::message(FAILED, "the fault was not injected: no window was open"));
    }
    Ok(directories::analyze(&dir)?)
}

/// Invalid trials are not repeated.
fn text(fault: &Fault, case: &Case<'_>, setup: &Setup) -> String {
    let (dsn, keys, tolerate) = (&setup.dsn, fault.keys, case.tolerate);
    let target = match fault.place {
        Place::Lab => format!("\nhost = \"primary\"\ndevice = \"drbd0\"\n\n{LAB_HOSTS}"),
        Place::Server | Place::LoopDisk | Place::Namespace => "\n\n".to_owned(),
    };
    let workload = match fault.workload {
        Workload::Commit(sessions) => format!("kind = \"commit\"\nsessions = {sessions}\n"),
        Workload::Slob { scale, work_unit, update_pct, more } => format!(
            "kind = \"slob\"\nscale = \"{scale}\"\nwork_unit = {work_unit}\n\
             update_work_unit = {work_unit}\nupdate_pct = {update_pct}\nnum_schemas = 1\nnum_threads = 1\n\
             create_base_table = false\n{more}"
        ),
    };
    let conditions =
        fault.conditions.iter().map(|name| format!("\n[[condition]]\nname = \"{name}\"\n"));
    format!(
        "[experiment]\nname = \"fault\"\naa = false\nrepeats = 0\ntolerate = {tolerate:?}\n{keys}\n\n\
         [target]\ndsn = \"{dsn}\"{target}[workload]\n{workload}{}{}",
        conditions.collect::<String>(),
        fault.last
    )
}

impl Setup {
    fn start(fault: &Fault, case: &Case<'_>) -> Result<Setup, Failure> {
        let prefix = format!("pgio-truth-{}-", std::process::id());
        let disk = match fault.place {
            Place::LoopDisk => {
                Some(LoopDisk::create(&prefix, DISK_BYTES).map_err(|e| Failure::new(FILES, e))?)
            }
            Place::Server | Place::Namespace | Place::Lab => None,
        };
        let base = disk.as_ref().map(LoopDisk::path);
        let cluster = match (fault.place, fault.standby) {
            (Place::Lab, _) => None,
            (_, true) => Some(private_pair(case.round.pg, base)?),
            (_, false) => Some(private(case.round.pg, base, fault.settings)?),
        };
        let dsn =
            cluster.as_ref().map_or_else(|| LAB_DSN.to_owned(), PrivateCluster::primary_conninfo);
        if let Workload::Slob { scale, .. } = fault.workload {
            load_at(dsn.clone(), scale)?;
        }
        let (replaced, busy) = (OnceCell::new(), Arc::default());
        Ok(Setup { dsn, cluster, disk, replaced, busy, done: Cell::new(false) })
    }

    /// Whether it is asked for the first time.
    pub(super) fn is_first(&self) -> bool {
        !self.done.replace(true)
    }

    pub(super) fn execute(&self, sql: &str) -> Outcome {
        connect(&self.dsn)?.batch_execute(sql).map_err(failed)
    }

    pub(super) fn set(&self, setting: &str, value: &str) -> Outcome {
        set(&self.dsn, setting, value)
    }

    pub(super) fn replaced(&self) -> &Replaced {
        self.replaced.get().expect("`prepare` of the fault replaces it")
    }

    /// Replaces a file or a directory of the machine until the end of the experiment.
    pub(super) fn replace(&self, path: &str) -> Outcome {
        self.replaced.set(Replaced::mount(Path::new(path))?).expect("a fault replaces one path");
        Ok(())
    }

    /// Keeps all cores busy by threads of this process, as a generator with too much work of its own would, until
    /// `busy` is false.
    pub(super) fn keep_cores_busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
        // Two for each core, so that other work on the machine leaves them at least one together.
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            let busy = Arc::clone(&self.busy);
            thread::spawn(move || {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
    }
}

fn connect(dsn: &str) -> Result<Client, Failure> {
    Client::connect(dsn).map_err(failed)
}

/// Changes a setting of the server as an administrator would; returns when new sessions have it.
pub(super) fn set(dsn: &str, setting: &str, value: &str) -> Outcome {
    for sql in [&*format!("ALTER SYSTEM SET {setting} = '{value}'"), "SELECT pg_reload_conf()"] {
        connect(dsn)?.batch_execute(sql).map_err(failed)?;
    }
    let show = format!("SHOW {setting}");
    wait_for(RELOAD, &format!("{setting} did not become {value} after a reload"), || {
        let shown: String = connect(dsn)?.query_one(&show, &[]).map_err(failed)?.get(0);
        Ok(shown == value)
    })
}

pub(super) fn wait_for(
    limit: Duration,
    failure: &str,
    mut is_there: impl FnMut() -> Result<bool, Failure>,
) -> Outcome {
    let begun = Instant::now();
    while !is_there()? {
        if begun.elapsed() > limit {
            return Err(Failure::message(FAILED, failure));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Starts a shell that is no descendant of this process: those count as pgio's own.
pub(super) fn start_detached(script: &str, argument: &str) -> Outcome {
    let mut setsid = Command::new("setsid");
    setsid.args(["--fork", "sh", "-c", script, "sh", argument]).stdin(Stdio::null());
    // It would keep a pipe open.
    let status = setsid.stdout(Stdio::null()).status().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(anyhow::anyhow!("setsid ended with {status}")))
    }
}

/// The standard output of a program that succeeds.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let done = command.output().map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(failed(anyhow::anyhow!("{program} {arguments:?} ended with {}: {why}", done.status)))
}

pub(super) fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot inject the fault")
}

/// A path where this namespace sees something of its own until this is dropped: a file with the content that it had,
/// or an empty directory.
#[derive(Debug)]
pub(super) struct Replaced {
    path: PathBuf,
    own: TempDir,
}

impl Replaced {
    fn mount(path: &Path) -> Result<Replaced, Failure> {
        let own = tempfile::tempdir().map_err(failed)?;
        let seen = own.path().join("seen");
        if path.is_dir() {
            fs::create_dir(&seen).map_err(failed)?;
        } else {
            fs::write(&seen, fs::read(path).map_err(failed)?).map_err(failed)?;
        }
        let mount = CommandLine::new("mount").args(["--bind"]).arg(&seen).arg(path);
        Local.run(&mount).map_err(failed)?;
        Ok(Replaced { path: path.to_owned(), own })
    }

    /// Writes the file, or one below the directory.
    pub(super) fn write(&self, below: &str, value: &str) -> Outcome {
        let seen = self.own.path().join("seen");
        let file = if below.is_empty() { seen } else { seen.join(below) };
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        fs::write(file, format!("{value}\n")).map_err(failed)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // If this fails, the mount ends with the namespace.
        let _ = Local.run(&CommandLine::new("umount").arg(&self.path));
    }
}
