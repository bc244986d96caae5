//! Treatments: what a condition changes, and how it is undone.
//!
//! The phases of a treatment are in [`contract`]. Undo is write-ahead ([`step`]): find the prior value,
//! append the step to the journal and fsync, apply, verify, append done ([`journal`]). Whatever stops
//! pgio, `undo` finds each step that was begun and restores the prior value, never a default
//! ([`undo_all`]); if the current value is neither ours nor the prior one, it stops and asks.
//!
//! To add one, follow "Adding to it" in ARCHITECTURE.md.

pub(crate) mod body;
pub(crate) mod context;
pub(crate) mod contract;
pub(crate) mod error;
mod found_journals;
pub(crate) mod guard;
pub mod journal;
mod kinds;
pub mod other_steps;
mod postgres;
pub(crate) mod resource;
pub(crate) mod step;
#[cfg(test)]
pub(crate) mod test_support;
mod undo_all;

pub use context::{
    AdminSession, Context, Control, Layout, Machines, Moved, Pair, Replica, UnreachableControl,
};
#[cfg(test)]
pub(crate) use contract::failed_reading;
pub use contract::{Cost, Declared, InForce, Kind, Prepared, Preview, Treatment};
pub use error::TreatmentError;
pub use kinds::{
    Checked, Parsed, Treatments, changes, check_all, check_further_server, declared_value,
    declares, is_workload_table, names, parse, parse_all, prior_of, put_in_force,
    touched_before_check,
};
pub(crate) use postgres::{SETTING, SYNCHRONOUS};
pub use resource::{ChangedServer, Resource, Touch};
pub use step::{OnConflict, RESTART_LEFT, REWRITTEN, Record, Step, Undone};
pub use undo_all::{Blocker, Remaining, Restored, UndoReport, Unreachable, undo_all};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::TreatmentSpec;
    use pgio_results::store::ConditionInfo;

    /// Changes of each kind of treatment are read back from a manifest as they were declared.
    #[test]
    #[cfg(not(feature = "dummy"))]
    fn what_a_treatment_changes_reaches_the_analysis() {
        let bodies = [
            ("drbd", "{ resource = 'r0', protocol = 'A', secondary = 'db2', al-extents = 67 }"),
            ("drbd", "{ resource = 'r0', connection = 'disconnected' }"),
            ("postgres", "{ synchronous_commit = 'local', max_wal_size = '4GB' }"),
            ("filesystem", "{ options = 'barrier=0' }"),
            ("filesystem", "{ device = '/dev/loop7', type = 'xfs', allow_format = true }"),
            (
                "filesystem",
                "{ device = '/dev/loop7', type = 'ext4', allow_format = true, tablespace = '/x' }",
            ),
            ("cache", "'cold'"),
            ("ballast", "{ leave = '1G' }"),
            ("link", "{ interface = 'eth0', delay = '5ms' }"),
            ("throttle", "{ device = '/dev/sdb', host = 'db2', write_iops = 500 }"),
            ("command", "{ name = 'a b', apply = 'true', verify = 'true', undo = 'true' }"),
        ];
        for kind in crate::feature::treatments() {
            assert!(bodies.iter().any(|(name, _)| *name == kind.name), "{}", kind.name);
        }
        let built = names();
        for (kind, body) in bodies.into_iter().filter(|(kind, _)| built.contains(kind)) {
            let table: toml::Table = toml::from_str(&format!("body = {body}")).unwrap();
            let spec =
                TreatmentSpec { kind: kind.to_owned(), body: table["body"].clone(), line: 1 };
            let treatment = parse(&spec).unwrap_or_else(|e| panic!("{kind} {body}: {e}"));
            let changes = treatment.declared().changes;
            assert!(!changes.is_empty());
            let info = ConditionInfo { name: "a".to_owned(), changes };
            let stored = serde_json::to_value(&info).unwrap();
            assert_eq!(serde_json::from_value::<ConditionInfo>(stored).unwrap(), info);
        }
    }
}
