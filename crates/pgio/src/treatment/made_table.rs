//! A table that a workload makes in the user's database for as long as an experiment lasts.
//!
//! No treatment, so no condition can ask for it; journaled like one, in a directory of its own that
//! keeps nobody from starting, so that `undo` removes what a killed run left. Only a table with the
//! workload's mark is removed.

use serde_json::json;

use super::{Step, Stranger, TreatmentError, Undone, World};
use crate::pg::quote::identifier;

pub(super) const KIND: &str = "table";

/// The step that makes it.
pub fn step(schema: &str, table: &str, mark: &str) -> Step {
    Step {
        kind: KIND.to_owned(),
        what: format!("table {schema}.{table}"),
        host: None,
        prior: json!(null),
        ours: json!({ "schema": schema, "table": table, "mark": mark }),
    }
}

pub(super) fn undo(
    world: &mut World<'_>,
    step: &Step,
    _stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let text = |key: &str| step.ours[key].as_str().unwrap_or_default().to_owned();
    let (schema, table, mark) = (text("schema"), text("table"), text("mark"));
    world.wake()?;
    world.briefly(|world| {
        let admin = world.admin()?;
        let failed =
            |source| TreatmentError::Postgres { doing: format!("remove {}", step.what), source };
        let row = admin
            .query_one(
                "SELECT coalesce(obj_description(to_regclass($1), 'pg_class') = $2, false), \
                        EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'pgio:%' \
                                AND datname = current_database())",
                &[&format!("{}.{}", identifier(&schema), identifier(&table)), &mark],
            )
            .map_err(failed)?;
        match (row.get(0), row.get(1)) {
            (false, _) => Ok(Undone::PutBack),
            // A run that lives uses it, and removes it at its end.
            (true, true) => Ok(Undone::Kept),
            (true, false) => {
                let drop = format!("DROP TABLE {}.{}", identifier(&schema), identifier(&table));
                admin.batch_execute(&drop).map_err(failed)?;
                Ok(Undone::PutBack)
            }
        }
    })
}
