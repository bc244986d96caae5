//! Who uses which keys: connecting, loading, and the workloads.

use super::kinds::{ROWS, WorkloadKind};

/// The part of pgio that uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Connecting to the server.
    Connect,
    /// Loading the data set.
    Load,
    /// A workload; one with a data set also checks that it matches the keys.
    Work(WorkloadKind),
}

/// Keys that find the server.
pub const CONNECT: &[&str] = &["dbname", "connect_string"];

/// Keys that describe the data set, and how it is loaded.
pub const LOAD: &[&[&str]] =
    &[&["num_schemas", "num_threads", "scale", "create_base_table", "tablespace"], ROWS];

/// Keys that a run takes from the loaded data set unless they are given.
pub const AS_LOADED: &[&str] =
    &["num_schemas", "scale", "filler", "filler_width", "fillfactor", "unlogged", "scan_scale"];

impl Use {
    /// All uses, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Use> {
        let workloads = WorkloadKind::ALL.iter().map(|kind| Use::Work(*kind));
        [Use::Connect, Use::Load].into_iter().chain(workloads)
    }

    pub fn name(self) -> &'static str {
        match self {
            Use::Connect => "connect",
            Use::Load => "load",
            Use::Work(kind) => kind.name(),
        }
    }

    /// Returns whether it uses the key of this name.
    pub fn takes(self, key: &str) -> bool {
        match self {
            Use::Connect => CONNECT.contains(&key),
            Use::Load => LOAD.iter().any(|group| group.contains(&key)),
            Use::Work(kind) => kind.uses(key),
        }
    }
}
