//! Checks that PostgreSQL sees the mount that is to be changed: options such as noatime, and an umount,
//! take effect in one mount namespace only.
//!
//! The kernel gives each mount a number of its own, whatever namespace it is in, and shows it to
//! everyone in /proc/PID/mountinfo. The link /proc/PID/ns/mnt would identify the whole namespace,
//! but only to root and the server's own user, and a user who mounts by sudo is neither. If even
//! mountinfo cannot be read (hidepid, a container's own process numbers), the treatment is refused: pgio
//! would measure options that may not be in force where the server writes.

use std::time::Duration;

use super::mounts::Mounted;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::proc::mountinfo;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;

/// Prints our mountinfo, an empty line, and the server's.
const SCRIPT: &str = r#"cat /proc/self/mountinfo; echo; cat "/proc/$1/mountinfo""#;

const LIMIT: Duration = Duration::from_secs(30);

/// Refuses a server that sees, or may see, another mount there.
pub(super) fn check(
    host: &Host,
    context: &mut Context<'_>,
    mounted: &Mounted,
) -> Result<(), TreatmentError> {
    let row = context.admin()?.query_one("SELECT pg_backend_pid()", &[]);
    let pid: i32 = row.and_then(|row| row.try_get(0)).map_err(|source| {
        let doing = "query the session's process ID".to_owned();
        TreatmentError::Postgres { doing, source }
    })?;
    match sees_our_mount(&read_mountinfo(host, &pid.to_string())?, &mounted.point) {
        Some(true) => Ok(()),
        Some(false) => Err(TreatmentError::Refused(
            "PostgreSQL runs in its own mount namespace (PrivateTmp= of its unit, a container), where some mount options set outside do not apply".to_owned(),
        )),
        None => Err(TreatmentError::Refused(format!(
            "cannot check whether PostgreSQL sees the same mounts: /proc/{pid}/mountinfo of its session is unreadable on host {} (hidepid, a container); log in there as root or as the user that PostgreSQL runs as",
            host.name()
        ))),
    }
}

fn read_mountinfo(exec: &dyn Exec, pid: &str) -> Result<String, ExecError> {
    let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh", pid]).timeout(LIMIT);
    // An unreadable file is missing from the output.
    Ok(exec.output(&line)?.stdout)
}

/// Returns whether the server sees our mount at `point`; none if its mounts are unknown.
fn sees_our_mount(text: &str, point: &str) -> Option<bool> {
    let (ours, theirs) = text.split_once("\n\n")?;
    let number = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let is_at_point = |line: &&str| mountinfo::parse(line).iter().any(|m| m.mount_point == point);
    // Later mounts cover earlier ones.
    let ours = number(ours.lines().rfind(is_at_point)?);
    let mut theirs = theirs.lines().peekable();
    theirs.peek()?;
    Some(theirs.any(|line| number(line) == ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::Local;

    const OURS: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        23 22 7:1 / /srv/pg\\040data rw,noatime - ext4 /dev/loop1 rw\n\
        31 23 7:2 / /srv/pg\\040data rw,noatime - ext4 /dev/loop2 rw\n";

    fn beside(theirs: &str) -> Option<bool> {
        sees_our_mount(&format!("{OURS}\n{theirs}"), "/srv/pg data")
    }

    #[test]
    fn a_mount_is_identified_by_its_number() {
        assert_eq!(beside(OURS), Some(true));
        // A copy of all mounts has numbers of its own.
        let copy = OURS.replace("22 ", "122 ").replace("23 ", "123 ").replace("31 ", "131 ");
        assert_eq!(beside(&copy), Some(false));
        let uncovered: Vec<&str> = OURS.lines().take(2).collect();
        assert_eq!(beside(&uncovered.join("\n")), Some(false), "without the one on top");
    }

    #[test]
    fn an_unreadable_mount_is_unknown() {
        assert_eq!(beside(""), None);
        assert_eq!(sees_our_mount("", "/"), None);
        let mountinfo = read_mountinfo(&Local, "no-such-process").unwrap();
        assert_eq!(sees_our_mount(&mountinfo, "/proc"), None);
    }

    #[test]
    fn a_process_in_our_mount_namespace_sees_our_mount() {
        let mountinfo = read_mountinfo(&Local, &std::process::id().to_string()).unwrap();
        assert_eq!(sees_our_mount(&mountinfo, "/proc"), Some(true));
    }
}
