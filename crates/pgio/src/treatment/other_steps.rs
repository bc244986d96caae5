//! Steps that no condition requests by a key of its own: a table of a workload, a re-created database, and PostgreSQL
//! stopped for a while.
//!
//! The first two are journaled like a treatment's step, in a separate directory that blocks no other run, so that
//! `undo` removes what a killed run left. Only a table with the workload's mark is removed.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::error::TreatmentError;
use super::journal::Journal;
use super::step::{Label, OnConflict, Record, Step, StepOf, Undo, Undone, carry_out};
use crate::pg::identifier;
use crate::pg::leftovers::{self, LiveRun};

pub(crate) const TABLE: &str = "table";

/// How long the sessions of a killed run may take to end: one that was terminated, or whose client
/// is gone, is still listed for a moment.
const LAST_SESSIONS: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

pub(super) type TableStep = StepOf<(), WorkloadTable>;

/// Everything that removing a workload's table requires.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkloadTable {
    schema: String,
    table: String,
    mark: String,
}

/// Returns the step that creates it.
pub fn table_step(schema: &str, table: &str, mark: &str) -> Record {
    let label = Label::on_server(format!("table {schema}.{table}"));
    let [schema, table, mark] = [schema, table, mark].map(str::to_owned);
    Record::new(TABLE, &label, (), WorkloadTable { schema, table, mark })
}

impl Undo for TableStep {
    const KIND: &'static str = TABLE;

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        context.ensure_running()?;
        context.within_limit(|context| self.remove(context))
    }
}

impl TableStep {
    fn remove(&self, context: &mut Context<'_>) -> Result<Undone, TreatmentError> {
        let WorkloadTable { schema, table, mark } = &self.ours;
        let failed = || TreatmentError::postgres(format!("remove table {schema}.{table}"));
        let name = format!("{}.{}", identifier(schema), identifier(table));
        let admin = context.admin()?;
        let deadline = Instant::now() + LAST_SESSIONS;
        loop {
            let row = admin
                .query_one(
                    "SELECT coalesce(obj_description(to_regclass($1), 'pg_class') = $2, false), \
                            EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'pgio:%' \
                                    AND datname = current_database())",
                    &[&name, mark],
                )
                .map_err(failed())?;
            match (row.try_get(0)?, row.try_get(1)?) {
                (false, _) => return Ok(Undone::Restored),
                (true, true) if Instant::now() < deadline => thread::sleep(POLL),
                // A live run uses it, and removes it at its end.
                (true, true) => return Ok(Undone::Kept),
                (true, false) => {
                    admin.batch_execute(&format!("DROP TABLE {name}")).map_err(failed())?;
                    return Ok(Undone::Restored);
                }
            }
        }
    }
}

pub(crate) const RECREATED_DATABASE: &str = "recreated-database";

/// A database that a reset creates again before each trial. It has its name at any time; a killed run leaves the new one
/// before, or the old one after they exchanged names. Only these names are dropped, of which no database existed before.
#[derive(Debug, Serialize, Deserialize)]
struct RecreateStep {
    database: String,
    leftovers: Vec<String>,
}

/// Returns the step that re-creates it.
pub fn recreation_step(database: &str, leftovers: &[String]) -> Record {
    RecreateStep { database: database.to_owned(), leftovers: leftovers.to_vec() }.record()
}

pub(crate) fn read_recreation(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Ok(Box::new(record.ours_as::<RecreateStep>()?))
}

impl Step for RecreateStep {
    fn record(&self) -> Record {
        let label = Label::on_server(format!("re-creation of database {}", self.database));
        Record::new(RECREATED_DATABASE, &label, (), self)
    }

    fn prior(&self) -> String {
        format!("without {}", self.leftovers.join(" and "))
    }

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        context.ensure_running()?;
        context.within_limit(|context| self.drop_leftovers(context))
    }
}

impl RecreateStep {
    fn drop_leftovers(&self, context: &mut Context<'_>) -> Result<Undone, TreatmentError> {
        let failed = || TreatmentError::postgres(format!("drop what is left of {}", self.database));
        let admin = context.admin()?;
        // From either of the last two, a run drops and renames.
        let beside = ["postgres", "template1"].map(str::to_owned);
        let own = self.leftovers.iter().chain([&self.database]).cloned();
        let databases: Vec<String> = own.chain(beside).collect();
        let may_recreate = |run: &LiveRun| databases.contains(&run.database);
        let runs = leftovers::live_runs(admin, "", may_recreate).map_err(failed())?;
        if runs.iter().any(may_recreate) {
            return Err(TreatmentError::Refused(format!(
                "a run is at work on this server, which may be re-creating {} now: wait until it ends, then rerun `pgio undo`",
                self.database
            )));
        }
        let ask = "SELECT datname::text FROM pg_database WHERE datname = ANY($1) \
                   AND EXISTS (SELECT FROM pg_database WHERE datname = $2)";
        let found = admin.query(ask, &[&self.leftovers, &self.database]).map_err(failed())?;
        for row in found {
            let name: String = row.try_get(0)?;
            let drop = format!("DROP DATABASE {}", identifier(&name));
            admin.batch_execute(&drop).map_err(failed())?;
        }
        Ok(Undone::Restored)
    }
}

pub(crate) const STOPPED: &str = "stopped";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Running,
    Stopped,
}

/// PostgreSQL stopped. Journaled before that and undone last, after all steps that came later: then the server runs
/// again, whatever stopped it. So a treatment calls [`stop_server`] before its other steps, starts the server when they
/// are done, and may stop it again in their undo.
pub(super) type StopStep = StepOf<State, State>;

/// Refuses if nothing configures how to stop the server. `what`, such as `mkfs`, needs it.
pub(crate) fn stop_server(
    context: &mut Context<'_>,
    journal: &mut Journal,
    what: &str,
) -> Result<(), TreatmentError> {
    context.control(what)?;
    context.refuse_pending(true)?;
    // The server of a private cluster ends with pgio and needs no start then.
    let host = context.server_host.filter(|_| !context.private).map(str::to_owned);
    let label = Label { what: "PostgreSQL".to_owned(), host };
    let step = StopStep { label, prior: State::Running, ours: State::Stopped };
    carry_out(journal, &step, || context.stop_server("this treatment"))
}

impl Undo for StopStep {
    const KIND: &'static str = STOPPED;

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        // A removed private cluster needs no start.
        if !context.private || context.control.is_some() {
            context.ensure_running()?;
        }
        Ok(Undone::Restored)
    }
}
