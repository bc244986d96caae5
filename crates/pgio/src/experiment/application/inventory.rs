//! Runs the commands of inventories, before the experiment file is parsed.
//!
//! A command only prints nodes, so that it is also run for `--plan`. Next: `config::inventory`, which parses what it
//! prints.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;

use crate::config::ConfigError;
use crate::config::inventory::expand;
use crate::host::exec::{CommandLine, Exec, Tied};
use crate::pg::words;

/// A command that asks a cluster's controller may wait for it.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the text of an experiment file with the nodes of its inventories; without one, the text as it is.
pub fn with_nodes(text: String, file: &str) -> Result<String, ConfigError> {
    // Hosts and targets usually have the same inventory.
    let mut known: BTreeMap<String, Result<String, String>> = BTreeMap::new();
    let mut run = |command: &str| {
        known.entry(command.to_owned()).or_insert_with(|| printed_by(command)).clone()
    };
    Ok(expand(&text, file, &mut run)?.unwrap_or(text))
}

/// Ends a command with all that it started when pgio ends, by Ctrl-C or kill -9.
const ENDED_WITH_PGIO: &str = "trap 'kill -KILL 0' TERM; sh -c \"$1\" & wait $!";

fn printed_by(command: &str) -> Result<String, String> {
    let line = CommandLine::new("sh").args(["-c", ENDED_WITH_PGIO, "sh", command]).timeout(LIMIT);
    let output = Tied(Signal::TERM).output(&line).map_err(|error| match error.without_words() {
        Some(why) => format!("the command {why}"),
        None => words::sentence(&error),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = output.stderr.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map_or_else(String::new, |line| format!(": {line}"));
    Err(format!("the command failed with {}{said}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(command: &str) -> String {
        format!("[targets]\ninventory = '{command}'\nprivate = true\n")
    }

    #[test]
    fn a_command_prints_the_nodes() {
        let text = with_nodes(file("printf \"a\\nb\\n\""), "x.toml").unwrap();
        assert!(text.contains("[targets.\"a\"]\nprivate = true\n[targets.\"b\"]"), "{text}");
        let plain = "[target]\nprivate = true\n".to_owned();
        assert_eq!(with_nodes(plain.clone(), "x.toml").unwrap(), plain);
    }

    #[test]
    fn a_command_that_fails_is_an_error_of_its_line() {
        let error = with_nodes(file("echo n1; echo no controller >&2; exit 3"), "x.toml");
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("x.toml:2: targets.inventory: the command failed"), "{text}");
        assert!(text.ends_with("failed with exit status: 3: no controller"), "{text}");
    }
}
