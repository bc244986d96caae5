//! The results database: experiments, trials, metrics and comparisons in the schema `pgio_results` of any
//! PostgreSQL, where many can read them.
//!
//! `pgio store` writes whole experiments, each in one transaction and known by its run id and name, so that
//! storing twice changes nothing. `pgio history --store` reads the views. Analyses come from
//! `pgio_report`; nothing is judged here, and the server under test is never needed. Next: [`schema`] for
//! versions and rights, [`record`] for what is stored, [`write`](mod@write), [`command`] for what the user sees.
//!
//! Reading goes through the views, in a read-only transaction. The rows of a query come through a cursor, a few at a
//! time: a session ends when one answer exceeds 32 MiB (`pgio_connect`), and a history has no limit.

mod command;
mod record;
mod schema;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use pgio_connect::{Client, ConnectError, Row, Transaction};
use pgio_verdict::history::{Run, RunCondition};
use serde::de::DeserializeOwned;

use crate::exit_code::{FAILED, HasExitCode, REFUSED};
use crate::feature::Feature;
use crate::pg::session::Untrusted;

pub(super) static FEATURE: Feature = Feature {
    name: "store",
    commands: &[command::COMMAND],
    runs: &[command::RUNS],
    ..Feature::NONE
};

/// Why the results database cannot be used. Each message names the database or the right, and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "the results in database {database} have schema version {found}, but pgio {} supports versions up to {known}; use the version of pgio that created them",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { database: String, found: i32, known: i32 },
    #[error(
        "database {database} holds no results of pgio: it has no schema pgio_results; run `pgio store DIR --to DSN` first"
    )]
    Missing { database: String },
    #[error(
        "schema pgio_results of database {database} was not created by pgio: it has no table schema_version; use another database"
    )]
    NotOurs { database: String },
    #[error(
        "schema pgio_results of database {database} belongs to role {owner}, whose code could run with the rights of a superuser; connect as {owner}, or use another database"
    )]
    OtherOwner { database: String, owner: String },
    #[error(
        "{0}; remove from it what pgio did not create, connect as its owner, or use another database"
    )]
    Untrusted(Untrusted),
    #[error(
        "role {role} lacks CREATE on database {database}, which is required to create the schema pgio_results; run: GRANT CREATE ON DATABASE {database} TO {role}, or run `pgio store` once as another role"
    )]
    NoCreate { database: String, role: String },
    #[error(
        "role {role} lacks USAGE on schema pgio_results of database {database}; as {owner}, run: GRANT USAGE ON SCHEMA pgio_results TO {role}"
    )]
    NoUsage { database: String, role: String, owner: String },
    #[error(
        "role {role} lacks {privilege} on pgio_results.{relation} of database {database}; as {owner}, run: GRANT {privilege} ON pgio_results.{relation} TO {role}"
    )]
    NoPrivilege {
        database: String,
        role: String,
        owner: String,
        privilege: String,
        relation: String,
    },
    #[error(
        "the results in database {database} have schema version {found} and need {wanted}, but role {role} does not own them; run `pgio store` once as {owner}"
    )]
    Upgrade { database: String, role: String, owner: String, found: i32, wanted: i32 },
    #[error(
        "run {run_id} of {name} in the results database is another experiment, begun {begun}: two machines drew the same run id; use another database for one of them"
    )]
    OtherExperiment { run_id: String, name: String, begun: String },
    #[error("the record of run {run_id} in the results database cannot be read")]
    Record { run_id: String, source: serde_json::Error },
    #[error("the results database: {doing} failed")]
    Postgres { doing: String, source: pgio_connect::Error },
}

impl HasExitCode for ArchiveError {
    fn code(&self) -> u8 {
        match self {
            ArchiveError::Connect(source) => source.code(),
            ArchiveError::Postgres { .. } => FAILED,
            ArchiveError::Newer { .. }
            | ArchiveError::Missing { .. }
            | ArchiveError::NotOurs { .. }
            | ArchiveError::OtherOwner { .. }
            | ArchiveError::Untrusted(_)
            | ArchiveError::NoCreate { .. }
            | ArchiveError::NoUsage { .. }
            | ArchiveError::NoPrivilege { .. }
            | ArchiveError::Upgrade { .. }
            | ArchiveError::OtherExperiment { .. }
            | ArchiveError::Record { .. } => REFUSED,
        }
    }
}

impl From<pgio_connect::Error> for ArchiveError {
    fn from(source: pgio_connect::Error) -> ArchiveError {
        failed("reading the server's answer")(source)
    }
}

/// Names what was being done.
fn failed(doing: impl Into<String>) -> impl FnOnce(pgio_connect::Error) -> ArchiveError {
    let doing = doing.into();
    move |source| ArchiveError::Postgres { doing, source }
}

const RUNS: &str = include_str!("store/sql/runs.sql");
const CONDITIONS: &str = include_str!("store/sql/run_conditions.sql");

/// Rows of one answer, each of which may take 600 kB; a condition or a run takes a few kB.
const ROWS_AT_A_TIME: u16 = 50;

/// The names of the stored experiments, with their numbers of runs.
fn experiments(client: &mut Client) -> Result<Vec<(String, usize)>, ArchiveError> {
    let mut transaction = begin(client)?;
    let query = "SELECT experiment, count(*) FROM pgio_results.runs GROUP BY experiment ORDER BY 1";
    let rows = transaction.query(query, &[]).map_err(failed("listing the experiments"))?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as usize))).collect()
}

/// All runs of one experiment.
fn runs(client: &mut Client, experiment: &str) -> Result<Vec<Run>, ArchiveError> {
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
