//! A superuser's pgio in a database where another role has planted objects: nothing of that role's
//! is ever run (the class of CVE-2018-1058).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pgio::pg::private::PrivateCluster;
use pgio_report::analysis::test_support::{stored_runs, write_runs};
use postgres::{Client, NoTls};

use crate::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use crate::workdir::{Workdir, experiment};

const OLDEST: u32 = 13;

/// The names before a parenthesis in all source files, among them the functions that pgio's SQL calls.
fn called_in_the_source(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            called_in_the_source(&path, names);
            continue;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let before = text.split('(').map(|part| {
            part.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap()
        });
        names.extend(before.filter(|name| !name.is_empty()).map(str::to_owned));
    }
}

/// A database whose owner, not a superuser, has planted objects in `public`. Each writes to the server's
/// log when it runs.
struct Trap {
    cluster: &'static PrivateCluster,
    dsn: String,
    owner: String,
}

impl Trap {
    fn set(major: u32) -> Trap {
        let cluster = shared_primary(major);
        let dsn = fresh_database(cluster);
        let mut admin = connect(&dsn);
        let database: String =
            admin.query_one("SELECT current_database()::text", &[]).unwrap().get(0);
        let owner = format!("mallory_{database}");
        admin
            .batch_execute(&format!(
                "CREATE ROLE {owner} LOGIN; GRANT CREATE ON SCHEMA public TO {owner};
                 ALTER DATABASE {database} OWNER TO {owner}"
            ))
            .unwrap();
        Trap { cluster, dsn, owner }
    }

    fn by_owner(&self, sql: &str) {
        let dsn = format!("{} user={}", self.dsn, self.owner);
        Client::connect(&dsn, NoTls).unwrap().batch_execute(sql).unwrap();
    }

    /// Functions and operators of every name that pgio's SQL uses, for the types of arguments that it
    /// passes, in another combination than the server's own.
    fn plant(&self) {
        let mut names = BTreeSet::new();
        called_in_the_source(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        let plant = include_str!("planted/plant.sql");
        self.by_owner(&plant.replace("NAMES", &format!("'{{{names}}}'")));
    }

    #[track_caller]
    fn assert_nothing_ran(&self, after: &str) {
        let log = fs::read_to_string(self.cluster.directory().join("primary.log")).unwrap();
        let alarm = format!("{} was called", self.owner);
        let ran: Vec<&str> = log.lines().filter(|line| line.contains(&alarm)).collect();
        assert!(ran.is_empty(), "after {after}: {ran:?}");
        let sql = "SELECT rolsuper FROM pg_roles WHERE rolname = $1";
        let mut elsewhere = connect(&self.cluster.primary_conninfo());
        let is_superuser: bool = elsewhere.query_one(sql, &[&self.owner]).unwrap().get(0);
        assert!(!is_superuser, "after {after}");
    }

    /// Runs a command that must end with this code.
    #[track_caller]
    fn pgio(&self, dir: &Workdir, args: &[&str], code: i32, texts: &[&str]) {
        let result = dir.pgio(args);
        self.assert_nothing_ran(&format!("{args:?}: {result}"));
        result.expect(code, texts);
    }
}

fn every_command(trap: &Trap) {
    let dir = Workdir::new();
    let dsn = trap.dsn.as_str();
    let at = ["--connect-string", dsn];
    let small = ["--scale", "8M", "--num-schemas", "1", "--scan-scale", "8M"];
    let work = ["--run-time", "400ms", "--update-pct", "50"];
    let run = |more: &[&str]| trap.pgio(&dir, &[&["run"], &at[..], &work, more].concat(), 0, &[]);
    trap.pgio(&dir, &[&["setup"], &at[..], &small].concat(), 0, &[]);
    trap.pgio(&dir, &[&["doctor"], &at[..]].concat(), 0, &[]);
    run(&["--scan-pct", "1", "--insert-pct", "5", "--delete-pct", "5", "--update-width", "100"]);
    run(&["--engine", "client"]);
    let keys = "blocks = 1\nduration = \"400ms\"\naa = false";
    let conditions =
        [("on", ""), ("off", "synchronous_commit = \"off\", wal_writer_delay = \"100ms\"")];
    dir.write("experiment.toml", &experiment(dsn, keys, "", &conditions));
    trap.pgio(&dir, &["compare", "experiment.toml", "--plan"], 0, &[]);
    trap.pgio(&dir, &["compare", "experiment.toml", "--out", "out"], 0, &[]);
    write_runs(&dir.path().join("all"), &stored_runs(2, |_| 1.0)).unwrap();
    trap.pgio(&dir, &["store", "all", "--to", dsn], 0, &["2 new"]);
    trap.pgio(&dir, &["store", "all", "--to", dsn], 0, &["2 unchanged"]);
    trap.pgio(&dir, &["history", "--store", dsn], 0, &[]);
    trap.pgio(&dir, &["undo", "--connect", dsn], 0, &[]);
    trap.pgio(&dir, &[&["destroy"], &at[..]].concat(), 0, &[]);
}

/// CREATE on `public` is everybody's by default.
#[test]
fn no_command_calls_what_others_planted_on_the_oldest() {
    let trap = Trap::set(OLDEST);
    trap.plant();
    every_command(&trap);
}

/// The owner of a database can put its `public` before pg_catalog.
#[test]
fn no_command_calls_what_others_planted_before_pg_catalog() {
    let trap = Trap::set(INSTALLED);
    trap.plant();
    let database = trap.owner.trim_start_matches("mallory_");
    trap.by_owner(&format!("ALTER DATABASE {database} SET search_path = public, pg_catalog"));
    every_command(&trap);
}
