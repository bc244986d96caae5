//! `--resume`: opens the results of an interrupted run and decides whether it may continue.
//!
//! It may if the experiment, the server and the work are the same; other changes go into
//! the manifest as a remark. `file_changes` compares the files and lets the number of blocks grow.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;

use super::error::ResumeError;
use super::file_changes::{
    BlockLimits, EXTENDABLE_KEYS, check_growth, differences, update_manifest,
};
use super::job::{Job, JobError, with_nodes};
use super::manifest::{NOT_STORED, stored_text};
use crate::config::experiment::limits::FILE_BYTES;
use crate::experiment::live::LiveCell;
use crate::experiment::target::{ConnectionKeys, Target};
use crate::feature;
use pgio_connect::ConnectParams;
use pgio_results::files;
use pgio_results::model::{Warning, WorkloadInfo};
use pgio_results::store::{self, Manifest, Resumed, Store, StoreError, StoredExperiment};

const PGIO: &str = env!("CARGO_PKG_VERSION");

/// Returns the job of a results directory, from the given file or the stored one, with the stored seed.
pub fn job(
    dir: &Path,
    file: Option<&Path>,
    larger: BlockLimits,
    base_keys: ConnectionKeys,
) -> Result<Job, ResumeError> {
    // Every workload's directory has the seed and the file.
    let found = store::experiments(dir)?.remove(0);
    let manifest = store::read_manifest(&found)?;
    let path = file.map_or_else(|| found.join("experiment.toml"), Path::to_owned);
    // The file's commands will run, so the stored file must belong to the current user.
    let text = match file {
        Some(file) => files::read_text(file, FILE_BYTES)
            .map_err(|source| ResumeError::Read { path: file.to_owned(), source })?,
        None => store::read_own_experiment(&found)?.ok_or_else(|| missing_file(&found))?,
    };
    if file.is_none() && text == NOT_STORED {
        return Err(ResumeError::NotStored { path });
    }
    let stem = match file {
        Some(file) => file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into()),
        None => name_of_file(&manifest.name, &found, dir),
    };
    let shown = path.display().to_string();
    // The stored file has its nodes; another file's may have changed, which is refused later.
    let text = with_nodes(text, &shown).map_err(JobError::from)?;
    let text = larger.apply_to(&text)?;
    let mut job = Job::parse(&text, &shown, &stem, base_keys)?;
    job.seed = manifest.seed;
    if !job.experiment.workloads.iter().any(|w| job.dir_of(dir, w) == found) {
        // Otherwise everything would start again, beside the existing results.
        return Err(if found == dir {
            ResumeError::OneOfSeveral { dir: found }
        } else {
            ResumeError::NoSuchWorkload { dir: found, file: path }
        });
    }
    Ok(job)
}

fn missing_file(dir: &Path) -> StoreError {
    StoreError::NotResults { dir: dir.to_owned(), missing: "experiment.toml" }
}

/// Removes the workload's name, which an experiment of several workloads appends.
fn name_of_file(name: &str, found: &Path, dir: &Path) -> String {
    let workload = found.strip_prefix(dir).unwrap_or(Path::new("")).display().to_string();
    let with_workload = format!(" {workload}");
    let short = name.strip_suffix(&with_workload).filter(|_| !workload.is_empty());
    short.unwrap_or(name).to_owned()
}

/// Opens the results of an interrupted run; none if this workload had not started.
pub(super) fn open(dir: &Path) -> Result<Option<(Store, StoredExperiment)>, StoreError> {
    if has_begun(dir) { Store::resume(dir).map(Some) } else { Ok(None) }
}

fn has_begun(dir: &Path) -> bool {
    dir.join("manifest.json").symlink_metadata().is_ok()
}

/// Refuses another experiment, and results of another pgio, before connecting to a server.
pub(super) fn check_file(
    job: &Job,
    dir: &Path,
    params: &BTreeMap<String, ConnectParams>,
) -> Result<(), ResumeError> {
    if !has_begun(dir) {
        return Ok(());
    }
    let manifest = store::read_manifest(dir)?;
    let major = |version: &str| version.split('.').next().map(str::to_owned);
    if major(&manifest.pgio) != major(PGIO) {
        let (dir, begun_by) = (dir.to_owned(), manifest.pgio);
        return Err(ResumeError::OtherVersion { dir, begun_by, this: PGIO });
    }
    let stored = store::read_experiment(dir)?.ok_or_else(|| missing_file(dir))?;
    let now = stored_text(job, params);
    let differences = differences(&stored, &now, &EXTENDABLE_KEYS);
    if differences.is_empty() {
        return check_growth(&job.experiment, &manifest).map(drop);
    }
    let (dir, differences) = (dir.to_owned(), differences.join("; "));
    Err(ResumeError::OtherExperiment { dir, differences })
}

/// The hint if the stored file itself was changed, so that it no longer agrees with the manifest.
const UNDO_OR_START_ANEW: &str =
    "undo the change in the file, or start a new run in another directory";

/// Facts that must be the same in the resumed run.
const SERVER_IDENTITY: &[&str] = &["server_version", "system_identifier"];

/// The current state of a target, as far as it must be unchanged.
#[derive(Debug)]
pub(super) struct CurrentTarget {
    pub(super) name: String,
    pub(super) private: bool,
    pub(super) version: String,
    /// See `target::Target`.
    pub(super) works: Vec<WorkloadInfo>,
}

impl CurrentTarget {
    pub(super) fn new(targets: &BTreeMap<String, Target>) -> Vec<CurrentTarget> {
        let now = |(name, target): (&String, &Target)| CurrentTarget {
            name: name.clone(),
            private: target.cluster.is_some(),
            version: target.server.info.version.clone(),
            works: target.workloads.iter().map(|work| work.info()).collect(),
        };
        targets.iter().map(now).collect()
    }
}

/// Returns the results to which trials are added, an interrupted run's or new ones with this manifest alone. Also
/// returns remarks on what differs from the interrupted run.
pub(super) fn continue_or_begin(
    earlier: Option<(Store, StoredExperiment)>,
    now: Manifest,
    targets: &[CurrentTarget],
    cells: &[LiveCell],
) -> Result<(Option<Store>, StoredExperiment, Vec<String>), ResumeError> {
    let Some((store, stored)) = earlier else {
        let new =
            StoredExperiment { manifest: now, trials: Vec::new(), torn: false, judged: false };
        return Ok((None, new, Vec::new()));
    };
    let remarks = remarks(&stored, &now, targets, cells)?;
    Ok((Some(store), stored, remarks))
}

/// Refuses another server and other work; returns other changes as remarks.
fn remarks(
    stored: &StoredExperiment,
    now: &Manifest,
    targets: &[CurrentTarget],
    cells: &[LiveCell],
) -> Result<Vec<String>, ResumeError> {
    let refuse = |why: String| Err(ResumeError::Changed(why));
    let before = &stored.manifest;
    if (&before.conditions, &before.primary_metric) != (&now.conditions, &now.primary_metric) {
        return refuse(format!("the conditions changed; {UNDO_OR_START_ANEW}"));
    }
    if before.varied != now.varied {
        return refuse(format!("the axes or their values changed; {UNDO_OR_START_ANEW}"));
    }
    if before.design != now.design {
        return refuse(format!("the factors or their design changed; {UNDO_OR_START_ANEW}"));
    }
    check_same_generators(before, now)?;
    let mut remarks = Vec::new();
    for target in targets.iter().filter(|t| t.private) {
        let (name, version) = (&target.name, &target.version);
        let server = if targets.len() > 1 { format!("`{name}`") } else { "the server".to_owned() };
        remarks.push(format!("{server} is a new private cluster (PostgreSQL {version})"));
    }
    for (key, is) in &now.environment {
        let Some(was) = before.environment.get(key).filter(|was| *was != is) else { continue };
        let (target, what) = split_key(targets, key);
        match target.is_some_and(|t| t.private) {
            true if ["system_identifier", "target"].contains(&what) => {}
            _ if SERVER_IDENTITY.contains(&what) => {
                return refuse(format!("this is another server: {key} was {was} and is {is}"));
            }
            _ => remarks.push(format!("{key} was {was} and is {is}")),
        }
    }
    for target in targets {
        check_same_work(stored, target, cells)?;
    }
    Ok(remarks)
}

/// Refuses other work than in the target's last trial. Each target has work of its own, such as its data set.
fn check_same_work(
    stored: &StoredExperiment,
    target: &CurrentTarget,
    cells: &[LiveCell],
) -> Result<(), ResumeError> {
    // Where several servers share a window, the record has the work of the first.
    let own = || cells.iter().filter(|cell| cell.target == target.name);
    let last = stored.trials.iter().rev().find_map(|trial| {
        let place = trial.place.as_ref()?;
        own().find(|cell| place.is_in(&cell.cell)).map(|cell| (trial, cell.work))
    });
    let Some((trial, work)) = last else { return Ok(()) };
    let info = &target.works[work];
    let mut keys = trial.workload.keys.keys().chain(info.keys.keys());
    let differs = |key: &&String| trial.workload.keys.get(*key) != info.keys.get(*key);
    let Some(key) = keys.find(differs) else { return Ok(()) };
    Err(ResumeError::Changed(format!(
        "the work changed: {key} was {} and is {}; check ./pgio.conf and the data set",
        value_text(trial.workload.keys.get(key)),
        value_text(info.keys.get(key))
    )))
}

/// Refuses other processes that generate the load: the flag that asks for them is not in the stored file.
fn check_same_generators(before: &Manifest, now: &Manifest) -> Result<(), ResumeError> {
    for fact in feature::generators().map(|generators| generators.fact) {
        let (was, is) = (before.environment.get(fact), now.environment.get(fact));
        if was != is {
            let [was, is] = [was, is].map(|found| found.map_or("none", String::as_str));
            return Err(ResumeError::Changed(format!(
                "the {fact} were {was} and are {is}; specify --{fact} as when the run was started"
            )));
        }
    }
    Ok(())
}

/// Notes in the manifest, and in the stored file if blocks were added, that the run continues. Returns
/// warnings.
pub(super) fn record_resumption(
    job: &Job,
    store: &mut Store,
    stored: &mut StoredExperiment,
    text: &str,
    mut remarks: Vec<String>,
) -> Result<Vec<Warning>, ResumeError> {
    let changed = |remark: &String| {
        Warning::new(
            remark.clone(),
            "earlier trials were measured without this change",
            "compare the blocks before and after, or rerun the whole experiment",
        )
    };
    let mut warnings: Vec<Warning> = remarks.iter().map(changed).collect();
    let grown = check_growth(&job.experiment, &stored.manifest)?;
    warnings.extend(grown.iter().map(|larger| {
        Warning::new(
            larger.clone(),
            "adding blocks after looking at a result raises the chance of a false difference above 1 in 20",
            "set the number of blocks beforehand, or use precision = to stop by a rule",
        )
    }));
    if !grown.is_empty() {
        // Write the file first: the next --resume repairs an outdated manifest.
        store::write_durably(&store.dir().join("experiment.toml"), text)?;
        update_manifest(&job.experiment, &mut stored.manifest);
    }
    remarks.extend(grown);
    let note = Resumed {
        at: Timestamp::now().to_string(),
        pgio: PGIO.to_owned(),
        from_trial: stored.trials.len() + 1,
        remarks,
    };
    store.note_resumed(stored, note)?;
    Ok(warnings)
}

/// Finds the target of an environment key, which begins with the target's name if there are several.
fn split_key<'a>(
    targets: &'a [CurrentTarget],
    key: &'a str,
) -> (Option<&'a CurrentTarget>, &'a str) {
    let named = targets.iter().find_map(|target| {
        Some((target, key.strip_prefix(target.name.as_str())?.strip_prefix('.')?))
    });
    match named {
        Some((target, what)) if targets.len() > 1 => (Some(target), what),
        _ => (targets.first(), key),
    }
}

fn value_text(value: Option<&serde_json::Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, first, job};
    use pgio_verdict::test_support::{experiment, trial};

    fn target(name: &str, private: bool) -> CurrentTarget {
        let works = vec![trial("local", 1, &[]).workload];
        CurrentTarget { name: name.to_owned(), private, version: "15.4".to_owned(), works }
    }

    /// What is remarked where the manifest of now differs from the stored one.
    fn remarked(
        targets: &[CurrentTarget],
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Vec<String>, String> {
        let mut stored = experiment(&["local", "on"], vec![trial("local", 1, &[])]);
        for (key, value) in
            [("server_version", "15.4"), ("system_identifier", "1"), ("b.kernel", "5")]
        {
            stored.manifest.environment.insert(key.to_owned(), value.to_owned());
        }
        let mut now = stored.manifest.clone();
        change(&mut now);
        let job = job(COMMITS);
        let (_, cells) = first(&job);
        remarks(&stored, &now, targets, &cells).map_err(|e| e.to_string())
    }

    fn set<'a>(key: &'a str, value: &'a str) -> impl FnOnce(&mut Manifest) + 'a {
        move |now| drop(now.environment.insert(key.to_owned(), value.to_owned()))
    }

    #[test]
    #[cfg(feature = "drivers")]
    fn other_drivers_are_refused() {
        let users = [target("target", false)];
        let error = remarked(&users, set("drivers", "4")).unwrap_err();
        assert!(error.contains("the drivers were none and are 4; specify --drivers"), "{error}");
        let with = experiment(&["local"], vec![trial("local", 1, &[])]).manifest;
        let (mut with, alone) = (with.clone(), with);
        with.environment.insert("drivers".to_owned(), "4".to_owned());
        assert!(check_same_generators(&with, &with).is_ok());
        let error = check_same_generators(&with, &alone).unwrap_err().to_string();
        assert!(error.contains("were 4 and are none"), "{error}");
    }

    #[test]
    fn another_server_or_other_conditions_are_refused() {
        let users = [target("target", false)];
        assert_eq!(remarked(&users, |_| {}), Ok(Vec::new()));
        let error = remarked(&users, set("system_identifier", "2")).unwrap_err();
        assert_eq!(
            error,
            "cannot continue: this is another server: system_identifier was 1 and is 2"
        );
        let error = remarked(&users, |now| drop(now.conditions.pop())).unwrap_err();
        assert_eq!(
            error,
            "cannot continue: the conditions changed; undo the change in the file, or start a new \
             run in another directory"
        );
        let error = remarked(&users, |now| now.varied = None).map(drop);
        assert_eq!(error, Ok(()), "neither has one");
    }

    #[test]
    fn resume_remarks_on_other_changes_of_the_environment() {
        let users = [target("target", false)];
        let found = remarked(&users, set("b.kernel", "6"));
        assert_eq!(found, Ok(vec!["b.kernel was 5 and is 6".to_owned()]));
    }

    #[test]
    fn a_private_server_is_a_new_one_each_time_but_of_the_same_version() {
        let private = [target("target", true)];
        let new = "the server is a new private cluster (PostgreSQL 15.4)".to_owned();
        assert_eq!(remarked(&private, set("system_identifier", "2")), Ok(vec![new]));
        let error = remarked(&private, set("server_version", "16.0")).unwrap_err();
        assert!(error.contains("server_version was 15.4 and is 16.0"), "{error}");
        let two = [target("a", true), target("b", false)];
        let found = remarked(&two, set("b.kernel", "6")).unwrap();
        assert_eq!(
            found,
            ["`a` is a new private cluster (PostgreSQL 15.4)", "b.kernel was 5 and is 6"]
        );
    }

    #[test]
    fn resume_refuses_changed_workload_keys() {
        let mut users = [target("target", false)];
        users[0].works[0].keys.insert("sessions".to_owned(), 4.into());
        let error = remarked(&users, |_| {}).unwrap_err();
        assert!(error.contains("the work changed: sessions was "), "{error}");
        assert!(error.ends_with("and is 4; check ./pgio.conf and the data set"), "{error}");
    }

    /// Each of two servers has a data set of its own.
    #[test]
    fn a_target_is_compared_with_its_own_last_trial() {
        let job = job(COMMITS);
        let (_, mut cells) = first(&job);
        cells.retain(|cell| ["local", "on"].contains(&cell.cell.condition.as_str()));
        for (cell, target) in cells.iter_mut().zip(["a", "b"]) {
            cell.target = target.to_owned();
        }
        let with = |name: &str, sessions: u64| {
            let mut trial = trial(name, 1, &[]);
            trial.workload.keys.insert("sessions".to_owned(), sessions.into());
            trial
        };
        let stored = experiment(&["local", "on"], vec![with("local", 1), with("on", 2)]);
        let now = |name: &str, sessions: u64| CurrentTarget {
            works: vec![with("local", sessions).workload],
            ..target(name, true)
        };
        for (name, sessions) in [("a", 1), ("b", 2)] {
            assert!(check_same_work(&stored, &now(name, sessions), &cells).is_ok(), "{name}");
        }
        let error = check_same_work(&stored, &now("a", 2), &cells).unwrap_err().to_string();
        assert!(error.contains("the work changed: sessions was 1 and is 2"), "{error}");
        assert!(check_same_work(&stored, &now("c", 3), &cells).is_ok(), "no trial yet");
    }

    /// A results directory of the file, with no trial yet.
    fn results(text: &str) -> (tempfile::TempDir, Job) {
        let (scratch, job) = (tempfile::tempdir().unwrap(), job(text));
        let manifest = Manifest {
            pgio: PGIO.to_owned(),
            name: job.experiment.name.clone(),
            seed: job.seed,
            blocks: job.experiment.blocks,
            ..experiment(&["local", "on"], Vec::new()).manifest
        };
        let dir = scratch.path().join("out");
        Store::create(&dir, &stored_text(&job, &BTreeMap::new()), &manifest).unwrap();
        (scratch, job)
    }

    fn resumed(dir: &Path, larger: BlockLimits) -> Result<Job, ResumeError> {
        super::job(dir, None, larger, ConnectionKeys::default())
    }

    #[test]
    fn the_stored_file_is_resumed_with_its_seed() {
        let (scratch, _) = results(&COMMITS.replace("seed = 7\n", ""));
        let dir = scratch.path().join("out");
        let seed = store::read_manifest(&dir).unwrap().seed;
        let again = resumed(&dir, BlockLimits::default()).unwrap();
        assert_eq!((again.seed, again.experiment.name.as_str()), (seed, "x"));
        check_file(&again, &dir, &BTreeMap::new()).unwrap();
        let larger = resumed(&dir, BlockLimits { blocks: Some(8), max_blocks: None }).unwrap();
        assert_eq!(larger.experiment.blocks, 8);
        check_file(&larger, &dir, &BTreeMap::new()).unwrap();
        let fewer = resumed(&dir, BlockLimits { blocks: Some(4), max_blocks: None }).unwrap();
        let error = check_file(&fewer, &dir, &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ResumeError::Smaller { was: 6, is: 4, .. }), "{error}");
    }

    #[test]
    fn another_experiment_is_refused_with_what_differs() {
        let (scratch, _) = results(COMMITS);
        let dir = scratch.path().join("out");
        let other = job(&COMMITS.replace("'10s'", "'20s'"));
        let error = check_file(&other, &dir, &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ResumeError::OtherExperiment { .. }), "{error}");
        assert!(error.to_string().contains("experiment.duration was"), "{error}");
    }

    #[test]
    fn added_blocks_are_noted_and_warned_of() {
        let (scratch, _) = results(COMMITS);
        let dir = scratch.path().join("out");
        let larger = resumed(&dir, BlockLimits { blocks: Some(8), max_blocks: None }).unwrap();
        let (mut store, mut stored) = open(&dir).unwrap().unwrap();
        let text = stored_text(&larger, &BTreeMap::new());
        let remark = vec!["kernel was 5 and is 6".to_owned()];
        let warnings = record_resumption(&larger, &mut store, &mut stored, &text, remark).unwrap();
        assert_eq!(warnings.len(), 2);
        let manifest = store::read_manifest(&dir).unwrap();
        assert_eq!(manifest.blocks, 8);
        let remarks = &manifest.resumed[0].remarks;
        assert_eq!(remarks[..], ["kernel was 5 and is 6", "blocks was 6 and is 8"]);
        assert!(store::read_experiment(&dir).unwrap().unwrap().contains("blocks = 8"));
    }

    #[test]
    fn resume_finds_nothing_in_a_directory_without_results() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(open(scratch.path()).unwrap().is_none());
        let job = job(COMMITS);
        check_file(&job, scratch.path(), &BTreeMap::new()).unwrap();
    }
}
