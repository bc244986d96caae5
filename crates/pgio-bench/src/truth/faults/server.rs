//! Faults of a PostgreSQL server, its settings, its data and its standby.

use super::accusations::Expected;
use super::case::{Case, Fault, Needs};
use super::inject::{InWindow, execute, set};
use crate::truth::server::{load, private, private_pair};
use pgio::cli::exit::Failure;
use pgio::experiment::event::Event;
use pgio::pg::private::PrivateCluster;
use pgio_report::analysis::Analysis;

/// Commits of one session.
pub(super) const COMMIT: &str = "[workload]\nkind = \"commit\"\nsessions = 1\n";

pub(super) const UNDECLARED_SETTING: Fault = Fault {
    rule: 1,
    needs: Needs::Nothing,
    what: "a setting of the server that no condition declares changes before each trial of `b`",
    expected: Expected::invalid("environment-differs", Some("b")),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        let dsn = cluster.primary_conninfo();
        let text = text(case, &cluster, "blocks = 2\nduration = \"1s\"", COMMIT, &["a", "b"]);
        let value = |is_b| if is_b { "3" } else { "4" };
        case.with_b_changed(&text, |is_b| set(&dsn, "random_page_cost", value(is_b)))
    },
};

pub(super) const CHANGED_TREATMENT: Fault = Fault {
    rule: 2,
    needs: Needs::Nothing,
    what: "a setting that the condition declares has another value for two seconds of the window",
    expected: Expected::invalid("treatment-in-force", Some("set")),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        let dsn = cluster.primary_conninfo();
        let text =
            text(case, &cluster, "blocks = 1\nduration = \"5s\"", COMMIT, &["as it is", "set"])
                + "postgres = { wal_writer_delay = \"150ms\" }\n";
        let fault = InWindow::of("set")
            .at(0.5, || set(&dsn, "wal_writer_delay", "777ms"))
            .at(2.5, || set(&dsn, "wal_writer_delay", "150ms"));
        disturbed(case, &text, fault)
    },
};

pub(super) const DEMOTED_STANDBY: Fault = Fault {
    rule: 4,
    needs: Needs::Nothing,
    what: "synchronous_standby_names becomes empty inside a window with remote_apply",
    expected: Expected::invalid("treatment-in-force", Some("remote_apply")),
    run: |case| {
        let cluster = private_pair(case.round.pg, None)?;
        let dsn = cluster.primary_conninfo();
        let keys = "blocks = 1\nduration = \"4s\"";
        let text = text(case, &cluster, keys, COMMIT, &["remote_apply"])
            + "postgres = { synchronous_commit = \"remote_apply\" }\n";
        let fault =
            InWindow::of("remote_apply").at(0.5, || set(&dsn, "synchronous_standby_names", ""));
        disturbed(case, &text, fault)
    },
};

pub(super) const NO_FSYNC: Fault = Fault {
    rule: 5,
    needs: Needs::Nothing,
    what: "fsync is off, and no condition declares it",
    expected: Expected::invalid("durability", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[("fsync", "off")])?;
        let text = text(case, &cluster, "blocks = 1\nduration = \"1s\"", COMMIT, &["a", "b"]);
        case.undisturbed(&text)
    },
};

pub(super) const STANDBY_NO_FSYNC: Fault = Fault {
    rule: 5,
    needs: Needs::Nothing,
    what: "fsync is off on the synchronous standby",
    expected: Expected::warning("standby-durability", None),
    run: |case| {
        let cluster = private_pair(case.round.pg, None)?;
        let standby = cluster.standby_conninfo().unwrap_or_default();
        set(&standby, "fsync", "off")?;
        let text = text(case, &cluster, "blocks = 1\nduration = \"1s\"", COMMIT, &["a", "b"]);
        case.undisturbed(&text)
    },
};

pub(super) const BLOATED_DATA: Fault = Fault {
    rule: 7,
    needs: Needs::Nothing,
    what: "dead rows of another program make the table larger after block 1",
    expected: Expected::invalid("data-drift", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[("autovacuum", "off")])?;
        load(&cluster, "8M")?;
        let dsn = cluster.primary_conninfo();
        let keys = "blocks = 3\nduration = \"1s\"\nburn_in = false";
        let text = text(case, &cluster, keys, &slob("8M", 8, 0), &["a", "b"]);
        // Keys that no session visits.
        let bloat = "INSERT INTO pgio1 SELECT mykey + 1000000, scratch, filler FROM pgio1 WHERE mykey <= 200; \
                     DELETE FROM pgio1 WHERE mykey > 1000000";
        let mut bloated = None;
        let analysis = case.analysis(&text, &mut |event| {
            if let Event::Begins { planned, .. } = event
                && bloated.is_none()
                && planned.iter().any(|p| p.block == 2)
            {
                bloated = Some(execute(&dsn, bloat));
            }
        });
        bloated.unwrap_or(Ok(())).and(analysis)
    },
};

pub(super) const CHECKPOINT_INSIDE: Fault = Fault {
    rule: 8,
    needs: Needs::Nothing,
    what: "an administrator's CHECKPOINT inside each window of `disturbed`",
    expected: Expected::warning("checkpoints", Some("disturbed")),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        let dsn = cluster.primary_conninfo();
        let keys = "blocks = 2\nduration = \"2s\"";
        let text = text(case, &cluster, keys, COMMIT, &["a", "b", "disturbed"]);
        let fault = InWindow::of("disturbed").at(0.5, || execute(&dsn, "CHECKPOINT"));
        disturbed(case, &text, fault)
    },
};

pub(super) const FULL_PAGE_IMAGES: Fault = Fault {
    rule: 9,
    needs: Needs::Nothing,
    what: "each window of updates begins at a checkpoint and ends before it has changed a page twice",
    expected: Expected::ImagesNote,
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        load(&cluster, "128M")?;
        let keys =
            "blocks = 1\nduration = \"1s\"\nwarmup = \"0s\"\nprimary = \"updates_per_second\"";
        let text = text(case, &cluster, keys, &slob("128M", 8, 100), &["a", "b"]);
        case.undisturbed(&text)
    },
};

pub(super) const AUTOVACUUM_INSIDE: Fault = Fault {
    rule: 10,
    needs: Needs::Nothing,
    what: "another table is full of dead rows, and autovacuum starts on it inside the window",
    expected: Expected::warning("autovacuum", Some("disturbed")),
    run: |case| {
        // So slow that a worker is seen by a sample each second.
        let slow = [
            ("autovacuum_naptime", "1s"),
            ("autovacuum_vacuum_cost_delay", "20ms"),
            ("autovacuum_vacuum_cost_limit", "20"),
        ];
        let cluster = private(case.round.pg, None, &slow)?;
        let dsn = cluster.primary_conninfo();
        execute(
            &dsn,
            "CREATE TABLE other WITH (autovacuum_enabled = off) AS SELECT n FROM generate_series(1, 200000) n; \
             UPDATE other SET n = n + 1",
        )?;
        let text = text(case, &cluster, "blocks = 1\nduration = \"8s\"", COMMIT, &["disturbed"]);
        let fault = InWindow::of("disturbed")
            .at(0.5, || execute(&dsn, "ALTER TABLE other SET (autovacuum_enabled = on)"));
        disturbed(case, &text, fault)
    },
};

pub(super) const COLD_START: Fault = Fault {
    rule: 11,
    needs: Needs::Nothing,
    what: "the first trial meets empty buffers, without warm-up and burn-in; the others find the data there",
    expected: Expected::warning("cache-carry-over", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[("shared_buffers", "256MB")])?;
        load(&cluster, "64M")?;
        cluster.restart_primary()?;
        let keys = "blocks = 3\nwarmup = \"0s\"\nburn_in = false";
        // Half as many visits as the table has blocks.
        let workload = slob("64M", 8, 0) + "work_loop = 500\n";
        let text = text(case, &cluster, keys, &workload, &["a", "b"]);
        case.undisturbed(&text)
    },
};

/// Runs the experiment with the fault in its windows.
pub(super) fn disturbed(
    case: &Case<'_>,
    text: &str,
    mut fault: InWindow<'_>,
) -> Result<Analysis, Failure> {
    let analysis = case.analysis(text, &mut |event| fault.observe(event))?;
    fault.injected()?;
    Ok(analysis)
}

pub(super) fn slob(scale: &str, work_unit: u32, update_pct: u32) -> String {
    format!(
        "[workload]\nkind = \"slob\"\nscale = \"{scale}\"\nwork_unit = {work_unit}\n\
         update_work_unit = {work_unit}\nupdate_pct = {update_pct}\nnum_schemas = 1\nnum_threads = 1\n\
         create_base_table = false\n"
    )
}

/// An experiment on a private server. The text may be continued with keys of the last condition.
pub(super) fn text(
    case: &Case<'_>,
    cluster: &PrivateCluster,
    keys: &str,
    workload: &str,
    conditions: &[&str],
) -> String {
    let target = format!("dsn = \"{}\"", cluster.primary_conninfo());
    text_on(case, &target, keys, workload, conditions)
}

pub(super) fn text_on(
    case: &Case<'_>,
    target: &str,
    keys: &str,
    workload: &str,
    conditions: &[&str],
) -> String {
    let mut text = case.head("fault", keys) + &format!("\n[target]\n{target}\n\n{workload}");
    for name in conditions {
        text += &format!("\n[[condition]]\nname = \"{name}\"\n");
    }
    text
}
