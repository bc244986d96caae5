//! One table by one connection: all in one transaction, so that it is there complete or not at all.
//!
//! The former table of ours goes in the same transaction; whatever fails leaves it in place. Next:
//! `load`, which runs several of these.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use postgres::{Client, Transaction};

use super::rows::{HEADER, Rows, TRAILER};
use crate::dataset::error::DatasetError;
use crate::dataset::mark::Part;
use crate::dataset::plan::LoadSpec;
use crate::dataset::sql;
use crate::host::stop::Stop;
use crate::pg::server;
use crate::units::Layout;

/// Rows per COPY statement, 128 MiB of table. The driver does not see the server's error before the
/// end of a COPY (it goes on sending, the server goes on discarding), so a COPY must have an end.
const COPY_ROWS: u64 = 16_384;

/// From 16 on the server extends a table by up to 64 pages at a time. What the last COPY left unused
/// is at the end of the file, and VACUUM cuts it off.
const EXTENDED_AHEAD: u64 = 64;

/// What all streams of a load share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) spec: &'a LoadSpec,
    pub(super) schema: &'a str,
    pub(super) tablespace: &'a str,
    /// Tables of ours that are there already, to be replaced.
    pub(super) replaced: &'a [Part],
    pub(super) stop: &'a Stop,
    /// Another stream has failed.
    pub(super) failed: AtomicBool,
    /// Bytes of table loaded so far, over all streams.
    pub(super) loaded: AtomicU64,
}

impl Shared<'_> {
    pub(super) fn halting(&self) -> bool {
        self.stop.requested() || self.failed.load(Ordering::Relaxed)
    }
}

/// Stopping is no error of the stream; which one it becomes, the coordinator knows.
#[derive(Debug)]
pub(super) enum Ended {
    Halted,
    Failed(DatasetError),
}

impl From<DatasetError> for Ended {
    fn from(error: DatasetError) -> Ended {
        Ended::Failed(error)
    }
}

pub(super) fn prepare(client: &mut Client) -> Result<(), DatasetError> {
    server::lift_limits(client)
        .and_then(|()| client.batch_execute(sql::SESSION))
        .map_err(|e| DatasetError::from_pg("set up", "a session", e))
}

pub(super) fn load_part(client: &mut Client, shared: &Shared<'_>, part: Part) -> Result<(), Ended> {
    let name = part.to_string();
    let table = sql::qualified(shared.schema, &name);
    let ended = |e| ended(shared, &name, e);

    let mut transaction = client.build_transaction().read_only(false).start().map_err(ended)?;
    create(&mut transaction, shared, part, &table).map_err(ended)?;
    copy(&mut transaction, shared, part, &table)?;
    check_layout(&mut transaction, shared, part, &table)?;
    if matches!(part, Part::Table(_)) {
        let index = sql::identifier(&format!("{name}_idx"));
        let tablespace = sql::identifier(shared.tablespace);
        let names = [("index", &*index), ("table", &*table), ("tablespace", &*tablespace)];
        transaction.batch_execute(&sql::fill(sql::INDEX, &names)).map_err(ended)?;
    }
    let mark = shared.spec.mark(part).comment(part);
    let comment = [("table", &*table), ("comment", &*sql::literal(&mark))];
    transaction.batch_execute(&sql::fill(sql::COMMENT_TABLE, &comment)).map_err(ended)?;
    if shared.halting() {
        return Err(Ended::Halted);
    }
    transaction.commit().map_err(ended)?;

    // The table is complete from here on; a stop in between costs only its statistics.
    match client.batch_execute(&sql::fill(sql::SETTLE, &[("table", &table)])) {
        Err(_) if shared.halting() => Ok(()),
        settled => settled.map_err(ended),
    }
}

fn ended(shared: &Shared<'_>, name: &str, error: postgres::Error) -> Ended {
    let cancelled = error.code() == Some(&postgres::error::SqlState::QUERY_CANCELED);
    if cancelled && shared.halting() {
        return Ended::Halted;
    }
    Ended::Failed(DatasetError::from_pg("load", name, error))
}

fn create(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), postgres::Error> {
    if shared.replaced.contains(&part) {
        transaction.batch_execute(&sql::fill(sql::DROP_TABLE, &[("table", table)]))?;
    }
    let statement = match part {
        Part::Base => sql::CREATE_BASE,
        Part::Scan | Part::Table(_) => sql::CREATE_TABLE,
    };
    let layout = shared.spec.layout_of(part);
    let tablespace = sql::identifier(shared.tablespace);
    let names = [
        ("table", table),
        ("tablespace", &*tablespace),
        ("unlogged", if layout.unlogged { "UNLOGGED " } else { "" }),
        ("filler_width", &*layout.filler_width.to_string()),
        ("parameters", &*parameters(layout)),
    ];
    transaction.batch_execute(&sql::fill(statement, &names))
}

/// Storage parameters. The larger target is all that a block holds: such a row is neither compressed
/// nor moved out, whatever it holds.
fn parameters(layout: Layout) -> String {
    let whole = if layout.must_be_kept_whole() { ", toast_tuple_target = 8160" } else { "" };
    format!("fillfactor = {}{whole}", layout.fillfactor)
}

fn copy(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), Ended> {
    let blocks = shared.spec.rows(part);
    let name = part.to_string();
    let mut rows = Rows::new(part, blocks, shared.spec.seed, shared.spec.layout_of(part));
    let statement = sql::fill(sql::COPY, &[("table", table)]);
    let mut arrived = 0;
    let mut position = 0;
    while position < blocks {
        let until = (position + COPY_ROWS).min(blocks);
        let mut writer = transaction.copy_in(&*statement).map_err(|e| ended(shared, &name, e))?;
        // A write that fails means that the connection is gone; finish() then says why.
        let mut healthy = writer.write_all(HEADER).is_ok();
        while healthy && position < until {
            if shared.halting() {
                // Dropped unfinished, the writer tells the server to abort the COPY.
                return Err(Ended::Halted);
            }
            let end = (position + rows.chunk_rows()).min(until);
            healthy = writer.write_all(rows.chunk(position..end)).is_ok();
            let bytes = (end - position) * shared.spec.row_bytes(part);
            shared.loaded.fetch_add(bytes, Ordering::Relaxed);
            position = end;
        }
        let _ = writer.write_all(&TRAILER);
        arrived += writer.finish().map_err(|e| ended(shared, &name, e))?;
    }
    if arrived != blocks {
        return Err(DatasetError::Short { table: name, loaded: arrived, blocks }.into());
    }
    Ok(())
}

/// One row per page is what the whole method rests on, so it is looked at and not assumed.
fn check_layout(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), Ended> {
    if part == Part::Base {
        return Ok(());
    }
    let row = transaction
        .query_one(sql::PAGES, &[&table])
        .map_err(|e| ended(shared, &part.to_string(), e))?;
    let pages = row.get::<_, i64>(0).unsigned_abs();
    let blocks = shared.spec.rows(part);
    if (blocks..blocks + EXTENDED_AHEAD).contains(&pages) {
        return Ok(());
    }
    Err(DatasetError::Layout { table: part.to_string(), pages, blocks }.into())
}
