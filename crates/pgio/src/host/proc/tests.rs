use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::diskstats::Disk;
use super::*;

#[test]
fn diskstats_of_three_kernel_generations_are_parsed() {
    let text = "   8       0 sda 10 1 200 30 40 2 600 70 0 90 100\n \
                259      0 nvme0n1 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1\n \
                252      0 vda 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 7 3\n \
                252      1 vda1 10 1 200 30\n";
    let disks = diskstats::parse(text);
    let expected = Disk {
        reads: 10,
        sectors_read: 200,
        read_ms: 30,
        writes: 40,
        writes_merged: 2,
        sectors_written: 600,
        write_ms: 70,
        busy_ms: 90,
        flushes: None,
    };
    assert_eq!(disks["sda"], expected);
    assert_eq!(disks["nvme0n1"], expected);
    assert_eq!(disks["vda"], Disk { flushes: Some((7, 3)), ..expected });
    assert!(!disks.contains_key("vda1"), "a partition's short line of Linux 2.6");
    assert!(expected.was_used() && !Disk::default().was_used());
}

#[test]
fn devices_that_count_no_flushes_have_none() {
    let of = |name: &str, flushes: u64| {
        format!(" 8 0 {name} 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 {flushes} {flushes}\n")
    };
    let stacked = ["dm-0", "md127", "drbd1", "vda1", "nvme0n1p2"];
    let whole = ["vda", "nvme0n1", "loop0"];
    let text: String = stacked.iter().chain(&whole).map(|name| of(name, 0)).collect();
    let disks = diskstats::parse(&(text + &of("dm-1", 7)));
    for name in stacked {
        assert_eq!(disks[name].flushes, None, "{name}");
    }
    for name in whole {
        assert_eq!(disks[name].flushes, Some((0, 0)), "{name}");
    }
    assert_eq!(disks["dm-1"].flushes, Some((7, 7)), "a request-based multipath device");
}

#[test]
fn the_head_of_a_multipath_device_has_the_flushes_of_its_paths() {
    let of = |name: &str, reads: u64, flushes: &str| {
        format!(" 8 0 {name} {reads} 1 200 30 0 2 600 70 0 90 100 5 0 8 1 {flushes}\n")
    };
    let head = of("nvme0n1", 9, "0 0");
    let paths = of("nvme0c0n1", 5, "3 30") + &of("nvme0c1n1", 4, "4 50");
    let flushes = |text: String| diskstats::parse(&text)["nvme0n1"].flushes;
    assert_eq!(flushes(head.clone() + &paths), Some((7, 80)));
    assert_eq!(flushes(head.clone() + &of("nvme0c0n1", 5, "")), None, "a path that counts none");
    assert_eq!(flushes(head + &of("nvme1c0n1", 5, "3 30")), Some((0, 0)), "a disk without paths");
    let uncounted = diskstats::parse(&(of("nvme0n1", 0, "0 0") + &paths));
    assert!(!uncounted["nvme0n1"].was_used(), "an older kernel");
    assert_eq!(uncounted["nvme0c1n1"].flushes, Some((4, 50)));
}

#[test]
fn paths_are_known_by_their_names() {
    use diskstats::multipath_head;
    assert_eq!(multipath_head("nvme10c2n1").as_deref(), Some("nvme10n1"));
    for name in ["nvme0n1", "nvme0n1p1", "nvme0c1", "nvme0cn1", "nvme0c1n1p1", "sdc", "nvmec0n1"] {
        assert_eq!(multipath_head(name), None, "{name}");
    }
}

#[test]
fn partitions_are_known_by_their_names() {
    use diskstats::is_partition;
    assert!(is_partition("sda1", "sda") && is_partition("nvme0n1p2", "nvme0n1"));
    assert!(!is_partition("sdab", "sda") && !is_partition("dm-10", "dm-1"));
    assert!(!is_partition("sda", "sda"));
}

#[test]
fn proc_stat_is_parsed_into_cores_and_times() {
    let text = "cpu  100 1 50 800 20 3 4 5 60 0\ncpu0 50 1 25 400 10 3 4 5 60 0\n\
                cpu1 50 0 25 400 10 0 0 0 0 0\nintr 12 0 0\nctxt 99\n";
    let stat = stat::parse(text).unwrap();
    assert_eq!(stat.cores, 2);
    assert_eq!((stat.cpu.in_processes(), stat.cpu.total()), (151, 983));
    assert_eq!((stat.cpu.idle, stat.cpu.iowait, stat.cpu.steal), (800, 20, 5));
    assert_eq!(stat::parse("cpu  100 1 50 800\n"), None);
}

#[test]
fn memory_is_bytes() {
    let text = "MemTotal:       24684084 kB\nMemFree:  100 kB\nDirty:         4 kB\n\
                HugePages_Total:       0\n";
    let memory = meminfo::parse(text);
    assert_eq!(memory["total"], 24_684_084 * 1024);
    assert_eq!(memory["dirty"], 4096);
    assert_eq!(memory.len(), 3);
}

#[test]
fn pressure_uses_the_line_some() {
    let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n\
                full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
    assert_eq!(stat::stalled_us(text), Some(1234));
    assert_eq!(stat::stalled_us(""), None);
}

#[test]
fn proc_net_dev_is_parsed_for_each_interface() {
    let text = "Inter-|   Receive                      |  Transmit\n \
                face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n\
                \x20   lo: 1000 10 0 0 0 0 0 0 2000 10 0 0 0 0 0 0\n\
                eth0:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
    let interfaces = net_dev::parse(text);
    assert_eq!(interfaces.len(), 2);
    assert_eq!((interfaces["lo"].received_bytes, interfaces["lo"].sent_bytes), (1000, 2000));
    assert_eq!((interfaces["eth0"].received_bytes, interfaces["eth0"].sent_bytes), (5, 6));
}

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
    let mounts = mountinfo::parse(text);
    assert_eq!(mounts.len(), 9);
    let hidden: Vec<&str> = mounts.iter().filter(|m| m.hidden).map(|m| m.device.as_str()).collect();
    assert_eq!(hidden, ["253:0", "0:41", "0:42", "0:45"]);
    let of = |path: &str| mountinfo::containing(&mounts, Path::new(path)).unwrap();
    assert_eq!(of("/data/pg").source, "/dev/mapper/vg-new", "it hides the earlier mount");
    assert_eq!(of("/data/my db/x").device, "0:40");
    assert_eq!(of("/data/old/x").device, "253:1");
    assert_eq!(
        (of("/srv/pg/data/x").device.as_str(), of("/srv/pg/new").device.as_str()),
        ("0:43", "0:44")
    );
    assert_eq!(of("/database").mount_point, "/", "paths are compared by components");
    assert_eq!(of("/data/pg").options, "rw,data=ordered");
    assert_eq!(of("/").options, "rw,relatime,errors=remount-ro");
}

#[test]
fn process_names_may_contain_any_character() {
    let line = "42 (a) b (c)) S 7 42 42 0 -1 0 10 20 0 0 100 23 4 5 20 0 1 0 999 0\n";
    let process = pid_stat::parse(line).unwrap();
    assert_eq!((process.pid, process.parent, process.name.as_str()), (42, 7, "a) b (c)"));
    assert_eq!((process.own_ticks, process.children_ticks), (123, 9));
    let own = pid_stat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
    assert_eq!(u32::try_from(own.pid), Ok(std::process::id()));
}

#[test]
fn files_of_this_machine_are_parsed() {
    let read = |name: &str| fs::read_to_string(Path::new("/proc").join(name)).unwrap();
    assert!(stat::parse(&read("stat")).unwrap().cores > 0);
    assert!(meminfo::parse(&read("meminfo"))["total"] > 0);
    assert!(net_dev::parse(&read("net/dev")).contains_key("lo"));
    let mounts = mountinfo::parse(&read("self/mountinfo"));
    assert_eq!(
        mountinfo::containing(&mounts, Path::new("/proc/self")).unwrap().file_system,
        "proc"
    );
}

proptest! {
    #[test]
    fn counters_round_trip(n in proptest::collection::vec(0..u64::MAX / 4, 17)) {
        let line = n.iter().fold("8 0 sda".to_owned(), |line, n| format!("{line} {n}"));
        let disk = diskstats::parse(&line)["sda"];
        prop_assert_eq!((disk.reads, disk.writes, disk.busy_ms), (n[0], n[4], n[9]));
        prop_assert_eq!(disk.flushes, Some((n[15], n[16])));
    }
}

fn all(text: &str) {
    for disk in diskstats::parse(text).values() {
        disk.was_used();
    }
    if let Some(stat) = stat::parse(text) {
        stat.cpu.total();
    }
    meminfo::parse(text);
    stat::stalled_us(text);
    net_dev::parse(text);
    mountinfo::containing(&mountinfo::parse(text), Path::new("/a"));
    for process in pid_stat::parse_all(text) {
        process.ticks();
    }
}

#[test]
fn fuzzed_files_are_parsed() {
    let samples = [
        "   8       0 sda 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 7 3\n 259 0 nvme0c0n1 1 1 2 3 4 2 6 7 0 9 1\n",
        "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nbtime 1700000000\nprocs_blocked 1\n",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n",
        "MemTotal:       24650540 kB\nMemAvailable: 1 kB\nDirty:  12 kB\nHugePages_Total: 0\n",
        "Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
        "22 1 7:0 / / rw,noatime shared:1 - ext4 /dev/loop0 rw\n23 22 0:5 /a\\040b /a rw - tmpfs tmpfs rw\n",
        "77 (a b) c) S 1 77 77 0 -1 0 0 0 0 0 5 6 7 8 20 0 1 0 12345 1 1\n78 (sh) R 77 77\n",
    ];
    pgio_fuzz::fuzz(&samples, |bytes| all(&String::from_utf8_lossy(bytes)));
}
