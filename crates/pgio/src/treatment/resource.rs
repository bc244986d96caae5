//! Resources that an experiment changes and must not share: a server, a device, a mount, a link, memory.
//!
//! Two experiments without a common resource may run at the same time. The text identifies a resource,
//! so every pgio writes the same text for it, whatever name the experiment gives to the host. Next:
//! [`journal::claim`](super::journal), which locks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use pgio_connect::{Client, ConnectParams};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::TreatmentError;
use super::journal::{JournalError, LOCK_TIMEOUT};
use crate::host::lock::{self, LockError, LockFile};
use crate::host::own_dir::{DirMode, OwnDir};
use crate::host::{Host, storage};
use crate::pg::server::{self, ServerNode};

/// A resource of one machine or one server, such as `device 8:16 on db1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource(String);

impl Resource {
    /// `identity` is from [`crate::pg::server::identity`].
    pub fn server(identity: &str) -> Resource {
        Resource(format!("server {identity}"))
    }

    /// Whether both are servers and surely not the same one. A role that may not read the system identifier
    /// gets a text that depends on the connection, which shows nothing.
    pub fn is_another_server(&self, other: &Resource) -> bool {
        fn identified(resource: &Resource) -> Option<&str> {
            let server = resource.0.strip_prefix("server ")?;
            let (identifier, _) = server.split_once(" at port ")?;
            identifier.bytes().all(|b| b.is_ascii_digit()).then_some(server)
        }
        matches!((identified(self), identified(other)), (Some(one), Some(two)) if one != two)
    }

    /// Named by the machine's own name, which outlives a reboot. Two machines of one name count as one: an
    /// experiment may be refused unnecessarily, but conflicting experiments never run side by side.
    pub fn on(host: &Host, what: impl fmt::Display) -> Resource {
        Resource(format!("{what} on {}", host.node_name()))
    }

    /// The whole disk, whichever partition or path in /dev names it.
    pub fn device(host: &Host, path: &str) -> Resource {
        match storage::whole_disk(host, path) {
            Ok(Some(disk)) => Resource::on(host, format!("device {}", disk.number)),
            _ => Resource::on(host, format!("device {path}")),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The object that a treatment changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
    /// The server of the target: its settings, or whether it runs.
    Server,
    Resource(Resource),
}

/// The server of a journal or of a run; the default accepts every primary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedServer {
    /// What the run changed, with the server among it; empty if unknown.
    pub touched: Vec<Resource>,
    pub node: ServerNode,
    /// The standbys that streamed from it.
    pub standbys: Vec<String>,
    /// Whether to accept a node on another timeline (`pgio undo --restore`).
    pub accepts_any_timeline: bool,
}

impl ChangedServer {
    /// Why a server that is down must not be started: one of its standbys may be the primary by now, and the two
    /// would diverge.
    pub fn start_refusal(&self) -> Option<String> {
        if self.standbys.is_empty() || self.accepts_any_timeline {
            return None;
        }
        Some(format!(
            "the server is down, and standbys streamed from it before ({}), one of which may have been promoted since: make sure that none was, then start the server, or have `pgio undo --restore` start it",
            self.standbys.join(", ")
        ))
    }

    /// Refuses a server that is not, or may not be, the one that the run changed.
    pub fn check(&self, client: &mut Client, params: &ConnectParams) -> Result<(), TreatmentError> {
        let doing = TreatmentError::postgres("query whether the server is a standby");
        let row = client.query_one("SELECT pg_is_in_recovery()", &[]).map_err(doing)?;
        if row.try_get(0)? {
            return Err(TreatmentError::Refused(format!(
                "{} is a standby, but the run changed its primary; run `pgio undo --connect` with the connection string of the primary",
                params.describe()
            )));
        }
        let doing = TreatmentError::postgres("identify the server");
        let found = Resource::server(&server::identity(client).map_err(doing)?);
        let mut others = self.touched.iter().filter(|resource| resource.is_another_server(&found));
        if let Some(changed) = others.next() {
            return Err(TreatmentError::OtherServer(format!(
                "{} is {found}, but the run changed {changed}; run `pgio undo --connect` with the connection string of that server",
                params.describe()
            )));
        }
        if self.node.is_unknown() {
            return Ok(());
        }
        match difference(&self.node, &ServerNode::read(client), self.accepts_any_timeline) {
            None => Ok(()),
            Some(why) => Err(TreatmentError::Refused(format!("{} {why}", params.describe()))),
        }
    }
}

/// Why `found` is not the node that was changed.
fn difference(
    changed: &ServerNode,
    found: &ServerNode,
    accepts_any_timeline: bool,
) -> Option<String> {
    let directories = changed.data_directory.as_ref().zip(found.data_directory.as_ref());
    if let Some((changed, found)) = directories.filter(|(changed, found)| changed != found) {
        return Some(format!(
            "has the data directory {found}, but the run changed the server with {changed}; run `pgio undo --connect` with the connection string of that server"
        ));
    }
    let timelines =
        changed.timeline.zip(found.timeline).filter(|(changed, found)| changed != found);
    let (changed, found) = timelines.filter(|_| !accepts_any_timeline)?;
    Some(format!(
        "is on timeline {found}, but the run changed a server on timeline {changed}: a standby was promoted since, and this may be another node; run `pgio undo --connect` with the connection string of the changed server, or `pgio undo --restore` if this is that server or that server is gone"
    ))
}

// Locks that keep two runs from changing the same server or resource of a host at the same time. One file lock per
// resource; the file names the holder. A run takes the locks of all resources that it may change before its first
// change, and keeps them to its end; a run that changes nothing only checks. A run never waits for a lock, so there
// is no deadlock. Two users have two state directories, and do not see each other's locks.

/// The run that holds a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub run: String,
    pub experiment: String,
    pub pid: u32,
}

/// The locks that a run holds, until it is dropped.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<Resource, LockFile>);

impl Claims {
    /// Takes the locks that it lacks, all or none of them.
    pub fn take(
        &mut self,
        dir: &Path,
        holder: &Holder,
        resources: &BTreeSet<Resource>,
    ) -> Result<(), JournalError> {
        let missing: Vec<&Resource> = self.missing(resources).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let own = Arc::new(OwnDir::create(dir, DirMode::Private)?);
        let mut taken = BTreeMap::new();
        for resource in missing {
            let mut lock = LockFile::take(own.clone(), &name_of(resource), LOCK_TIMEOUT)
                .map_err(|error| refused(&own, resource, error))?;
            let text = serde_json::to_string(holder).expect("plain data always serializes");
            // Only people read it: a full disk must not stop an experiment.
            let _ = lock.file().set_len(0).and_then(|()| lock.file().write_all(text.as_bytes()));
            taken.insert(resource.clone(), lock);
        }
        self.0.append(&mut taken);
        Ok(())
    }

    /// Refuses while another run holds one of them.
    pub fn check_free(
        &self,
        dir: &Path,
        resources: &BTreeSet<Resource>,
    ) -> Result<(), JournalError> {
        let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(()) };
        for resource in self.missing(resources) {
            let Some(file) = own.open_file(name_of(resource))? else { continue };
            if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
                return Err(busy(&file, resource));
            }
        }
        Ok(())
    }

    fn missing<'a>(
        &'a self,
        resources: &'a BTreeSet<Resource>,
    ) -> impl Iterator<Item = &'a Resource> {
        resources.iter().filter(|resource| !self.0.contains_key(resource))
    }
}

/// A hash, since the text of a resource may hold any character.
fn name_of(resource: &Resource) -> String {
    let hash = Sha256::digest(resource.to_string());
    let hex: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.lock")
}

fn refused(own: &OwnDir, resource: &Resource, error: LockError) -> JournalError {
    let path = own.path_of(name_of(resource));
    match error {
        LockError::Held { holder, .. } => match own.open_file(name_of(resource)) {
            Ok(Some(file)) => busy(&file, resource),
            _ => JournalError::Busy { who: holder, what: resource.to_string() },
        },
        source => JournalError::Lock { path, source },
    }
}

fn busy(mut file: &File, resource: &Resource) -> JournalError {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let written = serde_json::from_str::<Holder>(&text).ok();
    // Right after the lock changed hands the file still names the former holder.
    let pid = lock::holder_pid(file);
    let who = match written.filter(|holder| pid.is_none_or(|pid| pid == holder.pid)) {
        Some(Holder { run, experiment, pid }) => {
            format!("run {run} of experiment `{experiment}`, {},", lock::describe_process(pid))
        }
        None => lock::holder(file),
    };
    JournalError::Busy { who, what: resource.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_one_with_another_identifier_or_port() {
        let server = |identity: &str| Resource::server(identity);
        let ours = server("7301234567890123456 at port 5432");
        assert!(!ours.is_another_server(&ours));
        assert!(ours.is_another_server(&server("7301234567890123457 at port 5432")));
        assert!(ours.is_another_server(&server("7301234567890123456 at port 5433")));
        assert!(!ours.is_another_server(&server("10.0.0.1 at port 5432")), "unknown");
        assert!(!ours.is_another_server(&Resource("memory on db1".to_owned())));
    }

    #[test]
    fn one_machine_has_one_text_under_all_names() {
        let named = Host::connect("db", &Default::default()).unwrap();
        let memory = Resource::on(&named, "memory");
        assert_eq!(Resource::on(&Host::local(), "memory"), memory);
        assert!(memory.to_string().starts_with("memory on "));
        let missing = Resource::device(&named, "/dev/no-such-device").to_string();
        assert!(missing.starts_with("device /dev/no-such-device on "), "{missing}");
    }

    #[test]
    fn a_promoted_node_is_refused_unless_the_user_insists() {
        let node = |data: Option<&str>, timeline| ServerNode {
            data_directory: data.map(str::to_owned),
            timeline,
        };
        let changed = node(Some("/a"), Some(1));
        assert_eq!(difference(&changed, &changed, false), None);
        let promoted = node(Some("/a"), Some(2));
        let why = difference(&changed, &promoted, false).unwrap();
        assert!(why.contains("timeline 2") && why.contains("--restore"), "{why}");
        assert_eq!(difference(&changed, &promoted, true), None);
        for accepts_any_timeline in [false, true] {
            let why =
                difference(&changed, &node(Some("/b"), Some(1)), accepts_any_timeline).unwrap();
            assert!(why.contains("data directory /b"), "{why}");
        }
        for unknown in [node(None, Some(1)), node(Some("/a"), None), node(None, None)] {
            assert_eq!(difference(&changed, &unknown, false), None);
        }
    }

    fn holder(run: &str) -> Holder {
        let (run, experiment) = (run.to_owned(), "wal-disk".to_owned());
        Holder { run, experiment, pid: std::process::id() }
    }

    fn set(names: &[&str]) -> BTreeSet<Resource> {
        names.iter().map(|name| Resource::server(name)).collect()
    }

    #[test]
    fn the_holder_is_named_and_other_resources_stay_free() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("locks");
        let mut first = Claims::default();
        first.check_free(&dir, &set(&["a"])).unwrap();
        assert!(!dir.exists(), "reading creates nothing");
        first.take(&dir, &holder("r1"), &set(&["a", "b"])).unwrap();
        first.take(&dir, &holder("r1"), &set(&["b", "c"])).unwrap();
        first.check_free(&dir, &set(&["a", "b", "c"])).unwrap();

        let mut second = Claims::default();
        let refusals = [
            second.check_free(&dir, &set(&["x", "c"])).unwrap_err(),
            second.take(&dir, &holder("r2"), &set(&["A", "b"])).unwrap_err(),
        ];
        for (refusal, what) in refusals.into_iter().zip(["server c", "server b"]) {
            let text = refusal.to_string();
            let who = format!("run r1 of experiment `wal-disk`, process {} (", std::process::id());
            assert!(text.starts_with(&who), "{text}");
            assert!(text.contains(&format!("is changing {what}: wait until")), "{text}");
        }
        assert!(second.0.is_empty());
        second.take(&dir, &holder("r2"), &set(&["A", "x"])).unwrap();
        drop(first);
        second.take(&dir, &holder("r2"), &set(&["a", "b"])).unwrap();
        drop(second);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn the_former_holder_is_not_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut claims = Claims::default();
        let gone = Holder { pid: 1, ..holder("r0") };
        claims.take(dir.path(), &gone, &set(&["a"])).unwrap();
        let text = Claims::default().check_free(dir.path(), &set(&["a"])).unwrap_err().to_string();
        let me = format!("process {} (", std::process::id());
        assert!(text.starts_with(&me), "{text}");
    }
}
