//! Errors of a data set: each names the object and what to do.
//!
//! Only [`DatasetError::from_pg`] translates SQLSTATEs.

use std::path::PathBuf;

use pgio_connect::SqlState;

use crate::exit_code::{CONNECT, FAILED, HasExitCode, INTERRUPTED, REFUSED};
use crate::pg::session::Untrusted;
use crate::pg::words;
use pgio_results::units::human;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot open a connection for loading")]
    Connect(#[source] Cause),
    #[error(
        "search_path contains no existing schema; create one, or set search_path in the connection string"
    )]
    NoSchema,
    #[error(
        "{schema}.{name} exists but was not created by this pgio (its comment lacks the mark); drop it if you do not need it, for example if the original pgio created it, or use another database or schema"
    )]
    NotOurs { schema: String, name: String },
    #[error(
        "{schema}.{name} belongs to role {owner}, and role {role} may not replace it; connect as {owner}, or run: GRANT {owner} TO {role}"
    )]
    NotOwner { schema: String, name: String, owner: String, role: String },
    #[error("{0}; {remedy}, or load again with `pgio setup`", remedy = Untrusted::REMEDY)]
    Untrusted(Untrusted),
    #[error(
        "role {role} may not create tables in schema {schema}; as the schema's owner, run: GRANT CREATE ON SCHEMA {schema} TO {role}"
    )]
    NoCreate { schema: String, role: String },
    #[error("tablespace {0} does not exist; use one that psql's \\db lists")]
    NoTablespace(String),
    #[error(
        "role {role} may not use tablespace {tablespace}; run: GRANT CREATE ON TABLESPACE {tablespace} TO {role}"
    )]
    TablespacePrivilege { tablespace: String, role: String },
    #[error(
        "the block size of the server is {0} bytes, but pgio requires 8192 bytes; use a server with this block size"
    )]
    BlockSize(i32),
    #[error("the server is read-only, perhaps a standby; connect to the primary")]
    ReadOnly,
    #[error("another pgio is loading or removing this data set; wait until it has finished")]
    Busy,
    #[error("{} has {} free, but about {} is needed for {what}; free some space, or use a smaller SCALE or fewer tables", path.display(), human::bytes(*free), human::bytes(*needed))]
    NoSpace { path: PathBuf, what: &'static str, needed: u64, free: u64 },
    #[error(
        "the free disk space of the server is unknown, and about {needed} are needed: {why}; {hint}, or make sure that there is enough and use --no-space-check"
    )]
    UnknownSpace { needed: String, why: &'static str, hint: &'static str },
    #[error("everything of this load was removed")]
    Removed(#[source] Box<DatasetError>),
    #[error("{tables} of this load could not be removed; run `pgio destroy`")]
    NotRemoved { tables: String, source: Box<DatasetError> },
    #[error(
        "the server ran out of disk space at {object}, which was rolled back; free some space, or use a smaller SCALE"
    )]
    DiskFull { object: String, source: pgio_connect::Error },
    #[error("{object} is in use by another session; end it (see pg_stat_activity) and try again")]
    InUse { object: String, source: pgio_connect::Error },
    #[error("another session canceled the statement on {object}; try again")]
    Canceled { object: String, source: pgio_connect::Error },
    #[error("the role lacks a privilege on {object} or does not own it; connect as its owner")]
    Privilege { object: String, source: pgio_connect::Error },
    #[error("cannot drop {object} because other objects depend on it; drop these first")]
    DependedOn { object: String, source: pgio_connect::Error },
    #[error("stopped: {finished} of {tables} tables are complete, the others were rolled back")]
    Stopped { finished: u32, tables: u32 },
    #[error(
        "loading failed: {finished} of {tables} tables are complete, the others were rolled back"
    )]
    Incomplete { finished: u32, tables: u32, source: Box<DatasetError> },
    #[error(
        "{table} has {pages} pages after loading {blocks} rows, but pgio requires one row per page; the storage format of this server is not supported"
    )]
    Layout { table: String, pages: u64, blocks: u64 },
    #[error("the server stored {loaded} of {blocks} rows of {table}; load again")]
    MissingRows { table: String, loaded: u64, blocks: u64 },
    #[error("the database contains no data set; create one with `pgio setup`")]
    NoDataset,
    #[error(
        "{missing} is missing: the data set has {found} of {requested} tables; load them with `pgio setup`{}",
        fewer_tables(*usable)
    )]
    Missing {
        missing: String,
        found: u32,
        /// Number of tables before the missing one.
        usable: u32,
        requested: u32,
    },
    #[error(
        "{table} belongs to another load than {first} ({found}, not {expected}); load all tables again with `pgio setup`"
    )]
    Mixed { table: String, first: String, found: String, expected: String },
    #[error(
        "SCALE requires {requested} blocks per table, but the tables have {loaded} (SCALE={scale}); lower SCALE, or load again with `pgio setup`"
    )]
    TooSmall { requested: u64, loaded: u64, scale: String },
    #[error(
        "{key}={requested} was requested, but the tables were loaded with {key}={loaded}; load again with `pgio setup`, or remove {key} to use the tables as they are"
    )]
    Differs { key: &'static str, requested: String, loaded: String },
    #[error(
        "{table} was loaded with {property} = {loaded}, but now has {found}; load again with `pgio setup`"
    )]
    Altered { table: String, property: &'static str, found: String, loaded: String },
    #[error("the data set has no scan table; load again with `pgio setup --scan-scale SIZE`")]
    NoScanTable,
    #[error("{table} should have {blocks} rows but has {found}; load again with `pgio setup`")]
    Damaged { table: String, blocks: u64, found: u64 },
    #[error("{table} has no valid b-tree index on mykey; load again with `pgio setup`")]
    NoIndex { table: String },
    #[error(
        "{table} was created by a newer pgio (data set version {found}); use that version, or load again with `pgio setup`"
    )]
    Version { table: String, found: u32 },
    #[error("cannot re-create database {name}: {why}")]
    NotRecreatable { name: String, why: String },
    #[error("cannot {doing}")]
    Postgres { doing: String, source: pgio_connect::Error },
}

impl HasExitCode for DatasetError {
    fn code(&self) -> u8 {
        match self {
            DatasetError::Stopped { .. } => INTERRUPTED,
            DatasetError::Connect(_) => CONNECT,
            DatasetError::Incomplete { .. } => FAILED,
            DatasetError::NoSchema
            | DatasetError::NotOurs { .. }
            | DatasetError::NotOwner { .. }
            | DatasetError::Untrusted(_)
            | DatasetError::NoCreate { .. }
            | DatasetError::NoTablespace(_)
            | DatasetError::TablespacePrivilege { .. }
            | DatasetError::BlockSize(_)
            | DatasetError::ReadOnly
            | DatasetError::Busy
            | DatasetError::NoSpace { .. }
            | DatasetError::UnknownSpace { .. }
            | DatasetError::Removed(_)
            | DatasetError::NotRemoved { .. }
            | DatasetError::DiskFull { .. }
            | DatasetError::InUse { .. }
            | DatasetError::Canceled { .. }
            | DatasetError::Privilege { .. }
            | DatasetError::DependedOn { .. }
            | DatasetError::Layout { .. }
            | DatasetError::MissingRows { .. }
            | DatasetError::NoDataset
            | DatasetError::Missing { .. }
            | DatasetError::Mixed { .. }
            | DatasetError::TooSmall { .. }
            | DatasetError::Differs { .. }
            | DatasetError::Altered { .. }
            | DatasetError::NoScanTable
            | DatasetError::Damaged { .. }
            | DatasetError::NoIndex { .. }
            | DatasetError::Version { .. }
            | DatasetError::NotRecreatable { .. }
            | DatasetError::Postgres { .. } => REFUSED,
        }
    }
}

/// Returns the alternative to a load: fewer tables, if the first ones exist.
fn fewer_tables(usable: u32) -> String {
    match usable {
        0 => String::new(),
        n => format!(", or set NUM_SCHEMAS={n}"),
    }
}

impl From<pgio_connect::Error> for DatasetError {
    fn from(source: pgio_connect::Error) -> DatasetError {
        DatasetError::Postgres { doing: "read the server's answer".to_owned(), source }
    }
}

impl DatasetError {
    pub(super) fn is_disk_full(&self) -> bool {
        match self {
            DatasetError::DiskFull { .. } => true,
            DatasetError::Incomplete { source, .. } => source.is_disk_full(),
            _ => false,
        }
    }

    /// Converts the error of a statement that performed `doing` (such as "load") on `object`.
    pub(super) fn from_pg(doing: &str, object: &str, source: pgio_connect::Error) -> DatasetError {
        let object = object.to_owned();
        match source.code() {
            Some(c) if *c == SqlState::DISK_FULL => DatasetError::DiskFull { object, source },
            Some(c) if *c == SqlState::LOCK_NOT_AVAILABLE => DatasetError::InUse { object, source },
            Some(c) if *c == SqlState::QUERY_CANCELED => DatasetError::Canceled { object, source },
            Some(c) if *c == SqlState::READ_ONLY_SQL_TRANSACTION => DatasetError::ReadOnly,
            Some(_) if words::is_denied(&source) => DatasetError::Privilege { object, source },
            Some(c) if *c == SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
                DatasetError::DependedOn { object, source }
            }
            _ => DatasetError::Postgres { doing: format!("{doing} {object}"), source },
        }
    }
}
