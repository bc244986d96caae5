//! A load without enough room: refused beforehand, or failed without losing the former data set.

use std::process::Command;

use pgio::dataset::{self, DatasetError, LoadSpec, check_for_run};

use super::{database, load, refused, relations, spec, tables, text};
use crate::fixture::{INSTALLED, connect};

#[test]
fn too_little_room_is_refused_beforehand() {
    let conninfo = database(INSTALLED);
    let error = refused(&conninfo, &LoadSpec { scale: "8T".into(), ..spec(64, 1 << 30) });
    let DatasetError::NoSpace { path, needed, free, .. } = &error else { panic!("{error}") };
    assert!(path.is_dir(), "{error}");
    assert!(needed > free && *free > 0, "{error}");
    assert_eq!(tables(&mut connect(&conninfo)), "");
}

#[test]
fn a_full_tablespace_leaves_the_former_data_set() {
    let Some(mount) = TinyFileSystem::mount() else { return };
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    let name = format!("tiny_{}", std::process::id());
    client.batch_execute(&format!("CREATE TABLESPACE {name} LOCATION '{}'", mount.path())).unwrap();
    let spec = |blocks| LoadSpec { tablespace: Some(name.clone()), ..spec(1, blocks) };
    load(&conninfo, &spec(1024));
    let before = relations(&mut client);

    // The check beforehand refuses; for a role that may not see the directory the load fails.
    let error = refused(&conninfo, &spec(8192));
    assert!(
        matches!(&error, DatasetError::NoSpace { path, .. } if path.ends_with("space")),
        "{error}"
    );
    let role = format!("blind_{}", std::process::id());
    client
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role};
             GRANT CREATE ON TABLESPACE {name} TO {role}; ALTER TABLE pgio1 OWNER TO {role}"
        ))
        .unwrap();
    let error = refused(&format!("{conninfo} user={role}"), &spec(8192));
    assert!(
        matches!(&error, DatasetError::DiskFull { object, .. } if object == "pgio1"),
        "{error}"
    );
    assert_eq!(relations(&mut client), before);
    check_for_run(&mut client, 1, Some(1024)).unwrap();

    dataset::destroy(&mut client).unwrap();
    // On the shared server nothing may point to what is unmounted now; each is no transaction.
    for statement in [
        "CHECKPOINT".to_owned(),
        format!("DROP TABLESPACE {name}"),
        format!("DROP OWNED BY {role}"),
        format!("DROP ROLE {role}"),
    ] {
        client.batch_execute(&statement).unwrap();
    }
}

/// A tmpfs of 24 MB for a tablespace; only root can mount one.
pub(crate) struct TinyFileSystem(tempfile::TempDir);

impl TinyFileSystem {
    pub(crate) fn mount() -> Option<TinyFileSystem> {
        if !is_root() {
            eprintln!("skipped: only root can mount a small file system");
            return None;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            eprintln!("skipped: this machine does not let root mount a tmpfs");
            return None;
        }
        let mount = TinyFileSystem(dir);
        // The server runs as another user, who must get there and own the directory.
        std::fs::create_dir(mount.path()).unwrap();
        let open = |path: &std::path::Path, mode: &str| {
            assert!(Command::new("chmod").arg(mode).arg(path).status().unwrap().success());
        };
        open(mount.0.path(), "755");
        open(mount.path().as_ref(), "700");
        let owner = server_user();
        assert!(Command::new("chown").arg(owner).arg(mount.path()).status().unwrap().success());
        Some(mount)
    }

    pub(crate) fn path(&self) -> String {
        self.0.path().join("space").display().to_string()
    }
}

impl Drop for TinyFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// The user that the shared server runs as, seen from its data directory.
fn server_user() -> String {
    let mut client = connect(&database(INSTALLED));
    let directory = text(&mut client, "SELECT current_setting('data_directory')");
    let owner = Command::new("stat").args(["-c", "%u:%g"]).arg(directory).output().unwrap();
    String::from_utf8(owner.stdout).unwrap().trim().to_owned()
}
