//! The directory of an experiment: experiment.toml as run, manifest.json, trials.jsonl.
//!
//! A record is appended in one write and fsynced before the next trial begins, so that whatever
//! stops the tool leaves complete records and at most one torn last line, which reading skips.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::model::Trial;
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
        Ok(Store { dir: dir.to_owned(), trials })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends one record and returns only when it is on disk.
    pub fn append(&mut self, trial: &Trial) -> Result<(), StoreError> {
        let line = wire::to_json(trial) + "\n";
        self.trials
            .write_all(line.as_bytes())
            .and_then(|()| self.trials.sync_data())
            .map_err(|source| io("append to", &self.dir.join("trials.jsonl"), source))
    }
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
