use super::*;
use crate::host::Host;

fn v1() -> DeviceLimits {
    let group = PathBuf::from("/sys/fs/cgroup/blkio");
    DeviceLimits { version: Version::V1, group, device: "7:3".to_owned() }
}

fn v2() -> DeviceLimits {
    let group = PathBuf::from("/sys/fs/cgroup/a.slice/pg.service");
    DeviceLimits { version: Version::V2, group, device: "8:16".to_owned() }
}

#[test]
fn v1_files_are_read_and_written() {
    let limits = v1();
    let text = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device:7:30 5\n\
                /sys/fs/cgroup/blkio/blkio.throttle.write_iops_device:7:3 500\n\
                /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device:7:3 1048576\n\
                /proc/12/cgroup:7:blkio:/\n";
    let found = limits.read(text);
    assert_eq!(found, [(Limit::WriteIops, 500), (Limit::ReadBytes, 1 << 20)].into());
    assert_eq!(limits.read(""), BTreeMap::new());
    assert_eq!(limits.line(Limit::WriteIops, Some(500)), "7:3 500");
    assert_eq!(limits.line(Limit::WriteIops, None), "7:3 0");
    let reading = limits.reading(&[Limit::ReadIops, Limit::WriteBytes]).to_string();
    assert_eq!(
        reading,
        "grep -H '' /sys/fs/cgroup/blkio/blkio.throttle.read_iops_device \
         /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"
    );
}

#[test]
fn the_v2_file_is_read_and_written() {
    let limits = v2();
    let text = "/sys/fs/cgroup/a.slice/pg.service/io.max:8:1 rbps=1 wbps=1 riops=1 wiops=1\n\
                /sys/fs/cgroup/a.slice/pg.service/io.max:8:16 rbps=2097152 wbps=max riops=max wiops=120\n";
    let found = limits.read(text);
    assert_eq!(found, [(Limit::ReadBytes, 2 << 20), (Limit::WriteIops, 120)].into());
    assert_eq!(limits.line(Limit::WriteIops, Some(7)), "8:16 wiops=7");
    assert_eq!(limits.line(Limit::ReadBytes, None), "8:16 rbps=max");
    let reading = limits.reading(&Limit::ALL).to_string();
    assert_eq!(reading, "grep -H '' /sys/fs/cgroup/a.slice/pg.service/io.max");
}

#[test]
fn the_group_of_a_process_depends_on_the_version() {
    let text = "8:pids:/p\n7:blkio,net_cls:/a b\n1:name=systemd:/s\n0::/system.slice/pg.service\n";
    assert_eq!(group_in(text, Version::V1), Some("/a b"));
    assert_eq!(group_in(text, Version::V2), Some("/system.slice/pg.service"));
    assert_eq!(group_in("0::/\n", Version::V1), None);
    assert_eq!(group_in("", Version::V2), None);
}

#[test]
fn children_of_a_local_process_are_found() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let own = std::process::id().cast_signed();
    let found = children(&Host::local(), own).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found.contains(&child.id().cast_signed()), "{found:?}");
}

#[test]
fn the_controller_is_found_and_a_missing_file_is_an_error() {
    let host = Host::local();
    if let Some(controller) = find(&host).unwrap() {
        assert!(controller.mount_point.is_dir(), "{controller:?}");
        let group = controller.group_of(&host, std::process::id().cast_signed()).unwrap();
        assert!(group.is_some_and(|g| g.starts_with('/')), "{controller:?}");
        assert_eq!(controller.group_of(&host, i32::MAX).unwrap(), None);
    }
    let missing = DeviceLimits { group: PathBuf::from("/nonexistent"), ..v1() };
    assert!(missing.read_current(&host).is_err());
    assert!(missing.set(&host, Limit::ReadIops, None).is_err());
}
