//! Whether root may mount at a path: no other user may be able to replace a directory above it.
//!
//! Root mounts there and gives the result to the server's user. Someone who may write to a directory above could
//! put a link in its place and get any directory of the system. The rule is that of [`own_dir`]:
//! each directory belongs to root or to the user who logs in there, and is closed to other writers or has the
//! sticky bit. Debian's /var/lib/postgresql belongs to postgres, so a place for pgio is /srv/pgio or /mnt/pgio.

use std::time::Duration;

use crate::host::exec::{CommandLine, Exec};
use crate::host::own_dir;
use crate::treatment::error::TreatmentError;

/// Prints this user, then owner, mode and path of each directory above a path without symbolic links.
const SCRIPT: &str = r#"id -u
above=$1
while [ "$above" ]; do
    above=${above%/*}
    stat -c '%u %a %n' -- "${above:-/}" || exit 1
done"#;

const LIMIT: Duration = Duration::from_secs(30);

/// Refuses a path that another user could redirect; `host` is its name.
pub(super) fn check(exec: &dyn Exec, host: &str, point: &str) -> Result<(), TreatmentError> {
    let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh", point]).timeout(LIMIT);
    match untrusted(&exec.run(&line)?) {
        None => Ok(()),
        Some(why) => Err(TreatmentError::Refused(format!(
            "root must not mount at {point} on host {host}: {why}, so another user could put a link in its place; use a directory below one of root's, such as /srv/pgio or /mnt/pgio"
        ))),
    }
}

/// What another user may replace.
fn untrusted(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let this: Option<u32> = lines.next().and_then(|line| line.parse().ok());
    lines.find_map(|line| {
        let mut words = line.splitn(3, ' ');
        let owner: Option<u32> = words.next().and_then(|word| word.parse().ok());
        let mode = words.next().and_then(|word| u32::from_str_radix(word, 8).ok());
        let path = words.next().unwrap_or(line);
        let (Some(owner), Some(mode)) = (owner, mode) else {
            return Some(format!("the owner of {path} is unknown"));
        };
        if owner != 0 && Some(owner) != this {
            return Some(format!("{path} belongs to user {owner}"));
        }
        let is_open = own_dir::others_may_replace_entries(mode);
        is_open.then(|| format!("{path} is writable by other users (mode {mode:04o})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::Local;

    #[test]
    fn a_directory_that_another_user_may_replace_is_not_trusted() {
        assert_eq!(untrusted("0\n0 755 /srv\n0 755 /\n"), None);
        assert_eq!(untrusted("0\n0 1777 /tmp\n0 755 /\n"), None);
        assert_eq!(untrusted("1000\n1000 700 /home/a b\n0 755 /home\n0 755 /\n"), None);
        let debian = untrusted("0\n114 755 /var/lib/postgresql\n0 755 /var/lib\n");
        assert_eq!(debian.unwrap(), "/var/lib/postgresql belongs to user 114");
        let why = untrusted("0\n0 775 /srv\n0 755 /\n").unwrap();
        assert_eq!(why, "/srv is writable by other users (mode 0775)");
        assert!(untrusted("0\nwhat\n").is_some());
    }

    #[test]
    fn the_script_lists_every_directory_above_the_path() {
        let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh", "/proc/sys/new"]);
        let text = Local.run(&line).unwrap();
        let paths: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.splitn(3, ' ').nth(2)).collect();
        assert_eq!(paths, ["/proc/sys", "/proc", "/"]);
    }
}
