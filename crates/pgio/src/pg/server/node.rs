//! What tells a primary from its copies.
//!
//! System identifier and port are the same on a standby, and stay so when it is promoted. A promotion begins a
//! timeline; the data directory is often another one.

use postgres::Client;
use serde::{Deserialize, Serialize};

/// What distinguishes a primary from its copies. Fields are absent if unknown, as in journals of earlier
/// versions; then they prove nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerNode {
    /// Not shown to every role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<u32>,
}

const DATA_DIRECTORY: &str = "SELECT setting FROM pg_settings WHERE name = 'data_directory'";
/// The control file shows a new timeline only after the next checkpoint; the name of a WAL file does at once.
const TIMELINE: &str = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";

impl ServerNode {
    pub fn is_unknown(&self) -> bool {
        *self == ServerNode::default()
    }

    /// Reads it from a primary, as far as the role may.
    pub fn read(client: &mut Client) -> ServerNode {
        let mut text = |query| {
            let row = client.query_opt(query, &[]).ok().flatten()?;
            row.try_get::<_, Option<String>>(0).ok()?
        };
        let data_directory = text(DATA_DIRECTORY);
        let timeline = text(TIMELINE).and_then(|hex| u32::from_str_radix(&hex, 16).ok());
        ServerNode { data_directory, timeline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_an_earlier_journal_is_unknown() {
        let node: ServerNode = serde_json::from_str("{}").unwrap();
        assert!(node.is_unknown());
        let node = ServerNode { timeline: Some(3), ..node };
        assert_eq!(serde_json::to_string(&node).unwrap(), r#"{"timeline":3}"#);
        assert!(!node.is_unknown());
    }
}
