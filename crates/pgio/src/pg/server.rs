//! Reads a server's version, settings and statistics, with the queries that each version needs.
//!
//! Missing privileges are not errors, unless nothing can be measured without them: the value is
//! absent and a warning names the GRANT.
//!
//! Next: `counters` for the counters around a window, `replication` for standbys.

use std::time::{Duration, Instant};
use std::{fmt, iter, thread};

use pgio_connect::{Client, SqlState};
use pgio_results::model::{DatabaseRow, ServerInfo, Warning};
use serde::{Deserialize, Serialize};

use super::replication;
use super::words::{self, Shown};
use crate::exit_code::{HasExitCode, REFUSED};

/// First version with pg_stat_force_next_flush().
pub const FORCE_FLUSH_SINCE: u32 = 150_000;
const POLL: Duration = Duration::from_millis(50);
/// Newest supported major version.
pub const NEWEST: u32 = 18;

/// Timeouts that a role may have set and that would abort a measurement; every session disables them
/// (`session`). Older versions lack some of them.
pub const TIMEOUTS: &[&str] = &[
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

/// Properties of the server under test.
#[derive(Debug, Clone)]
pub struct Server {
    pub info: ServerInfo,
    /// First schema of the user's search path, where pgio creates tables.
    pub schema: Option<String>,
    pub is_superuser: bool,
    pub is_standby: bool,
    pub warnings: Vec<Warning>,
}

impl Server {
    /// Refuses a standby, which cannot be written.
    pub fn require_primary(self) -> Result<Server, ServerError> {
        if self.is_standby { Err(ServerError::Standby) } else { Ok(self) }
    }

    pub fn major(&self) -> u32 {
        self.info.version_num / 10_000
    }
}

/// Whether the session ended because the server killed it or was killed; it may accept another one soon.
pub fn is_lost(error: &pgio_connect::Error) -> bool {
    error.is_closed() || error.code() == Some(&SqlState::CRASH_SHUTDOWN)
}

/// How long to wait for a server that recovers.
pub const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Opens a session again, for up to `limit` while the server recovers: all sessions end when one of its processes is
/// killed, and none begins for some seconds.
pub fn open_after_recovery<T, E>(
    limit: impl Fn() -> Duration,
    is_recovery: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if is_recovery(&error) && begun.elapsed() < limit() => thread::sleep(POLL),
            opened => return opened,
        }
    }
}

fn newer_than_known(major: u32) -> Option<Warning> {
    (major > NEWEST).then(|| {
        Warning::new(
            format!("PostgreSQL {major} is newer than this pgio supports"),
            format!("pgio was tested up to PostgreSQL {NEWEST}; statistics views may have changed"),
            "upgrade pgio",
        )
    })
}

/// Identifies a database system: a primary and its physical standbys have the same identifier.
pub fn system_identifier(client: &mut Client) -> Result<String, pgio_connect::Error> {
    let query = "SELECT system_identifier::text FROM pg_control_system()";
    client.query_one(query, &[])?.try_get(0)
}

/// Identifies a server, independent of the connection and the role: system identifier and port. A
/// standby has its primary's system identifier; with the same port on another machine it counts as
/// the same server.
pub fn identity(client: &mut Client) -> Result<String, pgio_connect::Error> {
    let number = match system_identifier(client) {
        // Execution of pg_control_system() was revoked.
        Err(error) if words::is_denied(&error) => client
            .query_one("SELECT coalesce(host(inet_server_addr()), 'on a socket')", &[])?
            .try_get(0)?,
        result => result?,
    };
    let port: String = client.query_one("SELECT current_setting('port')", &[])?.try_get(0)?;
    Ok(format!("{number} at port {port}"))
}

/// Reads the server's properties; `target` names it without secrets.
pub fn inspect(client: &mut Client, target: &str) -> Result<Server, ServerError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
                    current_database()::text, current_setting('shared_buffers'), \
                    current_setting('fsync'), current_setting('full_page_writes'), \
                    nullif(current_setting('pgio.schema'), ''), \
                    coalesce(current_setting('is_superuser', true), 'off') = 'on', \
                    pg_is_in_recovery()",
            &[],
        )
        .map_err(read("its version and settings"))?;
    let info = ServerInfo {
        version: row.try_get::<_, Shown>(0)?.into(),
        version_num: row.try_get::<_, i32>(1)?.unsigned_abs(),
        database: row.try_get(2)?,
        shared_buffers: row.try_get(3)?,
        target: target.to_owned(),
        fsync: row.try_get(4)?,
        full_page_writes: row.try_get(5)?,
        started: None,
    };
    let major = info.version_num / 10_000;
    if major < OLDEST {
        return Err(ServerError::TooOld(info.version));
    }
    let mut warnings = Vec::from_iter(newer_than_known(major));
    if replication::current(client).is_ok_and(|r| r.is_hidden()) {
        warnings.push(Warning::new(
            "the role may not read the state of standbys",
            "pgio cannot verify that commits wait for a synchronous standby",
            "GRANT pg_monitor TO ROLE",
        ));
    }
    let schema = row.try_get(6)?;
    let (is_superuser, is_standby) = (row.try_get(7)?, row.try_get(8)?);
    Ok(Server { info, schema, is_superuser, is_standby, warnings })
}

/// What limits connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// max_connections, less the reserved ones.
    Server,
    /// CONNECTION LIMIT of the session's role, by its name.
    Role(String),
    /// CONNECTION LIMIT of the session's database, by its name.
    Database(String),
}

impl ConnectionLimit {
    /// Returns what has the limit.
    pub fn holder(&self) -> &'static str {
        match self {
            ConnectionLimit::Server => "server",
            ConnectionLimit::Role(_) => "role",
            ConnectionLimit::Database(_) => "database",
        }
    }
}

/// What to raise.
impl fmt::Display for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionLimit::Server => f.write_str("max_connections"),
            ConnectionLimit::Role(name) => {
                write!(f, "CONNECTION LIMIT of role {name} (ALTER ROLE)")
            }
            ConnectionLimit::Database(name) => {
                write!(f, "CONNECTION LIMIT of database {name} (ALTER DATABASE)")
            }
        }
    }
}

/// Connections that a limit leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeConnections {
    pub limit: ConnectionLimit,
    pub max: i64,
    pub free: i64,
}

/// Connections of a server, and the settings that limit them.
#[derive(Debug, Clone)]
pub struct Connections {
    pub max: i64,
    /// For superusers only.
    pub superuser_reserved: i64,
    /// For members of pg_use_reserved_connections only, from PostgreSQL 16 on.
    pub reserved: i64,
    pub used: i64,
    /// Those of the session's role and database, where they have a limit that applies to the role.
    pub limited: Vec<FreeConnections>,
}

impl Connections {
    /// The settings that limit them, in the order of the fields.
    pub const SETTINGS: [&str; 3] =
        ["max_connections", "superuser_reserved_connections", "reserved_connections"];

    /// Returns them under other values of these settings.
    pub fn under(&self, settings: &[(&str, i64)]) -> Connections {
        let [max, superuser_reserved, reserved] = Self::SETTINGS;
        let value = |name: &str, present: i64| {
            settings.iter().find(|(set, _)| *set == name).map_or(present, |(_, value)| *value)
        };
        Connections {
            max: value(max, self.max),
            superuser_reserved: value(superuser_reserved, self.superuser_reserved),
            reserved: value(reserved, self.reserved),
            used: self.used,
            limited: self.limited.clone(),
        }
    }

    /// Returns those available to ordinary roles under each limit, the server's first.
    pub fn under_each_limit(&self) -> Vec<FreeConnections> {
        let free = self.max - self.superuser_reserved - self.reserved - self.used;
        let limit = ConnectionLimit::Server;
        let server = FreeConnections { limit, max: self.max, free: free.max(0) };
        iter::once(server).chain(self.limited.iter().cloned()).collect()
    }

    /// Returns those under the limit that leaves the fewest.
    pub fn scarcest(&self) -> FreeConnections {
        let all = self.under_each_limit().into_iter();
        all.min_by_key(|found| found.free).expect("the server's limit is always among them")
    }

    /// Returns those available to the session's role in its database.
    pub fn free(&self) -> i64 {
        self.scarcest().free
    }
}

const CONNECTIONS: &str = include_str!("sql/connections.sql");

/// Reads them for the role and the database of this session.
pub fn connections(client: &mut Client) -> Result<Connections, pgio_connect::Error> {
    let row = client.query_one(CONNECTIONS, &[])?;
    let left = |limit: ConnectionLimit, max: Option<i64>, used: i64| {
        max.map(|max| FreeConnections { limit, max, free: (max - used).max(0) })
    };
    let role = left(ConnectionLimit::Role(row.try_get(4)?), row.try_get(5)?, row.try_get(6)?);
    let database =
        left(ConnectionLimit::Database(row.try_get(7)?), row.try_get(8)?, row.try_get(9)?);
    Ok(Connections {
        max: row.try_get(0)?,
        superuser_reserved: row.try_get(1)?,
        reserved: row.try_get(2)?,
        used: row.try_get(3)?,
        limited: role.into_iter().chain(database).collect(),
    })
}

/// Checks that DBNAME, if given, is the database of the session.
pub fn check_database(server: &Server, asked: Option<&str>) -> Result<(), ServerError> {
    match asked {
        Some(asked) if asked != server.info.database => Err(ServerError::OtherDatabase {
            asked: asked.to_owned(),
            found: server.info.database.clone(),
        }),
        _ => Ok(()),
    }
}

/// The classic columns of pg_stat_database for the session's own database.
pub fn database_row(client: &mut Client) -> Result<DatabaseRow, ServerError> {
    let row = client
        .query_one(
            "SELECT blks_hit, blks_read, tup_returned, tup_fetched, tup_updated \
             FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )
        .map_err(read("pg_stat_database"))?;
    Ok(DatabaseRow {
        blks_hit: row.try_get(0)?,
        blks_read: row.try_get(1)?,
        tup_returned: row.try_get(2)?,
        tup_fetched: row.try_get(3)?,
        tup_updated: row.try_get(4)?,
    })
}

/// Runs a checkpoint before the window, so that none is due inside it. An `Err` is a warning: the
/// measurement continues without the checkpoint.
pub fn checkpoint(client: &mut Client, server: &Server) -> Result<(), Warning> {
    client.batch_execute("CHECKPOINT").map_err(|error| {
        if !words::is_denied(&error) {
            return Warning::new(
                "no CHECKPOINT before the window",
                words::message(&error),
                "check the server log",
            );
        }
        let remedy = if server.major() >= 15 {
            "GRANT pg_checkpoint TO ROLE, or lengthen the window"
        } else {
            "use a superuser (required before PostgreSQL 15), or lengthen the window"
        };
        Warning::new(
            "no CHECKPOINT before the window",
            "the role may not run it, so some windows may contain a checkpoint and others may not",
            remedy,
        )
    })
}

const DIRECTORIES: &str = include_str!("sql/directories.sql");

/// The role to grant if the result is empty.
pub const DIRECTORIES_GRANT: &str = "pg_read_all_settings";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// `data`, `wal`, or `tablespace NAME`.
    pub role: String,
    /// Path on the server's host.
    pub path: String,
}

/// Empty if the role may not read data_directory.
pub fn directories(client: &mut Client) -> Result<Vec<Directory>, pgio_connect::Error> {
    let rows = client.query(DIRECTORIES, &[])?;
    let directory = |row: &pgio_connect::Row| {
        Ok(Directory { role: row.try_get(0)?, path: row.try_get::<_, Shown>(1)?.into() })
    };
    rows.iter().map(directory).collect()
}

/// What distinguishes a primary from its copies. Fields are absent if unknown, as in journals of earlier
/// versions; then they prove nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerNode {
    /// Not shown to every role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<u32>,
}

const DATA_DIRECTORY: &str = "SELECT setting FROM pg_settings WHERE name = 'data_directory'";
/// The control file shows a new timeline only after the next checkpoint; the name of a WAL file does at once.
const TIMELINE: &str = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";

impl ServerNode {
    pub fn is_unknown(&self) -> bool {
        *self == ServerNode::default()
    }

    /// Reads it from a primary, as far as the role may.
    pub fn read(client: &mut Client) -> ServerNode {
        let mut text = |query| {
            let row = client.query_opt(query, &[]).ok().flatten()?;
            row.try_get::<_, Option<String>>(0).ok()?
        };
        let data_directory = text(DATA_DIRECTORY);
        let timeline = text(TIMELINE).and_then(|hex| u32::from_str_radix(&hex, 16).ok());
        ServerNode { data_directory, timeline }
    }
}

/// Oldest supported major version.
pub const OLDEST: u32 = 13;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot read {what} from the server")]
    Read { what: &'static str, source: pgio_connect::Error },
    #[error("the server is PostgreSQL {0}; pgio needs {OLDEST} or newer")]
    TooOld(String),
    #[error(
        "the session is connected to database `{found}`, but DBNAME is `{asked}`: specify the same database in CONNECT_STRING and DBNAME"
    )]
    OtherDatabase { asked: String, found: String },
    #[error("the server is a standby, and workloads write: connect to the primary")]
    Standby,
}

impl HasExitCode for ServerError {
    fn code(&self) -> u8 {
        REFUSED
    }
}

impl From<pgio_connect::Error> for ServerError {
    fn from(source: pgio_connect::Error) -> ServerError {
        read("an answer")(source)
    }
}

pub(super) fn read(what: &'static str) -> impl Fn(pgio_connect::Error) -> ServerError {
    move |source| ServerError::Read { what, source }
}

// What reading the server's clock costs. With track_io_timing the server reads it around every read and write, so a
// slow clock slows the measured work. As pg_test_timing, but from a session.

/// Number of clock readings timed together.
const READINGS: u32 = 20_000;
/// Cost of a reading above which the clock is slow; without a system call it takes a tenth.
pub const SLOW_CLOCK: Duration =
    Duration::from_nanos(pgio_results::thresholds::CLOCK_READING_NANOS);

/// Measures one reading of the server's clock: a query with many readings against one without, the least
/// of three, since disturbances only add time.
pub fn clock_reading(client: &mut Client) -> Option<Duration> {
    let all = format!("SELECT count(*) FROM generate_series(1, {READINGS})");
    let mut fastest = |sql: &str| {
        let once = |client: &mut Client| {
            let begun = Instant::now();
            client.query_one(sql, &[]).ok().map(|_| begun.elapsed())
        };
        (0..3).map(|_| once(client)).min().flatten()
    };
    let without = fastest(&all)?;
    let with = fastest(&format!("{all} WHERE clock_timestamp() IS NOT NULL"))?;
    Some(with.saturating_sub(without) / READINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unsupported_newer_server_warns() {
        let warning = newer_than_known(NEWEST + 1).unwrap();
        assert!(warning.what.contains("19 is newer"), "{warning}");
        assert!((OLDEST..=NEWEST).all(|major| newer_than_known(major).is_none()));
    }

    #[test]
    fn a_node_of_an_earlier_journal_is_unknown() {
        let node: ServerNode = serde_json::from_str("{}").unwrap();
        assert!(node.is_unknown());
        let node = ServerNode { timeline: Some(3), ..node };
        assert_eq!(serde_json::to_string(&node).unwrap(), r#"{"timeline":3}"#);
        assert!(!node.is_unknown());
    }
}
