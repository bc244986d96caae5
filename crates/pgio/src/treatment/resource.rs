//! Resources that an experiment changes and must not share: a server, a device, a mount, a link, memory.
//!
//! Two experiments without a common resource may run at the same time. The text identifies a resource,
//! so every pgio writes the same text for it, whatever name the experiment gives to the host. Next:
//! [`journal::claim`](super::journal), which locks them.

use std::fmt;

use pgio_connect::Client;
use serde::{Deserialize, Serialize};

use super::error::TreatmentError;
use crate::host::{Host, storage};
use crate::pg::server::{self, ServerNode};
use pgio_connect::ConnectParams;

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
    /// The standbys that streamed from it, for an undo.
    pub standbys: Vec<String>,
    /// Whether to accept a node on another timeline (`pgio undo --restore`).
    pub accepts_any_timeline: bool,
}

impl ChangedServer {
    /// Why a server that a killed run left stopped must not be started: one of its standbys may be the primary
    /// by now, and the two would diverge.
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
}
