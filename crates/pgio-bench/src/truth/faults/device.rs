//! Faults of the device below a server, a loop device of its own. Needs root.

use std::process::{Command, Stdio};

use super::accusations::Expected;
use super::case::{Fault, Needs};
use super::inject::{InWindow, failed};
use super::server::{COMMIT, disturbed, text};
use crate::truth::server::private;
use pgio::cli::exit::{FILES, Failure};
use pgio_bench::loop_disk::LoopDisk;

const BYTES: u64 = 4 << 30;

pub(super) const NO_BARRIERS: Fault = Fault {
    rule: 13,
    needs: Needs::LoopDevice,
    what: "the WAL's file system never asks its device to flush (barrier=0)",
    expected: Expected::warning("lying-cache", None),
    run: |case| {
        let disk = disk()?;
        run(Command::new("mount").args(["-o", "remount,barrier=0"]).arg(disk.path()))?;
        let cluster = private(case.round.pg, Some(disk.path()), &[])?;
        let text = text(case, &cluster, "blocks = 1\nduration = \"2s\"", COMMIT, &["a", "b"]);
        case.undisturbed(&text)
    },
};

pub(super) const OTHER_WRITER: Fault = Fault {
    rule: 14,
    needs: Needs::LoopDevice,
    what: "another program writes to the server's device inside each window of `disturbed`, while the server commits",
    expected: Expected::warning("foreign-io", Some("disturbed")),
    run: |case| {
        let disk = disk()?;
        let cluster = private(case.round.pg, Some(disk.path()), &[])?;
        let keys = "blocks = 1\nduration = \"5s\"";
        let text = text(case, &cluster, keys, COMMIT, &["alone", "disturbed"]);
        let target = format!("of={}", disk.path().join("other").display());
        // The shell stays until the window ends, so that its last sample has the writes.
        let script = "for i in 1 2 3 4 5 6 7 8; do \
                      dd if=/dev/zero \"$1\" bs=1M count=100 oflag=direct conv=notrunc status=none; done; \
                      rm -f \"${1#of=}\"; cd /; sleep 7";
        disturbed(
            case,
            &text,
            InWindow::of("disturbed").at(0.3, || start_detached(script, &target)),
        )
    },
};

pub(super) const OTHER_READ_AHEAD: Fault = Fault {
    rule: 1,
    needs: Needs::LoopDevice,
    what: "the read-ahead of the server's device changes before each trial of `b`",
    expected: Expected::invalid("environment-differs", Some("b")),
    run: |case| {
        let disk = disk()?;
        let cluster = private(case.round.pg, Some(disk.path()), &[])?;
        let queue = format!("/sys/dev/block/{}/queue/read_ahead_kb", disk.number());
        let text = text(case, &cluster, "blocks = 2\nduration = \"1s\"", COMMIT, &["a", "b"]);
        let value = |is_b| if is_b { "4096" } else { "128" };
        case.with_b_changed(&text, |is_b| std::fs::write(&queue, value(is_b)).map_err(failed))
    },
};

/// Starts a shell that is no descendant of this process: those count as pgio's own.
pub(super) fn start_detached(script: &str, argument: &str) -> Result<(), Failure> {
    run(Command::new("setsid").args(["--fork", "sh", "-c", script, "sh", argument]))
}

pub(super) fn disk() -> Result<LoopDisk, Failure> {
    let prefix = format!("pgio-truth-{}-", std::process::id());
    LoopDisk::create(&prefix, BYTES).map_err(|e| Failure::new(FILES, e))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(anyhow::anyhow!("{command:?} ended with {status}")))
    }
}
