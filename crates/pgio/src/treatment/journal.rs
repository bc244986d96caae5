//! The write-ahead journal: what is about to be changed, on disk before it is changed.
//!
//! One file a run, a JSON object a line, each line fsynced. The running tool holds a lock on its
//! file, so that an unfinished journal is told apart from one that is being written. A run that
//! changes nothing writes nothing; a run that took everything back removes its file. Next: [`claim`],
//! by which one pgio at a time changes something.

mod claim;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::claim::Claim;
use super::Step;
use crate::config::experiment::HostSpec;
use crate::pg::control::Plan;

pub const JOURNAL_SCHEMA: &str = "pgio.journal/1";

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing} the journal {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("an interrupted run left changes in place ({}): run `pgio undo` first", .0.display())]
    Unfinished(PathBuf),
    #[error("{who} is changing things at this moment ({}): wait for it to end, or interrupt it (Ctrl-C, `kill -INT`) and it puts back what it changed", path.display())]
    Busy { who: String, path: PathBuf },
    #[error("{} cannot be understood at line {line}: {why}; put back by hand what it lists, then remove it", path.display())]
    Broken { path: PathBuf, line: usize, why: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
enum Line {
    Begin {
        schema: String,
        run: String,
        #[serde(flatten)]
        ground: Ground,
    },
    Intent {
        number: u32,
        step: Step,
    },
    Done {
        number: u32,
    },
    Undone {
        number: u32,
    },
}

/// Where steps are taken: all that `undo` needs to get there again, and no password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ground {
    pub connect: String,
    /// The server goes at the end whatever is done to it, so only steps on hosts have to be kept.
    #[serde(default)]
    pub private: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostSpec>,
    /// How the server is stopped and started, where its target says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Plan>,
}

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    run: String,
    dir: Option<PathBuf>,
    ground: Ground,
    /// Opened with the first intent.
    file: Option<Opened>,
    steps: Vec<(u32, Step)>,
    next: u32,
}

/// The file of a journal.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    /// Bytes to the end of its last whole line.
    whole: u64,
}

impl Opened {
    /// When this returns the line is on disk; else there is nothing of it, so that the next one begins
    /// a line.
    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let text = serde_json::to_string(line).expect("plain data always serializes") + "\n";
        self.write(text.as_bytes()).map_err(|e| failed("write", &self.path, e))
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        // Of a line that was cut short and could not be taken off then.
        if self.file.metadata()?.len() != self.whole {
            self.file.set_len(self.whole)?;
        }
        let written = self.file.write_all(line).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.whole += line.len() as u64,
            Err(_) => drop(self.file.set_len(self.whole)),
        }
        written
    }
}

impl Journal {
    /// Kept in memory until it is [turned to](Journal::turn_to) someone's server.
    pub fn new(dir: &Path, run: &str) -> Journal {
        Journal { dir: Some(dir.to_owned()), ..Journal::in_memory(run) }
    }

    pub fn in_memory(run: &str) -> Journal {
        Journal {
            run: run.to_owned(),
            dir: None,
            ground: Ground::default(),
            file: None,
            steps: Vec::new(),
            next: 1,
        }
    }

    /// The next steps are taken there. All steps on the former ground must have been taken back: a
    /// journal is undone in one place.
    pub fn turn_to(&mut self, ground: Ground) -> Result<(), JournalError> {
        if self.ground != ground && self.steps.is_empty() {
            self.remove()?;
            self.ground = ground;
        }
        Ok(())
    }

    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Appends the intent; when this returns it is on disk.
    pub fn intent(&mut self, step: &Step) -> Result<u32, JournalError> {
        let number = self.next;
        // What is done to a private cluster itself goes with it, and could not be undone later.
        if step.host.is_some() || !self.ground.private {
            self.open()?;
            self.write(&Line::Intent { number, step: step.clone() })?;
        }
        self.next += 1;
        self.steps.push((number, step.clone()));
        Ok(number)
    }

    pub fn done(&mut self, number: u32) -> Result<(), JournalError> {
        self.write(&Line::Done { number })
    }

    pub fn undone(&mut self, number: u32) -> Result<(), JournalError> {
        self.write(&Line::Undone { number })?;
        self.steps.retain(|(n, _)| *n != number);
        Ok(())
    }

    /// Steps begun and not taken back, the last one first. An intent without `done` is among
    /// them: whether it was applied is for its undo to find out.
    pub fn open_steps(&self) -> Vec<(u32, Step)> {
        self.steps.iter().rev().cloned().collect()
    }

    /// Removes the file, when nothing is left to take back.
    pub fn finish(mut self) -> Result<(), JournalError> {
        if self.steps.is_empty() { self.remove() } else { Ok(()) }
    }

    fn remove(&mut self) -> Result<(), JournalError> {
        match self.file.take() {
            Some(Opened { path, .. }) => {
                fs::remove_file(&path).map_err(|e| failed("remove", &path, e))
            }
            None => Ok(()),
        }
    }

    fn open(&mut self) -> Result<(), JournalError> {
        let (Some(dir), None) = (&self.dir, &self.file) else {
            return Ok(());
        };
        fs::create_dir_all(dir).map_err(|e| failed("make the directory of", dir, e))?;
        let path = dir.join(format!("{}.journal", self.run));
        // A command of the user's stands in it as it is.
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| failed("create", &path, e))?;
        claim::lock(&file, dir, &path)?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(|e| failed("make durable", &path, e))?;
        let (run, ground) = (self.run.clone(), self.ground.clone());
        let mut opened = Opened { path, file, whole: 0 };
        let begun = opened.append(&Line::Begin { schema: JOURNAL_SCHEMA.to_owned(), run, ground });
        // One that does not say where its steps were taken is worth nothing.
        begun.inspect_err(|_| drop(fs::remove_file(&opened.path)))?;
        self.file = Some(opened);
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<(), JournalError> {
        self.file.as_mut().map_or(Ok(()), |opened| opened.append(line))
    }

    /// As where there is no room: for tests of who has to go on all the same.
    #[cfg(test)]
    pub(super) fn refuse_writes(&mut self) {
        let opened = self.file.as_mut().expect("an intent opened it");
        opened.file = File::open(&opened.path).expect("it was made by the intent");
    }
}

/// Refuses to go on while there is an unfinished journal, or someone changes things.
pub fn check_finished(dir: &Path) -> Result<(), JournalError> {
    check_journals(dir)?;
    claim::check_free(dir)
}

/// For an experiment that may change something: nobody else does until the claim is dropped.
pub fn claim_for_experiment(dir: &Path) -> Result<Claim, JournalError> {
    let claim = Claim::take(dir, "an experiment")?;
    // Someone may have come and been killed since this one began.
    check_journals(dir).map(|()| claim)
}

fn check_journals(dir: &Path) -> Result<(), JournalError> {
    for path in paths(dir)? {
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|e| failed("open", &path, e))?,
        };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(claim::busy(dir, path)),
            // Its run has finished and removed it since.
            _ if !path.exists() => {}
            _ => return Err(JournalError::Unfinished(path)),
        }
    }
    Ok(())
}

/// The unfinished journals, read back and locked, for `undo`.
pub fn unfinished(dir: &Path) -> Result<Vec<Journal>, JournalError> {
    paths(dir)?.into_iter().filter_map(|path| read(dir, &path).transpose()).collect()
}

/// What journals hold at this moment, for those who only want to know.
pub fn steps_of(dir: &Path) -> Vec<Step> {
    let texts =
        paths(dir).unwrap_or_default().into_iter().filter_map(|p| fs::read_to_string(p).ok());
    let mut steps = BTreeMap::new();
    for (at, text) in texts.enumerate() {
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::Intent { number, step } => drop(steps.insert((at, number), step)),
                Line::Undone { number } => drop(steps.remove(&(at, number))),
                Line::Begin { .. } | Line::Done { .. } => {}
            }
        }
    }
    steps.into_values().collect()
}

fn paths(dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("list", dir, e)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "journal"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Nothing where its run has finished since it was listed.
fn read(dir: &Path, path: &Path) -> Result<Option<Journal>, JournalError> {
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| failed("open", path, e))?,
    };
    claim::lock(&file, dir, path)?;
    if !path.exists() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| failed("read", path, e))?;
    // A last line without its end was never followed by its change.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let mut journal = Journal {
        run: path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        dir: Some(dir.to_owned()),
        ground: Ground::default(),
        file: None,
        steps: Vec::new(),
        next: 1,
    };
    for (at, line) in text.lines().enumerate() {
        let parsed: serde_json::Result<Line> = serde_json::from_str(line);
        match parsed.map_err(|e| broken(path, at + 1, e.to_string()))? {
            Line::Begin { schema, ground, .. } => {
                if schema != JOURNAL_SCHEMA {
                    return Err(broken(path, at + 1, format!("format {schema} is not known here")));
                }
                journal.ground = ground;
            }
            Line::Intent { number, step } => {
                journal.next = number + 1;
                journal.steps.push((number, step));
            }
            Line::Done { .. } => {}
            Line::Undone { number } => journal.steps.retain(|(n, _)| *n != number),
        }
    }
    journal.file = Some(Opened { path: path.to_owned(), file, whole: whole as u64 });
    Ok(Some(journal))
}

fn broken(path: &Path, line: usize, why: String) -> JournalError {
    JournalError::Broken { path: path.to_owned(), line, why }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(what: &str) -> Step {
        Step {
            kind: "postgres".to_owned(),
            what: what.to_owned(),
            host: None,
            prior: json!(null),
            ours: json!("on"),
        }
    }

    fn on(dir: &Path, connect: &str) -> Journal {
        let mut journal = Journal::new(dir, "r1");
        journal.turn_to(server(connect)).unwrap();
        journal
    }

    fn server(connect: &str) -> Ground {
        Ground { connect: connect.to_owned(), ..Ground::default() }
    }

    #[test]
    fn a_journal_says_which_of_several_servers_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "host=a");
        let number = journal.intent(&step("x")).unwrap();
        journal.undone(number).unwrap();
        journal.turn_to(server("host=b")).unwrap();
        let number = journal.intent(&step("y")).unwrap();
        journal.undone(number).unwrap();
        journal.turn_to(Ground { private: true, ..Ground::default() }).unwrap();
        journal.intent(&step("a private cluster's")).unwrap();
        assert!(check_finished(dir.path()).is_ok(), "nothing on disk");
        let of_a_host = Step { host: Some("db".to_owned()), ..step("a device of this machine's") };
        journal.intent(&of_a_host).unwrap();
        journal.intent(&step("the private cluster's again")).unwrap();
        drop(journal);
        let [found] = &mut unfinished(dir.path()).unwrap()[..] else { panic!() };
        assert_eq!(found.open_steps(), [(4, of_a_host)]);
        found.undone(4).unwrap();
        found.remove().unwrap();
        let mut journal = on(dir.path(), "host=b");
        journal.intent(&step("y")).unwrap();
        drop(journal);
        assert_eq!(unfinished(dir.path()).unwrap()[0].ground(), &server("host=b"));
    }

    #[test]
    fn a_run_without_changes_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        on(dir.path(), "").finish().unwrap();
        assert!(check_finished(dir.path()).is_ok());
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
        let mut found = unfinished(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].ground().connect, "host=/tmp");
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
        let mut found = unfinished(dir.path()).unwrap().remove(0);
        assert_eq!(found.open_steps().len(), 1);
        // An undo that is interrupted in its turn leaves a journal that can be read.
        found.intent(&step("b")).unwrap();
        drop(found);
        assert_eq!(unfinished(dir.path()).unwrap()[0].open_steps().len(), 2);
        file.write_all(b"{\"event\":\"int\n").unwrap();
        assert!(matches!(unfinished(dir.path()), Err(JournalError::Broken { line: 4, .. })));
    }

    #[test]
    fn what_is_left_of_a_line_that_was_cut_short_is_taken_off() {
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
        let found = unfinished(dir.path()).unwrap().remove(0);
        let steps: Vec<Step> = found.open_steps().into_iter().map(|(_, step)| step).collect();
        assert_eq!(steps, [step("b"), step("a")]);
    }

    /// As `unfinished` of a copy, since who writes it still has its lock.
    fn unfinished_after_its_end(dir: &Path) -> Vec<(u32, Step)> {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(dir.join("r1.journal"), copy.path().join("r1.journal")).unwrap();
        unfinished(copy.path()).unwrap()[0].open_steps()
    }

    #[test]
    fn a_step_that_could_not_be_struck_out_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = on(dir.path(), "");
        let number = journal.intent(&step("a")).unwrap();
        journal.refuse_writes();
        assert!(matches!(journal.undone(number), Err(JournalError::Io { doing: "write", .. })));
        assert_eq!(journal.open_steps().len(), 1);
        journal.finish().unwrap();
        assert_eq!(unfinished(dir.path()).unwrap()[0].open_steps().len(), 1);
    }

    #[test]
    fn an_experiment_that_changes_something_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let alone = claim_for_experiment(dir.path()).unwrap();
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Busy { .. })));
        let mut journal = on(dir.path(), "");
        journal.intent(&step("a")).unwrap();
        drop(journal);
        // What it could not put back itself is told as that.
        assert!(matches!(check_finished(dir.path()), Err(JournalError::Unfinished(_))));
        drop(alone);
        assert!(matches!(claim_for_experiment(dir.path()), Err(JournalError::Unfinished(_))));
        assert!(Claim::take(dir.path(), "an undo").is_ok());
    }
}
