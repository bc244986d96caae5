//! A table that a workload creates in the user's database for the duration of an experiment.
//!
//! No condition can request it. It is journaled like a treatment's step, in a separate directory
//! that blocks no other run, so that `undo` removes the table of a killed run. Only a table with
//! the workload's mark is removed.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::error::TreatmentError;
use super::record::{Label, Record};
use super::step::{OnConflict, Step, Undone};
use crate::pg::quote::identifier;

pub(super) const STEP: &str = "table";

/// How long the sessions of a killed run may take to end: one that was terminated, or whose client
/// is gone, is still listed for a moment.
const LAST_SESSIONS: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Everything that removing the table requires.
#[derive(Debug, Serialize, Deserialize)]
struct TableStep {
    schema: String,
    table: String,
    mark: String,
}

/// Returns the step that creates it.
pub fn step(schema: &str, table: &str, mark: &str) -> Record {
    let [schema, table, mark] = [schema, table, mark].map(str::to_owned);
    TableStep { schema, table, mark }.record()
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Ok(Box::new(record.ours_as::<TableStep>()?))
}

impl Step for TableStep {
    fn record(&self) -> Record {
        let label = Label::on_server(format!("table {}.{}", self.schema, self.table));
        Record::new(STEP, &label, (), self)
    }

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        context.ensure_running()?;
        context.within_limit(|context| self.remove(context))
    }
}

impl TableStep {
    fn remove(&self, context: &mut Context<'_>) -> Result<Undone, TreatmentError> {
        let TableStep { schema, table, mark } = self;
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
