//! The journals on disk: of live runs, and of dead ones, which `pgio undo` has to undo.
//!
//! A journal whose lock is free belongs to a dead run. It keeps a new run from starting only if
//! both share the server or a resource. Next: [`crate::treatment::resource`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal::{
    EXTENSION, JOURNAL_SCHEMA, Journal, JournalError, LOCK_TIMEOUT, Line, Opened, UndoTarget,
    failed,
};
use crate::host::Machine;
use crate::host::lock::{self, LockError, LockedFile};
use crate::host::own_dir::{DirMode, OwnDir};
use crate::treatment::resource::Resource;
use crate::treatment::step::Record;

/// What a journal holds at this moment.
#[derive(Debug)]
pub struct JournalStatus {
    pub path: PathBuf,
    pub run: String,
    pub target: UndoTarget,
    /// The process that writes or undoes it; absent after its run was killed.
    pub owner: Option<String>,
    pub steps: Vec<Record>,
}

impl JournalStatus {
    /// Describes the resources that it changes.
    pub fn describe_changes(&self) -> String {
        let touches: Vec<String> = self.target.touches.iter().map(ToString::to_string).collect();
        if touches.is_empty() { "a server or a host".to_owned() } else { touches.join(", ") }
    }

    fn concerns(&self, subject: &Subject<'_>) -> bool {
        let UndoTarget { connect, touches, .. } = &self.target;
        touches.is_empty()
            || touches.iter().any(|resource| subject.resources.contains(resource))
            || !connect.is_empty()
                && subject.connects.contains(connect)
                && !(subject.is_another_server)(&self.target)
    }

    /// The error with which a new run refuses to start.
    fn refusal(self) -> JournalError {
        match &self.owner {
            Some(owner) => {
                let experiment = match self.target.experiment.as_str() {
                    "" => String::new(),
                    name => format!(" of experiment `{name}`"),
                };
                let who = format!("run {}{experiment}, {owner},", self.run);
                JournalError::Busy { who, what: self.describe_changes() }
            }
            None => JournalError::Unfinished(self.path),
        }
    }
}

/// The servers and resources of a new run.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Connection parameters of its servers, as in [`UndoTarget::connect`].
    pub connects: &'a BTreeSet<String>,
    pub resources: &'a BTreeSet<Resource>,
    /// Whether another server than the changed one is at the address of a journal.
    pub is_another_server: &'a dyn Fn(&UndoTarget) -> bool,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("resources", self.resources).finish_non_exhaustive()
    }
}

/// Refuses to start over a journal that shares a server or a resource with the run. Returns the unfinished
/// ones that do not.
pub fn check(dir: &Path, subject: &Subject<'_>) -> Result<Vec<JournalStatus>, JournalError> {
    let mut others = Vec::new();
    for found in read_all(dir)? {
        if found.concerns(subject) {
            return Err(found.refusal());
        }
        if found.owner.is_none() {
            others.push(found);
        }
    }
    Ok(others)
}

/// Refuses while there is any journal.
pub fn check_finished(dir: &Path) -> Result<(), JournalError> {
    read_all(dir)?.into_iter().next().map_or(Ok(()), |found| Err(found.refusal()))
}

/// The unfinished journal of a run, as the error that asks for its undo.
pub fn unfinished_journal_of(dir: &Path, run: &str) -> Option<JournalError> {
    let all = read_all(dir).unwrap_or_default();
    let left = |found: &JournalStatus| is_of_run(&found.run, run) && found.owner.is_none();
    all.into_iter().find(left).map(JournalStatus::refusal)
}

/// Whether a journal of this name is one of the run: journals of further servers have names of their own.
pub fn is_of_run(name: &str, run: &str) -> bool {
    name.strip_prefix(run).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The run of a journal by its name: time, process and random bits.
pub fn run_id_of(name: &str) -> &str {
    name.match_indices('-').nth(2).map_or(name, |(end, _)| &name[..end])
}

/// The open steps of all journals; nothing is locked.
pub fn all_open_steps(dir: &Path) -> Vec<Record> {
    read_all(dir).unwrap_or_default().into_iter().flat_map(|found| found.steps).collect()
}

fn read_all(dir: &Path) -> Result<Vec<JournalStatus>, JournalError> {
    let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(Vec::new()) };
    let names = own.names(EXTENSION)?;
    names.iter().filter_map(|name| read_status(&own, name).transpose()).collect()
}

/// Returns none if its run has finished since it was listed, or left nothing in place.
fn read_status(own: &OwnDir, name: &Path) -> Result<Option<JournalStatus>, JournalError> {
    let path = own.path_of(name);
    let Some(file) = own.open_file(name)? else { return Ok(None) };
    let owner = match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(lock::holder(&file)),
        _ => None,
    };
    if is_removed(&file, &path)? {
        return Ok(None);
    }
    let Parsed { target, steps, .. } = parse(&file, &path)?;
    // Its first change could not be written down, and was not made.
    if owner.is_none() && steps.is_empty() {
        return Ok(None);
    }
    let steps = steps.into_iter().map(|(_, step)| step).collect();
    Ok(Some(JournalStatus { run: run_of(&path), path, target, owner, steps }))
}

/// For `undo`: journals that can be undone now, and others.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Journals of dead runs, read and locked by us.
    pub dead: Vec<Journal>,
    /// Journals of live runs, which undo their changes themselves.
    pub living: Vec<JournalStatus>,
    /// One error per journal.
    pub unreadable: Vec<JournalError>,
}

/// The journals of the directory; one that cannot be read does not hide the others.
pub fn unfinished(dir: &Path) -> Result<Unfinished, JournalError> {
    let mut all = Unfinished::default();
    let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(all) };
    let own = Arc::new(own);
    for name in own.names(EXTENSION)? {
        match open_journal(&own, &name, dir) {
            Ok(Opening::Dead(journal)) => all.dead.push(*journal),
            Ok(Opening::Living) => all.living.extend(read_status(&own, &name).ok().flatten()),
            Ok(Opening::Gone) => {}
            Err(error) => all.unreadable.push(error),
        }
    }
    Ok(all)
}

enum Opening {
    Dead(Box<Journal>),
    Living,
    Gone,
}

fn open_journal(own: &Arc<OwnDir>, name: &Path, dir: &Path) -> Result<Opening, JournalError> {
    let path = own.path_of(name);
    let Some(file) = own.open_file(name)? else { return Ok(Opening::Gone) };
    let file = match LockedFile::lock(file, LOCK_TIMEOUT) {
        Ok(file) => file,
        Err(LockError::Held { .. }) => return Ok(Opening::Living),
        Err(source) => return Err(JournalError::Lock { path, source }),
    };
    if is_removed(&file, &path)? {
        return Ok(Opening::Gone);
    }
    let Parsed { target, machine, steps, complete_bytes, next } = parse(&file, &path)?;
    let (directory, name) = (own.clone(), name.to_string_lossy().into_owned());
    Ok(Opening::Dead(Box::new(Journal {
        run: run_of(&path),
        dir: Some(dir.to_owned()),
        target,
        machine,
        file: Some(Opened { directory, name, file, complete_bytes }),
        next,
        steps,
    })))
}

fn is_removed(file: &File, path: &Path) -> Result<bool, JournalError> {
    Ok(file.metadata().map_err(|e| failed("read", path, e))?.nlink() == 0)
}

fn run_of(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The content of a journal.
struct Parsed {
    target: UndoTarget,
    machine: Machine,
    /// Open ones, by their numbers.
    steps: Vec<(u32, Record)>,
    /// Bytes to the end of the last whole line.
    complete_bytes: u64,
    /// The next step's number.
    next: u32,
}

fn parse(mut file: &File, path: &Path) -> Result<Parsed, JournalError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| failed("read", path, e))?;
    // A last line without its end was never followed by its change.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let (mut target, mut machine) = (UndoTarget::default(), Machine::default());
    let (mut next, mut steps) = (1, BTreeMap::new());
    for (at, line) in text.lines().enumerate() {
        let broken =
            |why: String| JournalError::Broken { path: path.to_owned(), line: at + 1, why };
        match serde_json::from_str(line).map_err(|e| broken(e.to_string()))? {
            Line::Begin { schema, machine: on, target: begun, .. } => {
                if schema != JOURNAL_SCHEMA {
                    return Err(broken(format!("unknown format {schema}")));
                }
                (target, machine) = (*begun, on);
            }
            Line::Intent { number, step } => {
                next = next.max(number + 1);
                steps.insert(number, step);
            }
            Line::Done { .. } => {}
            Line::Undone { number } => drop(steps.remove(&number)),
        }
    }
    let steps = steps.into_iter().collect();
    Ok(Parsed { target, machine, steps, complete_bytes: whole as u64, next })
}
