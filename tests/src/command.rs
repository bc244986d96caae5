//! pgio as a person types it: in a directory of its own, against a database of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use pgio_connect::Client;
use pgio_connect::{Endpoint, Env, resolve};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{connect, fresh_database, pgio, shared_primary};
pub use crate::timing::wait_until;
pub use crate::workdir::CommandResult;
use crate::workdir::tolerance_args;

/// A working directory, and the database that the PG* variables name.
#[derive(Debug)]
pub struct TestDatabase {
    pub dir: TempDir,
    pub conninfo: String,
    pub host: String,
    pub port: String,
    pub user: String,
    pub database: String,
}

impl TestDatabase {
    /// An empty database of the shared server.
    pub fn new(major: u32) -> TestDatabase {
        TestDatabase::at(&fresh_database(shared_primary(major)))
    }

    pub fn at(conninfo: &str) -> TestDatabase {
        let params = resolve(conninfo, &Env::default()).unwrap();
        let (host, port) = match &params.hosts[0] {
            Endpoint::Tcp { host, port, .. } => (host.clone(), *port),
            Endpoint::Socket { dir, port } => (dir.display().to_string(), *port),
        };
        TestDatabase {
            dir: tempfile::tempdir().unwrap(),
            conninfo: conninfo.to_owned(),
            host,
            port: port.to_string(),
            user: params.user,
            database: params.dbname,
        }
    }

    /// The same database as another role, which has no password.
    pub fn as_role(&self, role: &str) -> TestDatabase {
        TestDatabase::at(&format!(
            "host={} port={} user={role} dbname={}",
            self.host, self.port, self.database
        ))
    }

    /// A role that can log in, with a name that no other test uses.
    pub fn new_role(&self, name: &str, options: &str) -> TestDatabase {
        let role = format!("{}_{name}", self.database);
        self.client().batch_execute(&format!("CREATE ROLE {role} LOGIN {options}")).unwrap();
        self.as_role(&role)
    }

    pub fn client(&self) -> Client {
        connect(&self.conninfo)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    /// The command with nothing of the tester's own settings in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = pgio();
        command
            .args(arguments)
            .args(tolerance_args(arguments))
            .env_clear()
            .envs([("HOME", self.dir.path()), ("PGIO_STATE_DIR", self.dir.path())])
            .envs([("PGHOST", &self.host), ("PGPORT", &self.port), ("PGUSER", &self.user)])
            .envs([("PGDATABASE", self.database.as_str()), ("TZ", "UTC")])
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub fn pgio(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::from_output(self.command(arguments).output().unwrap())
    }

    pub fn succeed(&self, arguments: &[&str]) -> CommandResult {
        let result = self.pgio(arguments);
        assert_eq!(result.code, Some(0), "pgio {arguments:?}: {result:?}");
        result
    }

    /// Small tables, without the base table.
    pub fn load(&self, tables: u32, scale: &str) {
        let tables = tables.to_string();
        // A role without rights cannot know the free space.
        let arguments = [
            "--scale",
            scale,
            "--num-schemas",
            &tables,
            "--create-base-table=FALSE",
            "--no-space-check",
        ];
        self.succeed(&[&["setup"], &arguments[..]].concat());
    }

    /// `pgio run` that must succeed, and its record.
    pub fn trial(&self, arguments: &[&str]) -> Value {
        self.succeed(&[&["run", "--json", "trial.json"], arguments].concat());
        self.record("trial.json")
    }

    pub fn record(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Every relation of the user's with its file, so that a rewrite shows.
    pub fn relations(&self) -> String {
        self.client()
            .query_one(
                "SELECT coalesce(string_agg(relname || ':' || relfilenode, ' ' ORDER BY relname), '')
                   FROM pg_class WHERE relnamespace = 'public'::regnamespace",
                &[],
            )
            .unwrap()
            .get(0)
    }

    /// Server-side sessions of pgio's in this database.
    pub fn sessions(&self) -> i64 {
        self.client()
            .query_one(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name LIKE 'pgio:%'",
                &[],
            )
            .unwrap()
            .get(0)
    }

    /// The sum of the counters in pgio1 to pgioN; every updated row adds one.
    pub fn scratch(&self, tables: u32) -> i64 {
        let mut client = self.client();
        (1..=tables)
            .map(|n| {
                let sql = format!("SELECT sum(scratch)::bigint FROM pgio{n}");
                client.query_one(&sql, &[]).unwrap().get::<_, i64>(0)
            })
            .sum()
    }
}
