//! pgio acts only on its own files: no other user can plant a journal or hold a lock.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::disk;
use pgio_tests::fixture::{INSTALLED, copy_program, own_primary, pgio_exe};
use pgio_tests::workdir::{SAMPLED, Workdir, active_sessions, experiment, wait_until};

const STRANGER: u32 = 4242;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A journal whose undo makes a file.
fn plant(dir: &Workdir) {
    let file = dir.path().join("pwned");
    let commands =
        format!(r#"{{"name":"x","verify":["false"],"undo":["touch",{file:?}],"seconds":9.0}}"#);
    let begin = r#"{"event":"begin","schema":"pgio.journal/1","run":"1-1","connect":"","machine":{"name":"","id":""},"private":true,"hosts":{"local":{}}}"#;
    let step = format!(
        r#"{{"event":"intent","number":1,"step":{{"kind":"command","what":"command `x`","host":"local","prior":null,"ours":{commands}}}}}"#
    );
    let state = dir.path().join("state/journal");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("1-1.journal"), format!("{begin}\n{step}\n")).unwrap();
    for (path, mode) in [(state.join("1-1.journal"), 0o600), (state, 0o700)] {
        chmod(&path, mode);
    }
    chmod(&dir.path().join("state"), 0o700);
}

#[test]
fn a_planted_journal_is_not_run() {
    if !disk::is_root("giving files away") {
        return;
    }
    let dir = Workdir::new();
    plant(&dir);
    let pwned = dir.path().join("pwned");
    let refused = |text: &str| {
        for command in [&["undo"][..], &["run", "--connect-string", "host=/nonexistent"]] {
            dir.pgio(command).expect(4, &[text, "does not trust it"]);
            assert!(!pwned.exists(), "{text}");
        }
    };
    let state = dir.path().join("state");
    for path in ["", "journal", "journal/1-1.journal"] {
        let path = state.join(path);
        chown(&path, Some(STRANGER), None).unwrap();
        refused("belongs to user 4242");
        chown(&path, Some(0), None).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        chmod(&path, mode | 0o020);
        refused("is writable by other users");
        chmod(&path, mode);
    }
    dir.pgio(&["doctor"]).expect(4, &["pgio undo"]);
    // That it would have run is seen where all is ours.
    dir.pgio(&["undo"]).expect(0, &["Restored command `x`"]);
    assert!(pwned.exists());
}

#[test]
fn undo_refuses_a_user_without_home_and_state_directory() {
    if !disk::is_root("another user") {
        return;
    }
    let dir = Workdir::new();
    let program = copy_program(&pgio_exe(), dir.path());
    chmod(dir.path(), 0o755);
    let mut command = std::process::Command::new(&program);
    command.arg("undo").env_clear().current_dir("/").uid(STRANGER).gid(STRANGER);
    dir.start(command).wait().expect(4, &["no home directory", "PGIO_STATE_DIR"]);
}

/// `sudo -u postgres pgio …` in /root. Nothing is wanted from pgio.conf.
#[test]
fn a_working_directory_that_cannot_be_searched_is_no_obstacle() {
    if !disk::is_root("another user") {
        return;
    }
    let dir = Workdir::new();
    let program = copy_program(&pgio_exe(), dir.path());
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    chmod(&closed, 0o700);
    chmod(dir.path(), 0o755);
    let switch =
        "cd \"$1\" && shift && exec setpriv --reuid=4242 --regid=4242 --clear-groups -- \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", switch, "sh"]).arg(&closed).arg(&program);
    command.args(["doctor", "--connect-string", "host=/nonexistent user=x dbname=x"]);
    command.env("PGIO_STATE_DIR", dir.path().join("no-state"));
    dir.start(command).wait().expect(4, &["/nonexistent"]);
}

#[test]
fn created_files_are_private_under_any_umask() {
    let server = own_primary(INSTALLED);
    let dsn = pgio_tests::fixture::fresh_database(&server);
    let dir = Workdir::new();
    let keys = format!("blocks = 1\nduration = \"60s\"\naa = false\n{SAMPLED}");
    // Journal a step on a host as well.
    let text = experiment(&dsn, &keys, "", &[("set", "")])
        + "command = { name = \"flag\", apply = [\"touch\", \"flag\"], verify = [\"test\", \"-e\", \"flag\"], undo = [\"rm\", \"flag\"] }\n";
    dir.write("experiment.toml", &text);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh"])
        .arg(pgio_exe())
        .args(["compare", "experiment.toml", "--out", "out"])
        .current_dir(dir.path())
        .env("PGIO_STATE_DIR", dir.path().join("state"));
    let mut running = dir.start(command);
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    let mut seen = 0;
    let mut below = vec![dir.path().join("state")];
    while let Some(path) = below.pop() {
        let found = fs::metadata(&path).unwrap();
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.permissions().mode() & 0o777, expected, "{}", path.display());
        seen += u32::from(found.is_file());
        if found.is_dir() {
            below.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    assert!(seen >= 3, "a journal and locks");
    running.kill();
    wait_until("its sessions are gone", || active_sessions(&dsn) == 0);
    dir.pgio(&["undo"]).expect(0, &[]);
}
