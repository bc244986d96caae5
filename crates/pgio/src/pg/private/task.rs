//! What the supervisor creates: the servers of a cluster and their directories.
//!
//! [`Task`] is the one argument of `pgio supervise`, as JSON; [`Layout`] is its answer. Both are
//! data. Next: `layout` for the files, `supervisor` for the processes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout::conninfo_value;
use crate::config::experiment::StandbyTarget;

/// A setting of postgresql.conf, unquoted.
pub(super) type Setting = (String, String);

/// The name of the primary in files and messages; no standby may have it.
pub const PRIMARY: &str = "primary";

/// The name of the standby of [`Spec::standby`](super::Spec::standby).
pub(super) const STANDBY: &str = "standby";

/// The cluster to create.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) bindir: PathBuf,
    pub(super) base_dir: PathBuf,
    /// The name of the main directory, from which the names of the others follow.
    pub(super) name: String,
    /// Parent of the directory with the primary's WAL; `None` means that it is inside the data.
    pub(super) wal_dir: Option<PathBuf>,
    /// Further arguments of initdb.
    pub(super) initdb: Vec<String>,
    pub(super) settings: Vec<Setting>,
    pub(super) standbys: Vec<StandbyTarget>,
}

impl Task {
    /// Directories in which the cluster's directories are created, the main one first, each once.
    pub(super) fn bases(&self) -> Vec<&Path> {
        let standbys = self.standbys.iter().filter_map(|s| s.directory.as_deref());
        let more = self.wal_dir.as_deref().into_iter().chain(standbys);
        let mut all = vec![self.base_dir.as_path()];
        for base in more {
            if !all.contains(&base) {
                all.push(base);
            }
        }
        all
    }

    /// The directories of the cluster, one in each base. The paths of two bases may lead to one place.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let name = |at| match at {
            0 => self.name.clone(),
            _ => format!("{}-{at}", self.name),
        };
        self.bases().iter().enumerate().map(|(at, base)| base.join(name(at))).collect()
    }
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Name used in files, in `application_name`, and in messages.
    pub(super) name: String,
    /// Port number in the socket's name; nothing listens on a network.
    pub(super) port: u16,
    /// The directory of the cluster that contains its data.
    pub(super) root: PathBuf,
}

impl Member {
    pub(super) fn new(name: &str, position: u16, root: &Path) -> Member {
        Member { name: name.to_owned(), port: 5432 + position, root: root.to_owned() }
    }

    /// Its name in messages.
    pub(super) fn title(&self) -> String {
        match self.name.as_str() {
            PRIMARY | STANDBY => self.name.clone(),
            name => format!("standby {name}"),
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub(super) fn log(&self) -> String {
        format!("{}.log", self.name)
    }
}

/// The directories of a cluster. Each is marked, locked and removed by itself, because they may be
/// on different file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// The main directory, with sockets and logs.
    pub(super) root: PathBuf,
    /// The others.
    pub(super) more: Vec<PathBuf>,
    /// The primary first.
    pub(super) members: Vec<Member>,
}

impl Layout {
    pub(super) fn primary(&self) -> &Member {
        &self.members[0]
    }

    pub(super) fn standbys(&self) -> &[Member] {
        &self.members[1..]
    }

    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name == name)
    }

    pub(super) fn sockets(&self) -> PathBuf {
        self.root.join(super::directory::SOCKETS)
    }

    /// A connection string for any libpq client.
    pub(super) fn conninfo(&self, member: &Member, database: &str) -> String {
        format!(
            "host={} port={} user=postgres dbname={}",
            conninfo_value(&self.sockets().to_string_lossy()),
            member.port,
            conninfo_value(database)
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use pgio_connect::Endpoint;

    use super::*;

    /// A cluster below `root` with standbys of these names.
    pub(in crate::pg::private) fn layout(root: &str, standbys: &[&str]) -> Layout {
        let root = Path::new(root);
        let names = std::iter::once(PRIMARY).chain(standbys.iter().copied());
        let members = (0..).zip(names).map(|(n, name)| Member::new(name, n, root)).collect();
        Layout { root: root.to_owned(), more: Vec::new(), members }
    }

    #[test]
    fn a_task_survives_the_command_line() {
        let task = Task {
            bindir: "/usr/lib/postgresql/15/bin".into(),
            base_dir: "/var/tmp/a b".into(),
            name: "pgio-1".to_owned(),
            wal_dir: Some("/srv/wal".into()),
            initdb: vec!["--wal-segsize=64".to_owned()],
            settings: vec![("search_path".to_owned(), "a=b, c".to_owned())],
            standbys: vec![StandbyTarget {
                directory: Some("/srv/slow".into()),
                apply_delay: Duration::from_secs(5),
                ..StandbyTarget::named("b")
            }],
        };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task);
        let expected = ["/var/tmp/a b/pgio-1", "/srv/wal/pgio-1-1", "/srv/slow/pgio-1-2"];
        assert_eq!(task.directories(), expected.map(PathBuf::from));
    }

    #[test]
    fn conninfo_values_are_quoted_if_necessary() {
        let plain = layout("/var/tmp/pgio-a1", &["b"]);
        let conninfo = plain.conninfo(&plain.standbys()[0], "pgio");
        assert_eq!(conninfo, "host=/var/tmp/pgio-a1/run port=5433 user=postgres dbname=pgio");
        let odd = layout("/my 'disk'", &[]);
        let conninfo = odd.conninfo(odd.primary(), "a b");
        let params = pgio_connect::resolve(&conninfo, &pgio_connect::Env::default()).unwrap();
        assert_eq!(params.dbname, "a b");
        let expected = Endpoint::Socket { dir: "/my 'disk'/run".into(), port: 5432 };
        assert_eq!(params.hosts, [expected]);
    }
}
