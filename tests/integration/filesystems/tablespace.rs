//! `tablespace = "/a/new/directory"`: the data set of a user's server on a new file system, and back.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pgio::rng::SplitMix64;

use super::formatting::{format, holds, mounted};
use super::{LONG, SIZE, kill, mounts_found};
use crate::controlling::Managed;
use crate::disk::{LoopDevice, lock_free_devices, run};
use crate::killing::kills;
use pgio_tests::fixture::connect;
use pgio_tests::workdir::{Workdir, condition_of, failed_checks, tolerate, wait_until};

/// A server of the user's with a data set, a blank device, and a directory that is not there.
struct Bench {
    server: Managed,
    device: LoopDevice,
    point: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        let (server, device) = (Managed::start(""), LoopDevice::new(SIZE));
        let point = device.place("space");
        let dsn = server.dsn();
        let dir = Workdir::new();
        let sizes = ["--scale", "8M", "--num-schemas", "2", "--num-threads", "1"];
        let line: Vec<&str> =
            ["setup", "--connect-string", &dsn].into_iter().chain(sizes).collect();
        dir.pgio(&line).expect(0, &[]);
        Bench { server, device, point }
    }

    fn body(&self, file_system: &str, more: &str) -> String {
        let point = self.point.to_str().unwrap();
        format(&self.device, &format!("type = {file_system:?}, tablespace = {point:?}{more}"))
    }

    /// The treatment of a condition.
    fn on(&self, file_system: &str, more: &str) -> String {
        format!("filesystem = {{ {} }}", self.body(file_system, more))
    }

    /// A server that pgio may not stop.
    fn experiment(&self, keys: &str, conditions: &[(&str, &str)]) -> String {
        let mut text = format!(
            "[experiment]\nwarmup = \"0s\"\naa = false\nburn_in = false\nrepeats = 0\n{keys}\n{}\n\
             [target]\ndsn = {:?}\nhost = \"local\"\n[workload]\nkind = \"slob\"\nscale = \"8M\"\n\
             num_schemas = 2\nnum_threads = 1\nupdate_pct = 0\nwork_unit = 8\n",
            tolerate(&[]),
            self.server.dsn()
        );
        for (name, body) in conditions {
            text += &format!("[[condition]]\nname = {name:?}\n{body}\n");
        }
        text
    }

    /// The tablespaces of tables and indexes, without ours.
    fn places(&self) -> Vec<(String, String)> {
        let ask = "SELECT c.relname::text, coalesce(t.spcname, '')::text FROM pg_class c \
                   LEFT JOIN pg_tablespace t ON t.oid = reltablespace \
                   WHERE relname ~ '^pgio' ORDER BY 1";
        let rows = connect(&self.server.dsn()).query(ask, &[]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// The directory of a run that was killed while the tables were on the new file system.
    fn killed_when_moved(&self) -> Workdir {
        let dir = Workdir::new();
        let body = self.on("ext4", "");
        let mut running = dir.start_compare(&self.experiment(LONG, &[("b", &body)]));
        running.wait_until("moved", || {
            self.places().iter().all(|(_, place)| place == "pgio_filesystem")
        });
        running.kill();
        dir
    }

    fn is_as_before(&self, places: &[(String, String)]) {
        assert_eq!(self.places(), places);
        let spaces = "SELECT count(*) FROM pg_tablespace WHERE spcname ~ 'pgio'";
        let left: i64 = connect(&self.server.dsn()).query_one(spaces, &[]).unwrap().get(0);
        assert_eq!(left, 0);
        assert!(!mounted(&self.device) && !self.point.exists());
        assert_eq!(holds(&self.device), "");
        // All data can still be read.
        let mut client = connect(&self.server.dsn());
        let rows: i64 = client.query_one("SELECT count(*) FROM pgio2", &[]).unwrap().get(0);
        assert_eq!(rows, 1024);
    }
}

#[test]
fn a_data_set_lies_on_a_new_file_system_while_the_server_runs() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let (before, process) = (bench.places(), bench.server.process());
    let dir = Workdir::new();
    // The device of a throttle is used only once the data set is there.
    let throttled = format!(
        "{}\nthrottle = {{ device = {:?}, write_iops = 5000 }}",
        bench.on("ext4", ""),
        bench.device.path
    );
    let (xfs, ext4) = (bench.on("xfs", ", options = \"noatime\""), bench.on("ext4", ""));
    let conditions =
        [("plain", ""), ("xfs", xfs.as_str()), ("ext4", &ext4), ("throttled", &throttled)];
    let text = bench.experiment("blocks = 1\nduration = \"500ms\"", &conditions);
    dir.compare(&text).expect(0, &["throttled"]);
    bench.is_as_before(&before);
    assert_eq!(bench.server.process(), process, "nothing stopped it");
    assert!(dir.journals().is_empty());
    let device = bench.device.path.trim_start_matches("/dev/");
    for trial in dir.trials() {
        let failed = failed_checks(&trial, "invalid");
        // A limit that nothing reaches is no limit, which is not at issue here.
        assert!(failed.iter().all(|check| check == "throttle"), "{failed:?}");
        let expected = match condition_of(&trial) {
            "plain" => continue,
            "xfs" => "xfs rw,noatime",
            _ => "ext4 rw,relatime",
        };
        let found = mounts_found(&trial);
        assert!(found.len() >= 2 && found.iter().all(|f| f.contains(expected)), "{found:?}");
        let space = "\"tablespace of the data set\"";
        assert!(trial["evidence"].to_string().contains(space), "{trial}");
        assert!(trial.to_string().contains(device), "its device was observed");
    }
}

#[test]
fn killed_at_any_moment_the_data_set_is_moved_back() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let before = bench.places();
    let mut random = SplitMix64::new(17);
    let mut moved = 0;
    for round in 0..kills(6) {
        let dir = Workdir::new();
        let body = bench.on(["ext4", "xfs"][round as usize % 2], "");
        let text = |keys: &str| bench.experiment(keys, &[("b", &body)]);
        let delay = (round > 0).then(|| random.next_u64() % 1500);
        kill(&dir, text, delay, || bench.places() != before);
        moved += usize::from(bench.places() != before);
        dir.pgio(&["undo"]).expect(0, &[]);
        bench.is_as_before(&before);
        assert!(dir.journals().is_empty(), "round {round}");
    }
    assert!(moved > 0, "the first moment lies where it is moved");
}

#[test]
fn after_a_reboot_undo_mounts_the_file_system_again() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let before = bench.places();
    let dir = bench.killed_when_moved();
    // Simulate a power failure: the server crashed, and nothing is mounted.
    bench.server.crash();
    wait_until("its processes are gone", || {
        Command::new("umount").arg(&bench.point).output().unwrap().status.success()
    });
    // Without the file system the data cannot be moved back, and the journal keeps the steps.
    let elsewhere = bench.device.path.clone();
    let lock = lock_free_devices();
    run("losetup", &["--detach", &elsewhere]);
    dir.pgio(&["undo"]).expect(6, &["nor another device", "attach it again"]);
    assert!(!dir.journals().is_empty());
    let image = bench.device.image();
    run("losetup", &[&elsewhere, image.to_str().unwrap()]);
    drop(lock);
    // The server is none of pgio's to start; but what it needs to be started is there now.
    dir.pgio(&["undo"]).expect(6, &["Still in place: place of the data set", "cannot reach"]);
    assert!(mounted(&bench.device));
    bench.server.start_again("");
    dir.pgio(&["undo"]).expect(0, &["Restored place of the data set"]);
    bench.is_as_before(&before);
}

#[test]
fn a_lost_file_system_is_not_the_end_of_an_undo() {
    in_namespace_of_its_own!();
    for keeps in [false, true] {
        let bench = Bench::new();
        let dir = bench.killed_when_moved();
        bench.server.stop();
        wait_until("its processes are gone", || {
            Command::new("umount").arg(&bench.point).output().unwrap().status.success()
        });
        run("wipefs", &["--all", "--quiet", &bench.device.path]);
        bench.server.start_again("");
        dir.pgio(&["undo"]).expect(6, &["nor another device", "--keep"]);
        if keeps {
            dir.pgio(&["undo", "--keep"]).expect(0, &["Kept place of the data set"]);
        } else {
            let drop = "DROP TABLE pgio1, pgio2; DROP TABLESPACE pgio_filesystem";
            // One statement each: it cannot run in a transaction.
            let mut admin = connect(&bench.server.dsn());
            drop.split(';').for_each(|statement| admin.batch_execute(statement).unwrap());
            dir.pgio(&["undo"]).expect(0, &["Restored place of the data set"]);
        }
        assert!(dir.journals().is_empty() && !bench.point.exists(), "{keeps}");
    }
}

#[test]
fn a_directory_that_cannot_be_removed_stays_in_place() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let before = bench.places();
    let dir = bench.killed_when_moved();
    // Someone's file below the mount.
    run("mount", &["--bind", bench.point.parent().unwrap().to_str().unwrap(), "/mnt"]);
    fs::write("/mnt/space/theirs", "").unwrap();
    run("umount", &["/mnt"]);
    dir.pgio(&["undo"])
        .expect(6, &["the directory stays", "--keep", "Still in place: file system"]);
    assert!(!mounted(&bench.device) && !dir.journals().is_empty());
    fs::remove_file(bench.point.join("theirs")).unwrap();
    dir.pgio(&["undo"]).expect(0, &["Restored mount at", "Restored file system on"]);
    bench.is_as_before(&before);
}

#[test]
fn undo_waits_for_a_move_of_a_killed_run() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let before = bench.places();
    let mut other = connect(&bench.server.dsn());
    // Somebody holds a table, so that the move of it is under way for as long as that.
    other.batch_execute("BEGIN; LOCK pgio2 IN ACCESS SHARE MODE").unwrap();
    let dir = Workdir::new();
    let body = bench.on("ext4", "");
    let mut running = dir.start_compare(&bench.experiment(LONG, &[("b", &body)]));
    running.wait_until("on its way", || {
        let ask = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        connect(&bench.server.dsn()).query_one(ask, &[]).unwrap().get::<_, i64>(0) > 0
    });
    running.kill();
    // Someone else's database is not where the data set is.
    let mut admin = connect(&bench.server.dsn());
    admin.batch_execute("CREATE DATABASE other").unwrap();
    let wrong = bench.server.dsn().replace("dbname=postgres", "dbname=other");
    dir.pgio(&["undo", "--connect", &wrong]).expect(6, &["is in database postgres"]);
    dir.pgio(&["undo"]).expect(6, &["pgio2", "is in use by another session"]);
    other.batch_execute("COMMIT").unwrap();
    dir.pgio(&["undo"]).expect(0, &["Restored place of the data set"]);
    bench.is_as_before(&before);
}

#[test]
fn unsuitable_tablespaces_are_refused_before_anything_is_changed() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let before = bench.places();
    let refused = |text: &str, expected: &[&str]| {
        let dir = Workdir::new();
        dir.compare(text).expect(4, expected);
        assert!(dir.journals().is_empty());
        bench.is_as_before(&before);
    };
    let body = bench.on("xfs", "");
    let text = bench.experiment("blocks = 1\nduration = \"100ms\"", &[("b", &body)]);
    fs::create_dir(&bench.point).unwrap();
    let dir = Workdir::new();
    dir.compare(&text).expect(4, &["already exists", "which pgio creates"]);
    fs::remove_dir(&bench.point).unwrap();
    let below = text.replace("/space\"", "/no/space\"");
    refused(&below, &["the directory above it does not exist"]);
    let link = bench.point.with_file_name("link");
    std::os::unix::fs::symlink(bench.point.parent().unwrap(), &link).unwrap();
    let linked = text.replace("/space\"", "/link/space\"");
    refused(&linked, &["symbolic link", &format!("tablespace = \"{}\"", bench.point.display())]);
    let parent = bench.point.parent().unwrap().to_str().unwrap();
    run("chown", &["nobody", parent]);
    refused(&text, &["belongs to user", "such as /srv/pgio or /mnt/pgio"]);
    run("chown", &["root", parent]);
    run("chmod", &["o+w", parent]);
    refused(&text, &["is writable by other users"]);
    run("chmod", &["o-w", parent]);
    let mut admin = connect(&bench.server.dsn());
    admin.batch_execute("SELECT pg_create_physical_replication_slot('s')").unwrap();
    refused(&text, &["a standby follows this server"]);
    admin.batch_execute("SELECT pg_drop_replication_slot('s')").unwrap();
    let two = bench.body("xfs", "");
    let two = format!("filesystem = [{{ {two} }}, {{ {} }}]", two.replace("/space", "/space2"));
    let twice = bench.experiment("blocks = 1\nduration = \"100ms\"", &[("b", &two)]);
    refused(&twice, &["move the data set only once"]);
    admin.batch_execute("CREATE ROLE clerk LOGIN; GRANT pg_monitor TO clerk").unwrap();
    refused(&text.replace("user=postgres", "user=clerk"), &["clerk", "superuser"]);
    let commit = text.split("[workload]").next().unwrap().to_owned()
        + "[workload]\nkind = \"commit\"\n"
        + &format!("[[condition]]\nname = \"b\"\n{body}\n");
    admin.batch_execute("CREATE DATABASE empty").unwrap();
    refused(&commit.replace("dbname=postgres", "dbname=empty"), &["no data set"]);
}

/// One Linux partition of 2 MiB.
fn partition_table() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 9] = 8;
    sector[446 + 13] = 16;
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Under a data directory the same rules hold.
#[test]
fn a_device_in_use_by_something_else_is_not_formatted() {
    in_namespace_of_its_own!();
    let bench = Bench::new();
    let (before, other) = (bench.places(), LoopDevice::new(SIZE));
    let refused = |device: &str, more: &str, expected: &str| {
        let (dir, was) = (Workdir::new(), holds(&other));
        let body = bench.on("ext4", more).replace(&bench.device.path, device);
        let text = bench.experiment("blocks = 1\nduration = \"100ms\"", &[("b", &body)]);
        dir.compare(&text).expect(4, &[expected]);
        assert!(dir.journals().is_empty());
        assert_eq!(holds(&other), was);
    };
    let clear = || run("wipefs", &["--all", "--quiet", &other.path]);
    let uuid = other.format();
    refused(&other.path, "", &format!("confirm it: uuid = \"{uuid}\""));
    let wrong = ", uuid = \"00000000-0000-4000-8000-000000000000\"";
    refused(&other.path, wrong, "holds ext4");
    clear();
    fs::write(&other.path, partition_table()).unwrap();
    refused(&other.path, "", "holds dos");
    clear();
    run("mkswap", &["-q", &other.path]);
    refused(&other.path, "", "holds swap");
    refused("/dev/no-such", "", "has no device /dev/no-such");
    bench.is_as_before(&before);
}
