//! Resources that an experiment changes and must not share: a server, a device, a mount, a link, memory.
//!
//! Two experiments without a common resource may run at the same time. The text identifies a resource,
//! so every pgio writes the same text for it, whatever name the experiment gives to the host. Next:
//! [`journal::claim`](super::journal), which locks them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::{Host, storage};

/// A resource of one machine or one server, such as `device 8:16 on db1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource(String);

impl Resource {
    /// `identity` is that of [`crate::pg::server::identity`].
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
}
