//! The journals on disk: those of runs that live, and those that `pgio undo` has to work off.
//!
//! A journal whose lock is free has no living owner. One that concerns neither the server nor the
//! resources of a new run does not keep it from starting. Next: [`super::claim`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    EXTENSION, Ground, JOURNAL_SCHEMA, Journal, JournalError, Line, Opened, PATIENCE, failed,
};
use crate::host::lock::{self, LockError, lock_within};
use crate::host::own_dir::{DirMode, OwnDir};
use crate::treatment::{Resource, Step};

/// A journal as it is at this moment.
#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    pub run: String,
    pub ground: Ground,
    /// The process that writes it or undoes it; absent: its run was killed.
    pub owner: Option<String>,
    pub steps: Vec<Step>,
}

impl Found {
    /// What is changed, in words.
    pub fn what(&self) -> String {
        let touches: Vec<String> = self.ground.touches.iter().map(ToString::to_string).collect();
        if touches.is_empty() { "a server or a host".to_owned() } else { touches.join(", ") }
    }

    fn concerns(&self, subject: &Subject<'_>) -> bool {
        let Ground { connect, touches, .. } = &self.ground;
        touches.is_empty()
            || touches.iter().any(|resource| subject.resources.contains(resource))
            || !connect.is_empty() && subject.connects.contains(connect)
    }

    /// As a reason not to start.
    fn refusal(self) -> JournalError {
        match &self.owner {
            Some(owner) => {
                let of = match self.ground.experiment.as_str() {
                    "" => String::new(),
                    name => format!(" of experiment `{name}`"),
                };
                let who = format!("run {}{of}, {owner},", self.run);
                JournalError::Busy { who, what: self.what() }
            }
            None => JournalError::Unfinished(self.path),
        }
    }
}

/// What a new run is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// How its servers are reached, as in [`Ground::connect`].
    pub connects: &'a BTreeSet<String>,
    pub resources: &'a BTreeSet<Resource>,
}

/// Refuses to start over a journal that concerns the subject. Returns the unfinished ones of others.
pub fn check(dir: &Path, subject: &Subject<'_>) -> Result<Vec<Found>, JournalError> {
    let mut others = Vec::new();
    for found in survey(dir)? {
        if found.concerns(subject) {
            return Err(found.refusal());
        }
        if found.owner.is_none() {
            others.push(found);
        }
    }
    Ok(others)
}

/// Refuses to go on while there is any journal.
pub fn check_finished(dir: &Path) -> Result<(), JournalError> {
    survey(dir)?.into_iter().next().map_or(Ok(()), |found| Err(found.refusal()))
}

/// What a run of this process left, as the reason to undo it.
pub fn left_by(dir: &Path, run: &str) -> Option<JournalError> {
    let all = survey(dir).unwrap_or_default();
    let left = |found: &Found| found.run == run && found.owner.is_none();
    all.into_iter().find(left).map(Found::refusal)
}

/// What journals hold at this moment, for those who only want to know.
pub fn steps_of(dir: &Path) -> Vec<Step> {
    survey(dir).unwrap_or_default().into_iter().flat_map(|found| found.steps).collect()
}

fn survey(dir: &Path) -> Result<Vec<Found>, JournalError> {
    let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(Vec::new()) };
    let names = own.names(EXTENSION)?;
    names.iter().filter_map(|name| look(&own, name).transpose()).collect()
}

/// Nothing where its run has finished since it was listed.
fn look(own: &OwnDir, name: &Path) -> Result<Option<Found>, JournalError> {
    let path = own.path_of(name);
    let Some(file) = own.open_file(name)? else { return Ok(None) };
    let owner = match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(lock::holder(&file)),
        _ => None,
    };
    if is_removed(&file, &path)? {
        return Ok(None);
    }
    let (ground, steps, _) = parse(&file, &path)?;
    let steps = steps.into_iter().map(|(_, step)| step).collect();
    Ok(Some(Found { run: run_of(&path), path, ground, owner, steps }))
}

/// For `undo`: what can be worked off now, and what cannot.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Read back and locked.
    pub dead: Vec<Journal>,
    /// Of runs that live, and put back what they change themselves.
    pub living: Vec<Found>,
    /// Each the reason of one journal.
    pub unreadable: Vec<JournalError>,
}

/// The journals of the directory; one that cannot be read is no reason to leave the others.
pub fn unfinished(dir: &Path) -> Result<Unfinished, JournalError> {
    let mut all = Unfinished::default();
    let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(all) };
    let own = Arc::new(own);
    for name in own.names(EXTENSION)? {
        match take(&own, &name, dir) {
            Ok(Taken::Dead(journal)) => all.dead.push(*journal),
            Ok(Taken::Living) => all.living.extend(look(&own, &name).ok().flatten()),
            Ok(Taken::Gone) => {}
            Err(error) => all.unreadable.push(error),
        }
    }
    Ok(all)
}

enum Taken {
    Dead(Box<Journal>),
    Living,
    Gone,
}

fn take(own: &Arc<OwnDir>, name: &Path, dir: &Path) -> Result<Taken, JournalError> {
    let path = own.path_of(name);
    let Some(file) = own.open_file(name)? else { return Ok(Taken::Gone) };
    match lock_within(&file, PATIENCE) {
        Ok(()) => {}
        Err(LockError::Held { .. }) => return Ok(Taken::Living),
        Err(source) => return Err(JournalError::Lock { path, source }),
    }
    if is_removed(&file, &path)? {
        return Ok(Taken::Gone);
    }
    let (ground, steps, read) = parse(&file, &path)?;
    let (directory, name) = (own.clone(), name.to_string_lossy().into_owned());
    Ok(Taken::Dead(Box::new(Journal {
        run: run_of(&path),
        dir: Some(dir.to_owned()),
        ground,
        file: Some(Opened { directory, name, file, whole: read.whole }),
        next: read.next,
        steps,
    })))
}

fn is_removed(file: &File, path: &Path) -> Result<bool, JournalError> {
    Ok(file.metadata().map_err(|e| failed("read", path, e))?.nlink() == 0)
}

fn run_of(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// How far it was read.
struct Extent {
    /// Bytes to the end of the last whole line.
    whole: u64,
    /// The next step's number.
    next: u32,
}

type Parsed = (Ground, Vec<(u32, Step)>, Extent);

fn parse(mut file: &File, path: &Path) -> Result<Parsed, JournalError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| failed("read", path, e))?;
    // A last line without its end was never followed by its change.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let (mut ground, mut next, mut steps) = (Ground::default(), 1, BTreeMap::new());
    for (at, line) in text.lines().enumerate() {
        let broken =
            |why: String| JournalError::Broken { path: path.to_owned(), line: at + 1, why };
        match serde_json::from_str(line).map_err(|e| broken(e.to_string()))? {
            Line::Begin { schema, ground: begun, .. } => {
                if schema != JOURNAL_SCHEMA {
                    return Err(broken(format!("format {schema} is not known here")));
                }
                ground = *begun;
            }
            Line::Intent { number, step } => {
                next = number + 1;
                steps.insert(number, step);
            }
            Line::Done { .. } => {}
            Line::Undone { number } => drop(steps.remove(&number)),
        }
    }
    Ok((ground, steps.into_iter().collect(), Extent { whole: whole as u64, next }))
}
