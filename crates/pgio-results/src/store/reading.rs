//! Reads a stored experiment: complete, interrupted, or torn by a crash.
//!
//! [`read`] is for reports and puts names on one line. `resume` reads the records as they are, because it writes
//! the manifest again. Code that compares a name from elsewhere with one that was read passes it through
//! `printable::line` as well.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::mem;
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, fstat};
use serde::Deserialize;

use super::manifest::{MANIFEST_SCHEMA, MAX_NAME_BYTES, Manifest};
use super::{StoreError, io};
use crate::change::Change;
use crate::files::{self, Directory};
use crate::model::Trial;
use crate::telemetry::{SERIES_SCHEMA, Series};
use crate::wire;

pub(super) const EXPERIMENT: &str = "experiment.toml";
pub(super) const TRIALS: &str = "trials.jsonl";

/// Larger files and lines were not written by pgio. A record of a thousand sessions has about a
/// megabyte.
pub(super) const LINE_LIMIT: u64 = 64 << 20;
const TRIALS_LIMIT: u64 = 8 << 30;
const SERIES_LIMIT: u64 = 1 << 30;
const MANIFEST_LIMIT: u64 = 64 << 20;
const EXPERIMENT_LIMIT: u64 = 16 << 20;

/// A stored experiment as read back.
#[derive(Debug, Clone)]
pub struct StoredExperiment {
    pub manifest: Manifest,
    pub trials: Vec<Trial>,
    /// Whether a crash tore the last line of trials.jsonl, which is skipped.
    pub torn: bool,
    /// Whether the trials' checks include those that need the other trials: see `pgio_verdict::judge`.
    pub judged: bool,
}

impl StoredExperiment {
    /// The same trials with another condition as the baseline, by its name as in the experiment file or as in
    /// reports. The A/A twin of the original baseline becomes an ordinary condition, because it does not measure
    /// the noise of the new baseline.
    pub fn with_baseline(mut self, baseline: &str) -> Result<StoredExperiment, NoSuchCondition> {
        let manifest = &mut self.manifest;
        let baseline = printable::line(baseline);
        if baseline == manifest.baseline {
            return Ok(self);
        }
        if !manifest.conditions.iter().any(|c| c.name == baseline) {
            let known = manifest.conditions.iter().map(|c| c.name.clone()).collect();
            return Err(NoSuchCondition { name: baseline.into_owned(), known });
        }
        manifest.aa = None;
        manifest.own_baseline = Some(mem::replace(&mut manifest.baseline, baseline.into_owned()));
        Ok(self)
    }
}

/// The requested condition does not exist in the stored experiment.
#[derive(Debug, thiserror::Error)]
#[error("unknown condition `{name}` (conditions: {})", known.join(", "))]
pub struct NoSuchCondition {
    name: String,
    known: Vec<String>,
}

pub fn read_manifest(dir: &Path) -> Result<Manifest, StoreError> {
    #[derive(Deserialize)]
    struct Tag {
        schema: String,
    }
    let path = dir.join("manifest.json");
    let read = open(dir, "manifest.json")?.read(Path::new("manifest.json"), MANIFEST_LIMIT);
    let text = read.map_err(|source| match source.kind() {
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
    let manifest: Manifest = serde_json::from_str(&text).map_err(broken)?;
    match manifest.longest_name() {
        bytes if bytes > MAX_NAME_BYTES => Err(StoreError::LongName { path, bytes }),
        _ => Ok(manifest),
    }
}

/// The samples of a trial, if any are stored.
pub fn read_series(dir: &Path, trial: &Trial) -> Result<Option<Series>, StoreError> {
    let Some(name) = &trial.series else { return Ok(None) };
    let path = dir.join(name);
    if !name.starts_with("series/") {
        let place = dir.join(TRIALS).display().to_string();
        return Err(StoreError::SeriesName { place, name: name.clone() });
    }
    let text = match open(dir, "trials.jsonl")?.read(Path::new(name), SERIES_LIMIT) {
        Ok(text) => text,
        // Samples are large; people who share results may omit them.
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

/// The experiment file; `None` if the results do not contain it.
pub fn read_experiment(dir: &Path) -> Result<Option<String>, StoreError> {
    match open(dir, EXPERIMENT)?.read(Path::new(EXPERIMENT), EXPERIMENT_LIMIT) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io("read", &dir.join(EXPERIMENT), source)),
    }
}

/// Like [`read_experiment`], before running its commands: fails if another user may have written
/// the directory or the file.
pub fn read_own_experiment(dir: &Path) -> Result<Option<String>, StoreError> {
    let directory = open(dir, EXPERIMENT)?;
    let path = dir.join(EXPERIMENT);
    let check_owner = |found: Stat, path: &Path| {
        let untrusted = |why| StoreError::Untrusted { path: path.to_owned(), why };
        files::check_owner(&found).map_err(untrusted)
    };
    check_owner(directory.stat().map_err(|e| io("stat", dir, e))?, dir)?;
    let file = match directory.open_file(Path::new(EXPERIMENT), EXPERIMENT_LIMIT) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| io("read", &path, e))?,
    };
    check_owner(fstat(&file).map_err(|e| io("stat", &path, e.into()))?, &path)?;
    let mut text = String::new();
    let read = file.take(EXPERIMENT_LIMIT).read_to_string(&mut text);
    read.map_err(|e| io("read", &path, e))?;
    Ok(Some(text))
}

/// Opens a directory that should contain the file `wanted`.
pub(super) fn open(dir: &Path, wanted: &'static str) -> Result<Directory, StoreError> {
    Directory::open(dir).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            StoreError::NotResults { dir: dir.to_owned(), missing: wanted }
        }
        _ => io("open", dir, source),
    })
}

/// The directory itself, or the directories of an experiment's workloads below it, in the order of
/// their start. Never empty.
pub fn experiments(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if dir.join("manifest.json").symlink_metadata().is_ok() {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => Vec::new(),
        Err(source) => return Err(io("read", dir, source)),
    };
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        // Ignore links, which could lead out of the results.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir())
            || entry.path().join("manifest.json").symlink_metadata().is_err()
        {
            continue;
        }
        match read_manifest(&entry.path()) {
            // The experiment's name ends with the workload's name, which is also the directory's
            // name. Other directories do not belong to this experiment.
            Ok(m) if m.name.ends_with(&format!(" {}", entry.file_name().display())) => {
                found.push((m.created_at, entry.path()));
            }
            Ok(_) => {}
            // Reading it later reports the error.
            Err(_) => found.push((String::new(), entry.path())),
        }
    }
    found.sort();
    if found.is_empty() {
        Err(StoreError::NotResults { dir: dir.to_owned(), missing: "manifest.json" })
    } else {
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }
}

/// Reads a stored experiment and puts each name on one line: a line break in a name could forge a table row. All
/// places that name a condition have the same text, because they are compared.
pub fn read(dir: &Path) -> Result<StoredExperiment, StoreError> {
    let manifest = read_manifest(dir)?;
    let file = open(dir, TRIALS)?.open_file(Path::new(TRIALS), TRIALS_LIMIT);
    let file = file.map_err(|source| match source.kind() {
        ErrorKind::NotFound => StoreError::NotResults { dir: dir.to_owned(), missing: TRIALS },
        _ => io("read", &dir.join(TRIALS), source),
    })?;
    let Records { trials, torn, .. } = records(&file, &dir.join(TRIALS))?;
    let mut stored = StoredExperiment { manifest, trials, torn: !torn.is_empty(), judged: false };
    put_names_on_one_line(&mut stored);
    Ok(stored)
}

fn put_names_on_one_line(stored: &mut StoredExperiment) {
    let one_line = |name: &mut String| *name = printable::line(name).into_owned();
    let manifest = &mut stored.manifest;
    one_line(&mut manifest.name);
    one_line(&mut manifest.baseline);
    manifest.aa.iter_mut().for_each(one_line);
    for condition in &mut manifest.conditions {
        one_line(&mut condition.name);
        condition.changes.iter_mut().flat_map(Change::texts_mut).for_each(one_line);
    }
    put_keys_on_one_line(&mut manifest.built);
    manifest.built.values_mut().flatten().flat_map(Change::texts_mut).for_each(one_line);
    manifest.rules.judge.iter_mut().for_each(one_line);
    if let Some(varied) = &mut manifest.varied {
        varied.at_middle_only.iter_mut().for_each(one_line);
    }
    if let Some(design) = &mut manifest.design {
        design.cells.iter_mut().for_each(|cell| one_line(&mut cell.condition));
    }
    if let Some(calibration) = &mut manifest.weave {
        let answers = calibration.tried.iter_mut().flat_map(|tried| &mut tried.answers);
        answers.for_each(|answer| one_line(&mut answer.condition));
    }
    for trial in &mut stored.trials {
        if let Some(place) = &mut trial.place {
            one_line(&mut place.experiment);
            one_line(&mut place.condition);
        }
        if let Some(woven) = &mut trial.woven {
            put_keys_on_one_line(&mut woven.after);
            put_keys_on_one_line(&mut woven.after_errors);
        }
    }
}

fn put_keys_on_one_line<T>(by_name: &mut BTreeMap<String, T>) {
    let all = mem::take(by_name).into_iter();
    *by_name = all.map(|(name, value)| (printable::line(&name).into_owned(), value)).collect();
}

/// The content of trials.jsonl.
pub(super) struct Records {
    pub(super) trials: Vec<Trial>,
    /// Offset of the end of the last complete line.
    pub(super) whole: u64,
    /// Bytes after it.
    pub(super) torn: Vec<u8>,
}

/// Reads records from the current position of the file. `path` is for errors.
pub(super) fn records(file: &File, path: &Path) -> Result<Records, StoreError> {
    let mut reader = BufReader::new(file);
    let mut found = Records { trials: Vec::new(), whole: 0, torn: Vec::new() };
    loop {
        let place = || format!("{} line {}", path.display(), found.trials.len() + 1);
        let mut line = Vec::new();
        let limited = reader.by_ref().take(LINE_LIMIT + 1).read_until(b'\n', &mut line);
        let length = limited.map_err(|source| io("read", path, source))? as u64;
        if length > LINE_LIMIT {
            return Err(StoreError::LongLine { place: place(), limit: LINE_LIMIT });
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            found.torn = line;
            return Ok(found);
        };
        let text = match str::from_utf8(text) {
            Ok(text) => Cow::Borrowed(text),
            // The parser then reports the position of the error.
            Err(_) => String::from_utf8_lossy(text),
        };
        let mut trial = wire::from_json(&text, &place())?;
        trial.share_environment(found.trials.last());
        found.trials.push(trial);
        found.whole += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factors::{DesignCell, DesignKind, FactorDesign};
    use crate::model::Woven;
    use crate::points::{Combination, Varied};
    use crate::store::{
        Calibration, CarryOver, CarryOverQuestion, ConditionInfo, LengthVerdict, Store, TriedLength,
    };
    use crate::telemetry::Track;
    use crate::test_support::{full_trial, manifest};

    #[test]
    fn names_that_are_read_have_one_line_and_resume_keeps_them() {
        const NAME: &str = "on\n| off | faster |\u{1b}[31m";
        const LINE: &str = "on\\n| off | faster |\\u{1b}[31m";
        let mut stored = manifest();
        let change = Change::server(NAME, NAME);
        (stored.name, stored.baseline) = (NAME.to_owned(), NAME.to_owned());
        stored.aa = Some(NAME.to_owned());
        stored.conditions = vec![ConditionInfo { name: NAME.to_owned(), changes: vec![change] }];
        let mut trial = full_trial();
        let place = trial.place.as_mut().unwrap();
        (place.experiment, place.condition) = (NAME.to_owned(), NAME.to_owned());
        let dir = tempfile::tempdir().unwrap();
        Store::create(dir.path(), "", &stored).unwrap().append(&trial).unwrap();

        let StoredExperiment { manifest, trials, .. } = read(dir.path()).unwrap();
        let condition = &manifest.conditions[0];
        let names = [&manifest.name, &manifest.baseline, manifest.aa.as_ref().unwrap()];
        assert_eq!(names, [LINE; 3]);
        assert_eq!(condition.name, LINE);
        assert_eq!(condition.treatments(), [format!("{LINE} = {LINE}")]);
        let place = trials[0].place.as_ref().unwrap();
        assert_eq!([&place.experiment, &place.condition], [LINE; 2]);
        let (_, kept) = Store::resume(dir.path()).unwrap();
        assert_eq!((&kept.manifest, &kept.trials[0].place), (&stored, &trial.place));
    }

    #[test]
    fn fuzzed_directories_are_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path(), "", &manifest()).unwrap();
        (0..2).for_each(|_| store.append(&full_trial()).unwrap());
        drop(store);
        let names = ["manifest.json", TRIALS];
        let stored = names.map(|name| fs::read(dir.path().join(name)).unwrap());
        for (name, original) in names.iter().zip(&stored) {
            let path = dir.path().join(name);
            pgio_fuzz::fuzz(&[original], |bytes| {
                fs::write(&path, bytes).unwrap();
                if let Err(error) = read(dir.path()) {
                    pgio_fuzz::print(&error);
                }
                if let Err(error) = experiments(dir.path()) {
                    pgio_fuzz::print(&error);
                }
            });
            fs::write(&path, original).unwrap();
        }
    }

    #[test]
    fn fuzzed_samples_of_a_trial_are_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path(), "", &manifest()).unwrap();
        let mut series = Series::new(2.0);
        series.tracks.push(Track {
            source: "server".to_owned(),
            subject: String::new(),
            name: "commits".to_owned(),
            unit: "1".to_owned(),
            at: vec![-0.5, 1.0, 2.0],
            values: vec![Some(1.5), None, Some(1e6)],
        });
        let mut trial = full_trial();
        trial.series = Some(store.write_series(&series).unwrap());
        let path = dir.path().join(trial.series.as_ref().unwrap());
        pgio_fuzz::fuzz(&[fs::read(&path).unwrap()], |bytes| {
            fs::write(&path, bytes).unwrap();
            if let Err(error) = read_series(dir.path(), &trial) {
                pgio_fuzz::print(&error);
            }
        });
    }

    #[test]
    fn all_places_that_name_a_condition_are_read_alike() {
        // With a zero-width joiner.
        const NAME: &str = "o\u{200d}n";
        const LINE: &str = "o\\u{200d}n";
        let mut stored = manifest();
        stored.conditions[1].name = NAME.to_owned();
        stored.built = BTreeMap::from([(NAME.to_owned(), vec![Change::server("fsync", "on")])]);
        stored.rules.judge = vec![NAME.to_owned()];
        stored.varied = Some(Varied {
            kind: Combination::Grid,
            axes: Vec::new(),
            points: Vec::new(),
            at_middle_only: vec![NAME.to_owned()],
        });
        let cell = DesignCell { condition: NAME.to_owned(), high: Vec::new() };
        let (kind, factors) = (DesignKind::Full, Vec::new());
        stored.design = Some(FactorDesign { kind, factors, cells: vec![cell] });
        let answer = CarryOver {
            condition: NAME.to_owned(),
            question: CarryOverQuestion::After,
            ratio: 1.0,
            low: 0.9,
            high: 1.1,
        };
        let tried = TriedLength {
            slice_seconds: 0.1,
            slices: 10,
            seconds: 2.0,
            verdict: LengthVerdict::Agrees,
            answers: vec![answer],
        };
        stored.weave = Some(Calibration { tried: vec![tried], ..Calibration::default() });
        let mut trial = full_trial();
        trial.place.as_mut().unwrap().condition = NAME.to_owned();
        let rates = BTreeMap::from([(NAME.to_owned(), 1.0)]);
        trial.woven = Some(Woven { after: rates.clone(), after_errors: rates, ..Woven::default() });
        let dir = tempfile::tempdir().unwrap();
        Store::create(dir.path(), "", &stored).unwrap().append(&trial).unwrap();

        let read = read(dir.path()).unwrap();
        let (m, trial) = (&read.manifest, &read.trials[0]);
        assert!(m.rules.judges(&m.conditions[1].name, &m.primary_metric, true));
        let woven = trial.woven.as_ref().unwrap();
        let names = [
            &m.conditions[1].name,
            m.built.keys().next().unwrap(),
            &m.rules.judge[0],
            &m.varied.as_ref().unwrap().at_middle_only[0],
            &m.design.as_ref().unwrap().cells[0].condition,
            &m.weave.as_ref().unwrap().tried[0].answers[0].condition,
            &trial.place.as_ref().unwrap().condition,
            woven.after.keys().next().unwrap(),
            woven.after_errors.keys().next().unwrap(),
        ];
        assert_eq!(names, [LINE; 9]);
        // The user may write the name of the experiment file or of a report.
        for name in [NAME, LINE] {
            assert_eq!(read.clone().with_baseline(name).unwrap().manifest.baseline, LINE);
        }
    }
}
