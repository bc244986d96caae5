//! Finds the processes on a host that have a given word among their arguments: the mark of a command or of a guard.
//!
//! This file is short because commands and guards share this search and nothing else.

use std::time::Duration;

use super::error::TreatmentError;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};

const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// The numbers of the processes with this word, which holds a `-` and no other special character of a pattern.
pub(super) fn processes_with(host: &Host, mark: &str) -> Result<Vec<String>, TreatmentError> {
    // The pattern must not match itself among the arguments of this search.
    let pattern = mark.replacen('-', "[-]", 1);
    let search = "grep -ls -e \"$1\" /proc/[0-9]*/cmdline";
    let search = CommandLine::new("sh").args(["-c", search, "sh", &pattern]).timeout(LOOK_LIMIT);
    let output = host.output(&search)?.stdout;
    let pid = |path: &str| Some(path.strip_prefix("/proc/")?.strip_suffix("/cmdline")?.to_owned());
    Ok(output.lines().filter_map(pid).collect())
}
