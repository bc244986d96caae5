//! SQL statements. `pg::quote` inserts names and comments, which cannot be parameters.

pub(super) use crate::pg::quote::{fill, identifier, literal, qualified};

pub(super) const PREFLIGHT: &str = include_str!("sql/preflight.sql");
pub(super) const NAMED: &str = include_str!("sql/named.sql");
pub(super) const SESSION: &str = include_str!("sql/session.sql");
pub(super) const CREATE_TABLE: &str = include_str!("sql/create_table.sql");
pub(super) const CREATE_BASE: &str = include_str!("sql/create_base.sql");
pub(super) const COPY: &str = include_str!("sql/copy.sql");
pub(super) const INDEX: &str = include_str!("sql/index.sql");
pub(super) const WAKE_WAL_WRITER: &str = include_str!("sql/wake_wal_writer.sql");
pub(super) const PAGES: &str = include_str!("sql/pages.sql");
pub(super) const SETTLE: &str = include_str!("sql/settle.sql");
pub(super) const CANCEL: &str = include_str!("sql/cancel.sql");
pub(super) const SESSION_ID: &str = include_str!("sql/session_id.sql");
pub(super) const RUNNING: &str = include_str!("sql/running.sql");
pub(super) const LOCK: &str = include_str!("sql/lock.sql");
pub(super) const UNLOCK: &str = include_str!("sql/unlock.sql");
pub(super) const SERVER_DIRECTORIES: &str = include_str!("sql/server_directories.sql");
pub(super) const TABLE_STATE: &str = include_str!("sql/table_state.sql");
pub(super) const COUNT_ROWS: &str = include_str!("sql/count_rows.sql");
pub(super) const DROP_SCHEMA: &str = include_str!("sql/drop_schema.sql");
pub(super) const DROP_TABLE: &str = include_str!("sql/drop_table.sql");
pub(super) const DROP_ROUTINE: &str = include_str!("sql/drop_routine.sql");
pub(super) const COMMENT_TABLE: &str = include_str!("sql/comment_table.sql");
pub(super) const LOCK_TIMEOUT: &str = include_str!("sql/lock_timeout.sql");
pub(super) const HELPERS: &str = include_str!("sql/helpers.sql");
pub(super) const TABLE_SIZES: &str = include_str!("sql/table_sizes.sql");
pub(super) const DATABASE: &str = include_str!("sql/database.sql");
pub(super) const DATABASE_SETTINGS: &str = include_str!("sql/database_settings.sql");
pub(super) const DATABASE_GRANTS: &str = include_str!("sql/database_grants.sql");
pub(super) const FOREIGN_OBJECTS: &str = include_str!("sql/foreign_objects.sql");
pub(super) const TABLESPACE_OF_TABLES: &str = include_str!("sql/tablespace_of_tables.sql");
pub(super) const RELATIONS: &str = include_str!("sql/relations.sql");
pub(super) const TABLESPACE_OF: &str = include_str!("sql/tablespace_of.sql");
pub(super) const SET_TABLESPACE: &str = include_str!("sql/set_tablespace.sql");
