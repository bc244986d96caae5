//! Puts a condition in force on one of its servers, and undoes it there.
//!
//! A condition of several servers is put in force on one after the other. A journal's steps are undone on one
//! server, so each has a journal of its own: the first server's is named after the run, the journals of [`FurtherServers`]
//! after run and target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Live;
use super::session::{Controlled, context, refresh_storage, renew_session};
use crate::experiment::event::Event;
use crate::experiment::live::LiveError;
use crate::pg::replication;
use crate::pg::server::ServerNode;
use crate::treatment::journal::{Journal, UndoTarget};
use crate::treatment::{self, InForce, OnConflict, Record, Restored, TreatmentError, Undone};
use pgio_results::model::Warning;

impl Live<'_> {
    /// Puts a cell's condition in force on one of its servers.
    pub(super) fn force(&mut self, cell: usize, name: &str) -> Result<(), LiveError> {
        let is_first = self.results.cells[cell].target == name;
        let target = self.targets.get_mut(name).expect("conditions name known targets");
        let mut control = Controlled::new(target);
        let private = target.cluster.is_some();
        target.standbys = match target.control {
            Some(_) => replication::streaming(&mut target.admin),
            None => Vec::new(),
        };
        let undo_target = UndoTarget {
            connect: if private { String::new() } else { target.params.without_secrets() },
            private,
            hosts: self
                .host_specs
                .iter()
                .map(|(name, spec)| (name.clone(), spec.absolute()))
                .collect(),
            control: target.control.as_ref().map(|c| c.plan().clone()),
            experiment: self.results.experiment.clone(),
            touches: target.touches.iter().cloned().collect(),
            node: if private { ServerNode::default() } else { target.node.clone() },
            standbys: target.standbys.clone(),
        };
        let mut context = context(target, &mut control, &self.hosts, &self.stop);
        let (prepared, journal, in_force) = if is_first {
            (&self.checked.prepared[cell], &mut self.journal, &mut self.in_force)
        } else {
            let (journal, in_force) = self.further_servers.journal_and_in_force(&self.run_id, name);
            (&self.checked.prepared_further[&(cell, name.to_owned())], journal, in_force)
        };
        let turned = journal.set_target(undo_target).map_err(TreatmentError::from);
        let put = |()| treatment::put_in_force(prepared, &mut context, journal, in_force);
        let forced = turned.and_then(put);
        let is_renewed = context.is_renewed;
        if context.streaming.is_some() {
            // The undo has another context, and starts it again all the same.
            target.standbys.clear();
        }
        forced.map_err(|source| LiveError::Treatment {
            condition: self.results.cells[cell].title.clone(),
            source: Box::new(source),
        })?;
        if is_renewed || Controlled::was_restarted(control.as_ref()) {
            return renew_session(target, &self.run_id);
        }
        // The previous trial may have had a tablespace.
        if self.checked.any_tablespace {
            refresh_storage(target);
        }
        Ok(())
    }

    /// Undoes what [`Live::force`] did on one server.
    pub(super) fn release(&mut self, cell: usize, name: &str) -> Result<(), LiveError> {
        let is_first = self.results.cells[cell].target == name;
        let (journal, in_force) = if is_first {
            (&mut self.journal, &mut self.in_force)
        } else {
            self.further_servers.journal_and_in_force(&self.run_id, name)
        };
        if journal.open_steps().is_empty() {
            in_force.clear();
            return Ok(());
        }
        let _restoring = self.stop.restoring();
        let target = self.targets.get_mut(name).expect("conditions name known targets");
        let mut control = Controlled::new(target);
        // Do not connect first: the server may be down until a step below starts it.
        let mut context = context(target, &mut control, &self.hosts, &self.stop);
        // All hosts are connected; a step on a host lost meanwhile fails by itself.
        let unreachable = treatment::Unreachable::new();
        let report = treatment::undo_all(&mut context, journal, OnConflict::Ask, &unreachable);
        let undone = report.into_result().map_err(|source| LiveError::Treatment {
            condition: self.results.cells[cell].title.clone(),
            source: Box::new(source),
        })?;
        for Restored { step, undone, .. } in &undone {
            match undone {
                Undone::RestoredNotAwaited => {
                    (self.results.observe)(Event::Warns(&not_awaited(step)));
                }
                Undone::Rewritten => {
                    (self.results.observe)(Event::Warns(&rewritten(step)));
                }
                // Nothing is kept without a user who asked for it.
                Undone::Restored | Undone::Kept | Undone::RestartLeft => {}
            }
        }
        in_force.clear();
        if context.is_renewed || Controlled::was_restarted(control.as_ref()) {
            renew_session(target, &self.run_id)
        } else {
            Ok(())
        }
    }
}

/// What is in force on the further servers of a condition, and their journals, by target; empty for conditions on one
/// server.
#[derive(Debug)]
pub struct FurtherServers {
    journal_dir: PathBuf,
    journals: BTreeMap<String, Journal>,
    in_force: BTreeMap<String, Vec<Box<dyn InForce>>>,
}

impl FurtherServers {
    pub fn new(journal_dir: &Path) -> FurtherServers {
        let journal_dir = journal_dir.to_owned();
        FurtherServers { journal_dir, journals: BTreeMap::new(), in_force: BTreeMap::new() }
    }

    /// Returns the treatments in force on a server, whose resources the caller then holds.
    pub(super) fn take(&mut self, name: &str) -> Vec<Box<dyn InForce>> {
        self.in_force.remove(name).unwrap_or_default()
    }

    pub(super) fn take_journals(&mut self) -> impl Iterator<Item = Journal> {
        std::mem::take(&mut self.journals).into_values()
    }

    fn journal_and_in_force(
        &mut self,
        run: &str,
        name: &str,
    ) -> (&mut Journal, &mut Vec<Box<dyn InForce>>) {
        let new = || Journal::new(&self.journal_dir, &format!("{run}-{name}"));
        let journal = self.journals.entry(name.to_owned()).or_insert_with(new);
        (journal, self.in_force.entry(name.to_owned()).or_default())
    }
}

fn not_awaited(step: &Record) -> Warning {
    Warning::new(
        format!("{step} was restored; pgio did not wait for follow-up work such as a resync"),
        "a second signal, such as Ctrl-C, ended the wait",
        "check its state, for example with `drbdadm status`",
    )
}

fn rewritten(step: &Record) -> Warning {
    Warning::new(
        format!("{step} was restored, but its file is not byte for byte as it was"),
        treatment::REWRITTEN,
        "rewrite lost comments if you need them",
    )
}
