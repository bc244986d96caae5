//! The write-ahead journal: each change is on disk before it is made.
//!
//! One file per run, one JSON object per line, each line fsynced. The running process holds a lock on its
//! file, which distinguishes a journal in use from an unfinished one. A run that
//! changes nothing writes nothing; a run that undid everything removes its file. `undo` acts on what
//! it finds here, so no other user may own or write the directory and the files ([`OwnDir`]). Next: [`found`],
//! which reads them, and [`claim`], which keeps two runs from changing the same resource.

mod claim;
mod found;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::claim::{Claims, Holder};
pub use self::found::{
    JournalStatus, Subject, Unfinished, all_open_steps, check, check_finished, is_of_run,
    run_id_of, unfinished, unfinished_journal_of,
};
use super::record::Record;
use super::resource::Resource;
use crate::config::experiment::HostSpec;
use crate::host::Machine;
use crate::host::lock::{LockError, LockedFile};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::pg::control::Plan;
use crate::pg::server::ServerNode;

pub const JOURNAL_SCHEMA: &str = "pgio.journal/1";

const EXTENSION: &str = "journal";

/// A reader holds the lock for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing} the journal {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Directory(#[from] OwnDirError),
    #[error("cannot lock {}", path.display())]
    Lock { path: PathBuf, source: LockError },
    #[error("an interrupted run left changes in place ({}): run `pgio undo` first", .0.display())]
    Unfinished(PathBuf),
    #[error(
        "{who} is changing {what}: wait until it ends, or interrupt it (Ctrl-C, `kill -INT`), which undoes its changes"
    )]
    Busy { who: String, what: String },
    #[error("{} cannot be parsed at line {line}: {why}; undo by hand what it lists, then remove it", path.display())]
    Broken { path: PathBuf, line: usize, why: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
enum Line {
    Begin {
        schema: String,
        run: String,
        /// Where the run was: several machines may share a home directory.
        machine: Machine,
        #[serde(flatten)]
        target: Box<UndoTarget>,
    },
    Intent {
        number: u32,
        step: Record,
    },
    Done {
        number: u32,
    },
    Undone {
        number: u32,
    },
}

impl Line {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data always serializes") + "\n"
    }
}

/// The server and the hosts that steps change: everything that `undo` needs to reach them, without a password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UndoTarget {
    pub connect: String,
    /// A private server is removed at the end, so only steps on hosts go to disk.
    #[serde(default)]
    pub private: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostSpec>,
    /// How the server is stopped and started, where [target] configures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Plan>,
    /// The experiment whose conditions are put in force; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub experiment: String,
    /// Resources that may be changed. Empty means unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<Resource>,
    /// Which of several copies of the server was changed.
    #[serde(default, skip_serializing_if = "ServerNode::is_unknown")]
    pub node: ServerNode,
    /// The standbys that streamed from a server that pgio may stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<String>,
}

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    run: String,
    dir: Option<PathBuf>,
    target: UndoTarget,
    machine: Machine,
    /// Opened with the first intent.
    file: Option<Opened>,
    steps: Vec<(u32, Record)>,
    next: u32,
}

/// The file of a journal.
#[derive(Debug)]
struct Opened {
    directory: Arc<OwnDir>,
    name: String,
    file: LockedFile,
    /// Bytes to the end of its last whole line.
    complete_bytes: u64,
}

impl Opened {
    fn path(&self) -> PathBuf {
        self.directory.path_of(&self.name)
    }

    /// Writes a line; returns when it is on disk. After an error no part of it remains, so that the next one
    /// begins a line.
    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        self.write(line.text().as_bytes()).map_err(|e| failed("write", &self.path(), e))
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        // Remove the rest of a line that was cut short, if that failed at the time.
        if self.file.metadata()?.len() != self.complete_bytes {
            self.file.set_len(self.complete_bytes)?;
        }
        let written = self.file.write_all(line).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.complete_bytes += line.len() as u64,
            Err(_) => drop(self.file.set_len(self.complete_bytes)),
        }
        written
    }
}

impl Journal {
    /// Nothing is written before the first step; [`Journal::set_target`] comes before that.
    pub fn new(dir: &Path, run: &str) -> Journal {
        Journal { dir: Some(dir.to_owned()), ..Journal::in_memory(run) }
    }

    pub fn in_memory(run: &str) -> Journal {
        Journal {
            run: run.to_owned(),
            dir: None,
            target: UndoTarget::default(),
            machine: Machine::this(),
            file: None,
            steps: Vec::new(),
            next: 1,
        }
    }

    /// Sets the target of the next steps. Ignored while steps on the former target are open: all steps of a
    /// journal are undone on one target.
    pub fn set_target(&mut self, target: UndoTarget) -> Result<(), JournalError> {
        if self.target != target && self.steps.is_empty() {
            self.remove()?;
            self.target = target;
        }
        Ok(())
    }

    /// Its name, which begins with the run's.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The file, if a step was begun.
    pub fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(Opened::path)
    }

    pub fn target(&self) -> &UndoTarget {
        &self.target
    }

    /// The machine of the run, to which its steps without ssh belong.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Appends the intent; when this returns it is on disk.
    pub fn intent(&mut self, step: &Record) -> Result<u32, JournalError> {
        let number = self.next;
        self.write_intent(number, step)?;
        self.next += 1;
        self.steps.push((number, step.clone()));
        Ok(number)
    }

    /// Replaces the record of a step. It is written like another intent of the same number, of which readers
    /// take the last.
    pub fn amend(&mut self, number: u32, step: &Record) -> Result<(), JournalError> {
        self.write_intent(number, step)?;
        self.steps.iter_mut().filter(|(n, _)| *n == number).for_each(|(_, s)| *s = step.clone());
        Ok(())
    }

    fn write_intent(&mut self, number: u32, step: &Record) -> Result<(), JournalError> {
        // Changes of a private cluster end with it and could not be undone later.
        if step.host.is_none() && self.target.private {
            return Ok(());
        }
        self.open()?;
        self.write(&Line::Intent { number, step: step.clone() })
    }

    pub fn done(&mut self, number: u32) -> Result<(), JournalError> {
        self.write(&Line::Done { number })
    }

    pub fn undone(&mut self, number: u32) -> Result<(), JournalError> {
        self.write(&Line::Undone { number })?;
        self.steps.retain(|(n, _)| *n != number);
        Ok(())
    }

    /// Returns steps that were begun and not undone, the last one first. An intent without `done` is among
    /// them: its undo finds out whether it was applied.
    pub fn open_steps(&self) -> Vec<(u32, Record)> {
        self.steps.iter().rev().cloned().collect()
    }

    /// Removes the file, unless a step is still open.
    pub fn finish(mut self) -> Result<(), JournalError> {
        if self.steps.is_empty() { self.remove() } else { Ok(()) }
    }

    /// Removes the file with the steps that are still open.
    pub fn forget(mut self) -> Result<(), JournalError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), JournalError> {
        match self.file.take() {
            Some(Opened { directory, name, .. }) => Ok(directory.remove_file(name)?),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> Result<(), JournalError> {
        let (Some(dir), None) = (&self.dir, &self.file) else {
            return Ok(());
        };
        let directory = Arc::new(OwnDir::create(dir, DirMode::Private)?);
        let name = format!("{}.{EXTENSION}", self.run);
        if directory.open_file(&name)?.is_some() {
            let path = directory.path_of(&name);
            return Err(failed("create", &path, io::ErrorKind::AlreadyExists.into()));
        }
        let (run, target) = (self.run.clone(), Box::new(self.target.clone()));
        let machine = self.machine.clone();
        let begin = Line::Begin { schema: JOURNAL_SCHEMA.to_owned(), run, machine, target }.text();
        // A journal without its target cannot be undone, and an undo would mistake one without a lock for that of a
        // dead run.
        let file = LockedFile::create(&directory, &name, begin.as_bytes());
        let file = file.map_err(|error| match error {
            LockError::Io(source) => failed("write", &directory.path_of(&name), source),
            LockError::Untrusted(source) => JournalError::Directory(source),
            source => JournalError::Lock { path: directory.path_of(&name), source },
        })?;
        self.file = Some(Opened { directory, name, file, complete_bytes: begin.len() as u64 });
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<(), JournalError> {
        self.file.as_mut().map_or(Ok(()), |opened| opened.append(line))
    }

    /// Makes writes fail, as on a full disk.
    #[cfg(test)]
    pub(super) fn refuse_writes(&mut self) {
        let opened = self.file.as_mut().expect("an intent opened it");
        *opened.file = std::fs::File::open(opened.path()).expect("it was made by the intent");
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
