//! What can go wrong with a data set, each with the object it happened to and what to do.
//!
//! [`DatasetError::from_pg`] is the one place where SQLSTATEs become words.

use std::path::PathBuf;

use postgres::error::SqlState;

use crate::units::human;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot open a connection to load by")]
    Connect(#[source] Cause),
    #[error(
        "no schema to use: search_path names none that exists; create one, or set search_path in the connection string"
    )]
    NoSchema,
    #[error(
        "{schema}.{name} exists and is not pgio's (its comment lacks our mark); if it may go, as when the original pgio made it, drop it yourself, else use another database or schema"
    )]
    NotOurs { schema: String, name: String },
    #[error(
        "{schema}.{name} belongs to role {owner} and {role} may not replace it; connect as {owner}, or GRANT {owner} TO {role}"
    )]
    NotOwner { schema: String, name: String, owner: String, role: String },
    #[error(
        "role {role} may not create tables in schema {schema}; as its owner run: GRANT CREATE ON SCHEMA {schema} TO {role}"
    )]
    NoCreate { schema: String, role: String },
    #[error("tablespace {0} does not exist; name one that psql's \\db lists")]
    NoTablespace(String),
    #[error(
        "role {role} may not use tablespace {tablespace}; run: GRANT CREATE ON TABLESPACE {tablespace} TO {role}"
    )]
    TablespacePrivilege { tablespace: String, role: String },
    #[error(
        "this server has blocks of {0} bytes; pgio counts in blocks of 8192 bytes, use a server built with those"
    )]
    BlockSize(i32),
    #[error("the server is read only (a standby?); connect to the primary")]
    ReadOnly,
    #[error("another pgio is loading or removing this data set; wait until it has ended")]
    Busy,
    #[error("{} has {} free and {what} needs about {}; free some space, or use a smaller SCALE or fewer tables", path.display(), human::bytes(*free), human::bytes(*needed))]
    NoSpace { path: PathBuf, what: &'static str, needed: u64, free: u64 },
    #[error(
        "the server ran out of disk space at {object}, which was rolled back; free some space, or use a smaller SCALE"
    )]
    DiskFull { object: String, source: postgres::Error },
    #[error("{object} is in use by another session; end it (see pg_stat_activity) and try again")]
    InUse { object: String, source: postgres::Error },
    #[error("{object}: cancelled on the server by someone else; try again")]
    Cancelled { object: String, source: postgres::Error },
    #[error("{object}: the role lacks a privilege or does not own it; connect as its owner")]
    Privilege { object: String, source: postgres::Error },
    #[error("{object} cannot be dropped, something was made upon it; drop that first")]
    DependedOn { object: String, source: postgres::Error },
    #[error("stopped: {finished} of {tables} tables are complete, nothing of the others was kept")]
    Stopped { finished: u32, tables: u32 },
    #[error(
        "{table} has {pages} pages after loading {blocks} rows, not one row a page; this server stores rows in a way pgio does not know"
    )]
    Layout { table: String, pages: u64, blocks: u64 },
    #[error("{table}: {loaded} of {blocks} rows arrived; load again")]
    Short { table: String, loaded: u64, blocks: u64 },
    #[error("there is no data set in this database; make one with `pgio setup`")]
    NoDataset,
    #[error(
        "{missing} is missing: {found} of the {asked} tables are there; load them with `pgio setup`, or ask for {found}"
    )]
    Missing { missing: String, found: u32, asked: u32 },
    #[error(
        "{table} is of another load than {first} ({found}, not {expected}); load all again with `pgio setup`"
    )]
    Mixed { table: String, first: String, found: String, expected: String },
    #[error(
        "SCALE asks for {asked} blocks a table and the tables hold {loaded} (SCALE={scale}); lower SCALE, or load again with `pgio setup`"
    )]
    TooSmall { asked: u64, loaded: u64, scale: String },
    #[error(
        "{key}={asked} is asked for and the tables were loaded with {key}={loaded}; load again with `pgio setup`, or leave {key} out to take them as they are"
    )]
    Differs { key: &'static str, asked: String, loaded: String },
    #[error(
        "{table} was loaded with {what} = {loaded} and has {found} now; load again with `pgio setup`"
    )]
    Altered { table: String, what: &'static str, found: String, loaded: String },
    #[error(
        "there is no table for scans of this load; load again with `pgio setup --scan-scale SIZE`"
    )]
    NoScanTable,
    #[error("{table} should hold {blocks} rows and holds {found}; load again with `pgio setup`")]
    Damaged { table: String, blocks: u64, found: u64 },
    #[error("{table} has no valid b-tree on mykey; load again with `pgio setup`")]
    NoIndex { table: String },
    #[error(
        "{table} was made by a newer pgio (data set version {found}); use that one, or load again with `pgio setup`"
    )]
    Version { table: String, found: u32 },
    #[error("database {name} cannot be made again: {why}")]
    NotRecreatable { name: String, why: String },
    #[error("cannot {doing}")]
    Postgres { doing: String, source: postgres::Error },
}

impl DatasetError {
    /// The error of a statement that did something (`doing`, as in "load pgio1") to `object`.
    pub(super) fn from_pg(doing: &str, object: &str, source: postgres::Error) -> DatasetError {
        let object = object.to_owned();
        match source.code() {
            Some(c) if *c == SqlState::DISK_FULL => DatasetError::DiskFull { object, source },
            Some(c) if *c == SqlState::LOCK_NOT_AVAILABLE => DatasetError::InUse { object, source },
            Some(c) if *c == SqlState::QUERY_CANCELED => DatasetError::Cancelled { object, source },
            Some(c) if *c == SqlState::READ_ONLY_SQL_TRANSACTION => DatasetError::ReadOnly,
            Some(c) if *c == SqlState::INSUFFICIENT_PRIVILEGE => {
                DatasetError::Privilege { object, source }
            }
            Some(c) if *c == SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
                DatasetError::DependedOn { object, source }
            }
            _ => DatasetError::Postgres { doing: format!("{doing} {object}"), source },
        }
    }
}
