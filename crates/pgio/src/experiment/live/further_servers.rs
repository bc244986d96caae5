//! What is in force on the further servers of a condition, and their journals.
//!
//! A journal's steps are undone on one server, so each server has a journal of its own. The first server's is named
//! after the run, those of further servers after run and target. Next: `forcing`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::treatment::InForce;
use crate::treatment::journal::Journal;

/// By target; empty for conditions on one server.
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

    pub(super) fn of(
        &mut self,
        run: &str,
        name: &str,
    ) -> (&mut Journal, &mut Vec<Box<dyn InForce>>) {
        let new = || Journal::new(&self.journal_dir, &format!("{run}-{name}"));
        let journal = self.journals.entry(name.to_owned()).or_insert_with(new);
        (journal, self.in_force.entry(name.to_owned()).or_default())
    }
}
