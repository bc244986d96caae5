//! Stores an experiment: all its rows in one transaction, or none.
//!
//! An experiment is known by its run id and name. One that is stored already is left alone if nothing
//! changed; one that was continued meanwhile, or that another version of pgio judged, is replaced. A copy with
//! fewer trials, from before the run was continued, replaces nothing. Another experiment of the same id is refused.

use std::io::Write;

use pgio_connect::types::ToSql;
use pgio_connect::{Client, Transaction};

use super::record::{Record, digest, json, time};
use super::schema;
use super::{ArchiveError, failed};
use pgio_results::store::StoredExperiment;

const INSERT: &str = include_str!("sql/insert_experiment.sql");

/// What storing an experiment changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreOutcome {
    New,
    Replaced,
    Unchanged,
    /// The stored one stays, because it has more trials.
    Kept,
}

/// Whether an experiment is stored as it is now. Without any trial it cannot be.
pub(super) fn is_stored(
    client: &mut Client,
    stored: &StoredExperiment,
) -> Result<bool, ArchiveError> {
    let Some(first) = stored.trials.first() else { return Ok(false) };
    let known =
        "SELECT 1 FROM pgio_results.experiments WHERE run_id = $1 AND name = $2 AND digest = $3";
    let (name, digest) = (&stored.manifest.name, digest(stored));
    let found = client.query_opt(known, &[&first.run_id, name, &digest]);
    Ok(found.map_err(failed(format!("looking for run {}", first.run_id)))?.is_some())
}

/// Stores one experiment; the schema must be prepared.
pub(super) fn store(client: &mut Client, record: &Record) -> Result<StoreOutcome, ArchiveError> {
    let run = &record.run;
    let doing = || failed(format!("storing run {} of {}", run.run_id, run.experiment));
    let mut transaction = client.transaction().map_err(doing())?;
    // Two pgio that store the same run wait for each other instead of failing.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    transaction.execute(lock, &[&format!("pgio_results {}", run.run_id)]).map_err(doing())?;
    // No one can add a trigger between the check and the end of the transaction.
    let tables: Vec<String> =
        record.tables.iter().map(|rows| format!("pgio_results.{}", rows.table)).collect();
    let lock =
        format!("LOCK TABLE pgio_results.experiments, {} IN ROW EXCLUSIVE MODE", tables.join(", "));
    transaction.batch_execute(&lock).map_err(doing())?;
    schema::check_trusted(&mut transaction)?;
    let known = "SELECT experiment_id, digest, \
                 created_at = $3::text::timestamptz AND (manifest ->> 'seed' = $4) IS NOT FALSE, \
                 created_at::text, \
                 (SELECT count(*) FROM pgio_results.trials t WHERE t.experiment_id = e.experiment_id) \
                 FROM pgio_results.experiments e WHERE run_id = $1 AND name = $2";
    let parameters: [&(dyn ToSql + Sync); 4] =
        [&run.run_id, &run.experiment, &created_at(record), &record.seed.to_string()];
    let found = transaction.query_opt(known, &parameters).map_err(doing())?;
    let replaces = match found {
        Some(row) if row.try_get::<_, String>(1)? == record.digest => {
            return Ok(StoreOutcome::Unchanged);
        }
        Some(row) if !row.try_get::<_, bool>(2)? => {
            return Err(ArchiveError::OtherExperiment {
                run_id: run.run_id.clone(),
                name: run.experiment.clone(),
                begun: row.try_get(3)?,
            });
        }
        Some(row) if row.try_get::<_, i64>(4)? > record.trials as i64 => {
            return Ok(StoreOutcome::Kept);
        }
        Some(row) => {
            let id: i64 = row.try_get(0)?;
            let delete = "DELETE FROM pgio_results.experiments WHERE experiment_id = $1";
            transaction.execute(delete, &[&id]).map_err(doing())?;
            true
        }
        None => false,
    };
    insert(&mut transaction, record).map_err(doing())?;
    transaction.commit().map_err(doing())?;
    Ok(if replaces { StoreOutcome::Replaced } else { StoreOutcome::New })
}

/// The manifest of an experiment that was not written by pgio may have any text as its time.
fn created_at(record: &Record) -> String {
    time(&record.run.created_at).unwrap_or_else(|| "-infinity".to_owned())
}

fn insert(transaction: &mut Transaction<'_>, record: &Record) -> Result<(), pgio_connect::Error> {
    let run = &record.run;
    let workload = run.work.get("workload").map_or("", String::as_str);
    let created_at = created_at(record);
    let row = transaction.query_one(
        INSERT,
        &[
            &run.run_id,
            &run.experiment,
            &created_at,
            &record.pgio,
            &workload,
            &record.server_version,
            &run.baseline,
            &run.primary_metric,
            &record.margin,
            &json(&run.work),
            &json(&run.facts),
            &json(&run.metrics),
            &record.manifest,
            &record.digest,
        ],
    )?;
    let id: i64 = row.try_get(0)?;
    for table in &record.tables {
        let (name, columns) = (table.table, table.columns);
        let copy = format!("COPY pgio_results.{name} (experiment_id, {columns}) FROM STDIN");
        let mut writer = transaction.copy_in(&copy)?;
        let mut text = String::with_capacity(table.rows.as_str().len() * 9 / 8);
        for row in table.rows.as_str().lines() {
            text.push_str(&format!("{id}\t{row}\n"));
        }
        // The writer's errors are the driver's, which finish() reports as well.
        let written = writer.write_all(text.as_bytes());
        writer.finish()?;
        debug_assert!(written.is_ok(), "finish() succeeds only if all was sent");
    }
    Ok(())
}
