//! `--resume`: what an interrupted run left, and whether it may go on here.
//!
//! It may where the experiment, the server and the work are the same; everything else that is no
//! longer as it was goes into the manifest as a remark. The file is compared key by key, so that a
//! comment may change, and without the passwords, which are not stored.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;

pub(super) use super::extend::Larger;
use super::extend::{self, grown};
use super::job::Job;
use super::stored::NOT_STORED;
use crate::cli::exit::{FILES, Failure, REFUSED, USAGE};
use crate::cli::output;
use crate::experiment::live::{LiveCell, Target};
use crate::pg::connect::{self, ConnectParams, Env};
use crate::results::model::Warning;
use crate::results::store::{self, Manifest, Resumed, Store, StoreError, Stored};

const PGIO: &str = env!("CARGO_PKG_VERSION");

/// The job of a results directory: with the file given, or the stored one, and with its seed.
pub(super) fn job(dir: &Path, file: Option<&Path>, larger: Larger) -> Result<Job, Failure> {
    // Of several workloads any tells seed and file.
    let found = store::experiments(dir)?.remove(0);
    let manifest = store::read_manifest(&found)?;
    let path = file.map_or_else(|| found.join("experiment.toml"), Path::to_owned);
    // Its commands will be run: the stored one must be the present user's own.
    let text = match file {
        Some(file) => super::read_file(file)?,
        None => store::read_own_experiment(&found)?.ok_or_else(|| missing(&found))?,
    };
    if file.is_none() && text == NOT_STORED {
        return Err(Failure::message(
            USAGE,
            format!(
                "{} does not hold the experiment, as it has a password in it: name the file before --resume",
                path.display()
            ),
        ));
    }
    let stem = match file {
        Some(file) => file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into()),
        None => name_of_file(&manifest.name, &found, dir),
    };
    let text = larger.put_into(&text)?;
    let mut job = Job::parse(&text, &path.display().to_string(), &stem)?;
    job.seed = manifest.seed;
    if !job.experiment.workloads.iter().any(|w| job.dir_of(dir, w) == found) {
        // All would begin anew, beside what is there.
        let why = match found == dir {
            true => "holds one workload of several: name the directory above it".to_owned(),
            false => format!(
                "holds a workload that {} does not have: undo the change, or run it anew into another directory",
                path.display()
            ),
        };
        return Err(Failure::message(USAGE, format!("{} {why}", found.display())));
    }
    Ok(job)
}

fn missing(dir: &Path) -> StoreError {
    StoreError::NotResults { dir: dir.to_owned(), missing: "experiment.toml" }
}

/// An experiment of several workloads has added the workload's name, as its directory has.
fn name_of_file(name: &str, found: &Path, dir: &Path) -> String {
    let workload = found.strip_prefix(dir).unwrap_or(Path::new("")).display().to_string();
    let with_workload = format!(" {workload}");
    let short = name.strip_suffix(&with_workload).filter(|_| !workload.is_empty());
    short.unwrap_or(name).to_owned()
}

/// Opens what is there for going on; none where this workload had not been begun.
pub(super) fn open(dir: &Path) -> Result<Option<(Store, Stored)>, Failure> {
    if dir.join("manifest.json").symlink_metadata().is_err() {
        return Ok(None);
    }
    Ok(Some(Store::resume(dir)?))
}

/// Before any server is asked: refuses another experiment, and results of another pgio.
pub(super) fn check_file(
    job: &Job,
    dir: &Path,
    params: &BTreeMap<String, ConnectParams>,
) -> Result<(), Failure> {
    if dir.join("manifest.json").symlink_metadata().is_err() {
        return Ok(());
    }
    let manifest = store::read_manifest(dir)?;
    let major = |version: &str| version.split('.').next().map(str::to_owned);
    if major(&manifest.pgio) != major(PGIO) {
        return Err(Failure::message(
            FILES,
            format!(
                "{} was begun by pgio {} and this is {PGIO}: go on with the one that began it",
                dir.display(),
                manifest.pgio
            ),
        ));
    }
    let stored = store::read_experiment(dir)?.ok_or_else(|| missing(dir))?;
    let now = job.stored_text(params);
    let differing = differences(&stored, &now);
    if differing.is_empty() {
        return grown(job, &manifest).map(drop);
    }
    let differing = differing.join("; ");
    let message = format!(
        "{} holds another experiment than the file: {differing}; undo the change, or run it anew into another directory",
        dir.display()
    );
    Err(Failure::message(USAGE, message))
}

/// In words, at most a few.
fn differences(stored: &str, now: &str) -> Vec<String> {
    const AT_MOST: usize = 5;
    if stored == now {
        return Vec::new();
    }
    let (Some(stored), Some(now)) = (flat(stored), flat(now)) else {
        return vec!["one of the two holds what cannot be compared".to_owned()];
    };
    let keys: std::collections::BTreeSet<&String> = stored.keys().chain(now.keys()).collect();
    let mut found: Vec<String> = keys
        .into_iter()
        // These may grow, and are compared as numbers.
        .filter(|key| !extend::KEYS.contains(&key.as_str()))
        .filter(|key| stored.get(*key) != now.get(*key))
        .map(|key| match (stored.get(key), now.get(key)) {
            (Some(was), Some(is)) => format!("{key} was {was} and is {is}"),
            (Some(was), None) => format!("{key} = {was} is gone"),
            (_, is) => format!("{key} = {} is new", is.map_or("", String::as_str)),
        })
        .collect();
    if found.len() > AT_MOST {
        let more = found.len() - AT_MOST;
        found.truncate(AT_MOST);
        found.push(format!("and {more} more"));
    }
    found
}

/// Every value by its path, such as `condition[2].postgres.synchronous_commit`.
pub(super) fn flat(text: &str) -> Option<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().ok()?;
    let mut all = BTreeMap::new();
    flatten(&toml::Value::Table(table), "", &mut all);
    Some(all)
}

fn flatten(value: &toml::Value, path: &str, all: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(value, &format!("{path}{dot}{key}"), all);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            for (at, item) in (1..).zip(items) {
                flatten(item, &format!("{path}[{at}]"), all);
            }
        }
        toml::Value::String(dsn) if path.ends_with(".dsn") => {
            // Stored without its password, which may also have come from elsewhere.
            let meant = connect::resolve(dsn, &Env::from_process());
            let shown = meant.map_or_else(|_| "unreadable".to_owned(), |p| p.without_secrets());
            all.insert(path.to_owned(), shown);
        }
        other => {
            all.insert(path.to_owned(), other.to_string());
        }
    }
}

/// What no second run may differ in.
const SAME_SERVER: &[&str] = &["server_version", "system_identifier"];

/// Refuses another server and other work; returns what else is no longer as it was.
pub(super) fn remarks(
    stored: &Stored,
    now: &Manifest,
    targets: &BTreeMap<String, Target>,
    cells: &[LiveCell],
) -> Result<Vec<String>, Failure> {
    let refuse = |why: String| Err(Failure::message(REFUSED, format!("cannot go on: {why}")));
    let before = &stored.manifest;
    if (&before.conditions, &before.primary_metric) != (&now.conditions, &now.primary_metric) {
        return refuse("the conditions are no longer the same".to_owned());
    }
    if before.sweep != now.sweep {
        return refuse("the axes or their values are no longer the same".to_owned());
    }
    let mut remarks = Vec::new();
    for (name, target) in targets.iter().filter(|(_, t)| t.cluster.is_some()) {
        let server = if targets.len() > 1 { format!("`{name}`") } else { "the server".to_owned() };
        let version = &target.server.info.version;
        remarks.push(format!("{server} is a new private cluster (PostgreSQL {version})"));
    }
    for (key, is) in &now.environment {
        let Some(was) = before.environment.get(key).filter(|was| *was != is) else { continue };
        let (target, what) = of_target(targets, key);
        match target.is_some_and(|t| t.cluster.is_some()) {
            true if ["system_identifier", "target"].contains(&what) => {}
            _ if SAME_SERVER.contains(&what) => {
                return refuse(format!("it is another server: {key} was {was} and is {is}"));
            }
            _ => remarks.push(format!("{key} was {was} and is {is}")),
        }
    }
    if let Some(trial) = stored.trials.last() {
        let cell = cells.iter().find(|c| trial.place.as_ref().is_some_and(|p| c.cell.is_at(p)));
        let work = cell.map_or(0, |cell| cell.work);
        for target in targets.values() {
            let info = target.workloads[work].info();
            let keys = trial.workload.keys.keys().chain(info.keys.keys());
            let differs = |key: &&String| trial.workload.keys.get(*key) != info.keys.get(*key);
            if let Some(key) = keys.into_iter().find(differs) {
                return refuse(format!(
                    "the work is no longer the same: {key} was {} and is {}; see ./pgio.conf and the data set",
                    shown(trial.workload.keys.get(key)),
                    shown(info.keys.get(key))
                ));
            }
        }
    }
    Ok(remarks)
}

/// Says so, and notes it in the manifest.
pub(super) fn note(
    job: &Job,
    store: &mut Store,
    stored: &mut Stored,
    text: &str,
    mut remarks: Vec<String>,
) -> Result<(), Failure> {
    for remark in &remarks {
        output::warn(&Warning::new(
            remark.clone(),
            "the trials before were measured without this change",
            "compare the blocks before and after, or run the whole experiment anew",
        ));
    }
    let grown = grown(job, &stored.manifest)?;
    for larger in &grown {
        output::warn(&Warning::new(
            larger.clone(),
            "who looks at a result and then adds blocks finds a difference by chance more often than once in 20",
            "say beforehand how many blocks, or let precision = decide when to stop",
        ));
    }
    if !grown.is_empty() {
        // The file first: a manifest that lags behind is mended by the next --resume.
        store::write_durably(&store.dir().join("experiment.toml"), text)?;
        extend::put_into_manifest(job, &mut stored.manifest);
    }
    remarks.extend(grown);
    let note = Resumed {
        at: Timestamp::now().to_string(),
        pgio: PGIO.to_owned(),
        from_trial: stored.trials.len() + 1,
        remarks,
    };
    Ok(store.note_resumed(stored, note)?)
}

/// With several targets a key of the environment begins with its target's name.
fn of_target<'a>(
    targets: &'a BTreeMap<String, Target>,
    key: &'a str,
) -> (Option<&'a Target>, &'a str) {
    let named = targets.iter().find_map(|(name, target)| {
        Some((target, key.strip_prefix(name.as_str())?.strip_prefix('.')?))
    });
    match named {
        Some((target, what)) if targets.len() > 1 => (Some(target), what),
        _ => (targets.values().next(), key),
    }
}

fn shown(value: Option<&serde_json::Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# as planned\n[experiment]\nblocks = 6\n[target]\ndsn = 'host=h user=u dbname=d'\n\
                        [[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\npostgres = { fsync = 'on' }\n";

    #[test]
    fn comments_and_passwords_are_no_difference() {
        assert_eq!(differences(FILE, FILE), [""; 0]);
        let now =
            FILE.replace("as planned", "as I planned").replace("dbname=d", "dbname=d password=x");
        assert_eq!(differences(FILE, &now), [""; 0]);
    }

    #[test]
    fn every_other_difference_is_named_and_no_password_shown() {
        let now = FILE.replace("blocks = 6", "blocks = 8\naa = false");
        assert_eq!(differences(FILE, &now), ["experiment.aa = false is new"]);
        let now = FILE.replace("fsync = 'on'", "fsync = 'off'");
        let found = differences(FILE, &now);
        assert_eq!(found, ["condition[2].postgres.fsync was \"on\" and is \"off\""]);
        let now = FILE.replace("host=h", "host=other password=geheim");
        let found = differences(FILE, &now).join("");
        assert!(found.contains("other") && !found.contains("geheim"), "{found}");
    }
}
