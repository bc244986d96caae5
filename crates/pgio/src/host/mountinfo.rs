//! /proc/self/mountinfo: mounts with their devices.
//!
//! Source: proc_pid_mountinfo(5). Names are unescaped.
//!
//! A mount at a parent directory hides what was mounted below before, and the file lists both. The numbers of the
//! parents tell: the kernel finds a mount at a path only in the mount that it has reached by then.

use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor`; major 0 means no block device (btrfs, overlay, tmpfs, NFS).
    pub device: String,
    /// The mounted directory of the file system: `/` except for bind mounts and subvolumes.
    pub root: String,
    pub mount_point: String,
    pub file_system: String,
    /// The source, such as /dev/mapper/vg-pg; its meaning depends on the file system.
    pub source: String,
    /// Options of the mount, followed by the file system's.
    pub options: String,
    /// Whether another mount lies over it or above it, so that no path leads to it. It keeps its device in use.
    pub hidden: bool,
}

/// The kernel's number of a mount, and the number of the mount which it is mounted in.
type Ids<'a> = (&'a str, &'a str);

pub fn parse(text: &str) -> Vec<Mount> {
    let (ids, mut mounts): (Vec<Ids<'_>>, Vec<Mount>) = text.lines().filter_map(line).unzip();
    let children: BTreeMap<(&str, &str), usize> = ids
        .iter()
        .zip(&mounts)
        .enumerate()
        .map(|(at, ((_, parent), mount))| ((*parent, mount.mount_point.as_str()), at))
        .collect();
    let is_root = |at: &usize| mounts[*at].mount_point == "/";
    let roots: Vec<usize> = (0..mounts.len()).filter(is_root).collect();
    // What is mounted over the root is not seen by who had this root before.
    let is_over = |at: usize, other: usize| at != other && ids[at].1 == ids[other].0;
    let root = roots.iter().copied().find(|at| !roots.iter().any(|other| is_over(*at, *other)));
    // Part of a list, without the root.
    let Some(root) = root else { return mounts };
    let reached = |point: &str| {
        let ends = point.match_indices('/').skip(1).map(|(at, _)| at).chain([point.len()]);
        let mut at = root;
        for end in ends.filter(|end| *end > 1) {
            // At most all lie over each other; damaged text may have a circle.
            for _ in 0..ids.len() {
                let Some(over) = children.get(&(ids[at].0, &point[..end])) else { break };
                at = *over;
            }
        }
        at
    };
    let hidden: Vec<bool> =
        mounts.iter().enumerate().map(|(at, mount)| reached(&mount.mount_point) != at).collect();
    mounts.iter_mut().zip(hidden).for_each(|(mount, hidden)| mount.hidden = hidden);
    mounts
}

/// Returns the mount that contains a path without symbolic links.
pub fn containing<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let within = mounts.iter().filter(|m| !m.hidden && path.starts_with(&m.mount_point));
    within.max_by_key(|m| Path::new(&m.mount_point).components().count())
}

fn line(line: &str) -> Option<(Ids<'_>, Mount)> {
    // A single hyphen follows any number of optional fields.
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ');
    let ids = (mount.next()?, mount.next()?);
    let (device, root, mount_point, own) =
        (mount.next()?, mount.next()?, mount.next()?, mount.next()?);
    let mut rest = file_system.split(' ');
    let (file_system, source) = (rest.next()?, rest.next()?);
    let mount = Mount {
        device: device.to_owned(),
        root: unescaped(root),
        mount_point: unescaped(mount_point),
        file_system: unescaped(file_system),
        source: unescaped(source),
        options: joined(own, rest.next().unwrap_or("")),
        hidden: false,
    };
    Some((ids, mount))
}

/// Joins the options of the mount and of the file system, without duplicates.
fn joined(own: &str, super_options: &str) -> String {
    let own_options: Vec<&str> = own.split(',').collect();
    // `rw` and `ro` of the mount take precedence over the file system's.
    let more = super_options
        .split(',')
        .filter(|option| !option.is_empty() && !matches!(*option, "rw" | "ro"))
        .filter(|option| !own_options.contains(option));
    own_options.iter().copied().chain(more).collect::<Vec<_>>().join(",")
}

/// Decodes spaces, tabs, newlines and backslashes, which are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| *first == b'\\' && d.iter().all(u8::is_ascii_digit));
        let octal = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_the_deepest_mount_that_they_reach() {
        let text = "\
    22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro
30 22 253:0 / /data rw,noatime shared:2 master:1 - xfs /dev/mapper/vg-pg rw,attr2,noquota
33 30 0:41 / /data/old rw - tmpfs none rw
34 22 0:42 / /srv/pg/data rw - ext4 /dev/old rw
35 22 0:43 / /srv/pg rw - tmpfs none rw
36 35 0:44 / /srv/pg/new rw - ext4 /dev/new rw
32 30 253:1 / /data rw - ext4 /dev/mapper/vg-new ro,data=ordered
31 32 0:40 /sub /data/my\\040db rw - btrfs /dev/sdb rw,space_cache
37 22 0:45 / / rw - tmpfs over rw
";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 9);
        let hidden: Vec<&str> =
            mounts.iter().filter(|m| m.hidden).map(|m| m.device.as_str()).collect();
        assert_eq!(hidden, ["253:0", "0:41", "0:42", "0:45"]);
        let mount = |path: &str| containing(&mounts, Path::new(path)).unwrap();
        assert_eq!(mount("/data/pg").source, "/dev/mapper/vg-new", "it hides the earlier mount");
        assert_eq!(mount("/data/my db/x").device, "0:40");
        assert_eq!(mount("/data/old/x").device, "253:1");
        assert_eq!(
            (mount("/srv/pg/data/x").device.as_str(), mount("/srv/pg/new").device.as_str()),
            ("0:43", "0:44")
        );
        assert_eq!(mount("/database").mount_point, "/", "paths are compared by components");
        assert_eq!(mount("/data/pg").options, "rw,data=ordered");
        assert_eq!(mount("/").options, "rw,relatime,errors=remount-ro");
    }
}
