//! compat/: the original's scripts, called and parsed as old wrappers do it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::examples::libpq_environment;
use pgio_tests::fixture::{INSTALLED, connect, pgio_exe, shared_primary};

const CONF: &str = "UPDATE_PCT=10\nRUN_TIME=1\nNUM_SCHEMAS=2\nNUM_THREADS=2\nWORK_UNIT=8\n\
                    UPDATE_WORK_UNIT=8\nSCALE=8M\nDBNAME=shims\nCONNECT_STRING=shims\n\
                    CREATE_BASE_TABLE=FALSE\n";

fn shim(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../compat").join(name)
}

/// With pgio in PATH.
fn sh(dir: &Path, script: &str) -> Command {
    let path = env::var("PATH").unwrap();
    let bin = pgio_exe().parent().unwrap().display().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).env("PATH", format!("{bin}:{path}"));
    command.env("PGIO_STATE_DIR", dir.join("state"));
    for (name, value) in libpq_environment(&shared_primary(INSTALLED).primary_conninfo()) {
        command.env(name, value);
    }
    command
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}\n{}", String::from_utf8_lossy(&stderr));
    text
}

#[test]
fn an_old_wrapper_still_works() {
    let primary = shared_primary(INSTALLED);
    connect(&primary.primary_conninfo()).batch_execute("CREATE DATABASE shims").unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pgio.conf"), CONF).unwrap();

    let setup = format!("sh '{}' > setup.out", shim("setup.sh").display());
    succeed(&mut sh(dir.path(), &setup));
    let printed = fs::read_to_string(dir.path().join("setup.out")).unwrap();
    assert!(printed.contains("Group data loading phase complete."), "{printed}");

    let run = format!(
        "'{}' > run.out && grep RIOPS run.out \
         | sed 's/.*RIOPS >\\([0-9]*\\)< CACHE_HITS\\/s >\\([0-9]*\\)<.*/\\1 \\2/'",
        shim("runit.sh").display()
    );
    let parsed = succeed(&mut sh(dir.path(), &run));
    let numbers: Vec<u64> =
        parsed.split_whitespace().map(|n| n.parse().expect("a number between > and <")).collect();
    assert_eq!(numbers.len(), 2, "{parsed}");
    assert!(numbers[1] > 0, "a cached table gives cache hits: {parsed}");

    let updated = "awk -F'|' '/^(BEFORE|AFTER):/ { print $6 + 0 }' run.out";
    let updated = succeed(&mut sh(dir.path(), updated));
    let rows: Vec<u64> = updated.lines().map(|n| n.parse().unwrap()).collect();
    assert!(rows.len() == 2 && rows[0] < rows[1], "rows updated before and after: {rows:?}");
    // One line a session below the heading, which awk scripts add up.
    let selects = "awk -F'|' '$3 + 0 > 0 { n++ } END { print n }' pgio_session_detail.out";
    assert_eq!(succeed(&mut sh(dir.path(), selects)).trim(), "4");
    for name in ["pgio_objects_creation.out", "pgio_data_load_table_sizes.out"] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
}

#[test]
fn without_pgio_a_shim_prints_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["setup.sh", "runit.sh", "pgio_reduce_free_memory.sh"] {
        fs::copy(shim(name), dir.path().join(name)).unwrap();
    }
    for call in ["setup.sh", "runit.sh", "pgio_reduce_free_memory.sh 1"] {
        // The programs that a shim needs, without pgio.
        let output = Command::new("/bin/sh")
            .args(["-c", &format!("./{call}")])
            .current_dir(dir.path())
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{call}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{call}");
    }
}
