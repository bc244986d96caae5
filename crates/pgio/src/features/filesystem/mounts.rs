//! Reads the mounts of a host with their options from the kernel, and checks whether options are in force.
//!
//! One command reads all, cheap enough inside the window. Next: [`super::options`] for the meaning of
//! the words.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::{self, Setting};
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::{Host, storage};
use crate::treatment::context::Context;
use crate::treatment::contract::failed_reading;
use crate::treatment::error::TreatmentError;
use pgio_results::model::{Evidence, When};

const SCRIPT: &str = include_str!("mounts.sh");

const LIMIT: Duration = Duration::from_secs(30);

/// A mount, with everything that an undo must restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mounted {
    pub(super) point: String,
    /// `MAJOR:MINOR`
    pub(super) device: String,
    pub(super) source: String,
    pub(super) file_system: String,
    /// `/` except for bind mounts and subvolumes.
    pub(super) root: String,
    /// The options as mountinfo shows them.
    pub(super) options: String,
    /// Whether no path leads to it.
    #[serde(skip)]
    pub(super) hidden: bool,
    /// All options in force, if the file system lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) detail: Vec<String>,
    /// The file system's UUID, if it is to be mounted again: a path in /dev may be another device's by
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uuid: Option<String>,
}

impl Mounted {
    /// The options of mountinfo, which mount(8) accepts.
    pub(super) fn mountinfo_options(&self) -> Vec<&str> {
        self.options.split(',').collect()
    }

    /// All known options.
    pub(super) fn all_options(&self) -> Vec<&str> {
        self.detail.iter().map(String::as_str).chain(self.mountinfo_options()).collect()
    }

    /// The mount in words.
    pub(super) fn title(&self) -> String {
        format!("{} ({} on {})", self.point, self.file_system, self.source)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mounts(pub(super) Vec<Mounted>);

impl Mounts {
    pub(super) fn read(exec: &dyn Exec) -> Result<Mounts, ExecError> {
        let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh"]).timeout(LIMIT);
        Ok(Mounts::parse(&exec.run(&line)?))
    }

    pub(super) fn parse(text: &str) -> Mounts {
        let (info, lists) = text.split_at(text.find("\next4 ").unwrap_or(text.len()));
        let mounts = storage::parse_mounts(info).into_iter();
        let mut all: Vec<Mounted> = mounts
            .map(|m| Mounted {
                point: m.mount_point,
                device: m.device,
                source: m.source,
                file_system: m.file_system,
                root: m.root,
                options: m.options,
                hidden: m.hidden,
                detail: Vec::new(),
                uuid: None,
            })
            .collect();
        let mut device = "";
        for line in lists.lines() {
            match line.strip_prefix("ext4 ") {
                Some(number) => device = number,
                None if line.is_empty() => {}
                None => all
                    .iter_mut()
                    .filter(|m| m.device == device)
                    .for_each(|m| m.detail.push(line.to_owned())),
            }
        }
        Mounts(all)
    }

    fn visible(&self) -> impl DoubleEndedIterator<Item = &Mounted> {
        self.0.iter().filter(|m| !m.hidden)
    }

    /// The visible mount at a path.
    pub(super) fn at(&self, point: &str) -> Option<&Mounted> {
        self.visible().rfind(|m| m.point == point)
    }

    /// The mount that holds a path without symbolic links.
    pub(super) fn mount_of(&self, path: &str) -> Option<&Mounted> {
        let lies = |m: &&Mounted| std::path::Path::new(path).starts_with(&m.point);
        self.visible().filter(lies).max_by_key(|m| m.point.trim_end_matches('/').len())
    }

    /// Other mounts of the same device, hidden ones included.
    pub(super) fn others_of<'a>(&'a self, mount: &'a Mounted) -> impl Iterator<Item = &'a Mounted> {
        let is_other = |m: &&Mounted| m.point != mount.point || m.hidden != mount.hidden;
        self.0.iter().filter(move |m| m.device == mount.device && is_other(m))
    }

    pub(super) fn below<'a>(&'a self, point: &'a str) -> impl Iterator<Item = &'a Mounted> {
        let point = point.trim_end_matches('/');
        let below = |rest: &str| rest.starts_with('/') && rest.len() > 1;
        self.visible().filter(move |m| m.point.strip_prefix(point).is_some_and(below))
    }
}

/// One piece of evidence: the options as the kernel shows them. They are as expected if all of `settings`
/// are among them.
pub(super) fn evidence(
    when: When,
    mounts: Option<&Mounts>,
    point: &str,
    settings: &[Setting],
) -> Evidence {
    let what = format!("mount of {point}");
    let Some(mounts) = mounts else { return failed_reading(when, &what) };
    let Some(mounted) = mounts.at(point) else {
        let (found, expected) = ("not mounted".to_owned(), Some(options::list(settings)));
        return Evidence { when, what, found, expected };
    };
    let found = format!("{} {}", mounted.file_system, mounted.options);
    let expected = if in_force(mounted, settings) {
        found.clone()
    } else {
        format!("{} with {}", mounted.file_system, options::list(settings))
    };
    Evidence { when, what, found, expected: Some(expected) }
}

pub(super) fn in_force(mounted: &Mounted, settings: &[Setting]) -> bool {
    let known = mounted.all_options();
    settings.iter().all(|setting| setting.word_in_force(&known) == setting.word)
}

/// Prints our mountinfo, an empty line, and the server's.
const NAMESPACE_SCRIPT: &str = r#"cat /proc/self/mountinfo; echo; cat "/proc/$1/mountinfo""#;

const NAMESPACE_LIMIT: Duration = Duration::from_secs(30);

/// Refuses a server that sees, or may see, another mount there.
pub(super) fn check(
    host: &Host,
    context: &mut Context<'_>,
    mounted: &Mounted,
) -> Result<(), TreatmentError> {
    let pid = context.backend_pid()?;
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
    let line =
        CommandLine::new("sh").args(["-c", NAMESPACE_SCRIPT, "sh", pid]).timeout(NAMESPACE_LIMIT);
    // An unreadable file is missing from the output.
    Ok(exec.output(&line)?.stdout)
}

/// Returns whether the server sees our mount at `point`; none if its mounts are unknown.
fn sees_our_mount(text: &str, point: &str) -> Option<bool> {
    let (ours, theirs) = text.split_once("\n\n")?;
    let number = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let is_at_point =
        |line: &&str| storage::parse_mounts(line).iter().any(|m| m.mount_point == point);
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

    const TEXT: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        23 24 7:1 / /srv/pg\\040data rw,noatime shared:7 - ext4 /dev/loop1 rw,nobarrier\n\
        24 22 7:2 /sub /srv rw - btrfs /dev/loop2 rw,subvolid=256,subvol=/sub\n\
        25 23 7:3 / /srv/pg\\040data/new rw,relatime - xfs /dev/loop3 rw,noquota\n\
        26 22 7:1 /x /mnt rw,relatime - ext4 /dev/loop1 rw,nobarrier\n\
        27 22 7:4 / /srv/pg\\040data/hidden rw - ext4 /dev/loop4 rw\n\
        ext4 254:0\nrw\nbarrier\ncommit=5\next4 7:1\nrw\nnobarrier\ncommit=5\n";

    #[test]
    fn mounts_include_the_options_that_ext4_reports() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(mounts.0.len(), 6);
        let data = mounts.at("/srv/pg data").unwrap();
        assert_eq!(data.title(), "/srv/pg data (ext4 on /dev/loop1)");
        assert_eq!((data.options.as_str(), data.root.as_str()), ("rw,noatime,nobarrier", "/"));
        assert_eq!(
            data.all_options(),
            ["rw", "nobarrier", "commit=5", "rw", "noatime", "nobarrier"]
        );
        assert!(mounts.at("/srv/pg").is_none());
        assert_eq!(mounts.at("/srv").unwrap().root, "/sub");
    }

    #[test]
    fn mounts_of_paths_and_devices() {
        let mounts = Mounts::parse(TEXT);
        let on = |path: &str| mounts.mount_of(path).unwrap().point.as_str();
        assert_eq!(on("/srv/pg data/base/1"), "/srv/pg data");
        assert_eq!(on("/srv/pg database"), "/srv");
        assert_eq!(on("/srv/pg data/hidden/x"), "/srv/pg data");
        assert!(mounts.at("/srv/pg data/hidden").is_none());
        assert_eq!(on("/etc"), "/");
        let below: Vec<_> = mounts.below("/srv").map(|m| m.device.as_str()).collect();
        assert_eq!(below, ["7:1", "7:3"]);
        assert_eq!(mounts.below("/").count(), 4);
        let data = mounts.at("/srv/pg data").unwrap();
        assert_eq!(mounts.others_of(data).map(|m| m.point.as_str()).collect::<Vec<_>>(), ["/mnt"]);
    }

    #[test]
    fn the_mounts_of_this_machine_are_parsed() {
        let mounts = Mounts::read(&Local).unwrap();
        assert!(mounts.at("/proc").is_some());
    }

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
