//! Reads a server's version, settings and statistics, with the queries that each version needs.
//!
//! Missing privileges are not errors, unless nothing can be measured without them: the value is
//! absent and a warning names the GRANT.

use postgres::error::SqlState;
use postgres::{Client, GenericClient};

use super::words;
use crate::results::model::{DatabaseRow, ServerInfo, Warning};

/// First version with pg_stat_force_next_flush().
pub const FORCE_FLUSH_SINCE: u32 = 150_000;
/// First version with pg_stat_wal.
const STAT_WAL_SINCE: u32 = 140_000;
/// First version with num_done in pg_stat_checkpointer.
const CHECKPOINTS_DONE_SINCE: u32 = 180_000;
/// First version with pg_stat_checkpointer; older ones have pg_stat_bgwriter.
const STAT_CHECKPOINTER_SINCE: u32 = 170_000;
/// Oldest supported major version.
pub const OLDEST: u32 = 13;
/// Newest supported major version.
pub const NEWEST: u32 = 18;

/// Timeouts that a role may have set and that would abort a measurement; 0 disables them. Older
/// versions lack some of them.
pub const TIMEOUTS: &[&str] = &[
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot read {what} from the server")]
    Read { what: &'static str, source: postgres::Error },
    #[error("the server is PostgreSQL {0}; pgio needs {OLDEST} or newer")]
    TooOld(String),
    #[error(
        "the session is connected to database `{found}`, but DBNAME is `{asked}`: specify the same database in CONNECT_STRING and DBNAME"
    )]
    OtherDatabase { asked: String, found: String },
    #[error("the server is a standby, and workloads write: connect to the primary")]
    Standby,
}

fn read(what: &'static str) -> impl Fn(postgres::Error) -> ServerError {
    move |source| ServerError::Read { what, source }
}

/// Properties of the server under test.
#[derive(Debug, Clone)]
pub struct Server {
    pub info: ServerInfo,
    /// First schema of the search path, where pgio creates tables.
    pub schema: Option<String>,
    pub is_superuser: bool,
    pub warnings: Vec<Warning>,
}

impl Server {
    pub fn major(&self) -> u32 {
        self.info.version_num / 10_000
    }
}

/// Disables timeouts and read-only transactions that the role's defaults may set: an admin session
/// is mostly idle. Must be the first statement, in a single message, because idle_session_timeout
/// applies between two messages.
pub fn lift_limits(client: &mut Client) -> Result<(), postgres::Error> {
    client.batch_execute(&format!(
        // '0' means off for a boolean.
        "SELECT set_config(name, '0', false) FROM pg_settings \
         WHERE name IN ('default_transaction_read_only', '{}')",
        TIMEOUTS.join("', '")
    ))
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

/// Identifies a server, independent of the connection and the role: system identifier and port. A
/// standby has its primary's system identifier; with the same port on another machine it counts as
/// the same server.
pub fn identity(client: &mut Client) -> Result<String, postgres::Error> {
    let query = "SELECT current_setting('port'), system_identifier::text FROM pg_control_system()";
    let denied = |e: &postgres::Error| e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
    let row = match client.query_one(query, &[]) {
        // Execution of pg_control_system() was revoked.
        Err(error) if denied(&error) => client.query_one(
            "SELECT current_setting('port'), coalesce(host(inet_server_addr()), 'on a socket')",
            &[],
        )?,
        result => result?,
    };
    let (port, number): (String, String) = (row.get(0), row.get(1));
    Ok(format!("{number} at port {port}"))
}

/// Reads the server's properties; `target` names it without secrets.
pub fn inspect(client: &mut Client, target: &str) -> Result<Server, ServerError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
                    current_database()::text, current_setting('shared_buffers'), \
                    current_setting('fsync'), current_setting('full_page_writes'), \
                    current_schema()::text, \
                    coalesce(current_setting('is_superuser', true), 'off') = 'on', \
                    pg_is_in_recovery()",
            &[],
        )
        .map_err(read("its version and settings"))?;
    let info = ServerInfo {
        version: row.get(0),
        version_num: row.get::<_, i32>(1).unsigned_abs(),
        database: row.get(2),
        shared_buffers: row.get(3),
        target: target.to_owned(),
        fsync: row.get(4),
        full_page_writes: row.get(5),
    };
    let major = info.version_num / 10_000;
    if major < OLDEST {
        return Err(ServerError::TooOld(info.version));
    }
    if row.get(8) {
        return Err(ServerError::Standby);
    }
    let mut warnings = Vec::from_iter(newer_than_known(major));
    if replication(client).is_ok_and(|r| r.is_hidden()) {
        warnings.push(Warning::new(
            "the role may not read the state of standbys",
            "pgio cannot verify that commits wait for a synchronous standby",
            "GRANT pg_monitor TO the role",
        ));
    }
    Ok(Server { info, schema: row.get(6), is_superuser: row.get(7), warnings })
}

/// Connections available to ordinary roles.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    pub max: i64,
    pub free: i64,
}

pub fn connections(client: &mut impl GenericClient) -> Result<Connections, postgres::Error> {
    let row = client.query_one(
        "SELECT current_setting('max_connections')::bigint, \
                current_setting('superuser_reserved_connections')::bigint \
                  + coalesce(current_setting('reserved_connections', true), '0')::bigint, \
                (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')",
        &[],
    )?;
    let (max, reserved, used): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    Ok(Connections { max, free: (max - reserved - used).max(0) })
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
pub fn database_row(client: &mut impl GenericClient) -> Result<DatabaseRow, ServerError> {
    let row = client
        .query_one(
            "SELECT blks_hit, blks_read, tup_returned, tup_fetched, tup_updated \
             FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )
        .map_err(read("pg_stat_database"))?;
    Ok(DatabaseRow {
        blks_hit: row.get(0),
        blks_read: row.get(1),
        tup_returned: row.get(2),
        tup_fetched: row.get(3),
        tup_updated: row.get(4),
    })
}

/// Server-wide counters, read before and after a window; `None` if the role may not read one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Total bytes of WAL: the insert position.
    pub wal_bytes: Option<f64>,
    pub wal_full_page_images: Option<i64>,
    /// Page size: the size of a full-page image without compression and without a hole.
    pub block_bytes: Option<f64>,
    /// Total checkpoints started, timed and requested; completed ones since version 18.
    pub checkpoints: Option<i64>,
    /// Advances with each completed checkpoint. The counters of 17 include checkpoints that were
    /// skipped because nothing had been written.
    pub last_checkpoint: Option<f64>,
}

impl Counters {
    /// Checkpoints since `before`.
    pub fn checkpoints_since(&self, before: &Counters) -> Option<f64> {
        if self.last_checkpoint.is_some() && self.last_checkpoint == before.last_checkpoint {
            return Some(0.0);
        }
        Some((self.checkpoints? - before.checkpoints?) as f64)
    }
}

/// Before version 15 counters arrive late through the statistics collector; the caller must wait.
pub fn counters(client: &mut impl GenericClient, version_num: u32) -> Counters {
    Counters {
        wal_bytes: one(
            client,
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8",
        ),
        wal_full_page_images: match version_num {
            STAT_WAL_SINCE.. => one(client, "SELECT wal_fpi FROM pg_stat_wal"),
            _ => None,
        },
        block_bytes: one(client, "SELECT current_setting('block_size')::float8"),
        checkpoints: match version_num {
            CHECKPOINTS_DONE_SINCE.. => one(client, "SELECT num_done FROM pg_stat_checkpointer"),
            STAT_CHECKPOINTER_SINCE.. => {
                one(client, "SELECT num_timed + num_requested FROM pg_stat_checkpointer")
            }
            _ => one(client, "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"),
        },
        last_checkpoint: one(
            client,
            "SELECT pg_wal_lsn_diff(checkpoint_lsn, '0/0')::float8 FROM pg_control_checkpoint()",
        ),
    }
}

fn one<T: for<'a> postgres::types::FromSql<'a>>(
    client: &mut impl GenericClient,
    sql: &str,
) -> Option<T> {
    client.query_one(sql, &[]).ok().and_then(|row| row.try_get(0).ok())
}

/// Runs a checkpoint before the window, so that none is due inside it. An `Err` is a warning: the
/// measurement continues without the checkpoint.
pub fn checkpoint(client: &mut Client, server: &Server) -> Result<(), Warning> {
    client.batch_execute("CHECKPOINT").map_err(|error| {
        if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return Warning::new(
                "no CHECKPOINT before the window",
                words::message(&error),
                "check the server log",
            );
        }
        let remedy = if server.major() >= 15 {
            "GRANT pg_checkpoint TO the role, or lengthen the window"
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

/// A synchronous standby as the primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    pub name: String,
    pub state: String,
    /// `sync`, `quorum`, `potential` or `async`; absent when the role may not see it.
    pub sync_state: Option<String>,
}

impl Standby {
    /// Whether it streams and commits wait for it.
    pub fn is_synchronous(&self) -> bool {
        self.state == "streaming" && matches!(self.sync_state.as_deref(), Some("sync" | "quorum"))
    }
}

/// Connected standbys, and which of them commits wait for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replication {
    pub synchronous_standby_names: String,
    pub standbys: Vec<Standby>,
}

impl Replication {
    pub fn has_synchronous(&self) -> bool {
        !self.synchronous_standby_names.trim().is_empty()
            && self.standbys.iter().any(Standby::is_synchronous)
    }

    /// One line for evidence, such as `pgio_standby: sync`.
    pub fn describe(&self) -> String {
        if self.standbys.is_empty() {
            return "no standby connected".to_owned();
        }
        let mut all: Vec<String> = self
            .standbys
            .iter()
            .map(|s| format!("{}: {}", s.name, s.sync_state.as_deref().unwrap_or("hidden")))
            .collect();
        all.sort();
        all.join(", ")
    }

    /// The reason why no standby can confirm a commit although one is required. It lists the
    /// connected names, because a wrong name is the usual cause.
    pub fn missing(&self) -> Option<String> {
        let names = self.synchronous_standby_names.trim();
        if names.is_empty() || self.has_synchronous() || self.is_hidden() {
            return None;
        }
        let mut connected: Vec<&str> = self.standbys.iter().map(|s| s.name.as_str()).collect();
        connected.sort_unstable();
        connected.dedup();
        Some(match connected.as_slice() {
            [] => format!("synchronous_standby_names is `{names}`, but no standby is connected"),
            all if self.standbys.iter().all(|s| s.sync_state.as_deref() == Some("async")) => {
                format!("`{names}` names no connected standby (connected: {})", all.join(", "))
            }
            _ => format!(
                "synchronous_standby_names is `{names}` but no such standby streams ({})",
                self.describe()
            ),
        })
    }

    /// Whether the role lacks pg_monitor, which hides the details of pg_stat_replication.
    pub fn is_hidden(&self) -> bool {
        self.standbys.iter().any(|s| s.sync_state.is_none())
    }
}

pub fn replication(client: &mut Client) -> Result<Replication, ServerError> {
    let names: String = client
        .query_one("SELECT coalesce(current_setting('synchronous_standby_names', true), '')", &[])
        .map_err(read("synchronous_standby_names"))?
        .get(0);
    let rows = client
        .query(
            "SELECT coalesce(application_name, ''), coalesce(state, ''), sync_state \
             FROM pg_stat_replication ORDER BY 1",
            &[],
        )
        .map_err(read("pg_stat_replication"))?;
    let standbys = rows
        .iter()
        .map(|r| Standby { name: r.get(0), state: r.get(1), sync_state: r.get(2) })
        .collect();
    Ok(Replication { synchronous_standby_names: names, standbys })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standby(state: &str, sync: Option<&str>) -> Standby {
        Standby {
            name: "s1".to_owned(),
            state: state.to_owned(),
            sync_state: sync.map(str::to_owned),
        }
    }

    #[test]
    fn only_a_streaming_sync_or_quorum_standby_counts() {
        assert!(standby("streaming", Some("sync")).is_synchronous());
        assert!(standby("streaming", Some("quorum")).is_synchronous());
        assert!(!standby("catchup", Some("sync")).is_synchronous());
        assert!(!standby("streaming", Some("potential")).is_synchronous());
        assert!(!standby("streaming", None).is_synchronous());
    }

    #[test]
    fn an_unmatched_name_is_reported_with_the_connected_names() {
        let replication = |names: &str, standbys: &[(&str, &str, &str)]| Replication {
            synchronous_standby_names: names.to_owned(),
            standbys: standbys
                .iter()
                .map(|(name, state, sync)| Standby {
                    name: (*name).to_owned(),
                    state: (*state).to_owned(),
                    sync_state: Some((*sync).to_owned()),
                })
                .collect(),
        };
        let async_ones = [("b", "streaming", "async"), ("a", "streaming", "async")];
        assert_eq!(
            replication("ANY 1 (x,y)", &async_ones).missing().unwrap(),
            "`ANY 1 (x,y)` names no connected standby (connected: a, b)"
        );
        assert_eq!(
            replication("x", &[]).missing().unwrap(),
            "synchronous_standby_names is `x`, but no standby is connected"
        );
        let lagging = replication("a", &[("a", "catchup", "sync")]).missing().unwrap();
        assert!(lagging.ends_with("`a` but no such standby streams (a: sync)"), "{lagging}");
        assert_eq!(replication("", &async_ones).missing(), None);
        assert_eq!(replication("a", &[("a", "streaming", "sync")]).missing(), None);
    }

    #[test]
    fn only_an_unsupported_newer_server_warns() {
        let warning = newer_than_known(NEWEST + 1).unwrap();
        assert!(warning.what.contains("19 is newer"), "{warning}");
        assert!((OLDEST..=NEWEST).all(|major| newer_than_known(major).is_none()));
    }

    #[test]
    fn without_synchronous_standby_names_nothing_is_synchronous() {
        let mut r = Replication {
            synchronous_standby_names: String::new(),
            standbys: vec![standby("streaming", Some("sync"))],
        };
        assert!(!r.has_synchronous());
        r.synchronous_standby_names = "*".to_owned();
        assert!(r.has_synchronous());
        assert_eq!(r.describe(), "s1: sync");
    }
}
