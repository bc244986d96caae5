//! The directory of an experiment: experiment.toml as run, manifest.json, trials.jsonl.
//!
//! A record is appended in one write and fsynced before the next trial begins, so that whatever
//! stops the tool leaves complete records and at most one torn last line, which reading skips.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::model::Trial;
use super::series::{SERIES_SCHEMA, Series};
use super::wire::{self, WireError};

pub const MANIFEST_SCHEMA: &str = "pgio.manifest/1";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} already holds an experiment; name another directory with --out", .0.display())]
    Occupied(PathBuf),
    #[error("{} holds no pgio results: {missing} is missing", dir.display())]
    NotResults { dir: PathBuf, missing: &'static str },
    #[error("{} cannot be read", path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
    #[error("{} has format {found}; this pgio reads {MANIFEST_SCHEMA}, use the pgio that wrote it", path.display())]
    ManifestVersion { path: PathBuf, found: String },
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// What the experiment was, as far as reading its trials needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    pub schema: String,
    pub pgio: String,
    pub name: String,
    pub created_at: String,
    pub seed: u64,
    pub blocks: u32,
    pub baseline: String,
    /// The name of the baseline's twin, when it was run twice a block.
    pub aa: Option<String>,
    pub primary_metric: String,
    /// In the order of the experiment file, the A/A twin right after its baseline.
    pub conditions: Vec<ConditionInfo>,
    /// The environment as found: server version, settings that matter, the machine.
    pub environment: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConditionInfo {
    pub name: String,
    /// Each treatment in words, such as `synchronous_commit = local`.
    pub treatments: Vec<String>,
}

/// A stored experiment as read back.
#[derive(Debug)]
pub struct Stored {
    pub manifest: Manifest,
    pub trials: Vec<Trial>,
    /// The last line of trials.jsonl was torn by a crash and left out.
    pub torn: bool,
}

/// An experiment's directory, open for appending.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    trials: File,
    /// Lines of trials.jsonl.
    records: usize,
}

impl Store {
    /// Creates the directory; one that already holds an experiment is refused.
    pub fn create(dir: &Path, experiment: &str, manifest: &Manifest) -> Result<Store, StoreError> {
        fs::create_dir_all(dir).map_err(|source| io("create", dir, source))?;
        let path = dir.join("trials.jsonl");
        let trials = match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::Occupied(dir.to_owned()));
            }
            Err(e) => return Err(io("create", &path, e)),
        };
        write_durably(&dir.join("experiment.toml"), experiment)?;
        let text = serde_json::to_string_pretty(manifest).expect("plain data always serializes");
        write_durably(&dir.join("manifest.json"), &(text + "\n"))?;
        sync_dir(dir)?;
        Ok(Store { dir: dir.to_owned(), trials, records: 0 })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the samples of the trial that is appended next, and returns the file's name for its
    /// record. Before the record, so that a record never names a file that is not there.
    pub fn write_series(&mut self, series: &Series) -> Result<String, StoreError> {
        let name = format!("series/{:04}.json", self.records + 1);
        let dir = self.dir.join("series");
        fs::create_dir_all(&dir).map_err(|source| io("create", &dir, source))?;
        let text = serde_json::to_string(series).expect("plain data always serializes");
        write_durably(&self.dir.join(&name), &(text + "\n"))?;
        Ok(name)
    }

    /// Appends one record and returns only when it is on disk.
    pub fn append(&mut self, trial: &Trial) -> Result<(), StoreError> {
        let line = wire::to_json(trial) + "\n";
        self.trials
            .write_all(line.as_bytes())
            .and_then(|()| self.trials.sync_data())
            .map_err(|source| io("append to", &self.dir.join("trials.jsonl"), source))?;
        self.records += 1;
        Ok(())
    }
}

/// The samples of a trial, where any were stored.
pub fn read_series(dir: &Path, trial: &Trial) -> Result<Option<Series>, StoreError> {
    let Some(name) = &trial.series else { return Ok(None) };
    let path = dir.join(name);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // Samples are large: someone who sends results round may leave them out.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io("read", &path, source)),
    };
    let series: Series = serde_json::from_str(&text)
        .map_err(|source| StoreError::Manifest { path: path.clone(), source })?;
    if series.schema != SERIES_SCHEMA {
        return Err(StoreError::ManifestVersion { path, found: series.schema });
    }
    Ok(Some(series))
}

/// Reads a stored experiment.
pub fn read(dir: &Path) -> Result<Stored, StoreError> {
    let manifest = read_manifest(dir)?;
    let path = dir.join("trials.jsonl");
    let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            StoreError::NotResults { dir: dir.to_owned(), missing: "trials.jsonl" }
        }
        _ => io("read", &path, source),
    })?;
    let torn = !text.is_empty() && !text.ends_with('\n');
    let lines: Vec<&str> = text.lines().collect();
    let whole = if torn { &lines[..lines.len() - 1] } else { &lines[..] };
    let trials = whole
        .iter()
        .enumerate()
        .map(|(i, line)| wire::from_json(line, &format!("{} line {}", path.display(), i + 1)))
        .collect::<Result<_, _>>()?;
    Ok(Stored { manifest, trials, torn })
}

fn read_manifest(dir: &Path) -> Result<Manifest, StoreError> {
    #[derive(Deserialize)]
    struct Tag {
        schema: String,
    }
    let path = dir.join("manifest.json");
    let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            StoreError::NotResults { dir: dir.to_owned(), missing: "manifest.json" }
        }
        _ => io("read", &path, source),
    })?;
    let broken = |source| StoreError::Manifest { path: path.clone(), source };
    let tag: Tag = serde_json::from_str(&text).map_err(broken)?;
    if tag.schema != MANIFEST_SCHEMA {
        return Err(StoreError::ManifestVersion { path, found: tag.schema });
    }
    serde_json::from_str(&text).map_err(broken)
}

/// Writes beside, syncs, then renames: the file is the old one or the new one, never a part.
pub fn write_durably(path: &Path, text: &str) -> Result<(), StoreError> {
    // /dev/null or a pipe is written to, never replaced.
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return fs::write(path, text).map_err(|source| io("write", path, source));
    }
    let beside = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| {
        // The partial file is ours and of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&beside);
        io("write", path, source)
    })
}

fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|source| io("sync", dir, source))
}

fn io(doing: &'static str, path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::test_support::{full_trial, manifest};

    const EXPERIMENT: &str = "[experiment]\nname = \"test\"\n";

    fn stored() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("results");
        let mut store = Store::create(&dir, EXPERIMENT, &manifest()).unwrap();
        for block in 1..=3 {
            let mut trial = full_trial();
            trial.place.as_mut().unwrap().block = block;
            store.append(&trial).unwrap();
        }
        (parent, dir)
    }

    fn append(dir: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).open(dir.join("trials.jsonl")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn blocks(stored: &Stored) -> Vec<u32> {
        stored.trials.iter().map(|t| t.place.as_ref().unwrap().block).collect()
    }

    #[test]
    fn what_was_appended_is_read_in_order() {
        let (_parent, dir) = stored();
        let read = read(&dir).unwrap();
        assert_eq!((blocks(&read), read.torn), (vec![1, 2, 3], false));
        assert_eq!(read.manifest, manifest());
        assert_eq!(fs::read_to_string(dir.join("experiment.toml")).unwrap(), EXPERIMENT);
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["experiment.toml", "manifest.json", "trials.jsonl"]);
    }

    #[test]
    fn no_trial_yet_is_an_empty_experiment() {
        let parent = tempfile::tempdir().unwrap();
        Store::create(parent.path(), EXPERIMENT, &manifest()).unwrap();
        let read = read(parent.path()).unwrap();
        assert_eq!((read.trials.len(), read.torn), (0, false));
    }

    /// Wherever a crash cuts the last record, those before it stand.
    #[test]
    fn a_torn_last_record_is_left_out() {
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
    fn an_occupied_directory_is_refused_and_left_as_it_was() {
        let (_parent, dir) = stored();
        let error = Store::create(&dir, "other", &manifest()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied(_)));
        assert!(error.to_string().contains("--out"), "{error}");
        assert_eq!(fs::read_to_string(dir.join("experiment.toml")).unwrap(), EXPERIMENT);
        assert_eq!(read(&dir).unwrap().trials.len(), 3);
    }

    #[test]
    fn a_directory_without_results_says_what_is_missing() {
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

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_no_part_behind() {
        let parent = tempfile::tempdir().unwrap();
        let taken = parent.path().join("manifest.json");
        fs::create_dir(&taken).unwrap();
        assert!(matches!(write_durably(&taken, "text").unwrap_err(), StoreError::Io { .. }));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }
}
