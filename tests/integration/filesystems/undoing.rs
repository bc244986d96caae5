//! `pgio undo` if the mount no longer exists, or another file system is mounted there.

use std::fs::File;
use std::path::Path;

use super::formatting::mounted;
use super::{Disk, SIZE, is_up};
use crate::disk::{LoopDevice, lock_free_devices, run};
use pgio_tests::workdir::Workdir;

/// Another image behind the same name.
fn attach(device: &str, image: &Path) {
    let _lock = lock_free_devices();
    run("losetup", &["--detach", device]);
    run("losetup", &[device, image.to_str().unwrap()]);
}

#[test]
fn a_device_renamed_by_a_reboot_is_not_mounted() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "noatime");
    let (before, dir) = (disk.state(), Workdir::new());
    disk.killed_unmounted(&dir, "data=journal");
    let (device, own) = (disk._device.path.clone(), disk._device.image());
    let other = own.with_file_name("another");
    File::create(&other).unwrap().set_len(SIZE).unwrap();
    run("mkfs.ext4", &["-q", "-F", other.to_str().unwrap()]);
    attach(&device, &other);
    dir.pgio(&["undo"]).expect(6, &["holds the file system with UUID", "rerun `pgio undo`"]);
    assert!(!mounted(&disk._device) && !is_up(&disk.server.dsn()));
    attach(&device, &own);
    dir.pgio(&["undo"]).expect(0, &["Restored mount options of", "Restored PostgreSQL"]);
    assert_eq!(disk.state(), before);
    assert!(is_up(&disk.server.dsn()), "started by undo");
}

#[test]
fn a_mount_that_is_in_use_does_not_leave_the_server_down() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "noatime");
    let (before, dir) = (disk.state(), Workdir::new());
    disk.in_mid_trial(&dir, "data=journal", "data=journal").kill();
    let reader = File::open(disk.server.data().join("PG_VERSION")).unwrap();
    dir.pgio(&["undo"]).expect(6, &["fuser -vm", "rerun `pgio undo`"]);
    assert!(is_up(&disk.server.dsn()));
    drop(reader);
    dir.pgio(&["undo"]).expect(0, &["Restored mount options of", "Restored PostgreSQL"]);
    assert_eq!(disk.state(), before);
    assert!(is_up(&disk.server.dsn()));
}

#[test]
fn an_undo_by_mount_asks_about_options_that_others_changed() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "relatime");
    let before = disk.state();
    for (flag, is_kept) in [("--restore", false), ("--keep", true)] {
        let dir = Workdir::new();
        disk.in_mid_trial(&dir, "data=journal", "data=journal").kill();
        disk.remount("noatime");
        let theirs = disk.state();
        let shown = ["noatime", "data=journal", "someone changed it since", "--keep", "--restore"];
        dir.pgio(&["undo"]).expect(6, &shown);
        assert_eq!(disk.state(), theirs);
        dir.pgio(&["undo", flag]).expect(0, &["mount options of"]);
        assert_eq!(disk.state(), if is_kept { theirs } else { before.clone() });
        assert!(is_up(&disk.server.dsn()));
    }
}

#[test]
fn another_file_system_at_the_mount_point_is_named() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "noatime");
    let (before, dir) = (disk.state(), Workdir::new());
    disk.killed_unmounted(&dir, "commit=9");
    let (point, other) = (disk.mount.0.to_str().unwrap(), LoopDevice::new(SIZE));
    other.format();
    run("mount", &["-o", "commit=17", &other.path, point]);
    // No flag would restore the original file system.
    for flags in [&["undo"][..], &["undo", "--restore"]] {
        let result = dir.pgio(flags).expect(6, &["someone mounted another file system", "--keep"]);
        assert!(!result.out.contains("--restore"), "{result}");
    }
    run("umount", &[point]);
    run("mount", &["-o", "noatime", &disk._device.path, point]);
    // The server is down, and keeps its table until it can be asked.
    dir.pgio(&["undo"]).expect(0, &["Restored mount options of", "Still in place: table"]);
    assert_eq!(disk.state(), before);
}
