//! Is there room? Asked before a load, because a full WAL directory stops the whole server.
//!
//! Only possible where the server's directories can be seen from here; otherwise the answer is a
//! warning. What is needed is estimated on the safe side by [`needs`], judged by [`judge`], both
//! without I/O. Next: `load`, which asks.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use postgres::Client;

use super::error::DatasetError;
use super::mark::{Named, Part};
use super::plan::LoadSpec;
use super::sql;
use crate::files::Directory;
use crate::results::Warning;
use crate::units::human;

/// What decides how much WAL is kept.
#[derive(Debug, Clone, Copy)]
pub struct WalKept {
    pub minimal: bool,
    pub max_wal_size: u64,
    /// Replication slots or archiving may hold back everything that is written.
    pub held_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    pub data: u64,
    pub wal: u64,
}

/// What a load adds on disk at its worst moment.
///
/// A former table is freed when its successor commits, so for as many tables as there are streams
/// both exist; surplus tables go last. WAL is removed at checkpoints, whose distance is at most
/// max_wal_size when the server keeps up, and twice that allows for one that does not.
pub fn needs(spec: &LoadSpec, former: &[(Part, u64)], wal: WalKept) -> Needs {
    let former: HashMap<Part, u64> = former.iter().copied().collect();
    let freed = |part: Part| former.get(&part).copied().unwrap_or(0);
    let streams = spec.concurrent() as usize;
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
        WalKept { minimal: true, .. } => 0,
        WalKept { held_back: true, .. } => spec.wal_bytes(),
        WalKept { max_wal_size, .. } => spec.wal_bytes().min(max_wal_size.saturating_mul(2)),
    };
    Needs { data: peak.saturating_add(spec.sort_bytes()), wal }
}

/// A directory of the server's and the file system that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub path: PathBuf,
    pub device: u64,
    pub free: u64,
}

/// Refuses when a file system is too small; one that holds both must hold the sum.
pub fn judge(needs: Needs, data: &Volume, wal: &Volume) -> Result<(), DatasetError> {
    let refuse = |volume: &Volume, what, needed| {
        let (path, free) = (volume.path.clone(), volume.free);
        if needed <= free {
            Ok(())
        } else {
            Err(DatasetError::NoSpace { path, what, needed, free })
        }
    };
    if data.device == wal.device {
        return refuse(data, "the data set with its WAL", needs.data.saturating_add(needs.wal));
    }
    refuse(data, "the data set", needs.data)?;
    refuse(wal, "the WAL of loading", needs.wal)
}

/// Looks, and refuses or warns. `location` is the tablespace's, empty inside the data directory.
pub(super) fn check(
    client: &mut Client,
    spec: &LoadSpec,
    location: &str,
    ours: &[Named],
) -> Result<Vec<Warning>, DatasetError> {
    let row = client
        .query_one(sql::SERVER_PLACE, &[])
        .map_err(|e| DatasetError::from_pg("look at", "the server's directories", e))?;
    let kept = WalKept {
        minimal: row.get::<_, &str>("wal_level") == "minimal",
        max_wal_size: row.get::<_, i64>("max_wal_size").unsigned_abs(),
        held_back: row.get::<_, bool>("archiving") || row.get::<_, bool>("slots"),
    };
    let former: Vec<(Part, u64)> = ours.iter().map(|n| (n.part, n.bytes)).collect();
    let needs = needs(spec, &former, kept);

    let Some(directory) = row.get::<_, Option<String>>("data_directory").map(PathBuf::from) else {
        return Ok(vec![unchecked(
            needs,
            "the role may not read data_directory",
            "GRANT pg_read_all_settings to it",
        )]);
    };
    let server = Server {
        started: row.get("started"),
        port: row.get("port"),
        by_socket: row.get("by_socket"),
    };
    if !server.is_here(&directory) {
        let why = "the server's directories cannot be seen from here";
        return Ok(vec![unchecked(needs, why, "look there")]);
    }
    let data = if location.is_empty() { directory.clone() } else { PathBuf::from(location) };
    match (volume(data), volume(directory.join("pg_wal"))) {
        (Ok(data), Ok(wal)) => judge(needs, &data, &wal).map(|()| Vec::new()),
        // Users other than the server's may look at its directory but not into it.
        (Ok(data), Err(_)) => {
            let only_data = Needs { wal: 0, ..needs };
            judge(only_data, &data, &data)?;
            Ok(vec![unchecked(
                Needs { data: 0, ..needs },
                "pg_wal cannot be looked into by this user",
                "run as the user that the server runs as",
            )])
        }
        (Err(_), _) => Ok(vec![unchecked(
            needs,
            "the server's directories cannot be looked at by this user",
            "run as the user that the server runs as",
        )]),
    }
}

fn unchecked(needs: Needs, why: &str, try_: &str) -> Warning {
    let Needs { data, wal } = needs;
    let parts = [(data, "for tables"), (wal, "for WAL")]
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", human::bytes(bytes)));
    let parts = parts.collect::<Vec<_>>().join(" and ");
    Warning::new("free disk space was not checked", why, format!("{try_}; needed: about {parts}"))
}

/// postmaster.pid has eight lines.
const PID_FILE: u64 = 16 << 10;

struct Server {
    started: i64,
    port: i32,
    by_socket: bool,
}

impl Server {
    /// Whether this directory on this machine is that server's. A socket says that the machine is the
    /// same; over TCP, or when the directory is of another server (in a container, say), postmaster.pid
    /// decides.
    fn is_here(&self, directory: &Path) -> bool {
        // The server says which directory that is: the file may be anything.
        let read = |open: Directory| open.read(Path::new("postmaster.pid"), PID_FILE);
        match Directory::open(directory).and_then(read) {
            Ok(text) => is_of(&text, self.started, self.port),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.by_socket,
            Err(_) => false,
        }
    }
}

/// Lines of postmaster.pid: process, directory, start in seconds, port. The start is when the file
/// was written, a moment from what the server reports.
fn is_of(postmaster_pid: &str, started: i64, port: i32) -> bool {
    let line = |n: usize| postmaster_pid.lines().nth(n).map(str::trim);
    let near =
        line(2).and_then(|s| s.parse::<i64>().ok()).is_some_and(|s| (s - started).abs() <= 60);
    near && line(3).and_then(|p| p.parse().ok()) == Some(port)
}

fn volume(path: PathBuf) -> io::Result<Volume> {
    let room = rustix::fs::statvfs(&path)?;
    let device = rustix::fs::stat(&path)?.st_dev;
    // Free to an unprivileged user, as the server is one.
    Ok(Volume { path, device, free: room.f_bavail.saturating_mul(room.f_frsize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PLAIN: WalKept = WalKept { minimal: false, max_wal_size: 1 << 30, held_back: false };

    fn spec(tables: u32, streams: u32) -> LoadSpec {
        let scale = "200M".to_owned();
        let (blocks, seed) = (25_600, 1);
        let layout = crate::units::Layout::default();
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
        }
    }

    fn mib(spec: &LoadSpec, former: &[(Part, u64)]) -> u64 {
        (needs(spec, former, PLAIN).data - spec.sort_bytes()) / MIB
    }

    #[test]
    fn former_tables_give_room_only_after_their_successors() {
        assert_eq!(mib(&spec(4, 1), &[]), 802);
        let former: Vec<_> = (1..=4).map(|n| (Part::Table(n), 200 * MIB)).collect();
        assert_eq!(mib(&spec(4, 4), &former), 802);
        assert_eq!(mib(&spec(4, 2), &former), 402);
        assert_eq!(mib(&spec(4, 1), &former), 202);
    }

    #[test]
    fn surplus_tables_give_no_room_before_the_end() {
        let former: Vec<_> = (5..=9).map(|n| (Part::Table(n), 200 * MIB)).collect();
        assert_eq!(mib(&spec(4, 1), &former), 802);
    }

    #[test]
    fn wal_is_bounded_by_checkpoints_unless_something_holds_it_back() {
        let spec = spec(64, 8);
        let all = spec.wal_bytes();
        assert_eq!(needs(&spec, &[], WalKept { max_wal_size: 100 * MIB, ..PLAIN }).wal, 200 * MIB);
        assert_eq!(needs(&spec, &[], WalKept { max_wal_size: u64::MAX, ..PLAIN }).wal, all);
        assert_eq!(
            needs(&spec, &[], WalKept { held_back: true, max_wal_size: 1, ..PLAIN }).wal,
            all
        );
        assert_eq!(needs(&spec, &[], WalKept { minimal: true, ..PLAIN }).wal, 0);
    }

    #[test]
    fn a_file_system_must_hold_all_that_goes_there() {
        let volume = |path: &str, device, free| Volume { path: path.into(), device, free };
        let needs = Needs { data: 60, wal: 50 };
        let (data, wal) = (volume("/data", 1, 100), volume("/wal", 2, 100));
        assert!(judge(needs, &data, &wal).is_ok());
        let same = volume("/data/pg_wal", 1, 100);
        let error = judge(needs, &data, &same).unwrap_err();
        assert!(matches!(&error, DatasetError::NoSpace { needed: 110, free: 100, .. }), "{error}");
        let small = volume("/wal", 2, 49);
        let text = judge(needs, &data, &small).unwrap_err().to_string();
        assert!(
            text.starts_with("/wal has 49 B free and the WAL of loading needs about 50 B"),
            "{text}"
        );
        assert!(judge(needs, &volume("/data", 1, 59), &wal).is_err());
    }

    #[test]
    fn a_server_is_known_by_its_pid_file() {
        let file = "4711\n/data\n1760000000\n5432\n/tmp\n*\n  123 456\nready\n";
        assert!(is_of(file, 1_760_000_001, 5432));
        assert!(!is_of(file, 1_760_000_001, 5433));
        assert!(!is_of(file, 1_700_000_000, 5432));
        assert!(!is_of("", 0, 0));
    }

    #[test]
    fn unchecked_space_says_how_much_is_needed() {
        let warning = unchecked(Needs { data: 200 * MIB, wal: 0 }, "why", "look there");
        assert_eq!(warning.try_this, "look there; needed: about 200 MiB for tables");
    }
}
