//! Runs mount, umount and the like as root on a host; finds the server's directories there.

use std::thread;
use std::time::{Duration, Instant};

use super::mounts::{Mounted, Mounts};
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::rights::{Capability, Prefix, Rights};
use crate::host::{Host, own_dir};
use crate::pg::server::{self, DIRECTORIES_GRANT};
use crate::pg::words;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;

/// The kind of treatment.
pub(super) const KIND: &str = "filesystem";

const UUID: &str = include_str!("uuid.sh");
const ORPHANS: &str = include_str!("orphans.sh");

/// The limit of one program; mkfs and a copy may take long.
const LIMIT: Duration = Duration::from_secs(900);
/// How long processes that end may keep a file system busy.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Programs of root on one host.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) host: &'a Host,
    prefix: Prefix,
}

impl<'a> Tools<'a> {
    /// Refuses users who may not run these programs. `what` begins the message, such as `to remount /srv`.
    pub(super) fn find(
        host: &'a Host,
        what: &str,
        programs: &[&str],
    ) -> Result<Tools<'a>, TreatmentError> {
        let capability = Some(Capability::SysAdmin);
        let rights = Rights::find(host)?;
        let prefix = rights.as_root(host, host.name(), what, capability, programs)?;
        Ok(Tools { host, prefix })
    }

    pub(super) fn run<A: AsRef<str>>(
        &self,
        words: impl IntoIterator<Item = A>,
    ) -> Result<String, ExecError> {
        self.host.run(&self.line(words))
    }

    fn line<A: AsRef<str>>(&self, words: impl IntoIterator<Item = A>) -> CommandLine {
        // A working directory of / does not keep a file system busy.
        self.prefix.line(words).directory("/".as_ref()).timeout(LIMIT)
    }

    pub(super) fn mount(
        &self,
        file_system: &str,
        options: &str,
        source: &str,
        point: &str,
    ) -> Result<(), ExecError> {
        // fstab has no influence if source and point are given.
        let options = if options.is_empty() { "defaults" } else { options };
        self.run(["mount", "-t", file_system, "-o", options, source, point]).map(drop)
    }

    /// Mounts a file system of pgio's own, and checks that it is there: mount(8) follows a link that someone put
    /// in the place of a directory.
    pub(super) fn mount_own(
        &self,
        file_system: &str,
        options: &str,
        source: &str,
        point: &str,
    ) -> Result<(), TreatmentError> {
        self.mount(file_system, options, source, point)?;
        let mounts = Mounts::read(self.host)?;
        if mounts.at(point).is_some_and(|m| is_mount_of(self.host, m, "", source)) {
            return Ok(());
        }
        self.run(["umount", source])?;
        Err(TreatmentError::Refused(format!(
            "{source} was mounted elsewhere than at {point} on host {}, and is unmounted again: {point} leads through a symbolic link",
            self.host.name()
        )))
    }

    /// Removes what a new ext4 has.
    pub(super) fn remove_lost_and_found(&self, point: &str) {
        let _ = self.run(["rmdir", "--", &format!("{point}/lost+found")]);
    }

    /// Gives a directory the owner and rights of another.
    pub(super) fn copy_owner(&self, like: &str, directory: &str) -> Result<(), ExecError> {
        let like = format!("--reference={like}");
        self.run(["chown", "-h", &like, "--", directory])?;
        self.run(["chmod", &like, "--", directory]).map(drop)
    }

    /// Unmounts, never lazily: a file system that stays in use is an error.
    pub(super) fn unmount(&self, point: &str) -> Result<(), ExecError> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            match self.run(["umount", point]) {
                Err(ExecError::Failed { stderr, .. })
                    if stderr.contains("busy") && Instant::now() < deadline =>
                {
                    thread::sleep(POLL);
                }
                other => return other.map(drop),
            }
        }
    }

    /// Like [`Tools::unmount`]; the error says how to go on with the undo.
    pub(super) fn unmount_for_undo(&self, point: &str) -> Result<(), TreatmentError> {
        self.unmount(point).map_err(|error| {
            TreatmentError::Refused(format!(
                "cannot unmount {point} yet ({}): find what has open files there with `fuser -vm {point}`, end it, then rerun `pgio undo`",
                words::sentence(&error)
            ))
        })
    }
}

/// Whether a mount is of that device: by `number`, or by the path, since btrfs shows a number of its own and
/// a mapped device has several names.
pub(super) fn is_mount_of(host: &Host, mounted: &Mounted, number: &str, device: &str) -> bool {
    let real = || {
        let line = CommandLine::new("readlink").args(["-e", "--", &mounted.source]).timeout(LIMIT);
        host.run(&line).is_ok_and(|path| path.trim() == device)
    };
    mounted.device == number || mounted.source == device || real()
}

/// The UUID of the file system on a device, if this user may read it.
pub(super) fn uuid(host: &dyn Exec, device: &str) -> Result<Option<String>, ExecError> {
    let line = CommandLine::new("sh").args(["-c", UUID, "sh", device]).timeout(LIMIT);
    Ok(Some(host.run(&line)?.trim().to_owned()).filter(|uuid| !uuid.is_empty()))
}

/// For an undo after a kill: programs that pgio had started may still run and act after the undo.
/// Waits for those with `word` among their arguments, and fails if one runs for long.
pub(super) fn wait_for_orphans(host: &Host, word: &str) -> Result<(), TreatmentError> {
    wait_for_orphans_within(BUSY_TIMEOUT, host, word)
}

pub(super) fn wait_for_orphans_within(
    limit: Duration,
    host: &Host,
    word: &str,
) -> Result<(), TreatmentError> {
    let ask = CommandLine::new("sh").args(["-c", ORPHANS, "sh", word]).timeout(LIMIT);
    let deadline = Instant::now() + limit;
    loop {
        let found = host.run(&ask)?;
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let processes: Vec<&str> = found.lines().collect();
            return Err(TreatmentError::Refused(format!(
                "a command that an interrupted run may have left still changes {word} on host {}: wait until process {} ends, or end it, then rerun `pgio undo`",
                host.name(),
                processes.join(" and ")
            )));
        }
        thread::sleep(POLL);
    }
}

/// The directories that the server writes to, on its host and without symbolic links; the data directory
/// first.
pub(super) fn server_directories(
    context: &mut Context<'_>,
    host: &Host,
) -> Result<Vec<String>, TreatmentError> {
    let found = server::directories(context.admin()?)
        .map_err(TreatmentError::postgres("query the server's directories"))?;
    let mut paths: Vec<&str> =
        found.iter().filter(|d| d.role == "data").map(|d| d.path.as_str()).collect();
    if paths.is_empty() {
        return Err(TreatmentError::Refused(format!(
            "the role may not see data_directory: GRANT {DIRECTORIES_GRANT} TO ROLE, or use a superuser"
        )));
    }
    paths.extend(found.iter().filter(|d| d.role != "data").map(|d| d.path.as_str()));
    let line = CommandLine::new("readlink").args(["-e", "--"]).args(&paths).timeout(LIMIT);
    // readlink prints no line for a path that it cannot read.
    let real: Vec<String> = host.output(&line)?.stdout.lines().map(str::to_owned).collect();
    if real.len() == paths.len() {
        return Ok(real);
    }
    Err(TreatmentError::Refused(format!(
        "cannot find {} on host {}: log in there as root, and set host in [target] to the machine that the server runs on",
        paths.join(", "),
        host.name()
    )))
}

/// Prints this user, then owner, mode and path of each directory above a path without symbolic links.
const ABOVE_SCRIPT: &str = r#"id -u
above=$1
while [ "$above" ]; do
    above=${above%/*}
    stat -c '%u %a %n' -- "${above:-/}" || exit 1
done"#;

const ABOVE_LIMIT: Duration = Duration::from_secs(30);

/// Refuses a path that another user could redirect; `host` is its name.
pub(super) fn check_mount_point(
    exec: &dyn Exec,
    host: &str,
    point: &str,
) -> Result<(), TreatmentError> {
    let line = CommandLine::new("sh").args(["-c", ABOVE_SCRIPT, "sh", point]).timeout(ABOVE_LIMIT);
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
        let line = CommandLine::new("sh").args(["-c", ABOVE_SCRIPT, "sh", "/proc/sys/new"]);
        let text = Local.run(&line).unwrap();
        let paths: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.splitn(3, ' ').nth(2)).collect();
        assert_eq!(paths, ["/proc/sys", "/proc", "/"]);
    }
}
