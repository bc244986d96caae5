//! The .sql files of the workloads; their braces are filled in by `pg::quote`.

pub(super) use crate::pg::quote::{fill, literal, qualified};

pub(super) const SLOB: &str = include_str!("sql/slob.sql");
pub(super) const READ_ONE: &str = include_str!("sql/read_one.sql");
pub(super) const READ_RANGE: &str = include_str!("sql/read_range.sql");
pub(super) const READ_BATCH: &str = include_str!("sql/read_batch.sql");
pub(super) const UPDATE_PLAIN: &str = include_str!("sql/update_plain.sql");
pub(super) const UPDATE_RETRY: &str = include_str!("sql/update_retry.sql");
pub(super) const ROLL_BACK: &str = include_str!("sql/roll_back.sql");
const RECORD: &str = include_str!("sql/record.sql");
pub(super) const COMMIT: &str = include_str!("sql/commit.sql");
pub(super) const COMMIT_EVERY: &str = include_str!("sql/commit_every.sql");
pub(super) const COMMIT_OWED: &str = include_str!("sql/commit_owed.sql");
pub(super) const COMMIT_WORKLOAD: &str = include_str!("sql/commit_workload.sql");
pub(super) const COMMIT_TABLE: &str = include_str!("sql/commit_table.sql");
pub(super) const INSERT_ONE: &str = include_str!("sql/insert_one.sql");
pub(super) const INSERT_SEVERAL: &str = include_str!("sql/insert_several.sql");

/// Adds what an operation took, since the moment in the variable `since`, to its class.
pub(super) fn record(class: &str, since: &str) -> String {
    fill(RECORD.trim_end(), &[("class", class), ("since", since)])
}
