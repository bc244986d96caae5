//! A superuser's pgio in a database where another role has planted objects: nothing of that role's
//! is ever run (the class of CVE-2018-1058).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;
use pgio_verdict::test_support::{stored_runs, write_runs};

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{SAMPLED, Workdir, experiment, show};

const OLDEST: u32 = 13;

/// A data set of one table.
const SMALL: [&str; 5] = ["--scale", "8M", "--num-schemas", "1", "--create-base-table=FALSE"];

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

/// What a planted object calls: it reports itself in the server's log, and takes what it can.
const ALARM: &str = "\
    CREATE FUNCTION public.alarm(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $f$
    BEGIN
        RAISE LOG 'planted % of mallory_% was called', what, current_database();
        IF current_setting('transaction_read_only') = 'off' THEN
            EXECUTE format('ALTER ROLE mallory_%s SUPERUSER', current_database());
        END IF;
    END
    $f$;
    CREATE FUNCTION public.planted_trigger() RETURNS trigger LANGUAGE plpgsql AS
        $f$ BEGIN PERFORM public.alarm('trigger'); RETURN NEW; END $f$;
    CREATE FUNCTION public.planted_check(bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
        $f$ BEGIN PERFORM public.alarm('expression'); RETURN true; END $f$";

/// A database whose owner, not a superuser, has planted objects in `public`. Each writes to the server's
/// log when it runs.
struct Trap<'a> {
    cluster: &'a PrivateCluster,
    dsn: String,
    owner: String,
}

impl Trap<'_> {
    fn set(major: u32) -> Trap<'static> {
        Trap::on(shared_primary(major))
    }

    fn on(cluster: &PrivateCluster) -> Trap<'_> {
        let dsn = fresh_database(cluster);
        let mut admin = connect(&dsn);
        let database: String =
            admin.query_one("SELECT current_database()::text", &[]).unwrap().get(0);
        let owner = format!("mallory_{database}");
        admin
            .batch_execute(&format!(
                "CREATE ROLE {owner} LOGIN; ALTER SCHEMA public OWNER TO CURRENT_USER;
                 GRANT CREATE ON SCHEMA public TO {owner}; ALTER DATABASE {database} OWNER TO {owner}"
            ))
            .unwrap();
        Trap { cluster, dsn, owner }
    }

    fn by_owner(&self, sql: &str) {
        let mut client = Client::connect(&self.dsn_of(&self.owner)).unwrap();
        client.batch_execute(sql).unwrap();
    }

    /// Functions and operators of every name that pgio's SQL uses, for the types of arguments that it
    /// passes, in another combination than the server's own.
    fn plant(&self) {
        let mut names = BTreeSet::new();
        called_in_the_source(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/pgio/src"),
            &mut names,
        );
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        let plant = include_str!("planted/plant.sql");
        self.by_owner(ALARM);
        self.by_owner(&plant.replace("NAMES", &format!("'{{{names}}}'")));
    }

    fn dsn_of(&self, role: &str) -> String {
        format!("{} user={role}", self.dsn)
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

/// On a server of its own, since a condition changes it, which excludes other runs.
fn every_command(trap: &Trap<'_>) {
    let dir = Workdir::new();
    let dsn = trap.dsn.as_str();
    let at = ["--connect-string", dsn];
    let work = ["--run-time", "400ms", "--update-pct", "50"];
    let run = |more: &[&str]| trap.pgio(&dir, &[&["run"], &at[..], &work, more].concat(), 0, &[]);
    trap.pgio(&dir, &[&["setup"], &at[..], &SMALL, &["--scan-scale", "8M"]].concat(), 0, &[]);
    trap.pgio(&dir, &[&["doctor"], &at[..]].concat(), 0, &[]);
    run(&["--scan-pct", "1", "--insert-pct", "5", "--delete-pct", "5", "--update-width", "100"]);
    run(&["--engine", "client"]);
    let keys = format!("blocks = 1\nduration = \"400ms\"\naa = false\n{SAMPLED}");
    let conditions =
        [("on", ""), ("off", "synchronous_commit = \"off\", wal_writer_delay = \"100ms\"")];
    dir.write("experiment.toml", &experiment(dsn, &keys, "", &conditions));
    trap.pgio(&dir, &["compare", "experiment.toml", "--plan"], 0, &[]);
    trap.pgio(&dir, &["compare", "experiment.toml", "--out", "out"], 0, &[]);
    write_runs(&dir.path().join("all"), &stored_runs(2, |_| 1.0)).unwrap();
    trap.pgio(&dir, &["store", "all", "--to", dsn], 0, &["2 new"]);
    trap.pgio(&dir, &["store", "all", "--to", dsn], 0, &["2 unchanged"]);
    trap.pgio(&dir, &["history", "--store", dsn], 0, &[]);
    let long = keys.replace("400ms", "60s");
    let killed = Workdir::new();
    let mut running = killed.start_compare(&experiment(
        dsn,
        &long,
        "",
        &[("set", "wal_writer_delay = \"150ms\", commit_delay = \"10\"")],
    ));
    let elsewhere = trap.cluster.primary_conninfo();
    running.wait_until("changed", || show(&elsewhere, "wal_writer_delay") == "150ms");
    running.kill();
    trap.pgio(&killed, &["undo", "--connect", dsn], 0, &["Restored wal_writer_delay"]);
    trap.pgio(&dir, &[&["destroy"], &at[..]].concat(), 0, &[]);
}

/// CREATE on `public` is everybody's by default.
#[test]
fn no_command_calls_what_others_planted_on_the_oldest() {
    let server = own_primary(OLDEST);
    let trap = Trap::on(&server);
    trap.plant();
    every_command(&trap);
}

/// The owner of a database can put its `public` before pg_catalog.
#[test]
fn no_command_calls_what_others_planted_before_pg_catalog() {
    let server = own_primary(INSTALLED);
    let trap = Trap::on(&server);
    trap.plant();
    let database = trap.owner.trim_start_matches("mallory_");
    trap.by_owner(&format!("ALTER DATABASE {database} SET search_path = public, pg_catalog"));
    every_command(&trap);
}

/// A role's objects that have the names and marks of pgio's.
struct Foreign {
    trap: Trap<'static>,
    dir: Workdir,
    /// How the owner connects.
    own: String,
    belongs: String,
    major: u32,
}

impl Foreign {
    fn each_version(test: impl Fn(&Foreign)) {
        for major in [OLDEST, INSTALLED] {
            let trap = Trap::set(major);
            trap.by_owner(ALARM);
            let (own, belongs) =
                (trap.dsn_of(&trap.owner), format!("belongs to role {}", trap.owner));
            test(&Foreign { trap, dir: Workdir::new(), own, belongs, major });
        }
    }

    #[track_caller]
    fn pgio(&self, args: &[&str], code: i32, texts: &[&str]) {
        self.trap.pgio(&self.dir, args, code, texts);
    }

    /// Stores two experiments.
    #[track_caller]
    fn store(&self, dsn: &str, code: i32, texts: &[&str]) {
        let all = self.dir.path().join("all");
        if !all.exists() {
            write_runs(&all, &stored_runs(2, |_| 1.0)).unwrap();
        }
        self.pgio(&["store", "all", "--to", dsn], code, texts);
    }
}

#[test]
fn nothing_is_stored_in_a_schema_that_others_made() {
    Foreign::each_version(|foreign| {
        let Foreign { trap, own, belongs, .. } = foreign;
        trap.by_owner(
            "CREATE SCHEMA pgio_results;
             CREATE TABLE pgio_results.schema_version
                 (version int PRIMARY KEY, pgio text, applied_at timestamptz DEFAULT now());
             CREATE TRIGGER planted BEFORE INSERT ON pgio_results.schema_version
                 FOR EACH ROW EXECUTE FUNCTION public.planted_trigger()",
        );
        foreign.store(&trap.dsn, 4, &[belongs, "connect as"]);
        trap.by_owner("DROP SCHEMA pgio_results CASCADE");
        foreign.store(own, 0, &["2 new"]);
        trap.by_owner(
            "CREATE TRIGGER planted BEFORE INSERT ON pgio_results.experiments
                 FOR EACH ROW EXECUTE FUNCTION public.planted_trigger()",
        );
        foreign.store(&trap.dsn, 4, &[belongs]);
        foreign.store(own, 4, &["pgio_results.experiments has the trigger planted"]);
    });
}

#[test]
fn a_superuser_reads_no_history_of_others() {
    Foreign::each_version(|foreign| {
        let Foreign { trap, own, belongs, .. } = foreign;
        foreign.store(own, 0, &["2 new"]);
        trap.by_owner(
            "ALTER VIEW pgio_results.run_conditions RENAME TO before;
             CREATE VIEW pgio_results.run_conditions AS
                 SELECT * FROM pgio_results.before WHERE (SELECT public.alarm('view')) IS NOT NULL",
        );
        foreign.pgio(&["history", "--store", &trap.dsn], 4, &[belongs, "connect as"]);
        // Code can return to the role that logged in.
        let named = format!("{} options='-c role={}'", trap.dsn, trap.owner);
        foreign.pgio(&["history", "--store", &named], 4, &[belongs]);
    });
}

#[test]
fn a_data_set_of_others_is_not_used() {
    Foreign::each_version(|foreign| {
        let Foreign { trap, own, belongs, .. } = foreign;
        let run = |dsn: &str, code: i32, texts: &[&str]| {
            let work = ["--run-time", "200ms", "--update-pct", "50"];
            foreign.pgio(&[&["run", "--connect-string", dsn], &work[..]].concat(), code, texts);
        };
        // Its owner loads it, so that all marks are right.
        let setup = ["setup", "--no-space-check", "--connect-string", own];
        foreign.pgio(&[&setup, &SMALL[..]].concat(), 0, &[]);
        let trigger = "CREATE TRIGGER planted BEFORE UPDATE ON public.pgio1
            FOR EACH ROW EXECUTE FUNCTION public.planted_trigger()";
        trap.by_owner(trigger);
        run(&trap.dsn, 4, &["public.pgio1", belongs, "connect as the owner"]);
        foreign.pgio(&["doctor", "--connect-string", &trap.dsn], 4, &[belongs]);
        run(own, 4, &["public.pgio1 has the trigger planted"]);
        trap.by_owner("DROP TRIGGER planted ON public.pgio1");
        run(&trap.dsn, 4, &[belongs]);
        run(own, 0, &[]);
        let member = format!("member_of_{}", trap.owner);
        let create = format!("CREATE ROLE {member} LOGIN IN ROLE {}", trap.owner);
        connect(&trap.dsn).batch_execute(&create).unwrap();
        run(&trap.dsn_of(&member), 0, &[]);
        let named = format!("{} options='-c role={}'", trap.dsn, trap.owner);
        run(&named, 4, &[&format!("role {} would own", trap.owner)]);
    });
}

#[test]
fn what_others_made_for_a_workload_is_not_used() {
    Foreign::each_version(|foreign| {
        let &Foreign { ref trap, ref dir, major, .. } = foreign;
        trap.by_owner(
            "CREATE TABLE public.pgio_commit (n int, filler text);
             COMMENT ON TABLE public.pgio_commit IS 'pgio commit workload: made and dropped by pgio';
             CREATE SCHEMA pgio_command;
             COMMENT ON SCHEMA pgio_command IS 'pgio command workload: made and dropped by pgio'",
        );
        let refused = "not created by pgio as this role";
        let keys = "blocks = 1\nduration = \"200ms\"\naa = false";
        let commit = experiment(&trap.dsn, keys, "", &[("a", "")]);
        dir.compare(&commit).expect(4, &["pgio_commit", refused]);
        let work = "run = \"true\"\nschema = \"pgio_command\"";
        let command = experiment(&trap.dsn, keys, work, &[("a", "")])
            .replace("kind = \"commit\"", "kind = \"command\"")
            + "\n[[workload.metric]]\nname = 'm'\nunit = 's'\nbetter = 'lower'\nregex = '(.)'\n";
        dir.compare(&command).expect(4, &["schema pgio_command", refused]);
        trap.assert_nothing_ran("compare");
        trap.by_owner("DROP TABLE public.pgio_commit; DROP SCHEMA pgio_command");
        // Whoever owns a schema can replace a table in it after it was checked.
        let mut admin = connect(&trap.dsn);
        let given_to = |admin: &mut Client, owner: &str| {
            admin.batch_execute(&format!("ALTER SCHEMA public OWNER TO {owner}")).unwrap();
            let belongs = format!("schema public belongs to role {owner}");
            dir.compare(&commit).expect(4, &[&belongs, "connect as"]);
            let at = ["setup", "--no-space-check", "--connect-string", &trap.dsn];
            foreign.pgio(&[&at, &SMALL[..]].concat(), 4, &[&belongs]);
        };
        given_to(&mut admin, &trap.owner);
        if major > 13 {
            given_to(&mut admin, "pg_database_owner");
        }
        let database = trap.owner.trim_start_matches("mallory_");
        let ours = format!("ALTER DATABASE {database} OWNER TO CURRENT_USER");
        admin.batch_execute(&ours).unwrap();
        if major > 13 {
            dir.compare(&commit).expect(0, &[]);
        }
        // The owner of the database gave every session his role, which would own what pgio creates.
        admin.batch_execute("ALTER SCHEMA public OWNER TO CURRENT_USER").unwrap();
        admin
            .batch_execute(&format!("ALTER DATABASE {database} SET role = {}", trap.owner))
            .unwrap();
        let role = format!("role {} would own what pgio creates", trap.owner);
        for text in [&commit, &command] {
            fs::remove_dir_all(dir.out()).ok();
            dir.compare(text).expect(4, &[&role]);
        }
    });
}

/// Code on a table of the data set is refused by name, whoever owns the table.
#[test]
fn code_on_a_table_is_refused() {
    for major in [OLDEST, INSTALLED] {
        refuses_code_on_a_table(major);
    }
}

fn refuses_code_on_a_table(major: u32) {
    let trap = Trap::set(major);
    trap.by_owner(ALARM);
    let dir = Workdir::new();
    let at = ["--connect-string", trap.dsn.as_str()];
    trap.pgio(&dir, &[&["setup"], &at[..], &SMALL].concat(), 0, &[]);
    let mut admin = connect(&trap.dsn);
    let trigger = "CREATE TRIGGER planted BEFORE UPDATE ON public.pgio1 FOR EACH ROW \
                   EXECUTE FUNCTION public.planted_trigger()";
    for (plant, remove, named) in [
        (trigger, "DROP TRIGGER planted ON public.pgio1", "has the trigger planted"),
        (
            "CREATE RULE planted AS ON UPDATE TO public.pgio1 DO ALSO SELECT public.alarm('rule')",
            "DROP RULE planted ON public.pgio1",
            "has the rule planted",
        ),
        (
            "CREATE POLICY planted ON public.pgio1 USING (public.planted_check(mykey))",
            "DROP POLICY planted ON public.pgio1",
            "has row security, policy planted",
        ),
        (
            "ALTER TABLE public.pgio1 ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE public.pgio1 DISABLE ROW LEVEL SECURITY",
            "has row security",
        ),
        (
            "ALTER TABLE public.pgio1 ALTER scratch SET DEFAULT random()",
            "ALTER TABLE public.pgio1 ALTER scratch DROP DEFAULT",
            "value for column scratch",
        ),
        (
            "ALTER TABLE public.pgio1 ADD CONSTRAINT planted CHECK (public.planted_check(mykey)) NOT VALID",
            "ALTER TABLE public.pgio1 DROP CONSTRAINT planted",
            "has the constraint planted",
        ),
        (
            "CREATE INDEX planted ON public.pgio1 ((mykey + 1))",
            "DROP INDEX public.planted",
            "has the index public.planted",
        ),
        (
            "CREATE TABLE public.child () INHERITS (public.pgio1)",
            "DROP TABLE public.child",
            "inherits or is inherited",
        ),
    ] {
        admin.batch_execute(plant).unwrap();
        let run = [&["run"], &at[..], &["--run-time", "200ms", "--update-pct", "50"]].concat();
        trap.pgio(&dir, &run, 4, &["public.pgio1", named]);
        admin.batch_execute(remove).unwrap();
    }
    trap.pgio(&dir, &[&["run"], &at[..], &["--run-time", "200ms"]].concat(), 0, &[]);
    admin
        .batch_execute(
            "CREATE FUNCTION public.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
             CREATE EVENT TRIGGER seen ON ddl_command_end EXECUTE FUNCTION public.on_ddl()",
        )
        .unwrap();
    trap.pgio(
        &dir,
        &[&["doctor"], &at[..]].concat(),
        0,
        &["event triggers of this database", ": seen"],
    );
}
