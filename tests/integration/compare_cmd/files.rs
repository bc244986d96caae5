//! Results that cannot be written or read, and streams that take nothing: a clear error, the undo goes on, and
//! nothing is lost.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pgio_verdict::test_support::{demo, write_runs};
use rustix::process::Signal;

use crate::loading::room::TinyFileSystem;
use pgio_tests::fixture::{INSTALLED, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{Workdir, auto_conf, experiment, show, wait_until};

/// Leaves `leave` bytes free.
fn fill(dir: &Path, leave: u64) {
    let space = rustix::fs::statvfs(dir).unwrap();
    let size = (space.f_bavail * space.f_frsize).saturating_sub(leave);
    fs::write(dir.join("filler"), vec![0; usize::try_from(size).unwrap()]).unwrap();
}

#[test]
fn a_disk_that_is_full_while_results_are_written() {
    let Some(mount) = TinyFileSystem::mount() else { return };
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let keys = "blocks = 4\nduration = \"100ms\"\naa = false\nseed = 2";
    let conditions = [("a", ""), ("b", "wal_writer_delay = \"150ms\"")];
    let dir = Workdir::new();
    dir.write("e.toml", &experiment(&dsn, keys, "", &conditions));
    let mounted = mount.path();
    let out = Path::new(&mounted).join("out");
    let shown = out.display().to_string();
    // A record takes 5 kB.
    fill(Path::new(&mounted), 32_000);

    let result = dir.pgio(&["compare", "e.toml", "--out", &shown]).expect(7, &[&shown]);
    assert!(result.err.contains("No space left on device"), "{result}");
    // Changes are undone, complete trials can be read.
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    assert!(dir.journals().is_empty());
    let stored = fs::read_to_string(out.join("trials.jsonl")).unwrap();
    let complete = stored.lines().count() - usize::from(!stored.ends_with('\n'));
    assert!((1..8).contains(&complete), "{complete}");
    dir.pgio(&["report", &shown]).expect(0, &["a"]);

    fs::remove_file(Path::new(&mounted).join("filler")).unwrap();
    dir.pgio(&["compare", "e.toml", "--resume", &shown]).expect(0, &["Results: "]);
    let after = fs::read_to_string(out.join("trials.jsonl")).unwrap();
    let whole = stored.rfind('\n').map_or(0, |at| at + 1);
    assert!(after.starts_with(&stored[..whole]));
    // A trial alone in the block that was cut is measured again beside the other.
    assert_eq!(after.lines().count(), 8 + complete % 2);
}

/// Removed, renamed: what would be appended then is lost.
#[test]
fn vanished_results_stop_the_experiment_and_everything_is_restored() {
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let keys = "blocks = 12\nduration = \"300ms\"\naa = false\nseed = 3";
    let conditions = [("a", ""), ("b", "bgwriter_lru_maxpages = 90")];
    let attacks: [fn(&Path); 2] = [
        |out| fs::remove_dir_all(out).unwrap(),
        |out| fs::rename(out, out.with_extension("away")).unwrap(),
    ];
    for attack in attacks {
        let dir = Workdir::new();
        let out = dir.out();
        let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
        let stored = || fs::read_to_string(out.join("trials.jsonl")).unwrap_or_default();
        running.wait_until("two trials", || stored().lines().count() >= 2);
        attack(&out);
        let result = running.wait().expect(7, &["was removed, renamed or replaced"]);
        assert!(!out.exists(), "nothing is made anew in its place: {result}");
        assert_eq!(auto_conf(&dsn, "bgwriter_lru_maxpages"), None);
        assert!(dir.journals().is_empty());
        dir.pgio(&["undo"]).expect(0, &["Nothing to undo in "]);
    }
}

/// Results that come from elsewhere are read, and nothing that they point at.
#[test]
fn crafted_results_read_nothing_from_elsewhere() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    dir.compare(&experiment(&dsn, keys, "", &[("a", "")])).expect(0, &[]);
    fs::create_dir_all(dir.out().join("series")).unwrap();
    dir.write("secret", "geheim");
    let secret = dir.path().join("secret");
    let mut record = dir.trials().remove(0);
    let mut with_series = |name: &str| {
        record["series"] = name.into();
        format!("{record}\n")
    };
    let fifo = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let page = ["report", "out", "--format", "html", "--out", "page.html"];
    let trials = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    for (file, why) in [
        ("trials.jsonl", "symbolic link"),
        ("trials.jsonl", "FIFO"),
        ("manifest.json", "symbolic link"),
        ("manifest.json", "FIFO"),
        ("experiment.toml", "symbolic link"),
        ("experiment.toml", "FIFO"),
        ("series/0001.json", "symbolic link"),
        ("series/0001.json", "FIFO"),
        ("../secret", "below series/"),
        ("series/../../secret", "not the name of a file below"),
    ] {
        let path = dir.out().join(file);
        let kept = fs::read(&path).unwrap_or_default();
        if file.contains("se") {
            fs::write(dir.out().join("trials.jsonl"), with_series(file)).unwrap();
        }
        if !file.contains("secret") {
            let _ = fs::remove_file(&path);
            match why {
                "FIFO" => fifo(&path),
                _ => symlink(&secret, &path).unwrap(),
            }
        }
        // A FIFO that is opened would never end this.
        let result = dir.start(dir.command(&page)).wait().expect(7, &[why]);
        assert!(!result.err.contains("geheim"), "{result}");
        assert!(!dir.path().join("page.html").exists(), "{file}");
        if !file.contains("secret") {
            fs::remove_file(&path).unwrap();
            fs::write(&path, &kept).unwrap();
        }
        fs::write(dir.out().join("trials.jsonl"), &trials).unwrap();
    }
    let _ = fs::remove_file(dir.out().join("trials.jsonl"));
    let large = File::create(dir.out().join("trials.jsonl")).unwrap();
    for (bytes, why) in [(1 << 40, "the limit is"), (100 << 20, "line 1 is longer than")] {
        large.set_len(bytes).unwrap();
        dir.pgio(&page).expect(7, &[why]);
    }
}

/// A file has a temporary name until it is complete, and pgio once followed a link of that name.
#[test]
fn planted_links_are_not_written_through() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    dir.write("victim", "precious");
    let victim = dir.path().join("victim");
    let names = ["experiment", "manifest", "report"];
    fs::create_dir(dir.out()).unwrap();
    for name in names {
        symlink(&victim, dir.out().join(name).with_extension("partial")).unwrap();
    }
    symlink(&victim, dir.out().join("report.html")).unwrap();
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    dir.compare(&experiment(&dsn, keys, "", &[("a", "")])).expect(0, &[]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for name in ["experiment.toml", "manifest.json", "trials.jsonl", "report.html"] {
        let found = dir.out().join(name).symlink_metadata().unwrap();
        assert!(found.is_file(), "{name}");
        assert_eq!(found.permissions().mode() & 0o022, 0, "{name}");
    }
}

/// In `pgio compare … 2>&1 | tee log`, Ctrl-C reaches tee as well, which may end first.
#[test]
fn changes_are_undone_when_nobody_reads_stderr() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    for (duration, signal, code) in [("60s", Some(Signal::INT), 130), ("1s", None, 0)] {
        let dir = Workdir::new();
        let keys = format!("blocks = 1\nduration = {duration:?}\naa = false");
        let conditions = [("set", "wal_writer_delay = \"150ms\"")];
        dir.write("experiment.toml", &experiment(&dsn, &keys, "", &conditions));
        let command = dir.command(&["compare", "experiment.toml", "--out", "out"]);
        let (reader, writer) = io::pipe().unwrap();
        let mut running = dir.start_with_stderr(command, writer.into());
        running.wait_until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
        drop(reader);
        if let Some(signal) = signal {
            running.signal(signal);
        }
        running.wait().expect(code, &[]);
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
        wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
        assert!(dir.journals().is_empty());
    }
}

#[test]
fn output_that_stdout_does_not_take_is_a_failure_unless_its_reader_has_left() {
    let dir = Workdir::new();
    write_runs(dir.path(), &[demo()]).unwrap();
    let commands: [&[&str]; 4] = [
        &["report", "run-0001", "--format", "json"],
        &["--help"],
        &["report", "--help"],
        &["--version"],
    ];
    for arguments in commands {
        let run =
            |stdout: Stdio| -> Output { dir.command(arguments).stdout(stdout).output().unwrap() };
        let full = run(File::options().write(true).open("/dev/full").unwrap().into());
        let err = String::from_utf8_lossy(&full.stderr);
        assert_eq!(full.status.code(), Some(7), "{arguments:?}: {err}");
        assert!(err.contains("cannot write to stdout: No space left on device"), "{err}");

        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let left = run(writer.into());
        let err = String::from_utf8_lossy(&left.stderr);
        assert_eq!((left.status.code(), &*err), (Some(0), ""), "{arguments:?}");
    }
}
