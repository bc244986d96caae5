//! Parsing and messages. Real devices are in the integration tests.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::mounts::{Mounted, Mounts};
use super::options_step::Found;
use super::*;
use crate::host::signature::BlockDevice;
use crate::host::{Host, LOCAL};
use crate::treatment::step::{Label, OnConflict, Step, Undone};
use crate::treatment::test_support::{assert_refused, described, in_context};

#[test]
fn parsed_bodies_declare_their_changes() {
    for (body, changes) in cases! {
        "{ options = 'sync,barrier=0' }" => &["mount option sync = sync", "mount option barrier = nobarrier"][..];
        "{ device = '/dev/loop7', type = 'ext4', mkfs = ['-O', '^has_journal'], options = 'noatime', allow_format = true }"
            => &["mount of the data directory = ext4 (mkfs -O ^has_journal) on /dev/loop7", "mount option atime = noatime"];
        "{ device = '/dev/loop7', type = 'xfs', tablespace = '/srv/pgio', allow_format = true }"
            => &["tablespace of the data set = xfs on /dev/loop7"];
    } {
        assert_eq!(described("filesystem", body).unwrap(), changes);
    }
}

#[test]
fn the_directory_of_a_tablespace_is_a_plain_path() {
    for point in ["/srv/pgio", "/a"] {
        assert_eq!(tablespace::check_point(point), Ok(()));
    }
    for point in ["srv", "/", "/srv/", "//srv", "/srv/../etc", "/srv/./x", "/it's", "/a b", ""] {
        assert!(tablespace::check_point(point).is_err(), "{point}");
    }
}

#[test]
fn errors_name_line_and_key_of_the_file() {
    let cases = cases! {
        "\"sync\"" => "line 7: filesystem: must be a table, such as { options = \"barrier=0\" }";
        "{ option = 'sync' }" => "filesystem.option: is an unknown key; the nearest valid one is `options`";
        "{}" => "line 7: filesystem.options: is missing";
        "{ options = 'nosuch' }" => "line 7: filesystem.options: pgio cannot restore `nosuch`";
        "{ options = 'sync', type = 'xfs' }" => "filesystem.type: requires device";
        "{ options = 'sync', mount = 'srv' }" => "filesystem.mount: must be the path of a mount";
        "{ device = 'loop7' }" => "filesystem.device: must be a path in /dev";
        "{ device = '/dev/loop7' }" => "filesystem.type: is missing";
        "{ device = '/dev/loop7', type = 'ext3' }"
            => "filesystem.type: cannot be `ext3`; the nearest valid one is `ext4`";
        "{ device = '/dev/loop7', type = 'xfs' }" => "filesystem.allow_format: must be true";
        "{ device = '/dev/loop7', type = 'xfs', allow_format = false }" => "filesystem.allow_format: must be true";
        "{ device = '/dev/loop7', type = 'xfs', allow_format = true, options = 'barrier=0' }" => "since Linux 4.19";
        "{ device = '/dev/loop7', type = 'btrfs', allow_format = true, mkfs = ['/dev/sda'] }"
            => "filesystem.mkfs: `/dev/sda` names a device";
        "{ device = '/dev/loop7', mount = '/srv' }" => "filesystem.mount: conflicts with device";
        "{ options = 'sync', tablespace = '/srv' }" => "filesystem.tablespace: requires device";
        "{ device = '/dev/loop7', type = 'xfs', allow_format = true, tablespace = 'srv' }"
            => "filesystem.tablespace: must be the path of a new directory";
    };
    assert_refused("filesystem", &cases);
}

#[test]
fn arguments_of_mkfs_reach_no_other_device() {
    let check = |arguments: &[&str]| {
        format::check_arguments(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(check(&["-b", "4096", "-O", "^has_journal", "-K"]), Ok(()));
    for wrong in [
        &["/dev/sdb"][..],
        &["-J", "device=UUID=x"],
        &["-l", "logdev=sdb"],
        &["sdb"],
        &["-b", "4096", "sdb"],
        &["-U", "random"],
        &["-Uclear"],
        &["-m", "uuid=x"],
        &["--uuid", "x"],
    ] {
        assert!(check(wrong).is_err(), "{wrong:?}");
    }
}

/// Why these options are refused at this mount, on a machine with btrfs and its subvolumes.
fn reaches(point: &str, options: &str) -> Option<String> {
    let mounts = Mounts::parse(
        "22 1 0:30 /@/root / rw,relatime - btrfs /dev/vda2 rw,subvolid=266,subvol=/@/root\n\
         40 22 0:30 /@/var /var rw,relatime - btrfs /dev/vda2 rw,subvolid=258,subvol=/@/var\n\
         41 22 0:30 /@/home /home rw,relatime - btrfs /dev/vda2 rw,subvolid=259,subvol=/@/home\n\
         42 22 254:3 / /srv rw,relatime - ext4 /dev/vdb rw\n\
         43 22 254:4 /pg /mnt rw,relatime - ext4 /dev/vdc rw\n\
         44 22 254:5 / /data rw,relatime - ext4 /dev/vdd rw\n\
         45 22 254:5 /pg /pg rw,relatime - ext4 /dev/vdd rw\n",
    );
    let mounted = mounts.at(point).unwrap();
    let settings = options::parse(options, Some(mounted.file_system.as_str())).unwrap();
    remount::wider_effect(&mounts, mounted, &settings)
}

#[test]
fn options_of_a_file_system_with_other_mounts_need_a_confirmation() {
    assert_eq!(
        reaches("/var", "noatime,barrier=0,discard").unwrap(),
        "nobarrier,discard=sync would affect the whole file system, which is mounted at / (the root file system), /home too: confirm by mount = \"/var\""
    );
    let message = reaches("/data", "sync").unwrap();
    assert!(
        message.contains("which is mounted at /pg too: confirm by mount = \"/data\""),
        "{message}"
    );
    let message = reaches("/mnt", "commit=30").unwrap();
    assert!(
        message.contains("of which only /pg is mounted here: confirm by mount = \"/mnt\""),
        "{message}"
    );
    assert_eq!(reaches("/var", "noatime,nodiratime"), None, "a mount's own");
    assert_eq!(reaches("/srv", "sync,commit=30"), None, "all of it is here");
}

#[test]
fn a_device_without_a_signature_is_restored_only_if_unused() {
    let idle = BlockDevice { path: "/dev/loop3".into(), ..BlockDevice::default() };
    let busy =
        BlockDevice { uses: vec!["the kernel or a program has it open".into()], ..idle.clone() };
    let hidden = BlockDevice { unreadable: Some("Permission denied".into()), ..idle.clone() };
    let undo = |device: &BlockDevice, on_conflict| {
        format::undo_without_signature("db", device, on_conflict)
    };
    for on_conflict in [OnConflict::Ask, OnConflict::Keep, OnConflict::Restore] {
        assert_eq!(undo(&idle, on_conflict).unwrap(), Undone::Restored);
    }
    for on_conflict in [OnConflict::Ask, OnConflict::Restore] {
        let message = undo(&busy, on_conflict).unwrap_err().to_string();
        assert!(
            message.starts_with("/dev/loop3 on host db is still in use (the kernel or"),
            "{message}"
        );
        assert!(message.contains("rerun `pgio undo`"), "{message}");
        let message = undo(&hidden, on_conflict).unwrap_err().to_string();
        assert!(
            message.contains("cannot read /dev/loop3 on host db (Permission denied)"),
            "{message}"
        );
    }
    assert_eq!(undo(&busy, OnConflict::Keep).unwrap(), Undone::Kept);
}

#[test]
fn a_path_of_another_device_is_not_mounted() {
    let unknown = Mounted {
        point: "/srv/pg".to_owned(),
        source: "/dev/loop1".to_owned(),
        file_system: "ext4".to_owned(),
        ..Mounted::default()
    };
    assert_eq!(options_step::another_file_system("db", &unknown, Some("2b")), None);
    let prior = Mounted { uuid: Some("1a".to_owned()), ..unknown };
    assert_eq!(options_step::another_file_system("db", &prior, Some("1a")), None);
    for (found, holds) in
        [(Some("2b"), "the file system with UUID 2b"), (None, "no known file system")]
    {
        let message = options_step::another_file_system("db", &prior, found).unwrap();
        assert!(
            message.starts_with(&format!("/dev/loop1 on host db now holds {holds}")),
            "{message}"
        );
        assert!(message.contains("mounted at /srv/pg had the UUID 1a"), "{message}");
    }
    let now = Mounted { source: "/dev/loop2".to_owned(), ..prior.clone() };
    let message = options_step::another_mounted("db", &now, &prior).to_string();
    assert!(message.contains("now ext4 on /dev/loop2 but was ext4 on /dev/loop1"), "{message}");
    assert!(message.contains("--keep") && !message.contains("--restore"), "{message}");
}

#[test]
fn an_undo_waits_for_a_command_whose_path_holds_a_space() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("pg data").display().to_string();
    // A program of that name, with the path among its arguments.
    let program = dir.path().join("umount");
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let mut orphan = Command::new(&program)
        .args(["-c", "read line; exit 0", "umount", &point])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let wait = |limit, word: &str| {
        tools::wait_for_orphans_within(limit, &Host::local(), word).map_err(|e| e.to_string())
    };
    // The child has its name once it executes the program.
    let comm = format!("/proc/{}/comm", orphan.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&comm).unwrap() != "umount\n" {
        assert!(Instant::now() < deadline);
    }
    let message = wait(Duration::from_millis(200), &point).unwrap_err();
    assert!(message.contains(&format!("process {} (umount)", orphan.id())), "{message}");
    assert!(message.contains(&point) && message.contains("rerun `pgio undo`"), "{message}");
    for other in [point.as_str().strip_suffix(" data").unwrap(), "data"] {
        assert_eq!(wait(Duration::ZERO, other), Ok(()), "{other}");
    }
    drop(orphan.stdin.take());
    assert_eq!(wait(Duration::from_secs(20), &point), Ok(()));
    orphan.wait().unwrap();
}

#[test]
fn an_undo_by_mount_notices_options_that_others_changed() {
    let mounted = |own: &str, list: &str| {
        let line = format!("42 22 7:1 / /srv {own} - ext4 /dev/loop1 rw\next4 7:1\n{list}\n");
        Mounts::parse(&line).at("/srv").unwrap().clone()
    };
    let prior = mounted("rw,relatime", "rw\ndata=ordered\nerrors=remount-ro");
    let ours = mounted("rw,relatime", "rw\ndata=journal\nerrors=remount-ro");
    let step = |by_mount: bool, changed: Option<&Mounted>| OptionsStep {
        label: Label::on_host("mount options of /srv", LOCAL),
        prior: prior.clone(),
        by_mount,
        settings: options::parse("data=journal", Some("ext4")).unwrap(),
        changed: changed.cloned(),
    };
    let same_in_another_order = mounted("rw,relatime", "errors=remount-ro\ndata=journal\nrw");
    for now in [&ours, &same_in_another_order] {
        assert_eq!(step(true, Some(&ours)).classify(Some(now)), Found::OurOptions(now));
    }
    for now in [
        mounted("rw,noatime", "rw\ndata=journal\nerrors=remount-ro"),
        // As the kernel shows it after an error, and after `mount -o remount,ro`.
        mounted("rw,relatime", "ro\ndata=journal\nerrors=remount-ro"),
        mounted("relatime,ro", "ro\ndata=journal\nerrors=remount-ro"),
    ] {
        let now = &now;
        assert_eq!(step(true, Some(&ours)).classify(Some(now)), Found::ChangedByOthers(now));
        let message = step(true, Some(&ours)).conflict(now).to_string();
        assert!(
            message.contains("noatime") || message.contains("ro of /dev/loop1, neither"),
            "{message}"
        );
        // A remount keeps other options; the list is unknown until the change was made.
        assert_eq!(step(false, None).classify(Some(now)), Found::OurOptions(now));
        assert_eq!(step(true, None).classify(Some(now)), Found::OurOptions(now));
    }
}

#[test]
fn a_file_system_that_lost_its_device_is_not_left_unmounted_silently() {
    let prior = Mounted {
        point: "/no/such/mount".to_owned(),
        source: "/dev/pgio-no-such".to_owned(),
        file_system: "ext4".to_owned(),
        ..Mounted::default()
    };
    let label = Label::on_host("mount options of /no/such/mount", LOCAL);
    let step = OptionsStep { label, prior, by_mount: true, settings: Vec::new(), changed: None };
    in_context(|context| {
        for on_conflict in [OnConflict::Ask, OnConflict::Restore] {
            let error = step.undo(context, on_conflict).unwrap_err().to_string();
            assert!(error.contains("has no /dev/pgio-no-such any more"), "{error}");
        }
        assert_eq!(step.undo(context, OnConflict::Keep).unwrap(), Undone::Kept);
    });
}
