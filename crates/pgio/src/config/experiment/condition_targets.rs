//! `target` of a condition: one server, or a list of servers that share its window.
//!
//! `together = true` in `[experiment]` makes all targets the list of each condition that names none.

use std::collections::BTreeMap;

use super::section::Section;
use super::target::{SINGLE_TARGET, Target};
use crate::config::error::{ConfigError, nearest};

/// Returns the targets of a condition in the order of the file; none if the file has no target.
pub(super) fn parse(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Vec<String>, ConfigError> {
    if section.is_list("target") {
        return parse_list(section, targets);
    }
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    match (section.string("target")?, names.as_slice()) {
        (None, [] | [_]) => Ok(targets.keys().cloned().collect()),
        (None, _) if together => Ok(targets.keys().cloned().collect()),
        (None, _) => {
            let message = format!("has no target; set target to one of {}", names.join(", "));
            Err(section.header_error(message))
        }
        (Some(name), _) => check_target(section, name, targets).map(|name| vec![name]),
    }
}

fn parse_list(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<Vec<String>, ConfigError> {
    let mut all: Vec<String> = Vec::new();
    for name in section.strings("target")?.unwrap_or_default() {
        let name = check_target(section, &name, targets)?;
        if all.contains(&name) {
            return Err(section.error("target", format!("names `{name}` twice")));
        }
        all.push(name);
    }
    if all.is_empty() {
        Err(section.error("target", "names no target; name one, or remove target"))
    } else {
        Ok(all)
    }
}

fn check_target(
    section: &Section<'_>,
    name: &str,
    targets: &BTreeMap<String, Target>,
) -> Result<String, ConfigError> {
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    let message = match names.as_slice() {
        _ if names.contains(&name) => return Ok(name.to_owned()),
        [] | [SINGLE_TARGET] => format!("`{name}` is not a target; add [targets.{name}]"),
        _ => format!("`{name}` is not a target; {}", nearest(name, &names)),
    };
    Err(section.error("target", message))
}
