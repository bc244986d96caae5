//! Faults on the hosts of the lab, where DRBD and a slow clock are real.
//!
//! The lab's hosts are virtual machines in user mode, so reading a clock is a system call there. Every
//! fault is undone, so that the lab can be used afterwards.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::{InWindow, execute, failed, set};
use super::server::{COMMIT, disturbed, slob, text_on};
use crate::truth::server::load_at;
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio_report::analysis::Analysis;

const DSN: &str = "host=primary user=postgres dbname=pgio";
const RESYNC: Duration = Duration::from_secs(60);

pub(super) const DISCONNECTED: Fault = Fault {
    rule: 3,
    needs: Needs::Lab,
    what: "lab: DRBD is disconnected inside the window of a condition that needs protocol C",
    expected: Expected::invalid("drbd-connection", Some("C")),
    run: |case| {
        let drbd = "drbd = { resource = \"pgio\", protocol = \"C\", secondary = \"secondary\" }\n";
        let text = lab(case, "blocks = 1\nduration = \"5s\"", COMMIT, &["C"]) + drbd;
        let fault = InWindow::of("C").at(1.5, || ssh("drbdadm disconnect pgio"));
        let analysis = disturbed(case, &text, fault);
        reconnect()?;
        analysis
    },
};

pub(super) const LOST_PEER: Fault = Fault {
    rule: 3,
    needs: Needs::Lab,
    what: "lab: DRBD below the server is disconnected inside the window of a condition without a drbd treatment",
    expected: Expected::warning("drbd-connection-lost", Some("a")),
    run: |case| {
        let text = lab(case, "blocks = 1\nduration = \"5s\"", COMMIT, &["a"]);
        let fault = InWindow::of("a").at(1.5, || ssh("drbdadm disconnect pgio"));
        let analysis = disturbed(case, &text, fault);
        reconnect()?;
        analysis
    },
};

/// Updates of single random rows of a table that fills 128 extents. Only a checkpoint inside the window writes
/// the pages: until then they stay in the buffers, and the device sees nothing but WAL, which fills its extents
/// one after the other. The file system is mounted with `sync` so that pages are written one by one: the
/// kernel's own write-back comes in batches, of which each costs one write to the log.
pub(super) const COLD_ACTIVITY_LOG: Fault = Fault {
    rule: 12,
    needs: Needs::Lab,
    what: "lab: DRBD's activity log is emptied in the first trial of synchronous writes, and there is no burn-in",
    expected: Expected::warning("drbd-cold-log", Some("a")),
    run: |case| {
        // Each change of its size empties the log. Before the window pgio itself would fill it again.
        const EMPTY: &str = "drbdadm disk-options --al-extents=600 pgio && drbdadm disk-options --al-extents=1237 pgio";
        let mut emptied = false;
        scattered_writes(case, || {
            if std::mem::replace(&mut emptied, true) { Ok(()) } else { ssh(EMPTY) }
        })
    },
};

pub(super) const WARM_ACTIVITY_LOG: Fault = Fault {
    what: "lab: the same writes, of which the load has warmed the activity log",
    run: |case| scattered_writes(case, || Ok(())),
    ..COLD_ACTIVITY_LOG
};

/// Runs trials in which the device sees scattered writes one by one; `first` is called early in each window.
fn scattered_writes(
    case: &Case<'_>,
    mut first: impl FnMut() -> Outcome,
) -> Result<Analysis, Failure> {
    const SCALE: &str = "512M";
    load_at(DSN.to_owned(), SCALE)?;
    execute(DSN, "CHECKPOINT")?;
    ssh("mount -o remount,sync /srv/drbd")?;
    let keys = "blocks = 4\nduration = \"4s\"\nwarmup = \"0s\"\nburn_in = false";
    let text = lab(case, keys, &slob(SCALE, 1, 100), &["a"]);
    let fault = InWindow::of("a").at(0.1, &mut first).at(1.5, || execute(DSN, "CHECKPOINT"));
    let analysis = disturbed(case, &text, fault);
    ssh("mount -o remount,async /srv/drbd")?;
    execute(DSN, "DROP TABLE IF EXISTS pgio1")?;
    analysis
}

pub(super) const SLOW_CLOCK: Fault = Fault {
    rule: 15,
    needs: Needs::Lab,
    what: "lab: track_io_timing is on where a reading of the clock is a system call",
    expected: Expected::warning("clock-cost", None),
    run: |case| {
        set(DSN, "track_io_timing", "on")?;
        let text = lab(case, "blocks = 1\nduration = \"2s\"", COMMIT, &["a"]);
        let analysis = case.undisturbed(&text);
        execute(DSN, "ALTER SYSTEM RESET track_io_timing")?;
        execute(DSN, "SELECT pg_reload_conf()")?;
        analysis
    },
};

/// Whether this runs in the lab's network: there the hosts have names.
pub(super) fn in_lab() -> bool {
    ssh("true").is_ok()
}

fn lab(case: &Case<'_>, keys: &str, workload: &str, conditions: &[&str]) -> String {
    let hosts = "[hosts.primary]\nssh = \"primary\"\n\n[hosts.secondary]\nssh = \"secondary\"\n\n";
    let target = format!("dsn = \"{DSN}\"\nhost = \"primary\"\ndevice = \"drbd0\"");
    text_on(case, &target, keys, &format!("{hosts}{workload}"), conditions)
}

/// Runs a command line on the primary.
fn ssh(line: &str) -> Outcome {
    output(line).map(drop)
}

fn output(line: &str) -> Result<String, Failure> {
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "BatchMode=yes", "primary", line]).stdin(Stdio::null());
    let done = ssh.output().map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(failed(anyhow::anyhow!("`{line}` on the lab's primary: {why}")))
}

/// Returns when DRBD is connected and both disks are up to date.
fn reconnect() -> Outcome {
    // It fails if pgio has already connected.
    let _ = ssh("drbdadm connect pgio");
    let begun = Instant::now();
    while !output("cat /proc/drbd")?
        .contains("cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate")
    {
        if begun.elapsed() > RESYNC {
            return Err(Failure::message(
                FAILED,
                "DRBD of the lab is not up to date after a minute",
            ));
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
