//! What an experiment may change and must have to itself: a server, a device, a mount, a link, memory.
//!
//! Two experiments that share none of these run at the same time. A resource is known by its text, so
//! that each pgio that reaches it, whatever the experiment calls its host, writes the same. Next:
//! [`journal::claim`](super::journal), which locks them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::{Host, storage};

/// A resource of one machine or one server, such as `device 8:16 on db1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource(String);

impl Resource {
    /// By what [`crate::pg::server::identity`] says.
    pub fn server(identity: &str) -> Resource {
        Resource(format!("server {identity}"))
    }

    /// By the machine's own name, which outlives a reboot. Machines of one name are taken for one: an
    /// experiment may then be refused for nothing, and never runs beside one that it must not meet.
    pub fn on(host: &Host, what: impl fmt::Display) -> Resource {
        Resource(format!("{what} on {}", host.node()))
    }

    /// A partition is a part of its disk, and every path in /dev means the same.
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

/// What a treatment may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
    /// The server of the target: its settings, or whether it runs.
    Server,
    Of(Resource),
}

#[cfg(test)]
mod tests {
    use super::*;

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
