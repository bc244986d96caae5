//! The data set: tables `pgio1..pgioN` with one row per 8 kB block, and a b-tree on the key.
//!
//! [`load()`] generates rows and loads them with binary COPY FREEZE, each table in the transaction
//! that creates it. Every table has a comment, its mark ([`mark`]); pgio never drops a table without
//! one. [`verify`] checks whether a run may use the data set, [`destroy()`] removes it, [`vacuum()`]
//! removes dead rows, [`space`] moves it to a tablespace, [`lines`] formats the output of the original.
//! [`database`] re-creates a database that contains only the data set.
//!
//! This module must not print, and must not open connections: callers supply them.
//! Next: `workload` runs on these tables.

pub mod database;
pub mod destroy;
pub mod error;
pub mod lines;
pub mod load;
pub mod mark;
pub mod plan;
pub mod space;
mod stream;
pub mod vacuum;
pub mod verify;

pub(super) use crate::pg::{fill, identifier, literal, qualified};
pub use destroy::{DestroySummary, destroy, helper_names, refuse_while_loading};
pub use error::DatasetError;
pub use load::{LoadEvent, LoadSummary, load};
pub use mark::{Mark, Part};
pub use plan::{LoadSpec, SpaceCheck};
pub use vacuum::vacuum;
pub use verify::{Dataset, check_for_run, loaded_spec, size};

const PREFLIGHT: &str = include_str!("dataset/sql/preflight.sql");
const NAMED: &str = include_str!("dataset/sql/named.sql");
const SESSION: &str = include_str!("dataset/sql/session.sql");
const CREATE_TABLE: &str = include_str!("dataset/sql/create_table.sql");
const CREATE_BASE: &str = include_str!("dataset/sql/create_base.sql");
const COPY: &str = include_str!("dataset/sql/copy.sql");
const INDEX: &str = include_str!("dataset/sql/index.sql");
const WAKE_WAL_WRITER: &str = include_str!("dataset/sql/wake_wal_writer.sql");
const PAGES: &str = include_str!("dataset/sql/pages.sql");
const SETTLE: &str = include_str!("dataset/sql/settle.sql");
const CANCEL: &str = include_str!("dataset/sql/cancel.sql");
const SESSION_ID: &str = include_str!("dataset/sql/session_id.sql");
const RUNNING: &str = include_str!("dataset/sql/running.sql");
const LOCK: &str = include_str!("dataset/sql/lock.sql");
const UNLOCK: &str = include_str!("dataset/sql/unlock.sql");
const SERVER_DIRECTORIES: &str = include_str!("dataset/sql/server_directories.sql");
const TABLE_STATE: &str = include_str!("dataset/sql/table_state.sql");
const COUNT_ROWS: &str = include_str!("dataset/sql/count_rows.sql");
const DROP_SCHEMA: &str = include_str!("dataset/sql/drop_schema.sql");
const DROP_TABLE: &str = include_str!("dataset/sql/drop_table.sql");
const DROP_ROUTINE: &str = include_str!("dataset/sql/drop_routine.sql");
const COMMENT_TABLE: &str = include_str!("dataset/sql/comment_table.sql");
const LOCK_TIMEOUT: &str = include_str!("dataset/sql/lock_timeout.sql");
const HELPERS: &str = include_str!("dataset/sql/helpers.sql");
const TABLE_SIZES: &str = include_str!("dataset/sql/table_sizes.sql");
const DATABASE: &str = include_str!("dataset/sql/database.sql");
const DATABASE_SETTINGS: &str = include_str!("dataset/sql/database_settings.sql");
const DATABASE_GRANTS: &str = include_str!("dataset/sql/database_grants.sql");
const FOREIGN_OBJECTS: &str = include_str!("dataset/sql/foreign_objects.sql");
const TABLESPACE_OF_TABLES: &str = include_str!("dataset/sql/tablespace_of_tables.sql");
const RELATIONS: &str = include_str!("dataset/sql/relations.sql");
const TABLESPACE_OF: &str = include_str!("dataset/sql/tablespace_of.sql");
const SET_TABLESPACE: &str = include_str!("dataset/sql/set_tablespace.sql");
