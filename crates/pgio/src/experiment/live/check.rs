//! The cells of an experiment and their check: refuses what cannot work, before anything is changed.
//!
//! A check prepares the treatments of each cell, and notes with each target what its conditions may change. The
//! doctor and `--plan` check cells as well, without a stage.

use std::collections::BTreeMap;

use super::session::{Controlled, context};
use crate::config::experiment::{Checkpoint, Rules};
use crate::experiment::cycles;
use crate::experiment::error::LiveError;
use crate::experiment::reset;
use crate::experiment::target::Target;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::treatment::{self, Prepared, Treatments};
use crate::workload;
use pgio_results::sweep::Cell;

/// A condition at a point of the sweep, ready to run; the A/A twin is a cell of its own.
#[derive(Debug)]
pub struct LiveCell {
    pub cell: Cell,
    /// The title for users: the condition, and the point unless it is the middle one.
    pub title: String,
    pub target: String,
    pub treatments: Treatments,
    /// Index into the target's workloads.
    pub work: usize,
}

/// What [`check`] prepares for the trials.
#[derive(Debug, Default)]
pub struct CheckedCells {
    /// Prepared treatments, by cell.
    pub(super) prepared: Vec<Vec<Box<dyn Prepared>>>,
    /// Whether a treatment moves tables to a tablespace, which needs no restart.
    pub(super) any_tablespace: bool,
}

/// Refuses, before anything is changed, what cannot work; skips cells of targets that are not among
/// these. Notes with each target the changes that must be undone even after a kill.
pub fn check(
    cells: &[LiveCell],
    targets: &mut BTreeMap<String, Target>,
    hosts: &Hosts,
    rules: &Rules,
    stop: &Stop,
) -> Result<CheckedCells, LiveError> {
    let mut all = CheckedCells::default();
    for cell in cells {
        let Some(target) = targets.get_mut(&cell.target) else {
            all.prepared.push(Vec::new());
            continue;
        };
        let mut control = Controlled::new(target);
        let mut context = context(target, &mut control, hosts, stop);
        let checked = treatment::check_all(&cell.treatments, &mut context);
        all.any_tablespace |= context.layout.moved.iter().any(|moved| moved.is_tablespace);
        let checked = checked.map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
        target.note(checked.touches);
        all.prepared.push(checked.prepared);
        // A condition that sets max_connections is checked in its trials.
        if !treatment::declares(&cell.treatments, "max_connections") {
            let needed = target.workloads[cell.work].connections();
            let room = workload::wait_for_room(&mut target.admin, needed, stop);
            room.map_err(|source| LiveError::Room {
                condition: cell.title.clone(),
                source: Box::new(source),
            })?;
        }
        if rules.checkpoint == Checkpoint::Spread {
            let declared = treatment::declared_value(&cell.treatments, "checkpoint_timeout");
            let timeout = cycles::timeout(&mut target.admin, declared.as_deref())?;
            cycles::whole(target.workloads[cell.work].extent(), timeout)
                .map_err(|why| LiveError::Cycles { condition: cell.title.clone(), why })?;
        }
    }
    for target in targets.values_mut() {
        target.reset = reset::prepare(&rules.reset, target)?;
    }
    Ok(all)
}
