//! Differences between two experiment files, and changes of a file's text by flags that override it.
//!
//! Files are compared key by key, so that a comment may change, and without passwords, which are not stored. With
//! `--resume`, only `blocks` and `max_blocks` may differ, and only grow: blocks of the same seed begin with the same
//! ones, so stored trials keep their places. The numbers come from the file, or from `--blocks` and `--max-blocks`,
//! which change the stored file's text.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ResumeError;
use crate::config::experiment::{Experiment, part};
use crate::pg::values::may_hold_secret;
use pgio_connect::{self, Env};
use pgio_results::store::Manifest;

/// Further differences are only counted.
const MAX_SHOWN: usize = 5;

/// Describes the first few differences; `may_differ` are keys that are compared elsewhere.
pub(super) fn differences(stored: &str, now: &str, may_differ: &[&str]) -> Vec<String> {
    if stored == now {
        return Vec::new();
    }
    let (Some(stored), Some(now)) = (values_by_path(stored), values_by_path(now)) else {
        return vec!["one of the two files cannot be parsed".to_owned()];
    };
    let keys: BTreeSet<&String> = stored.keys().chain(now.keys()).collect();
    let mut found: Vec<String> = keys
        .into_iter()
        .filter(|key| !may_differ.contains(&key.as_str()))
        .filter(|key| stored.get(*key) != now.get(*key))
        .map(|key| match (stored.get(key), now.get(key)) {
            (Some(_), Some(_)) if is_hidden(key) => format!("{key} was changed"),
            (Some(_), None) if is_hidden(key) => format!("{key} was removed"),
            (None, _) if is_hidden(key) => format!("{key} was added"),
            (Some(was), Some(is)) => format!("{key} was {was} and is {is}"),
            (Some(was), None) => format!("{key} = {was} was removed"),
            (_, is) => format!("{key} = {} was added", is.map_or("", String::as_str)),
        })
        .collect();
    if found.len() > MAX_SHOWN {
        let more = found.len() - MAX_SHOWN;
        found.truncate(MAX_SHOWN);
        found.push(format!("and {more} more"));
    }
    found
}

/// Parts of paths to commands, which may have a password among their words, and to variables of the environment.
const COMMANDS: [&str; 8] =
    ["command", "env", "inventory", "parameters", "run", "setup", "warm_up", "cleanup"];

/// Whether the value at this path may hold a secret: a command or a variable of the environment, for example. A
/// `dsn` is without its password here.
fn is_hidden(path: &str) -> bool {
    let mut parts = path.split('.').map(|part| part.split('[').next().unwrap_or(part));
    let last = path.rsplit('.').next().unwrap_or(path);
    parts.any(|part| COMMANDS.contains(&part))
        || part::is_hidden(path)
        || (last != "dsn" && may_hold_secret(last))
}

/// Maps every value to its path, such as `condition[2].postgres.synchronous_commit`.
pub(super) fn values_by_path(text: &str) -> Option<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().ok()?;
    let mut all = BTreeMap::new();
    collect_values(&toml::Value::Table(table), "", &mut all);
    Some(all)
}

fn collect_values(value: &toml::Value, path: &str, all: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                collect_values(value, &format!("{path}{dot}{key}"), all);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            for (at, item) in (1..).zip(items) {
                collect_values(item, &format!("{path}[{at}]"), all);
            }
        }
        toml::Value::String(dsn) if path.ends_with(".dsn") => {
            // The stored dsn has no password; the password may come from another source now.
            let meant = pgio_connect::resolve(dsn, &Env::from_process());
            let shown = meant.map_or_else(
                |_| "unreadable".to_owned(),
                |params| params.for_comparison().without_secrets(),
            );
            all.insert(path.to_owned(), shown);
        }
        other => {
            all.insert(path.to_owned(), other.to_string());
        }
    }
}

/// Changes or adds one line; `value` is TOML. `None` if anything else would change, or if the file has
/// no section `[experiment]` for the line.
pub(super) fn with_key(text: &str, key: &str, value: &str) -> Option<String> {
    let line = format!("{key} = {value}");
    let (mut head, mut at, mut here) = (None, None, false);
    for (n, found) in text.lines().enumerate() {
        let found = found.trim();
        if found.starts_with('[') {
            here = found.split('#').next().is_some_and(|f| f.trim() == "[experiment]");
            head = head.or(here.then_some(n));
        } else if here && found.split_once('=').is_some_and(|(name, _)| name.trim() == key) {
            at = Some(n);
        }
    }
    let mut lines: Vec<&str> = text.lines().collect();
    match (at, head) {
        (Some(at), _) => lines[at] = &line,
        (None, Some(head)) => lines.insert(head + 1, &line),
        (None, None) => {}
    }
    let changed = lines.join("\n") + "\n";
    let mut expected = values_by_path(text)?;
    expected.insert(format!("experiment.{key}"), value.to_owned());
    (values_by_path(&changed) == Some(expected)).then_some(changed)
}

/// Numbers of blocks given on the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockLimits {
    pub blocks: Option<u32>,
    pub max_blocks: Option<u32>,
}

/// The keys of `[experiment]` that may grow.
pub(super) const EXTENDABLE_KEYS: [&str; 2] = ["experiment.blocks", "experiment.max_blocks"];

impl BlockLimits {
    /// Returns the text of an experiment file with these numbers.
    pub(super) fn apply_to(self, text: &str) -> Result<String, ResumeError> {
        let mut text = text.to_owned();
        for (key, value) in [("blocks", self.blocks), ("max_blocks", self.max_blocks)] {
            if let Some(value) = value {
                let changed = with_key(&text, key, &value.to_string());
                text = changed.ok_or_else(|| ResumeError::NotInsertable { key: key.to_owned() })?;
            }
        }
        Ok(text)
    }
}

/// Describes what grew; refuses what became smaller.
pub(super) fn check_growth(
    e: &Experiment,
    manifest: &Manifest,
) -> Result<Vec<String>, ResumeError> {
    let blocks = ("blocks", manifest.blocks, e.blocks);
    let limit = manifest.rules.max_blocks;
    let max_blocks = limit.map(|was| ("max_blocks", was, e.rules.max_blocks));
    let mut found = Vec::new();
    for (key, was, is) in [Some(blocks), max_blocks].into_iter().flatten() {
        if is < was {
            return Err(ResumeError::Smaller { key, was, is });
        }
        if is > was {
            found.push(format!("{key} was {was} and is {is}"));
        }
    }
    Ok(found)
}

/// Updates the manifest, which is written with the note that the run was resumed.
pub(super) fn update_manifest(e: &Experiment, manifest: &mut Manifest) {
    manifest.blocks = e.blocks;
    if let Some(limit) = &mut manifest.rules.max_blocks {
        *limit = e.rules.max_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# as planned\n[experiment]\nblocks = 6\n[target]\ndsn = 'host=h user=u dbname=d'\n\
                        [[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\npostgres = { fsync = 'on' }\n";
    const MAY_DIFFER: &[&str] = &["experiment.blocks"];

    #[test]
    fn comments_and_passwords_are_no_difference() {
        assert_eq!(differences(FILE, FILE, MAY_DIFFER), [""; 0]);
        let now = FILE
            .replace("as planned", "as I planned")
            .replace("dbname=d", "dbname=d passfile=/x password=x connect_timeout=5 keepalives=0");
        assert_eq!(differences(FILE, &now, MAY_DIFFER), [""; 0]);
    }

    #[test]
    fn every_other_difference_is_named_and_no_password_shown() {
        let now = FILE.replace("blocks = 6", "blocks = 8\naa = false");
        assert_eq!(differences(FILE, &now, MAY_DIFFER), ["experiment.aa = false was added"]);
        let now = FILE.replace("fsync = 'on'", "fsync = 'off'");
        let found = differences(FILE, &now, MAY_DIFFER);
        assert_eq!(found, ["condition[2].postgres.fsync was \"on\" and is \"off\""]);
        let now = FILE.replace("'b'\n", "'b'\n[condition.command]\napply = 'mount -o password=geheim'\n[condition.env]\nX = 'geheim'\n[workload]\nrun = 'x --password=geheim'\n[condition.other]\napi_token = 'geheim'\n");
        let now = now.replace("postgres = { fsync = 'on' }\n", "");
        let found = differences(FILE, &now, MAY_DIFFER).join("; ");
        assert!(found.contains("condition[2].command.apply was added"), "{found}");
        assert!(!found.contains("geheim"), "{found}");
        let now = FILE.replace("host=h", "host=other password=geheim");
        let found = differences(FILE, &now, MAY_DIFFER).join("");
        assert!(found.contains("other") && !found.contains("geheim"), "{found}");
    }

    #[test]
    fn a_few_differences_are_named_and_the_rest_counted() {
        let keys: String = (0..7).map(|n| format!("key_{n} = 1\n")).collect();
        let found = differences("", &keys, MAY_DIFFER);
        assert_eq!((found.len(), found[5].as_str()), (6, "and 2 more"));
    }

    const HEAD: &str =
        "# as planned\n[experiment] # of mine\nblocks = 6 # enough?\n[[condition]]\nname = \"a\"\n";

    fn put(text: &str, blocks: Option<u32>, max_blocks: Option<u32>) -> Result<String, String> {
        BlockLimits { blocks, max_blocks }.apply_to(text).map_err(|e| e.to_string())
    }

    #[test]
    fn extend_changes_block_numbers_and_keeps_the_rest_of_the_file() {
        let changed = put(HEAD, Some(12), Some(40)).unwrap();
        assert_eq!(
            changed,
            "# as planned\n[experiment] # of mine\nmax_blocks = 40\nblocks = 12\n[[condition]]\nname = \"a\"\n"
        );
        assert_eq!(put(HEAD, None, None).unwrap(), HEAD);
    }

    #[test]
    fn extend_refuses_a_file_without_an_experiment_section() {
        for text in ["experiment = { blocks = 6 }\n", "[[condition]]\nname = \"a\"\n", "no toml"] {
            let error = put(text, Some(12), None).unwrap_err();
            assert!(error.contains("before --resume"), "{error}");
        }
    }
}
