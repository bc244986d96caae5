//! The .sql files of the workloads; `pg::quote` fills in their placeholders in braces.

use pgio_connect::Client;

use crate::pg::session::is_trusted;
pub(super) use crate::pg::{fill, literal, qualified};

pub(super) const BLOCK: &str = include_str!("sql/block.sql");
pub(super) const WOVEN: &str = include_str!("sql/woven.sql");
pub(super) const SLOB: &str = include_str!("sql/slob.sql");
pub(super) const READ_ONE: &str = include_str!("sql/read_one.sql");
pub(super) const READ_RANGE: &str = include_str!("sql/read_range.sql");
pub(super) const READ_BATCH: &str = include_str!("sql/read_batch.sql");
pub(super) const UPDATE_PLAIN: &str = include_str!("sql/update_plain.sql");
pub(super) const UPDATE_RETRY: &str = include_str!("sql/update_retry.sql");
pub(super) const ROLL_BACK: &str = include_str!("sql/roll_back.sql");
pub(super) const DRAW_UNIFORM: &str = include_str!("sql/slob/draw_uniform.sql");
pub(super) const DRAW_HOT_SPOT: &str = include_str!("sql/slob/draw_hot_spot.sql");
pub(super) const DRAW_HOT_ONLY: &str = include_str!("sql/slob/draw_hot_only.sql");
pub(super) const DRAW_ZIPF: &str = include_str!("sql/slob/draw_zipf.sql");
pub(super) const DRAW_GAUSSIAN: &str = include_str!("sql/slob/draw_gaussian.sql");
pub(super) const DRAW_TABLE: &str = include_str!("sql/slob/draw_table.sql");
pub(super) const IN_HOT_TABLE: &str = include_str!("sql/slob/in_hot_table.sql");
pub(super) const WIDER: &str = include_str!("sql/slob/wider.sql");
pub(super) const SCAN: &str = include_str!("sql/slob/scan.sql");
pub(super) const SCAN_TABLE: &str = include_str!("sql/slob/scan_table.sql");
pub(super) const TURNOVER: &str = include_str!("sql/slob/turnover.sql");
pub(super) const TURNOVER_TABLE: &str = include_str!("sql/slob/turnover_table.sql");
pub(super) const THINK: &str = include_str!("sql/slob/think.sql");
pub(super) const THINK_ON: &str = include_str!("sql/slob/think_on.sql");
pub(super) const WORK_LOOP: &str = include_str!("sql/slob/work_loop.sql");
pub(super) const BENCHED: &str = include_str!("sql/slob/benched.sql");
const IS_MARKED: &str = include_str!("sql/is_marked.sql");
const RECORD: &str = include_str!("sql/record.sql");
pub(super) const COMMIT: &str = include_str!("sql/commit.sql");
pub(super) const COMMIT_EVERY: &str = include_str!("sql/commit_every.sql");
pub(super) const COMMIT_OWED: &str = include_str!("sql/commit_owed.sql");
pub(super) const COMMIT_WORKLOAD: &str = include_str!("sql/commit_workload.sql");
pub(super) const COMMIT_TABLE: &str = include_str!("sql/commit_table.sql");
pub(super) const INSERT_ONE: &str = include_str!("sql/insert_one.sql");
pub(super) const INSERT_SEVERAL: &str = include_str!("sql/insert_several.sql");

/// Returns SQL that adds the time since the variable `since` to a class of operations.
pub(super) fn record(class: &str, since: &str) -> String {
    fill(RECORD.trim_end(), &[("class", class), ("since", since)])
}

/// Returns whether the table exists, has exactly this comment, and belongs to no one else.
pub(super) fn is_marked(
    client: &mut Client,
    schema: &str,
    table: &str,
    mark: &str,
) -> Result<bool, pgio_connect::Error> {
    let query = fill(IS_MARKED, &[("trusted", &is_trusted("c.relowner"))]);
    let row = client.query_opt(&query, &[&schema, &table, &mark])?;
    Ok(row.is_some())
}
