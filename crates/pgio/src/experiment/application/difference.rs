//! Compares two experiment files key by key, so that a comment may change, and without passwords, which are not
//! stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::pg::secrets::may_hold_secret;
use pgio_connect::{self, Env};

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
        || path == "drivers.engine"
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
}
