//! `pgio ballast` and huge pages in an experiment: one test, since a machine has one number of
//! them. Only where that leaves the machine plenty.

use std::fs;
use std::process::Command;

use super::{cluster, endless, is_root, kill_with_its_guards, on};
use pgio_tests::fixture::pgio_exe;
use pgio_tests::workdir::{Workdir, wait_until};

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
        eprintln!("skipped: a ballast needs {NUMBER} and more memory than is available here");
        return None;
    }
    Some((available - TAKEN) >> 20)
}

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
