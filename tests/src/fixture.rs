//! Shared by all integration tests: pgio itself, and real servers.
//!
//! Servers start when first asked for and serve all tests of this process; each test takes
//! a database of its own, or has a whole server for its time. They end with the process: a static is never dropped, but the
//! pipe to their supervisor closes, which is the mechanism under test in `private_cluster`.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use pgio::pg::private::{PrivateCluster, Spec, VersionRequest};
use pgio_connect::Client;

use crate::timing;

/// The version that Debian 12 installs.
pub const INSTALLED: u32 = 15;
/// The newest; downloaded where it is not installed.
pub const NEWEST: u32 = 18;

/// The program, which cargo builds beside the tests: `cargo test` does so for the package pgio.
pub fn pgio_exe() -> PathBuf {
    timing::begin();
    profile_dir().join("pgio")
}

/// The directory of this profile below `target`. A test's program is in `deps` there.
pub(crate) fn profile_dir() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_owned()
}

pub fn pgio() -> Command {
    Command::new(pgio_exe())
}

/// Copies a program to a directory that every user can read. Another program writes the file: this
/// process would pass the open descriptor to what other threads fork, and executing a file that is open
/// for writing fails.
pub fn copy_program(from: &Path, directory: &Path) -> PathBuf {
    let to = directory.join(from.file_name().unwrap());
    let copied = Command::new("install").args(["-m", "755"]).arg(from).arg(&to).status().unwrap();
    assert!(copied.success());
    to
}

pub fn spec(major: u32) -> Spec {
    // With `try`, a server takes huge pages that a test of ballast has reserved.
    let primary_settings = vec![("huge_pages".to_owned(), "off".to_owned())];
    Spec { pg: Some(VersionRequest::major(major)), primary_settings, ..Spec::new(pgio_exe()) }
}

pub fn spec_with(major: u32, settings: &[(&str, &str)]) -> Spec {
    let mut spec = spec(major);
    let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    spec.primary_settings.extend(settings);
    spec
}

/// A primary without a standby.
pub fn shared_primary(major: u32) -> &'static PrivateCluster {
    shared(major, false)
}

/// A primary with a synchronous standby.
pub fn shared_pair(major: u32) -> &'static PrivateCluster {
    shared(major, true)
}

/// A primary that serves one test at a time, which may change all that SQL can change and restart it: a run
/// that changes its server excludes all others there. When the test has passed, the next one gets the server as
/// it was at first; after a failure it ends.
#[derive(Debug)]
pub struct OwnPrimary {
    major: u32,
    // `None` only while it is dropped.
    cluster: Option<PrivateCluster>,
}

static IDLE: Mutex<Vec<(u32, PrivateCluster)>> = Mutex::new(Vec::new());

pub fn own_primary(major: u32) -> OwnPrimary {
    timing::begin();
    let mut idle = IDLE.lock().unwrap();
    let found = idle.iter().position(|(version, _)| *version == major);
    let found = found.map(|at| idle.swap_remove(at).1);
    drop(idle);
    let cluster = found.unwrap_or_else(|| {
        PrivateCluster::start(&spec(major)).unwrap_or_else(|e| panic!("PostgreSQL {major}: {e:?}"))
    });
    OwnPrimary { major, cluster: Some(cluster) }
}

impl Deref for OwnPrimary {
    type Target = PrivateCluster;

    fn deref(&self) -> &PrivateCluster {
        self.cluster.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OwnPrimary {
    fn drop(&mut self) {
        let Some(cluster) = self.cluster.take() else { return };
        if !thread::panicking() && restore(&cluster).is_ok() {
            IDLE.lock().unwrap().push((self.major, cluster));
        }
    }
}

/// Removes what tests leave in a server: sessions, settings, databases, tablespaces, roles.
fn restore(cluster: &PrivateCluster) -> Result<(), Box<dyn Error>> {
    let open = || Client::connect(&cluster.primary_conninfo_to("postgres"));
    let mut client = open()?;
    for statement in [
        "ALTER SYSTEM RESET ALL",
        "ALTER ROLE postgres RESET ALL",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(statement)?;
    }
    // New sessions have what the postmaster has read.
    let unread = "SELECT FROM pg_settings
                   WHERE NOT pending_restart AND sourcefile LIKE '%postgresql.auto.conf'";
    let deadline = Instant::now() + Duration::from_secs(10);
    while !open()?.query(unread, &[])?.is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    let list = "SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database
                 WHERE NOT datistemplate AND datname <> 'postgres'
                UNION ALL SELECT format('DROP TABLESPACE %I', spcname) FROM pg_tablespace
                 WHERE spcname !~ '^pg_'
                UNION ALL SELECT format('DROP OWNED BY %1$I; DROP ROLE %1$I', rolname) FROM pg_roles
                 WHERE rolname !~ '^pg_' AND rolname <> 'postgres'
                UNION ALL SELECT 'CREATE DATABASE pgio'";
    for row in client.query(list, &[])? {
        row.get::<_, &str>(0).split("; ").try_for_each(|sql| client.batch_execute(sql))?;
    }
    drop(client);
    let pending = "SELECT FROM pg_settings WHERE pending_restart";
    if !open()?.query(pending, &[])?.is_empty() {
        cluster.restart_primary()?;
    }
    let dirty = "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace
                 UNION ALL SELECT FROM pg_replication_slots
                 UNION ALL SELECT FROM pg_db_role_setting
                 UNION ALL SELECT FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf'";
    if open()?.query(dirty, &[])?.is_empty() { Ok(()) } else { Err("not as at first".into()) }
}

type Slot = Arc<OnceLock<&'static PrivateCluster>>;

fn shared(major: u32, standby: bool) -> &'static PrivateCluster {
    timing::begin();
    static SLOTS: Mutex<BTreeMap<(u32, bool), Slot>> = Mutex::new(BTreeMap::new());
    let slot = SLOTS.lock().unwrap().entry((major, standby)).or_default().clone();
    // The map is free again while the servers start.
    slot.get_or_init(|| {
        let cluster = PrivateCluster::start(&Spec { standby, ..spec(major) });
        Box::leak(Box::new(cluster.unwrap_or_else(|e| panic!("PostgreSQL {major}: {e:?}"))))
    })
}

/// An empty database that no other test uses; returns how to connect to it.
pub fn fresh_database(cluster: &PrivateCluster) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // No name is the beginning of another one.
    let name = format!("test{:04}", NEXT.fetch_add(1, Ordering::Relaxed));
    connect(&cluster.primary_conninfo()).batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    cluster.primary_conninfo_to(&name)
}

/// Checks for programs outside PostgreSQL's packages; prints which one is missing.
pub fn is_installed(program: &str) -> bool {
    let search = format!("PATH=$PATH:/usr/sbin:/sbin; command -v {program}");
    let there = Command::new("sh").args(["-c", &search]).output().unwrap().status.success();
    if !there {
        crate::skipped(&format!("{program} is not installed"));
    }
    there
}

/// A session with the user's search_path, which also has what pgio's own functions expect.
pub fn connect(conninfo: &str) -> Client {
    let mut client = Client::connect(conninfo).unwrap();
    let schema = "SELECT set_config('pgio.schema', coalesce(current_schema(), ''), false)";
    client.batch_execute(schema).unwrap();
    client
}
