//! A load without enough room: refused beforehand, or failed without losing the former data set.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use pgio::dataset::{self, DatasetError, LoadSpec, SpaceCheck, check_for_run};
use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;

use super::{database, load, refused, relations, spec, tables, text};
use pgio_tests::fixture::{self, INSTALLED, connect, copy_program, pgio_exe};
use pgio_tests::workdir::Workdir;

#[test]
fn too_little_room_is_refused_beforehand() {
    let conninfo = database(INSTALLED);
    let error = refused(&conninfo, &LoadSpec { scale: "8T".into(), ..spec(64, 1 << 30) });
    let DatasetError::NoSpace { path, needed, free, .. } = &error else { panic!("{error}") };
    assert!(path.is_dir(), "{error}");
    assert!(needed > free && *free > 0, "{error}");
    assert_eq!(tables(&mut connect(&conninfo)), "");
}

const ADDRESS: &str = "127.0.0.77";

#[test]
fn a_full_tablespace_leaves_the_former_data_set_and_refuses_any_user() {
    let Some(mount) = TinyFileSystem::mount() else { return };
    let listening = fixture::spec_with(INSTALLED, &[("listen_addresses", ADDRESS)]);
    let cluster = PrivateCluster::start(&listening).unwrap();
    let conninfo = cluster.primary_conninfo();
    let mut client = connect(&conninfo);
    client.batch_execute(&format!("CREATE TABLESPACE tiny LOCATION '{}'", mount.path())).unwrap();
    client
        .batch_execute(
            "CREATE ROLE blind LOGIN; GRANT CREATE ON SCHEMA public TO blind;
             GRANT CREATE ON TABLESPACE tiny TO blind",
        )
        .unwrap();
    leaves_the_former_data_set(&conninfo, &mut client);
    refuses_an_ordinary_user_as_root(&mut client);
}

fn leaves_the_former_data_set(conninfo: &str, client: &mut Client) {
    let spec = |blocks| LoadSpec { tablespace: Some("tiny".to_owned()), ..spec(1, blocks) };
    load(conninfo, &spec(1024));
    let before = relations(client);

    // The check beforehand refuses; for a role that may not see the directory the load fails.
    let error = refused(conninfo, &spec(8192));
    assert!(
        matches!(&error, DatasetError::NoSpace { path, .. } if path.ends_with("space")),
        "{error}"
    );
    client.batch_execute("ALTER TABLE pgio1 OWNER TO blind").unwrap();
    let blind = format!("{conninfo} user=blind");
    let error = refused(&blind, &spec(8192));
    assert!(matches!(&error, DatasetError::UnknownSpace { .. }), "{error}");
    let unchecked = |tables, blocks| LoadSpec {
        tables,
        base_table: tables > 1,
        space: SpaceCheck::Off,
        ..spec(blocks)
    };
    let error = refused(&blind, &unchecked(1, 8192));
    let DatasetError::Removed(source) = &error else { panic!("{error}") };
    assert!(matches!(&**source, DatasetError::DiskFull { object, .. } if object == "pgio1"));
    assert_eq!(relations(client), before);
    // A superuser uses no table of another role.
    client.batch_execute("ALTER TABLE pgio1 OWNER TO CURRENT_USER").unwrap();
    check_for_run(client, 1, Some(1024)).unwrap();

    // What is complete when the next table has no room takes that of others.
    client.batch_execute("DROP TABLE pgio1").unwrap();
    let error = refused(&blind, &unchecked(3, 1024));
    assert!(matches!(&error, DatasetError::Removed(_)), "{error}");
    assert_eq!(tables(client), "");
}

/// Over TCP, as another OS user than the server's, nothing says where the server's directories are but its settings,
/// and they cannot be entered.
fn refuses_an_ordinary_user_as_root(client: &mut Client) {
    let database = text(client, "SELECT current_database()::text");
    let programs = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(programs.path(), Permissions::from_mode(0o755)).unwrap();
    let program = copy_program(&pgio_exe(), programs.path());
    let dir = Workdir::new();
    std::os::unix::fs::chown(dir.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    let setup = |user: &str, more: &[&str]| {
        let dsn = format!("host={ADDRESS} port=5432 user={user} dbname={database}");
        let mut command = Command::new(&program);
        command
            .args(["setup", "--connect-string", &dsn, "--create-base-table", "false"])
            .args(more);
        command.current_dir(dir.path()).env("PGIO_STATE_DIR", dir.path().join("state"));
        command.uid(STRANGER).gid(STRANGER);
        dir.start(command).wait()
    };
    let little = ["--tablespace", "tiny", "--scale", "64M"];
    setup("postgres", &little).expect(4, &[" free, but about ", "needed for the data set"]);
    setup("postgres", &["--scale", "8T"]).expect(4, &[" free, but about "]);
    let unknown = ["the free disk space of the server is unknown", "--no-space-check"];
    setup("blind", &["--scale", "8M"]).expect(4, &unknown);
    assert_eq!(tables(client), "");
    let assumed = ["this user may not access pg_wal, which may be a link"];
    setup("postgres", &["--scale", "8M"]).expect(0, &assumed);
    dataset::destroy(client).unwrap();
    setup("blind", &["--scale", "8M", "--no-space-check"]).expect(0, &["was not checked"]);
}

/// As which nothing else runs.
const STRANGER: u32 = 4242;

/// A tmpfs of 24 MB for a tablespace; only root can mount one.
pub(crate) struct TinyFileSystem(tempfile::TempDir);

impl TinyFileSystem {
    pub(crate) fn mount() -> Option<TinyFileSystem> {
        if !is_root() {
            pgio_tests::skipped("only root can mount a small file system");
            return None;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            pgio_tests::skipped("this machine does not let root mount a tmpfs");
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
