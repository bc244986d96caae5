use super::*;

fn names(tree: &Tree, path: &str) -> Vec<String> {
    let devices = tree.under(tree.mount_of(Path::new(path)).unwrap());
    devices.iter().map(|d| format!("{} {}", d.name, d.kind)).collect()
}

/// XFS on an LVM volume on an array of partitions of two disks.
#[test]
fn lvm_on_md_on_partitions() {
    let tree = Tree::parse(
        "directory /srv/pg/15/main
mount 22 1 259:2 / / rw,relatime - ext4 /dev/nvme2n1p1 rw
mount 40 22 253:3 / /srv/pg rw,noatime - xfs /dev/mapper/vg0-pg--data rw,attr2,inode64
block dm-3 253:3
below dm-3 md127
scheduler dm-3 none
write_cache dm-3 write back
fua dm-3 1
rotational dm-3 0
read_ahead_kb dm-3 128
dm-uuid dm-3 LVM-q1w2e3r4t5
dm-name dm-3 vg0-pg--data
block md127 9:127
below md127 nvme0n1p3
below md127 nvme1n1p3
md md127 raid1
block nvme0n1 259:0
scheduler nvme0n1 [none] mq-deadline kyber
block nvme0n1p3 259:5
below nvme0n1p3 nvme0n1
partition nvme0n1p3 3
block nvme1n1 259:1
scheduler nvme1n1 none [mq-deadline] kyber
block nvme1n1p3 259:6
below nvme1n1p3 nvme1n1
partition nvme1n1p3 3
",
    );
    assert_eq!(tree.directories, [Some(PathBuf::from("/srv/pg/15/main"))]);
    let expected = [
        "dm-3 lvm",
        "md127 md",
        "nvme0n1p3 partition",
        "nvme0n1 disk",
        "nvme1n1p3 partition",
        "nvme1n1 disk",
    ];
    assert_eq!(names(&tree, "/srv/pg/15/main"), expected);
    for path in ["/dev/mapper/vg0-pg--data", "/dev/vg0/pg-data", "/dev/dm-3"] {
        let stack: Vec<String> = tree.stack(path).into_iter().map(|d| d.name).collect();
        assert_eq!(stack, ["dm-3", "md127", "nvme0n1p3", "nvme0n1", "nvme1n1p3", "nvme1n1"]);
    }
    assert!(tree.stack("/dev/vg0/other").is_empty());
    assert!(names(&tree, "/").is_empty(), "its device is not in the output");
    let devices = tree.under(tree.mount_of(Path::new("/srv/pg")).unwrap());
    assert_eq!(devices[0].queue["write_cache"], "write back");
    assert_eq!(devices[0].queue.len(), QUEUE.len());
    assert_eq!(devices[3].queue["scheduler"], "none");
    assert_eq!(devices[5].queue["scheduler"], "mq-deadline");
}

/// Module 8.4 lists no slaves; module 9 does, and no device must appear twice.
#[test]
fn drbd_disks_are_found_from_drbdsetup_and_from_the_kernel() {
    let text = |slave: &str, disk: &str| {
        format!(
            "mount 40 22 147:1 / /pg rw - ext4 /dev/drbd1 rw
block drbd0 147:0
block drbd1 147:1
{slave}
block vdb 252:16
block dm-0 253:0
below dm-0 vdb
dm-uuid dm-0 LVM-x
dm-name dm-0 v--g-pg
drbd - resource r0 {{
drbd - volume 0 {{
drbd - device minor 0;
drbd - disk \"/dev/vdc\";
drbd - volume 1 {{
drbd - device minor 1;
drbd - disk \"{disk}\";
drbd - disk {{
"
        )
    };
    let expected = ["drbd1 drbd", "dm-0 lvm", "vdb disk"];
    for disk in ["/dev/v-g/pg", "/dev/mapper/v--g-pg", "/dev/dm-0"] {
        assert_eq!(names(&Tree::parse(&text("", disk)), "/pg"), expected, "{disk}");
    }
    assert_eq!(names(&Tree::parse(&text("below drbd1 dm-0", "/dev/v-g/pg")), "/pg"), expected);
    assert_eq!(names(&Tree::parse(&text("", "/dev/unknown")), "/pg"), ["drbd1 drbd"]);
}

#[test]
fn btrfs_with_an_anonymous_device_number_has_all_its_devices() {
    let tree = Tree::parse(
        "mount 40 22 0:45 /@pg /pg rw - btrfs /dev/sdb rw,space_cache=v2
block sdb 8:16
block sdc 8:32
block sdd 8:48
btrfs f00-ba4 sdb
btrfs f00-ba4 sdc
btrfs features sdd
",
    );
    assert_eq!(names(&tree, "/pg"), ["sdb disk", "sdc disk"]);
    let found = tree.under(tree.mount_of(Path::new("/pg")).unwrap());
    assert_eq!(found.iter().map(|d| d.member).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn members_below_a_loop_device_are_below_it() {
    let tree = Tree::parse(
        "mount 40 22 0:45 / / rw - btrfs /dev/sdb rw
mount 41 40 7:0 / /pg rw - ext4 /dev/loop0 rw
block loop0 7:0
backing loop0 /img
block sdb 8:16
block sdc 8:32
btrfs f00-ba4 sdb
btrfs f00-ba4 sdc
",
    );
    let found = tree.under(tree.mount_of(Path::new("/pg")).unwrap());
    assert_eq!(
        found.iter().map(|d| (d.name.as_str(), d.member)).collect::<Vec<_>>(),
        [("loop0", false), ("sdb", false), ("sdc", false)]
    );
}

#[test]
fn loop_devices_use_a_file_system_and_crypt_uses_a_partition() {
    let tree = Tree::parse(
        "mount 22 1 253:0 / / rw - ext4 /dev/mapper/luks rw
mount 41 22 7:0 / /pg rw - ext4 /dev/loop0 rw
mount 42 22 0:50 / /run rw - tmpfs tmpfs rw
block loop0 7:0
backing loop0 /var/lib/a file.img
block dm-0 253:0
below dm-0 cciss!c0d0p1
dm-uuid dm-0 CRYPT-LUKS2-x
dm-name dm-0 luks
block cciss!c0d0p1 104:1
partition cciss!c0d0p1 1
below cciss!c0d0p1 cciss!c0d0
block cciss!c0d0 104:0
",
    );
    let disk = ["dm-0 crypt", "cciss/c0d0p1 partition", "cciss/c0d0 disk"];
    assert_eq!(names(&tree, "/pg/data"), [&["loop0 loop"], &disk[..]].concat());
    assert_eq!(names(&tree, "/home"), disk);
    assert!(names(&tree, "/run/x").is_empty());
}

#[test]
fn cycles_terminate() {
    let tree = Tree::parse(
        "mount 22 1 7:0 / / rw - ext4 /dev/loop0 rw\nblock loop0 7:0\nbacking loop0 /img\n",
    );
    assert_eq!(names(&tree, "/"), ["loop0 loop"]);
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(
        words in proptest::collection::vec(
            "mount|block|below|drbd|device|disk|btrfs|a|/|/dev/a|0:1|-| |\n", 0..80
        )
    ) {
        let tree = Tree::parse(&words.join(" "));
        tree.mounts.iter().for_each(|mount| drop(tree.under(mount)));
    }
}
