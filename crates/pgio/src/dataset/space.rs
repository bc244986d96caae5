//! Checks free disk space before a load, because a full WAL directory stops the whole server.
//!
//! A directory that this user may not enter is taken to be on the file system of the mount that holds it. If the
//! space cannot be known, a load is refused unless the user takes the risk.
//! [`estimate`] computes a conservative estimate and [`check_volumes`] compares it with the free space,
//! both without I/O. Next: `load` calls this module.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use pgio_connect::Client;
use pgio_results::Warning;
use pgio_results::files::Directory;
use pgio_results::units::human;
use serde::{Deserialize, Serialize};

use super::error::DatasetError;
use super::mark::{self, Named, Part};
use super::plan::{LoadSpec, SpaceCheck};
use crate::host::storage;
use crate::pg::session::is_trusted;
use crate::pg::words::ServerPath;

/// Settings that determine how much WAL the server keeps.
#[derive(Debug, Clone, Copy)]
pub struct WalRetention {
    pub minimal: bool,
    pub max_wal_size: u64,
    /// Whether replication slots or archiving may retain all WAL.
    pub held_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskNeeds {
    pub data: u64,
    pub wal: u64,
}

/// Estimates the peak disk usage of a load.
///
/// An old table is freed when its replacement commits, so for each stream both exist at the same time;
/// surplus tables are dropped last. Checkpoints remove WAL; their distance is at most max_wal_size if
/// the server keeps up, and the estimate uses twice that.
pub fn estimate(spec: &LoadSpec, former: &[(Part, u64)], wal: WalRetention) -> DiskNeeds {
    let former: HashMap<Part, u64> = former.iter().copied().collect();
    let freed = |part: Part| former.get(&part).copied().unwrap_or(0);
    let streams = spec.concurrent();
    let (mut added, mut peak) = (0_u64, 0);
    let parts = spec.parts();
    for (at, part) in parts.iter().enumerate() {
        if let Some(done) = at.checked_sub(streams) {
            added = added.saturating_sub(freed(parts[done]));
        }
        added = added.saturating_add(spec.part_bytes(*part));
        peak = peak.max(added);
    }
    let wal = match wal {
        WalRetention { minimal: true, .. } => 0,
        WalRetention { held_back: true, .. } => spec.wal_bytes(),
        WalRetention { max_wal_size, .. } => spec.wal_bytes().min(max_wal_size.saturating_mul(2)),
    };
    DiskNeeds { data: peak.saturating_add(spec.sort_bytes()), wal }
}

/// A directory of the server and its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub path: PathBuf,
    pub device: u64,
    pub free: u64,
    /// Whether the directory cannot be entered: if it is a link, it leads somewhere else.
    pub assumed: bool,
}

/// Refuses a file system that is too small; if data and WAL share one, it must hold the sum.
pub fn check_volumes(needs: DiskNeeds, data: &Volume, wal: &Volume) -> Result<(), DatasetError> {
    let refuse = |volume: &Volume, what, needed| {
        let (path, free) = (volume.path.clone(), volume.free);
        if needed <= free {
            Ok(())
        } else {
            Err(DatasetError::NoSpace { path, what, needed, free })
        }
    };
    if data.device == wal.device {
        return refuse(data, "the data set and its WAL", needs.data.saturating_add(needs.wal));
    }
    refuse(data, "the data set", needs.data)?;
    refuse(wal, "the WAL of the load", needs.wal)
}

/// Checks the server's directories. `location` is the directory of the tablespace; empty if it is in
/// the data directory.
pub(super) fn check(
    client: &mut Client,
    spec: &LoadSpec,
    location: &Path,
    existing: &[Named],
) -> Result<Vec<Warning>, DatasetError> {
    let row = client
        .query_one(super::SERVER_DIRECTORIES, &[])
        .map_err(|e| DatasetError::from_pg("find", "the server's directories", e))?;
    let retention = WalRetention {
        minimal: row.try_get::<_, &str>("wal_level")? == "minimal",
        max_wal_size: row.try_get::<_, i64>("max_wal_size")?.unsigned_abs(),
        held_back: row.try_get::<_, bool>("archiving")? || row.try_get::<_, bool>("slots")?,
    };
    let former: Vec<(Part, u64)> = existing.iter().map(|n| (n.part, n.bytes)).collect();
    let needs = estimate(spec, &former, retention);

    let unknown = |why, hint| match spec.space {
        SpaceCheck::Required => {
            Err(DatasetError::UnknownSpace { needed: listed(needs), why, hint })
        }
        SpaceCheck::IfKnown | SpaceCheck::Off => Ok(vec![unchecked_warning(needs, why, hint)]),
    };
    let Some(ServerPath(directory)) = row.try_get("data_directory")? else {
        return unknown(
            "the role may not read data_directory",
            "GRANT pg_read_all_settings TO ROLE",
        );
    };
    let server = Server {
        started: row.try_get("started")?,
        port: row.try_get("port")?,
        by_socket: row.try_get("by_socket")?,
        backend: row.try_get("backend")?,
    };
    if !server.is_local(&directory) {
        return unknown(
            "the server's directories are not accessible from this machine",
            "run pgio on the server's machine",
        );
    }
    let data =
        if location.as_os_str().is_empty() { directory.clone() } else { location.to_owned() };
    let (Ok(data), Ok(wal)) = (volume(data), volume(directory.join("pg_wal"))) else {
        let why = "this user may not access the server's directories";
        return unknown(why, "run pgio as the server's operating system user");
    };
    match check_volumes(needs, &data, &wal) {
        Err(error) if spec.space == SpaceCheck::Off => {
            return Ok(vec![Warning::new(
                "there may be too little free disk space",
                error.to_string(),
                "interrupt the load (Ctrl-C), which removes what is not complete",
            )]);
        }
        checked => checked?,
    }
    let unseen = DiskNeeds { data: if data.assumed { needs.data } else { 0 }, ..needs };
    Ok(Vec::from_iter(wal.assumed.then(|| {
        Warning::new(
            "free disk space was checked on the file system that should hold the server's directories",
            "this user may not access pg_wal, which may be a link to another one",
            format!("run pgio as the server's operating system user; needed: about {}", listed(unseen)),
        )
    })))
}

fn listed(DiskNeeds { data, wal }: DiskNeeds) -> String {
    let parts = [(data, "for tables"), (wal, "for WAL")]
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", human::bytes(bytes)));
    parts.collect::<Vec<_>>().join(" and ")
}

fn unchecked_warning(needs: DiskNeeds, why: &str, hint: &str) -> Warning {
    let hint = format!("{hint}; needed: about {}", listed(needs));
    Warning::new("free disk space was not checked", why, hint)
}

/// Maximum size to read of postmaster.pid, which has only eight lines.
const MAX_PID_FILE: u64 = 16 << 10;

struct Server {
    started: i64,
    port: i32,
    by_socket: bool,
    /// The process that serves the session.
    backend: i32,
}

impl Server {
    /// Returns whether this directory on this machine is the data directory of the server. A socket or the
    /// session's process proves that the server is on the same machine; otherwise, or for another server's directory (for example in
    /// a container), postmaster.pid decides.
    fn is_local(&self, directory: &Path) -> bool {
        // The server names the directory, so the file may be anything.
        let read = |open: Directory| open.read_bytes(Path::new("postmaster.pid"), MAX_PID_FILE);
        match Directory::open(directory).and_then(read) {
            Ok(text) => pid_file_matches(&String::from_utf8_lossy(&text), self.started, self.port),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                self.by_socket || self.has_backend_here()
            }
            Err(_) => false,
        }
    }

    fn has_backend_here(&self) -> bool {
        // Whatever their program is called, the processes of a server call themselves so.
        let line = std::fs::read(format!("/proc/{}/cmdline", self.backend));
        line.is_ok_and(|line| line.starts_with(b"postgres: "))
    }
}

/// Compares postmaster.pid, whose lines are pid, directory, start time in seconds, and port. The start
/// time is when the file was written, slightly different from what the server reports.
fn pid_file_matches(postmaster_pid: &str, started: i64, port: i32) -> bool {
    let line = |n: usize| postmaster_pid.lines().nth(n).map(str::trim);
    let near =
        line(2).and_then(|s| s.parse::<i64>().ok()).is_some_and(|s| (s - started).abs() <= 60);
    near && line(3).and_then(|p| p.parse().ok()) == Some(port)
}

fn volume(path: PathBuf) -> io::Result<Volume> {
    let found = |place: &Path| -> io::Result<(u64, u64)> {
        let stat = rustix::fs::statvfs(place)?;
        // f_bavail is the space for unprivileged users, such as the server's.
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok((rustix::fs::stat(place)?.st_dev, free))
    };
    let (assumed, found) = match found(&path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            (true, found(&mount_point_above(&path)?)?)
        }
        found => (false, found?),
    };
    let (device, free) = found;
    Ok(Volume { path, device, free, assumed })
}

/// Returns where the file system is mounted that holds a path of which this user may see only the beginning.
fn mount_point_above(path: &Path) -> io::Result<PathBuf> {
    let mut above = path.ancestors();
    let visible = above.find_map(|part| Some((part, part.canonicalize().ok()?)));
    let (part, canonical) = visible.ok_or(io::ErrorKind::NotFound)?;
    let whole = match path.strip_prefix(part) {
        Ok(rest) => canonical.join(rest),
        Err(_) => canonical,
    };
    let mounts = storage::parse_mounts(&std::fs::read_to_string("/proc/self/mountinfo")?);
    let mount = storage::containing(&mounts, &whole).ok_or(io::ErrorKind::NotFound)?;
    Ok(PathBuf::from(&mount.mount_point))
}

// The tablespaces of a data set's tables and indexes, and moving them. ALTER ... SET TABLESPACE copies the files and
// does not change rows. This module returns only tables with the mark, and their indexes.

/// A table of the data set, or an index of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    pub schema: String,
    pub name: String,
    pub is_index: bool,
    /// The tablespace at the time of the query.
    pub tablespace: String,
    #[serde(skip)]
    pub bytes: u64,
}

impl Relation {
    fn title(&self) -> String {
        super::qualified(&self.schema, &self.name)
    }
}

/// Returns the relations in the schema of the session; empty if there is no data set.
pub fn relations(client: &mut Client) -> Result<Vec<Relation>, DatasetError> {
    let failed = |e| DatasetError::from_pg("find", "the data set", e);
    let marked = mark::find(client).map_err(failed)?.into_iter().filter(|n| n.mark.is_some());
    let names: Vec<String> = marked.map(|n| n.part.to_string()).collect();
    let query = super::fill(super::RELATIONS, &[("trusted", &is_trusted("t.relowner"))]);
    let rows = client.query(&query, &[&names]).map_err(failed)?;
    let relation = |row: &pgio_connect::Row| {
        Ok(Relation {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
            is_index: row.try_get("is_index")?,
            tablespace: row.try_get("tablespace")?,
            bytes: row.try_get::<_, i64>("bytes")?.unsigned_abs(),
        })
    };
    rows.iter().map(relation).collect::<Result<_, _>>().map_err(failed)
}

/// Returns the current tablespace; `None` if the relation no longer exists, for example after another
/// load.
pub fn tablespace_of(
    client: &mut Client,
    relation: &Relation,
) -> Result<Option<String>, DatasetError> {
    client
        .query_opt(super::TABLESPACE_OF, &[&relation.schema, &relation.name])
        .and_then(|row| row.map(|row| row.try_get(0)).transpose())
        .map_err(|e| DatasetError::from_pg("find", &relation.title(), e))
}

/// Moves a relation to a tablespace. Waits only a few seconds for locks of other sessions.
pub fn move_to(
    client: &mut Client,
    relation: &Relation,
    tablespace: &str,
) -> Result<(), DatasetError> {
    let kind = if relation.is_index { "INDEX" } else { "TABLE" };
    let title = relation.title();
    let values = [("kind", kind), ("name", &title), ("tablespace", &super::identifier(tablespace))];
    let failed = |e| DatasetError::from_pg("move", &title, e);
    let mut transaction = client.transaction().map_err(failed)?;
    transaction.batch_execute(super::LOCK_TIMEOUT).map_err(failed)?;
    transaction.batch_execute(&super::fill(super::SET_TABLESPACE, &values)).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PLAIN: WalRetention =
        WalRetention { minimal: false, max_wal_size: 1 << 30, held_back: false };

    fn spec(tables: u32, streams: u32) -> LoadSpec {
        let scale = "200M".to_owned();
        let (blocks, seed) = (25_600, 1);
        let layout = pgio_results::units::Layout::default();
        LoadSpec {
            tables,
            streams,
            scale,
            blocks,
            seed,
            base_table: false,
            tablespace: None,
            layout,
            scan: None,
            space: SpaceCheck::Required,
        }
    }

    fn mib(spec: &LoadSpec, former: &[(Part, u64)]) -> u64 {
        (estimate(spec, former, PLAIN).data - spec.sort_bytes()) / MIB
    }

    #[test]
    fn old_tables_are_freed_after_their_replacements() {
        assert_eq!(mib(&spec(4, 1), &[]), 802);
        let former: Vec<_> = (1..=4).map(|n| (Part::Table(n), 200 * MIB)).collect();
        assert_eq!(mib(&spec(4, 4), &former), 802);
        assert_eq!(mib(&spec(4, 2), &former), 402);
        assert_eq!(mib(&spec(4, 1), &former), 202);
    }

    #[test]
    fn a_scan_table_and_a_table_are_replaced_at_the_same_time() {
        let with_scan =
            |streams| LoadSpec { scan: Some("200M".parse().unwrap()), ..spec(1, streams) };
        let former = [(Part::Scan, 200 * MIB), (Part::Table(1), 200 * MIB)];
        assert_eq!(mib(&with_scan(2), &former), 400);
        assert_eq!(mib(&with_scan(1), &former), 200);
    }

    #[test]
    fn surplus_tables_are_freed_at_the_end() {
        let former: Vec<_> = (5..=9).map(|n| (Part::Table(n), 200 * MIB)).collect();
        assert_eq!(mib(&spec(4, 1), &former), 802);
    }

    #[test]
    fn checkpoints_limit_wal_unless_it_is_held_back() {
        let spec = spec(64, 8);
        let all = spec.wal_bytes();
        assert_eq!(
            estimate(&spec, &[], WalRetention { max_wal_size: 100 * MIB, ..PLAIN }).wal,
            200 * MIB
        );
        assert_eq!(estimate(&spec, &[], WalRetention { max_wal_size: u64::MAX, ..PLAIN }).wal, all);
        assert_eq!(
            estimate(&spec, &[], WalRetention { held_back: true, max_wal_size: 1, ..PLAIN }).wal,
            all
        );
        assert_eq!(estimate(&spec, &[], WalRetention { minimal: true, ..PLAIN }).wal, 0);
    }

    #[test]
    fn file_systems_must_hold_data_and_wal() {
        let volume =
            |path: &str, device, free| Volume { path: path.into(), device, free, assumed: false };
        let needs = DiskNeeds { data: 60, wal: 50 };
        let (data, wal) = (volume("/data", 1, 100), volume("/wal", 2, 100));
        assert!(check_volumes(needs, &data, &wal).is_ok());
        let same = volume("/data/pg_wal", 1, 100);
        let error = check_volumes(needs, &data, &same).unwrap_err();
        assert!(matches!(&error, DatasetError::NoSpace { needed: 110, free: 100, .. }), "{error}");
        let small = volume("/wal", 2, 49);
        let text = check_volumes(needs, &data, &small).unwrap_err().to_string();
        assert!(
            text.starts_with(
                "/wal has 49 B free, but about 50 B is needed for the WAL of the load"
            ),
            "{text}"
        );
        assert!(check_volumes(needs, &volume("/data", 1, 59), &wal).is_err());
    }

    #[test]
    fn servers_are_identified_by_the_pid_file() {
        let file = "4711\n/data\n1760000000\n5432\n/tmp\n*\n  123 456\nready\n";
        assert!(pid_file_matches(file, 1_760_000_001, 5432));
        assert!(!pid_file_matches(file, 1_760_000_001, 5433));
        assert!(!pid_file_matches(file, 1_700_000_000, 5432));
        assert!(!pid_file_matches("", 0, 0));
    }

    #[test]
    fn the_warning_shows_how_much_space_is_needed() {
        let warning = unchecked_warning(DiskNeeds { data: 200 * MIB, wal: 0 }, "why", "hint");
        assert_eq!(warning.try_this, "hint; needed: about 200 MiB for tables");
    }
}
