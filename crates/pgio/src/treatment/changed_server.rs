//! The server that a run changed, to be recognized when a session is opened anew.
//!
//! After a failover the same connection string may lead to the former standby: the same system identifier, the
//! same port, and no standby any more. Restoring there would change a server that nobody changed, and
//! forget the one that still has pgio's values. A promotion begins a timeline, which gives it away.

use postgres::Client;

use super::error::TreatmentError;
use super::resource::Resource;
use crate::pg::server::{self, ServerNode};
use pgio_connect::ConnectParams;

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
