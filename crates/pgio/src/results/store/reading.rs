//! Reading a stored experiment: complete, cut short, or torn by a crash.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::mem;
use std::path::{Path, PathBuf};

use super::{Manifest, NoSuchCondition, StoreError, io, read_manifest};
use crate::results::checks;
use crate::results::model::Trial;
use crate::results::series::{SERIES_SCHEMA, Series};
use crate::results::wire;

/// A stored experiment as read back.
#[derive(Debug, Clone)]
pub struct Stored {
    pub manifest: Manifest,
    pub trials: Vec<Trial>,
    /// The last line of trials.jsonl was torn by a crash and left out.
    pub torn: bool,
    /// The experiment's own baseline, where it is told against another: see [`Stored::against`].
    pub own_baseline: Option<String>,
    /// Checks that need the other trials are among the trials' own: see `analysis::judge`.
    pub judged: bool,
}

impl Stored {
    /// The same trials with another of the conditions as the baseline. The twin of the experiment's
    /// own baseline is then a condition like the others: the noise it shows is not this one's.
    pub fn against(mut self, baseline: &str) -> Result<Stored, NoSuchCondition> {
        let manifest = &mut self.manifest;
        if baseline == manifest.baseline {
            return Ok(self);
        }
        if !manifest.conditions.iter().any(|c| c.name == baseline) {
            let there = manifest.conditions.iter().map(|c| c.name.clone()).collect();
            return Err(NoSuchCondition { name: baseline.to_owned(), there });
        }
        manifest.aa = None;
        self.own_baseline = Some(mem::replace(&mut manifest.baseline, baseline.to_owned()));
        Ok(self)
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

/// The directory itself, or below it those of one experiment's several workloads, in the order in
/// which they began. Never empty.
pub fn experiments(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if dir.join("manifest.json").exists() {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => Vec::new(),
        Err(source) => return Err(io("read", dir, source)),
    };
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        if !entry.path().join("manifest.json").exists() {
            continue;
        }
        match read_manifest(&entry.path()) {
            // Its experiment has the workload's name, as its directory has; others are none of this.
            Ok(m) if m.name.ends_with(&format!(" {}", entry.file_name().display())) => {
                found.push((m.created_at, entry.path()));
            }
            Ok(_) => {}
            // Reading it will tell why it cannot be read.
            Err(_) => found.push((String::new(), entry.path())),
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(StoreError::NotResults { dir: dir.to_owned(), missing: "manifest.json" }),
        false => Ok(found.into_iter().map(|(_, path)| path).collect()),
    }
}

/// Reads a stored experiment.
pub fn read(dir: &Path) -> Result<Stored, StoreError> {
    let manifest = read_manifest(dir)?;
    let path = dir.join("trials.jsonl");
    let file = File::open(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            StoreError::NotResults { dir: dir.to_owned(), missing: "trials.jsonl" }
        }
        _ => io("read", &path, source),
    })?;
    // A line at a time: the text of all trials is far larger than what is kept of it.
    let mut lines = BufReader::with_capacity(1 << 16, file);
    let (mut line, mut trials) = (String::new(), Vec::new());
    let torn = loop {
        line.clear();
        let bytes = lines.read_line(&mut line).map_err(|source| io("read", &path, source))?;
        if !line.ends_with('\n') {
            break bytes > 0;
        }
        let at = format!("{} line {}", path.display(), trials.len() + 1);
        let mut trial = wire::from_json(line.trim_end_matches('\n'), &at)?;
        trial.rejudged = checks::rejudge(&mut trial);
        trials.push(trial);
    };
    Ok(Stored { manifest, trials, torn, own_baseline: None, judged: false })
}
