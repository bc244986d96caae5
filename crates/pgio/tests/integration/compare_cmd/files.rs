//! Results that cannot be written or read: a clear error, and nothing lost.

use std::fs;
use std::path::Path;

use crate::fixture::{INSTALLED, fresh_database, shared_primary};
use crate::loading::TinyFileSystem;
use crate::workdir::{Workdir, auto_conf, experiment};

/// Leaves so many bytes free.
fn fill(dir: &Path, leave: u64) {
    let space = rustix::fs::statvfs(dir).unwrap();
    let size = (space.f_bavail * space.f_frsize).saturating_sub(leave);
    fs::write(dir.join("filler"), vec![0; usize::try_from(size).unwrap()]).unwrap();
}

#[test]
fn a_disk_that_is_full_while_results_are_written() {
    let Some(mount) = TinyFileSystem::mount() else { return };
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = "blocks = 8\nduration = \"100ms\"\naa = false\nseed = 2";
    let conditions = [("a", ""), ("b", "wal_writer_delay = \"150ms\"")];
    let dir = Workdir::new();
    dir.write("e.toml", &experiment(&dsn, keys, "", &conditions));
    let mounted = mount.path();
    let out = Path::new(&mounted).join("out");
    let shown = out.display().to_string();
    fill(Path::new(&mounted), 100_000);

    let said = dir.pgio(&["compare", "e.toml", "--out", &shown]).expect(7, &[&shown]);
    assert!(said.err.contains("No space left on device"), "{said}");
    // What was changed is put back, what was complete can be read.
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    assert!(dir.journals().is_empty());
    let stored = fs::read_to_string(out.join("trials.jsonl")).unwrap();
    let complete = stored.lines().count() - usize::from(!stored.ends_with('\n'));
    assert!((1..16).contains(&complete), "{complete}");
    dir.pgio(&["report", &shown]).expect(0, &["a"]);

    fs::remove_file(Path::new(&mounted).join("filler")).unwrap();
    dir.pgio(&["compare", "e.toml", "--resume", &shown]).expect(0, &["Results: "]);
    let after = fs::read_to_string(out.join("trials.jsonl")).unwrap();
    let whole = stored.rfind('\n').map_or(0, |at| at + 1);
    assert!(after.starts_with(&stored[..whole]));
    assert_eq!(after.lines().count(), 16);
}

#[test]
fn results_of_a_newer_version_are_refused_by_name() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
    dir.compare(&experiment(&dsn, keys, "", &[("a", "")])).expect(0, &[]);
    for (file, from, to) in [
        ("manifest.json", "pgio.manifest/1", "pgio.manifest/2"),
        ("trials.jsonl", "pgio.trial/1", "pgio.trial/2"),
    ] {
        let path = dir.out().join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(from, to)).unwrap();
        for command in [&["report", "out"][..], &["compare", "experiment.toml", "--resume", "out"]]
        {
            let said = dir.pgio(command).expect(7, &[to, file, "use the pgio that wrote it"]);
            assert_eq!(said.out, "");
        }
        fs::write(&path, text).unwrap();
    }
}
