//! Shared by all integration tests: pgio itself, and real servers.
//!
//! Servers start when first asked for and serve all tests of this process; each test takes
//! a database of its own. They end with the process: a static is never dropped, but the
//! pipe to their supervisor closes, which is the mechanism under test in `private_cluster`.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pgio::pg::private::{PrivateCluster, Spec, VersionRequest};
use postgres::{Client, NoTls};

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

/// A primary without a standby.
pub fn shared_primary(major: u32) -> &'static PrivateCluster {
    shared(major, false)
}

/// A primary with a synchronous standby.
pub fn shared_pair(major: u32) -> &'static PrivateCluster {
    shared(major, true)
}

/// A primary for one test at a time: a run that changes its server excludes all others there.
pub fn changed_primary(major: u32) -> MutexGuard<'static, PrivateCluster> {
    timing::begin();
    type Server = &'static Mutex<PrivateCluster>;
    static SERVERS: Mutex<BTreeMap<u32, Server>> = Mutex::new(BTreeMap::new());
    let start = || -> Server {
        let cluster = PrivateCluster::start(&spec(major));
        Box::leak(Box::new(Mutex::new(cluster.unwrap_or_else(|e| panic!("{major}: {e:?}")))))
    };
    let server: Server = SERVERS.lock().unwrap().entry(major).or_insert_with(start);
    // A test that failed has nothing to do with the next one.
    server.lock().unwrap_or_else(PoisonError::into_inner)
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
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// A session with the user's search_path, which also has what pgio's own functions expect.
pub fn connect(conninfo: &str) -> Client {
    let mut client = Client::connect(conninfo, NoTls).unwrap();
    let schema = "SELECT set_config('pgio.schema', coalesce(current_schema(), ''), false)";
    client.batch_execute(schema).unwrap();
    client
}
