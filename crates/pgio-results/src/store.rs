//! The directory of an experiment: experiment.toml, manifest.json, trials.jsonl.
//!
//! A record is appended in one write and fsynced before the next trial begins. A crash therefore
//! leaves complete records and at most one torn last line, which [`reading`] skips and [`leftovers`]
//! removes. The caller must lock a file elsewhere against a second writer, because anyone who may read the
//! results could lock a file here. Before each record, the writer checks that the file still
//! has its name, because records appended to a removed file are lost.
//!
//! Results directories are untrusted: everything in them is read and written through
//! [`crate::files`].

mod leftovers;
mod manifest;
mod reading;

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use self::leftovers::{FILES, is_unfinished, remove_unfinished};
use self::reading::{EXPERIMENT, LINE_LIMIT, TRIALS};
use super::model::Trial;
use super::telemetry::Series;
use super::wire::{self, WireError};
use crate::files::{Directory, Refused};

pub use self::manifest::{
    Calibration, CarryOver, CarryOverQuestion, ConditionInfo, LengthVerdict, MANIFEST_SCHEMA,
    MAX_NAME_BYTES, Manifest, Resumed, Rules, TriedLength, collection,
};
pub use self::reading::{
    NoSuchCondition, StoredExperiment, experiments, read, read_experiment, read_manifest,
    read_own_experiment, read_series,
};

/// An experiment's directory, open for appending.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    directory: Directory,
    trials: File,
    /// Number of lines in trials.jsonl.
    records: usize,
}

/// A record on disk.
#[derive(Debug)]
pub struct Appended {
    pub trial: Trial,
    /// Why its samples or its output are missing.
    pub left_out: Option<StoreError>,
}

/// Other users may read results, but not write them.
const MODE: u32 = 0o644;

impl Store {
    /// Checks early whether [`Store::create`] would fail.
    pub fn check_free(dir: &Path) -> Result<(), StoreError> {
        let has_files = FILES.iter().any(|name| dir.join(name).symlink_metadata().is_ok());
        if has_files && !is_unfinished(dir) {
            return Err(StoreError::Occupied(dir.to_owned()));
        }
        // Missing directories are created below the nearest existing one.
        let ancestors = dir.ancestors().filter(|d| !d.as_os_str().is_empty());
        let existing = ancestors.chain([Path::new(".")]).find(|d| d.exists()).unwrap_or(dir);
        if !existing.is_dir() {
            return Err(io("create", dir, ErrorKind::NotADirectory.into()));
        }
        use rustix::fs::{Access, access};
        access(existing, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|e| io("create", dir, e.into()))
    }

    /// Creates the directory; fails if it already contains an experiment. What a kill left of one without
    /// manifest and trials is replaced.
    pub fn create(dir: &Path, experiment: &str, manifest: &Manifest) -> Result<Store, StoreError> {
        Self::check_free(dir)?;
        let directory =
            Directory::open_or_create(dir).map_err(|source| io("create", dir, source))?;
        if is_unfinished(dir) {
            remove_unfinished(dir, &directory)?;
        }
        let trials = match directory.create_new(TRIALS, MODE) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::Occupied(dir.to_owned()));
            }
            Err(e) => return Err(io("create", &dir.join(TRIALS), e)),
        };
        // While it is held, others see that the experiment is being created. Some file systems have no locks.
        let _ = flock(&trials, FlockOperation::NonBlockingLockExclusive);
        let store = Store { dir: dir.to_owned(), directory, trials, records: 0 };
        let written = store
            .write(EXPERIMENT, experiment)
            .and_then(|()| store.write_manifest(manifest))
            .inspect_err(|_| store.discard());
        written.map(|()| store)
    }

    /// Removes the files of an experiment that could not be created, so that the next attempt does
    /// not find them.
    fn discard(&self) {
        for name in FILES {
            let _ = self.directory.remove(name);
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the samples of the trial to be appended next and returns the file's name for its
    /// record. Call it before `append`, so that a record never names a missing file.
    pub fn write_series(&mut self, series: &Series) -> Result<String, StoreError> {
        let name = format!("{:04}.json", self.records + 1);
        let text = serde_json::to_string(series).expect("plain data always serializes");
        self.write_below("series", &name, &(text + "\n"))?;
        Ok(format!("series/{name}"))
    }

    /// Stores the output of the command of the trial to be appended next, for one stream; of a long
    /// text, only the beginning and the end.
    pub fn write_output(&mut self, stream: &str, text: &str) -> Result<(), StoreError> {
        if text.is_empty() {
            return Ok(());
        }
        let name = format!("{:04}.{stream}", self.records + 1);
        self.write_below("output", &name, &bounded(text))
    }

    /// Appends one record and returns only when it is on disk.
    pub fn append(&mut self, trial: &Trial) -> Result<(), StoreError> {
        self.check_in_place()?;
        let line = wire::to_json(trial) + "\n";
        if line.len() as u64 > LINE_LIMIT {
            let (path, bytes) = (self.dir.join(TRIALS), line.len());
            return Err(StoreError::LongRecord { path, bytes, limit: LINE_LIMIT });
        }
        self.trials
            .write_all(line.as_bytes())
            .and_then(|()| self.trials.sync_data())
            .map_err(|source| io("append to", &self.dir.join(TRIALS), source))?;
        self.records += 1;
        Ok(())
    }

    /// Appends the record of a trial with its samples and the output of its programs, by the ends of the files' names. Samples and
    /// output that cannot be written are left out: they are worth less than the record.
    pub fn append_with(
        &mut self,
        trial: &Trial,
        series: Option<&Series>,
        output: &[(&str, &str)],
    ) -> Result<Appended, StoreError> {
        let mut left_out = None;
        let written = series.map(|series| self.write_series(series)).transpose();
        let series = written.unwrap_or_else(|error| {
            left_out = Some(error);
            None
        });
        for (stream, text) in output {
            if let Err(error) = self.write_output(stream, text) {
                left_out.get_or_insert(error);
            }
        }
        let trial = Trial { series, ..trial.clone() };
        self.append(&trial)?;
        Ok(Appended { trial, left_out })
    }

    /// Checks that the open file still exists under its name.
    fn check_in_place(&self) -> Result<(), StoreError> {
        let path = self.dir.join(TRIALS);
        let open = self.trials.metadata().map_err(|source| io("stat", &path, source))?;
        let named = match fs::symlink_metadata(&path) {
            Ok(found) => (found.dev(), found.ino()) == (open.dev(), open.ino()),
            Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => false,
            Err(source) => return Err(io("stat", &path, source)),
        };
        if named && open.nlink() > 0 { Ok(()) } else { Err(StoreError::Gone(self.dir.clone())) }
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), StoreError> {
        self.write("manifest.json", &manifest::text(manifest))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let written = self.directory.write(Path::new(name), text.as_bytes());
        written.map_err(|source| io("write", &self.dir.join(name), source))
    }

    fn write_below(&self, below: &str, name: &str, text: &str) -> Result<(), StoreError> {
        self.check_in_place()?;
        let write =
            || self.directory.ensure_subdirectory(below)?.write(Path::new(name), text.as_bytes());
        write().map_err(|source| io("write", &self.dir.join(below).join(name), source))
    }
}

/// Writes any file requested by the user, like [`crate::files::write_durably`].
pub fn write_durably(path: &Path, text: &str) -> Result<(), StoreError> {
    crate::files::write_durably(path, text).map_err(|source| io("write", path, source))
}

/// Like [`write_durably`], for a path from the command line, which may be /dev/stdout.
pub fn write_named(path: &Path, text: &str) -> Result<(), StoreError> {
    crate::files::write_named(path, text).map_err(|source| io("write", path, source))
}

/// Maximum bytes of a command's output stored per trial and stream.
const MAX_OUTPUT: usize = 1 << 20;

fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_OUTPUT {
        return Cow::Borrowed(text);
    }
    // The end is usually more useful.
    let head = text.floor_char_boundary(MAX_OUTPUT / 4);
    let tail = text.ceil_char_boundary(text.len() - (MAX_OUTPUT - head));
    let omitted = tail - head;
    Cow::Owned(format!("{}\n[pgio: {omitted} bytes omitted]\n{}", &text[..head], &text[tail..]))
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} already contains an experiment; specify another directory with --out", .0.display())]
    Occupied(PathBuf),
    #[error("{} contains no pgio results: {missing} is missing", dir.display())]
    NotResults { dir: PathBuf, missing: &'static str },
    #[error("cannot parse {}", path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
    #[error("{} has format {found}, but this pgio reads {MANIFEST_SCHEMA}; use the version of pgio that wrote it", path.display())]
    ManifestVersion { path: PathBuf, found: String },
    #[error(
        "{} was removed, renamed or replaced while the experiment ran, so no further trial can be stored: rerun the experiment, or continue a renamed directory with --resume",
        .0.display()
    )]
    Gone(PathBuf),
    #[error("{place} is longer than {limit} bytes: it was not written by pgio, or it is damaged")]
    LongLine { place: String, limit: u64 },
    #[error(
        "the trial has a record of {bytes} bytes, more than the {limit} that pgio reads from {}: use fewer sessions, or a duration instead of a number of transactions",
        path.display()
    )]
    LongRecord { path: PathBuf, bytes: usize, limit: u64 },
    #[error("{} has a name of {bytes} bytes, more than the {MAX_NAME_BYTES} that pgio writes: it is damaged", path.display())]
    LongName { path: PathBuf, bytes: usize },
    #[error("{place} names the file `{name}` for its samples, which must be below series/")]
    SeriesName { place: String, name: String },
    #[error(
        "cannot trust the commands in {}, because {why}: check the stored experiment.toml, then specify your own experiment file before --resume, or take ownership (chown, chmod go-w)",
        path.display()
    )]
    Untrusted { path: PathBuf, why: Refused },
    #[error(transparent)]
    Wire(#[from] WireError),
}

fn io(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{full_trial, manifest};
    use crate::wire::WireError;

    const TEXT: &str = "[experiment]\nname = \"test\"\n";

    fn stored() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("results");
        let mut store = Store::create(&dir, TEXT, &manifest()).unwrap();
        for block in 1..=3 {
            let mut trial = full_trial();
            trial.place.as_mut().unwrap().block = block;
            store.append(&trial).unwrap();
        }
        (parent, dir)
    }

    fn append(dir: &Path, text: &str) {
        let mut file = File::options().append(true).open(dir.join("trials.jsonl")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn blocks(stored: &StoredExperiment) -> Vec<u32> {
        stored.trials.iter().map(|t| t.place.as_ref().unwrap().block).collect()
    }

    #[test]
    fn records_are_read_in_the_order_of_appending() {
        let (_parent, dir) = stored();
        let read = read(&dir).unwrap();
        assert_eq!((blocks(&read), read.torn), (vec![1, 2, 3], false));
        assert_eq!(read.manifest, manifest());
        assert_eq!(fs::read_to_string(dir.join("experiment.toml")).unwrap(), TEXT);
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["experiment.toml", "manifest.json", "trials.jsonl"]);
    }

    #[test]
    fn a_record_that_nobody_could_read_is_not_stored() {
        let (_parent, dir) = stored();
        let mut store = Store::create(&dir.with_extension("long"), TEXT, &manifest()).unwrap();
        let mut trial = full_trial();
        trial.started_at = "x".repeat(LINE_LIMIT as usize);
        let error = store.append(&trial).unwrap_err();
        assert!(matches!(error, StoreError::LongRecord { .. }), "{error}");
        store.append(&full_trial()).unwrap();
        assert_eq!(read(store.dir()).unwrap().trials.len(), 1);
    }

    #[test]
    fn output_is_stored_beside_its_record_within_a_limit() {
        let parent = tempfile::tempdir().unwrap();
        let mut store = Store::create(parent.path(), TEXT, &manifest()).unwrap();
        store.append(&full_trial()).unwrap();
        store.write_output("stdout", "tps = 1\n").unwrap();
        store.write_output("stderr", "").unwrap();
        let stored = |name: &str| fs::read_to_string(parent.path().join("output").join(name));
        assert_eq!(stored("0002.stdout").unwrap(), "tps = 1\n");
        assert!(stored("0002.stderr").is_err(), "no output");
        let long = format!("begin {}ü end", "üx".repeat(MAX_OUTPUT));
        store.write_output("stderr", &long).unwrap();
        let text = stored("0002.stderr").unwrap();
        assert!(text.len() < MAX_OUTPUT + 100, "{}", text.len());
        assert!(text.starts_with("begin ") && text.ends_with("ü end"));
        let (_, rest) = text.split_once("[pgio: ").unwrap();
        let omitted: usize = rest.split_once(' ').unwrap().0.parse().unwrap();
        let mark = "\n[pgio:  bytes omitted]\n".len() + omitted.to_string().len();
        assert_eq!(text.len() - mark + omitted, long.len());
    }

    #[test]
    fn samples_that_cannot_be_written_do_not_cost_the_record() {
        let parent = tempfile::tempdir().unwrap();
        let mut store = Store::create(parent.path(), TEXT, &manifest()).unwrap();
        // Files where directories are needed.
        fs::write(parent.path().join("series"), "").unwrap();
        fs::write(parent.path().join("output"), "").unwrap();
        let series = Series::new(1.0);
        let added = store.append_with(&full_trial(), Some(&series), &[("stdout", "x")]).unwrap();
        assert!(matches!(added.left_out, Some(StoreError::Io { .. })), "{:?}", added.left_out);
        assert_eq!(added.trial.series, None);
        let read = read(parent.path()).unwrap();
        assert_eq!((read.trials.len(), &read.trials[0].series), (1, &None));
        fs::remove_file(parent.path().join("series")).unwrap();
        let added = store.append_with(&full_trial(), Some(&series), &[]).unwrap();
        assert!(added.left_out.is_none());
        assert_eq!(added.trial.series.as_deref(), Some("series/0002.json"));
    }

    #[test]
    fn a_store_without_trials_reads_as_an_empty_experiment() {
        let parent = tempfile::tempdir().unwrap();
        Store::create(parent.path(), TEXT, &manifest()).unwrap();
        let read = read(parent.path()).unwrap();
        assert_eq!((read.trials.len(), read.torn), (0, false));
    }

    /// Wherever a crash cuts the last record, the earlier ones are read.
    #[test]
    fn a_torn_last_record_is_skipped() {
        let line = wire::to_json(&full_trial());
        for kept in [1, line.len() / 2, line.len()] {
            let (_parent, dir) = stored();
            append(&dir, &line[..kept]);
            let read = read(&dir).unwrap();
            assert_eq!((blocks(&read), read.torn), (vec![1, 2, 3], true), "{kept}");
        }
    }

    #[test]
    fn a_broken_record_before_the_last_is_an_error_that_names_its_line() {
        let (_parent, dir) = stored();
        append(&dir, "{\"schema\": \n");
        let error = read(&dir).unwrap_err().to_string();
        assert!(error.ends_with("trials.jsonl line 4 is not a pgio trial record"), "{error}");
    }

    #[test]
    fn a_record_of_another_version_is_refused() {
        let (_parent, dir) = stored();
        append(&dir, "{\"schema\":\"pgio.trial/9\"}\n");
        let error = read(&dir).unwrap_err();
        assert!(matches!(error, StoreError::Wire(WireError::Version { .. })), "{error}");
    }

    #[test]
    fn a_newer_manifest_is_refused() {
        let (_parent, dir) = stored();
        fs::write(dir.join("manifest.json"), r#"{"schema":"pgio.manifest/2"}"#).unwrap();
        let error = read(&dir).unwrap_err();
        assert!(
            matches!(&error, StoreError::ManifestVersion { found, .. } if found == "pgio.manifest/2")
        );
        fs::write(dir.join("manifest.json"), "no JSON").unwrap();
        assert!(matches!(read(&dir).unwrap_err(), StoreError::Manifest { .. }));
    }

    #[test]
    fn an_occupied_directory_is_refused_and_left_unchanged() {
        let (_parent, dir) = stored();
        let error = Store::create(&dir, "other", &manifest()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied(_)));
        assert!(error.to_string().contains("--out"), "{error}");
        assert_eq!(fs::read_to_string(dir.join("experiment.toml")).unwrap(), TEXT);
        assert_eq!(read(&dir).unwrap().trials.len(), 3);
    }

    #[test]
    fn a_discarded_experiment_leaves_no_files() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("results");
        let store = Store::create(&dir, TEXT, &manifest()).unwrap();
        store.discard();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        Store::create(&dir, TEXT, &manifest()).unwrap();
    }

    /// `--resume` does not trust files that other users may write.
    #[test]
    fn other_users_cannot_write_to_results_whatever_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let (_parent, dir) = stored();
        for name in ["", "experiment.toml", "manifest.json", "trials.jsonl"] {
            let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o022, 0, "{name}");
        }
    }

    #[test]
    fn append_fails_after_the_directory_was_removed_or_renamed() {
        type Attack = fn(&Path);
        let attacks: [(&str, Attack); 4] = [
            ("removed", |dir| fs::remove_dir_all(dir).unwrap()),
            ("renamed", |dir| fs::rename(dir, dir.with_extension("away")).unwrap()),
            ("replaced", |dir| {
                fs::rename(dir, dir.with_extension("away")).unwrap();
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("trials.jsonl"), "").unwrap();
            }),
            ("file removed", |dir| fs::remove_file(dir.join("trials.jsonl")).unwrap()),
        ];
        for (name, attack) in attacks {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("results");
            let mut store = Store::create(&dir, TEXT, &manifest()).unwrap();
            store.append(&full_trial()).unwrap();
            attack(&dir);
            let error = store.append(&full_trial()).unwrap_err();
            assert!(matches!(&error, StoreError::Gone(d) if *d == dir), "{name}: {error}");
            assert!(
                matches!(store.write_output("stdout", "x"), Err(StoreError::Gone(_))),
                "{name}"
            );
            if name == "removed" {
                assert!(!dir.exists(), "the directory is not recreated");
            }
        }
    }

    #[test]
    fn check_free_refuses_unusable_directories_early() {
        let (parent, dir) = stored();
        assert!(matches!(Store::check_free(&dir).unwrap_err(), StoreError::Occupied(_)));
        Store::check_free(&parent.path().join("a/b")).unwrap();
        Store::check_free(Path::new("no-such-directory")).unwrap();
        let error = Store::check_free(&dir.join("trials.jsonl/a")).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        // A file of the user with the name of a results file.
        let theirs = parent.path().join("experiment.toml");
        fs::write(&theirs, "theirs").unwrap();
        let error = Store::create(parent.path(), TEXT, &manifest()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied(_)), "{error}");
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    }

    #[test]
    fn finds_the_workloads_of_an_experiment_below_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let create = |workload: &str, name: &str, at: &str| {
            let mut manifest = manifest();
            (manifest.name, manifest.created_at) = (name.to_owned(), at.to_owned());
            Store::create(&parent.path().join(workload), TEXT, &manifest).unwrap();
        };
        assert!(matches!(experiments(parent.path()), Err(StoreError::NotResults { .. })));
        create("a", "e a", "2026-02");
        create("b", "e b", "2026-01");
        create("alone", "another experiment", "2026-03");
        let found = experiments(parent.path()).unwrap();
        assert_eq!(found, ["b", "a"].map(|name| parent.path().join(name)));
        let alone = parent.path().join("alone");
        assert_eq!(experiments(&alone).unwrap(), [alone]);
    }

    #[test]
    fn the_error_names_the_missing_results_file() {
        let parent = tempfile::tempdir().unwrap();
        let missing = |dir: &Path| match read(dir).unwrap_err() {
            StoreError::NotResults { missing, .. } => missing,
            other => panic!("{other}"),
        };
        assert_eq!(missing(parent.path()), "manifest.json");
        let (_other, dir) = stored();
        fs::remove_file(dir.join("trials.jsonl")).unwrap();
        assert_eq!(missing(&dir), "trials.jsonl");
    }
}
