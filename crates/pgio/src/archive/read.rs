//! Reads runs for a history, from the views alone and in a read-only transaction.
//!
//! The rows of a query come through a cursor, a few at a time: a session ends when one answer exceeds 32 MiB
//! (`pgio_connect`), and a history has no limit.

use std::collections::{BTreeMap, BTreeSet};

use pgio_connect::{Client, Row, Transaction};
use serde::de::DeserializeOwned;

use super::schema;
use super::{ArchiveError, failed};
use pgio_report::analysis::history::{Run, RunCondition};

const RUNS: &str = include_str!("sql/runs.sql");
const CONDITIONS: &str = include_str!("sql/run_conditions.sql");

/// Rows of one answer, each of which may take 600 kB; a condition or a run takes a few kB.
const ROWS_AT_A_TIME: u16 = 50;

/// The names of the stored experiments, with their numbers of runs.
pub fn experiments(client: &mut Client) -> Result<Vec<(String, usize)>, ArchiveError> {
    let mut transaction = begin(client)?;
    let query = "SELECT experiment, count(*) FROM pgio_results.runs GROUP BY experiment ORDER BY 1";
    let rows = transaction.query(query, &[]).map_err(failed("listing the experiments"))?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as usize))).collect()
}

/// All runs of one experiment.
pub fn runs(client: &mut Client, experiment: &str) -> Result<Vec<Run>, ArchiveError> {
    let mut transaction = begin(client)?;
    let doing = || failed(format!("reading the runs of {experiment}"));
    let rows = rows_of(&mut transaction, RUNS, experiment).map_err(doing())?;
    let mut runs = Vec::with_capacity(rows.len());
    let mut by_id = BTreeMap::new();
    for row in rows {
        let run_id: String = row.try_get(0)?;
        by_id.insert(run_id.clone(), runs.len());
        runs.push(Run {
            experiment: row.try_get(1)?,
            created_at: row.try_get::<_, Option<String>>(2)?.unwrap_or_default(),
            baseline: row.try_get(3)?,
            primary_metric: row.try_get(4)?,
            metrics: parsed(&run_id, row.try_get(5)?)?,
            work: parsed(&run_id, row.try_get(6)?)?,
            facts: parsed(&run_id, row.try_get(7)?)?,
            trials: row.try_get::<_, i64>(8)?.max(0) as usize,
            conditions: Vec::new(),
            run_id,
        });
    }
    for row in rows_of(&mut transaction, CONDITIONS, experiment).map_err(doing())? {
        let run_id: String = row.try_get(0)?;
        let Some(run) = by_id.get(&run_id).and_then(|at| runs.get_mut(*at)) else { continue };
        let (metrics, values): (Vec<String>, Vec<f64>) = (row.try_get(4)?, row.try_get(5)?);
        let values: BTreeMap<String, f64> = metrics.into_iter().zip(values).collect();
        let mut bounded: BTreeSet<String> = row.try_get::<_, Vec<String>>(6)?.into_iter().collect();
        // Away from the middle point of a sweep, the trials that are cut off are others.
        bounded.retain(|metric| !values.contains_key(metric));
        run.conditions.push(RunCondition {
            name: row.try_get(1)?,
            treatments: row.try_get(2)?,
            trials: row.try_get::<_, i32>(3)?.max(0) as usize,
            values,
            bounded,
        });
    }
    Ok(runs)
}

/// All rows of a query about one experiment.
fn rows_of(
    transaction: &mut Transaction<'_>,
    query: &str,
    experiment: &str,
) -> Result<Vec<Row>, pgio_connect::Error> {
    transaction.execute(&format!("DECLARE rows NO SCROLL CURSOR FOR {query}"), &[&experiment])?;
    let fetch = transaction.prepare(&format!("FETCH {ROWS_AT_A_TIME} FROM rows"))?;
    let mut all = Vec::new();
    loop {
        let rows = transaction.query(&fetch, &[])?;
        let are_last = rows.len() < usize::from(ROWS_AT_A_TIME);
        all.extend(rows);
        if are_last {
            transaction.batch_execute("CLOSE rows")?;
            return Ok(all);
        }
    }
}

/// One snapshot for all queries, and a server that refuses any change.
fn begin(client: &mut Client) -> Result<Transaction<'_>, ArchiveError> {
    let begin = client.begin("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
    let mut transaction = begin.map_err(failed("beginning"))?;
    schema::check_readable(&mut transaction)?;
    Ok(transaction)
}

fn parsed<T: DeserializeOwned>(run_id: &str, text: &str) -> Result<T, ArchiveError> {
    let broken = |source| ArchiveError::Record { run_id: run_id.to_owned(), source };
    serde_json::from_str(text).map_err(broken)
}
