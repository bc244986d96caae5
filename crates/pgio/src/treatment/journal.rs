//! The write-ahead journal: each change is on disk before it is made.
//!
//! One file per run, one JSON object per line, each line fsynced. The running process holds a lock on its
//! file, which distinguishes a journal in use from an unfinished one. A run that
//! changes nothing writes nothing; a run that undid everything removes its file. `undo` acts on what
//! it finds here, so no other user may own or write the directory and the files ([`OwnDir`]). Next:
//! [`super::found_journals`], which reads them, and [`super::resource`], which keeps two runs from changing the same
//! resource.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::found_journals::{
    JournalStatus, Subject, Unfinished, all_open_steps, check, check_finished, is_of_run,
    run_id_of, unfinished, unfinished_journal_of,
};
use super::resource::Resource;
pub use super::resource::{Claims, Holder};
use super::step::Record;
use crate::config::experiment::HostSpec;
use crate::exit_code::{FILES, HasExitCode, UNFINISHED};
use crate::host::Machine;
use crate::host::lock::{LockError, LockedFile};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::pg::control::Plan;
use crate::pg::server::ServerNode;

pub const JOURNAL_SCHEMA: &str = "pgio.journal/1";

pub(crate) const EXTENSION: &str = "journal";

/// A reader holds the lock for a moment.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

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

impl HasExitCode for JournalError {
    fn code(&self) -> u8 {
        match self {
            JournalError::Io { .. } | JournalError::Lock { .. } => FILES,
            JournalError::Directory(source) => source.code(),
            JournalError::Unfinished(_)
            | JournalError::Busy { .. }
            | JournalError::Broken { .. } => UNFINISHED,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(crate) enum Line {
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
    pub(crate) run: String,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) target: UndoTarget,
    pub(crate) machine: Machine,
    /// Opened with the first intent.
    pub(crate) file: Option<Opened>,
    pub(crate) steps: Vec<(u32, Record)>,
    pub(crate) next: u32,
}

/// The file of a journal.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) directory: Arc<OwnDir>,
    pub(crate) name: String,
    pub(crate) file: LockedFile,
    /// Bytes to the end of its last whole line.
    pub(crate) complete_bytes: u64,
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
        // A journal without its target cannot be undone, and an undo would mistake one without a lock for the journal of a
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
    pub(crate) fn refuse_writes(&mut self) {
        let opened = self.file.as_mut().expect("an intent opened it");
        *opened.file = std::fs::File::open(opened.path()).expect("it was made by the intent");
    }
}

pub(crate) fn failed(doing: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, OpenOptions};

    use serde_json::json;

    use super::*;

    /// The journals of runs that were killed.
    fn dead(dir: &Path) -> Result<Vec<Journal>, JournalError> {
        let all = unfinished(dir)?;
        assert!(all.living.is_empty());
        all.unreadable.into_iter().next().map_or(Ok(all.dead), Err)
    }

    fn step(what: &str) -> Record {
        Record {
            kind: "postgres".to_owned(),
            what: what.to_owned(),
            host: None,
            prior: json!(null),
            ours: json!("on"),
        }
    }

    fn on(dir: &Path, connect: &str) -> Journal {
        let mut journal = Journal::new(dir, "r1");
        journal.set_target(server(connect)).unwrap();
        journal
    }

    fn server(connect: &str) -> UndoTarget {
        UndoTarget { connect: connect.to_owned(), ..UndoTarget::default() }
    }

    #[test]
    fn a_journal_names_the_changed_server() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "host=a");
        let number = journal.intent(&step("x")).unwrap();
        journal.undone(number).unwrap();
        journal.set_target(server("host=b")).unwrap();
        let number = journal.intent(&step("y")).unwrap();
        journal.undone(number).unwrap();
        journal.set_target(UndoTarget { private: true, ..UndoTarget::default() }).unwrap();
        journal.intent(&step("a private cluster's")).unwrap();
        assert!(check_finished(dir.path()).is_ok(), "nothing on disk");
        let on_host = Record { host: Some("db".to_owned()), ..step("a device of this machine's") };
        journal.intent(&on_host).unwrap();
        journal.intent(&step("the private cluster's again")).unwrap();
        drop(journal);
        let [found] = &mut dead(dir.path()).unwrap()[..] else { panic!() };
        assert_eq!(found.open_steps(), [(4, on_host)]);
        found.undone(4).unwrap();
        found.remove().unwrap();
        let mut journal = on(dir.path(), "host=b");
        journal.intent(&step("y")).unwrap();
        drop(journal);
        assert_eq!(dead(dir.path()).unwrap()[0].target(), &server("host=b"));
    }

    #[test]
    fn a_run_without_changes_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        on(dir.path(), "").finish().unwrap();
        assert!(check_finished(dir.path()).is_ok());
    }

    #[test]
    fn an_amended_step_replaces_the_first_record_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "host=/tmp");
        journal.intent(&step("a")).unwrap();
        let number = journal.intent(&step("b")).unwrap();
        let amended = Record { ours: json!({ "value": "on", "found": "1" }), ..step("b") };
        journal.amend(number, &amended).unwrap();
        let open = [(2, amended), (1, step("a"))];
        assert_eq!(journal.open_steps(), open);
        drop(journal);
        let [found] = &mut dead(dir.path()).unwrap()[..] else { panic!() };
        assert_eq!(found.open_steps(), open);
        assert_eq!(found.intent(&step("c")).unwrap(), 3);
        found.undone(2).unwrap();
        assert_eq!(found.open_steps(), [(3, step("c")), (1, step("a"))]);
    }

    #[test]
    fn an_intent_survives_a_crash_and_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "host=/tmp");
        let first = journal.intent(&step("a")).unwrap();
        journal.done(first).unwrap();
        journal.intent(&step("b")).unwrap();
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Busy { .. })));
        drop(journal);
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Unfinished(_))));
        let mut found = dead(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].target().connect, "host=/tmp");
        let steps = found[0].open_steps();
        assert_eq!(steps.iter().map(|(_, s)| s.what.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        for (number, _) in steps {
            found[0].undone(number).unwrap();
        }
        found.remove(0).finish().unwrap();
        assert!(check_finished(dir.path()).is_ok());
    }

    #[test]
    fn a_torn_last_line_is_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "");
        journal.intent(&step("a")).unwrap();
        drop(journal);
        let path = dir.path().join("r1.journal");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"event\":\"int").unwrap();
        let mut found = dead(dir.path()).unwrap().remove(0);
        assert_eq!(found.open_steps().len(), 1);
        // An undo that is interrupted in its turn leaves a journal that can be read.
        found.intent(&step("b")).unwrap();
        drop(found);
        assert_eq!(dead(dir.path()).unwrap()[0].open_steps().len(), 2);
        file.write_all(b"{\"event\":\"int\n").unwrap();
        assert!(matches!(dead(dir.path()), Err(JournalError::Broken { line: 4, .. })));
    }

    #[test]
    fn the_rest_of_a_torn_line_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "");
        journal.intent(&step("a")).unwrap();
        let path = dir.path().join("r1.journal");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        // Within a character, too.
        file.write_all(b"{\"event\":\"intent\",\"number\":2,\"step\":\"\xc3").unwrap();
        assert_eq!(unfinished_after_its_end(dir.path()).len(), 1);
        journal.intent(&step("b")).unwrap();
        drop(journal);
        let found = dead(dir.path()).unwrap().remove(0);
        let steps: Vec<Record> = found.open_steps().into_iter().map(|(_, step)| step).collect();
        assert_eq!(steps, [step("b"), step("a")]);
    }

    /// Reads a copy of the journal, since its writer still holds the lock.
    fn unfinished_after_its_end(dir: &Path) -> Vec<(u32, Record)> {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(dir.join("r1.journal"), copy.path().join("r1.journal")).unwrap();
        dead(copy.path()).unwrap()[0].open_steps()
    }

    #[test]
    fn a_step_that_could_not_be_marked_as_undone_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "");
        let number = journal.intent(&step("a")).unwrap();
        journal.refuse_writes();
        assert!(matches!(journal.undone(number), Err(JournalError::Io { doing: "write", .. })));
        assert_eq!(journal.open_steps().len(), 1);
        journal.finish().unwrap();
        assert_eq!(dead(dir.path()).unwrap()[0].open_steps().len(), 1);
    }

    #[test]
    fn a_journal_of_another_server_does_not_block_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let set =
            |names: &[&str]| names.iter().map(|n| Resource::server(n)).collect::<BTreeSet<_>>();
        let connects = |all: &[&str]| all.iter().map(|c| (*c).to_owned()).collect::<BTreeSet<_>>();
        let checked = |connects: &BTreeSet<String>, resources: &BTreeSet<Resource>| {
            check(dir.path(), &Subject { connects, resources, is_another_server: &|_| false })
        };
        let mut journal = Journal::new(dir.path(), "r1");
        let touches = set(&["1", "disk"]).into_iter().collect();
        journal.set_target(UndoTarget { touches, ..server("host=a") }).unwrap();
        journal.intent(&step("x")).unwrap();
        let none = BTreeSet::new();
        assert!(checked(&connects(&["host=b"]), &set(&["2"])).unwrap().is_empty(), "it lives");
        let error = checked(&none, &set(&["disk"])).unwrap_err().to_string();
        let who = format!("run r1, process {} (", std::process::id());
        assert!(
            error.starts_with(&who) && error.contains("changing server 1, server disk"),
            "{error}"
        );
        let living = unfinished(dir.path()).unwrap();
        assert_eq!((living.dead.len(), living.living.len()), (0, 1), "not to be undone by others");
        drop(journal);
        let others = checked(&connects(&["host=b"]), &set(&["2"])).unwrap();
        assert_eq!(others.len(), 1);
        assert!(others[0].describe_changes().starts_with("server 1"));
        for (connect, resource) in [("host=a", "2"), ("host=b", "1"), ("host=b", "disk")] {
            let error = checked(&connects(&[connect]), &set(&[resource])).unwrap_err();
            assert!(matches!(error, JournalError::Unfinished(_)), "{connect} {resource}: {error}");
        }
        // One that does not say.
        on(dir.path(), "host=c").intent(&step("x")).unwrap_err();
        let mut old = Journal::new(dir.path(), "r2");
        old.set_target(server("host=c")).unwrap();
        old.intent(&step("x")).unwrap();
        drop(old);
        assert!(checked(&connects(&["host=b"]), &set(&["2"])).is_err());
    }

    #[test]
    fn a_foreign_journal_is_refused_and_others_are_read() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        on(dir.path(), "host=a").intent(&step("a")).unwrap();
        let planted = dir.path().join("planted.journal");
        fs::copy(dir.path().join("r1.journal"), &planted).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
        let all = unfinished(dir.path()).unwrap();
        assert_eq!((all.dead.len(), all.unreadable.len()), (1, 1));
        assert!(all.unreadable[0].to_string().contains("is writable by other users"));
        drop(all);
        fs::remove_file(&planted).unwrap();
        std::os::unix::fs::symlink("r1.journal", &planted).unwrap();
        assert_eq!(unfinished(dir.path()).unwrap().unreadable.len(), 1, "a link");
        fs::remove_file(&planted).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(unfinished(dir.path()), Err(JournalError::Directory(_))));
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Directory(_))));
        let mut journal = Journal::new(dir.path(), "r2");
        journal.set_target(server("host=a")).unwrap();
        assert!(journal.intent(&step("a")).is_err(), "nothing is changed before it is on disk");
    }

    /// The disk was full: the journal was begun, and its first change was not made.
    #[test]
    fn a_journal_without_a_change_keeps_no_run_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "host=a");
        let number = journal.intent(&step("a")).unwrap();
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Busy { .. })));
        journal.undone(number).unwrap();
        drop(journal);
        assert!(dir.path().join("r1.journal").exists());
        assert!(check_finished(dir.path()).is_ok());
        assert!(unfinished_journal_of(dir.path(), "r1").is_none());
    }
}
