//! The results database: experiments, trials, metrics and comparisons in the schema `pgio_results` of any
//! PostgreSQL, where many can read them.
//!
//! `pgio store` writes whole experiments, each in one transaction and known by its run id and name, so that
//! storing twice changes nothing. `pgio history --store` reads the views. Analyses come from
//! `pgio_report`; nothing is judged here, and the server under test is never needed. Next: [`schema`] for
//! versions and rights, [`record`] for what is stored, [`write`](mod@write), [`read`](mod@read).

pub mod read;
pub mod record;
pub mod schema;
pub mod write;

use crate::pg::trust::Untrusted;
use pgio_connect::ConnectError;

pub use self::read::{experiments, runs};
pub use self::record::Record;
pub use self::write::{StoreOutcome, is_stored, store};

/// Why the results database cannot be used. Each message names the database or the right, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
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
