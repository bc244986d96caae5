//! A database that a reset creates again before each trial.
//!
//! No condition can request it. It is journaled like a treatment's step, in the directory of the tables that
//! workloads create. The database has its name at any time; a killed run leaves the new one before, or the old
//! one after they exchanged names. Only these names are dropped, of which no database existed before.

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::error::TreatmentError;
use super::record::{Label, Record};
use super::step::{OnConflict, Step, Undone};
use crate::pg::leftovers::{self, LiveRun};
use crate::pg::quote::identifier;

pub(super) const STEP: &str = "recreated-database";

#[derive(Debug, Serialize, Deserialize)]
struct RecreateStep {
    database: String,
    leftovers: Vec<String>,
}

/// Returns the step that re-creates it.
pub fn step(database: &str, leftovers: &[String]) -> Record {
    RecreateStep { database: database.to_owned(), leftovers: leftovers.to_vec() }.record()
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Ok(Box::new(record.ours_as::<RecreateStep>()?))
}

impl Step for RecreateStep {
    fn record(&self) -> Record {
        let label = Label::on_server(format!("re-creation of database {}", self.database));
        Record::new(STEP, &label, (), self)
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
