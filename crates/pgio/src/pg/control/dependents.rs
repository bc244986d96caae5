//! Finds the systemd units that stop along with a unit.
//!
//! systemd stops what requires a unit, is bound to it or is part of it, each with its own dependents, whether those in
//! between are active or not. A start of the unit starts none of them again. Read-only.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::host::exec::{CommandLine, Exec, ExecError};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Units to which systemd propagates a stop (its table of dependency atoms). systemctl leaves out a property that
/// its version does not know.
const PROPAGATED: &[&str] =
    &["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"];

/// A unit as `systemctl show` prints it.
#[derive(Debug, Default)]
struct Unit {
    name: String,
    is_active: bool,
    dependents: Vec<String>,
}

/// The active units that a stop of `unit` would stop, directly or through others.
pub(super) fn active_dependents(exec: &dyn Exec, unit: &str) -> Result<Vec<String>, ExecError> {
    let start = show(exec, &[unit.to_owned()])?;
    let mut known: BTreeSet<String> = start.iter().map(|unit| unit.name.clone()).collect();
    // The name may be an alias.
    known.insert(unit.to_owned());
    let (mut level, mut active) = (start, Vec::new());
    loop {
        let dependents = level.into_iter().flat_map(|unit| unit.dependents);
        let new: Vec<String> = dependents.filter(|name| known.insert(name.clone())).collect();
        if new.is_empty() {
            return Ok(active);
        }
        level = show(exec, &new)?;
        active.extend(level.iter().filter(|unit| unit.is_active).map(|unit| unit.name.clone()));
    }
}

fn show(exec: &dyn Exec, units: &[String]) -> Result<Vec<Unit>, ExecError> {
    let property = format!("--property=Id,ActiveState,{}", PROPAGATED.join(","));
    let command = CommandLine::new("systemctl").args(["show", &property, "--"]).args(units);
    let text = exec.run(&command.timeout(TIMEOUT))?;
    Ok(text.split("\n\n").map(parse).collect())
}

fn parse(block: &str) -> Unit {
    let mut unit = Unit::default();
    for (name, value) in block.lines().filter_map(|line| line.split_once('=')) {
        match name {
            "Id" => unit.name = unquoted(value),
            "ActiveState" => unit.is_active = !matches!(value, "inactive" | "failed"),
            name if PROPAGATED.contains(&name) => {
                unit.dependents.extend(value.split_whitespace().map(unquoted));
            }
            _ => {}
        }
    }
    unit
}

/// systemctl quotes a name with a backslash, such as that of a mount.
fn unquoted(word: &str) -> String {
    match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\\\\", "\\"),
        None => word.to_owned(),
    }
}
