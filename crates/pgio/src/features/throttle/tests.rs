use std::path::{Path, PathBuf};

use super::steps::{self, nearest_existing, undo_pass_on, used_below};
use super::{Device, judge_limits, *};
use crate::host::blkio::{Controller, Version};
use crate::host::exec::{CommandLine, Exec, ExecError, Local, Output};
use crate::treatment::step::Undone;
use crate::treatment::test_support::{assert_refused, described};
use pgio_results::CheckVerdict;
use pgio_results::model::Window;
use pgio_results::telemetry::{DeviceUse, HostUse, Telemetry};

#[test]
fn throttle_describes_each_limit_with_device_and_host() {
    let body = "{ device = '/dev/sdb', write_iops = 500, read_bytes = '10M', host = 'db2' }";
    let expected = ["write_iops of /dev/sdb on db2 = 500", "read_bytes of /dev/sdb on db2 = 10M"];
    assert_eq!(described("throttle", body).unwrap(), expected);
}

#[test]
fn errors_of_limits_name_line_and_key() {
    let cases = cases! {
        "500" => "line 7: throttle: must be a table, such as { device = \"/dev/sdb\"";
        "{ write_iops = 500 }" => "line 7: throttle.device: is missing: the block device";
        "{ device = 'sdb', write_iops = 500 }" => "must be a path in /dev, not \"sdb\"";
        "{ device = '/dev/sdb' }" => "line 7: throttle: limits nothing: add one of read_iops,";
        "{ device = '/dev/sdb', write_iop = 500 }"
            => "throttle.write_iop: is an unknown key; the nearest valid one is `write_iops`";
        "{ device = '/dev/sdb', write_iops = 0 }" => "throttle.write_iops: must be at least 10";
        "{ device = '/dev/sdb', read_iops = 9 }" => "0 means no limit";
        "{ device = '/dev/sdb', write_bytes = '512K' }" => "throttle.write_bytes: must be at least 1M";
        "{ device = '/dev/sdb', read_iops = 99, scope = 'rot' }"
            => "throttle.scope: cannot be `rot`; the nearest valid one is `root`";
        "{ device = '/dev/sdb', read_iops = 99, mount = '/var' }"
            => "throttle.mount: can only be \"/\", which confirms";
    };
    assert_refused("throttle", &cases);
}

#[test]
fn undo_returns_processes_to_the_nearest_existing_group() {
    let cgroups = tempfile::tempdir().unwrap();
    let service = cgroups.path().join("system.slice/pg.service");
    std::fs::create_dir_all(&service).unwrap();
    let mount_point = cgroups.path().to_owned();
    let controller = Controller { version: Version::V1, mount_point, at_root: true };
    let nearest = |group| nearest_existing(&Local, &controller, group).unwrap();
    assert_eq!(nearest("/system.slice/pg.service"), "/system.slice/pg.service");
    assert_eq!(nearest("/system.slice/other.service/below"), "/system.slice");
    assert_eq!(nearest("/none"), "/");
    assert_eq!(nearest("/"), "/");
}

/// A group of v2 that passes the controller on, with one below it that does not use it.
fn passing_on(cgroups: &Path) -> (PathBuf, PathBuf) {
    let slice = cgroups.join("system.slice");
    let service = slice.join("pg.service");
    std::fs::create_dir_all(&service).unwrap();
    std::fs::write(slice.join(steps::SUBTREE), "cpu io memory\n").unwrap();
    for (file, unused) in UNUSED {
        std::fs::write(service.join(file), unused).unwrap();
    }
    (slice, service)
}

/// The files as the kernel shows them before anybody set anything.
const UNUSED: [(&str, &str); 5] = [
    ("io.max", ""),
    ("io.latency", ""),
    ("io.weight", "default 100\n"),
    ("io.bfq.weight", "default 100\n"),
    (steps::SUBTREE, "cpu memory\n"),
];

#[test]
fn a_controller_used_by_others_stays_enabled() {
    let cgroups = tempfile::tempdir().unwrap();
    let (slice, service) = passing_on(cgroups.path());
    let passed_on = || std::fs::read_to_string(slice.join(steps::SUBTREE)).unwrap();
    for (file, used) in [
        ("io.max", "8:0 wiops=100\n"),
        ("io.latency", "8:0 target=10000\n"),
        ("io.weight", "default 50\n"),
        ("io.weight", "default 100\n8:0 50\n"),
        ("io.bfq.weight", "default 200\n"),
        (steps::SUBTREE, "cpu io\n"),
    ] {
        std::fs::write(service.join(file), used).unwrap();
        assert!(used_below(&Local, &slice).unwrap(), "{file}");
        assert_eq!(undo_pass_on(&Local, &slice).unwrap(), Undone::Kept, "{file}");
        let (_, unused) = UNUSED.iter().find(|(name, _)| *name == file).unwrap();
        std::fs::write(service.join(file), unused).unwrap();
    }
    assert_eq!(passed_on(), "cpu io memory\n");
    assert_eq!(undo_pass_on(&Local, &slice).unwrap(), Undone::Restored);
    assert_eq!(passed_on(), "-io\n");
}

/// A kernel that refuses a change, because this file shows that the controller is in use.
#[derive(Debug)]
struct Busy(Option<PathBuf>);

impl Exec for Busy {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        if !command.to_string().contains("printf") {
            return Local.output(command);
        }
        if let Some(file) = &self.0 {
            std::fs::write(file, "io\n").unwrap();
        }
        Local.output(&CommandLine::new("false"))
    }
}

#[test]
fn a_busy_group_is_kept_and_other_failures_are_reported() {
    let cgroups = tempfile::tempdir().unwrap();
    let (slice, service) = passing_on(cgroups.path());
    assert!(undo_pass_on(&Busy(None), &slice).is_err());
    let busy = Busy(Some(service.join(steps::SUBTREE)));
    assert_eq!(undo_pass_on(&busy, &slice).unwrap(), Undone::Kept);
}

/// A trial of ten seconds in which the device did this.
fn trial(used: DeviceUse) -> Trial {
    let host = HostUse { devices: [("sdb".to_owned(), used)].into(), ..HostUse::default() };
    let hosts = [("db2".to_owned(), host)].into();
    let window = Window { asked_seconds: None, seconds: 10.0, warmup_seconds: 0.0 };
    Trial {
        telemetry: Some(Telemetry { hosts, ..Telemetry::default() }),
        window,
        ..pgio_results::test_support::full_trial()
    }
}

fn verdict(limit: Limit, used: DeviceUse) -> (CheckVerdict, String) {
    verdict_by(Version::V1, limit, used)
}

fn verdict_by(version: Version, limit: Limit, used: DeviceUse) -> (CheckVerdict, String) {
    let device = Device { host: "db2", name: "sdb", version };
    let checks = judge_limits(&trial(used), device, &[(limit, 500)].into());
    let [check] = checks.as_slice() else { panic!("{checks:?}") };
    assert_eq!(check.id, "throttle");
    (check.verdict, check.message.clone())
}

fn writes(completed: f64, merged: f64) -> DeviceUse {
    DeviceUse {
        writes_per_second: completed,
        merged_writes_per_second: merged,
        ..DeviceUse::default()
    }
}

#[test]
fn merged_writes_count_as_the_controller_counts_them() {
    for (completed, merged, expected) in [
        (425.0, 84.0, CheckVerdict::Ok),
        (415.0, 75.0, CheckVerdict::Ok),
        // Three slices of 0.1 s too many in ten seconds.
        (524.0, 0.0, CheckVerdict::Ok),
        (425.0, 101.0, CheckVerdict::Invalid),
        (5000.0, 0.0, CheckVerdict::Invalid),
        (390.0, 0.0, CheckVerdict::Warning),
        (0.0, 0.0, CheckVerdict::Warning),
    ] {
        let (found, message) = verdict(Limit::WriteIops, writes(completed, merged));
        assert_eq!(found, expected, "{message}");
    }
    let (_, message) = verdict(Limit::WriteIops, writes(5000.0, 0.0));
    assert_eq!(
        message,
        "sdb on db2 did 5000 writes/s (completed and merged), with write_iops = 500: the limit was not in force"
    );
    // Commits of a server in a group of v2.
    let flushing = || DeviceUse { flushes_per_second: Some(480.0), ..writes(960.0, 5.0) };
    assert_eq!(verdict_by(Version::V2, Limit::WriteIops, flushing()).0, CheckVerdict::Ok);
    assert_eq!(verdict_by(Version::V1, Limit::WriteIops, flushing()).0, CheckVerdict::Invalid);
    // Reads are none of its business.
    let reads = DeviceUse { reads_per_second: 5000.0, ..writes(500.0, 0.0) };
    assert_eq!(verdict(Limit::WriteIops, reads.clone()).0, CheckVerdict::Ok);
    assert_eq!(verdict(Limit::ReadIops, reads).0, CheckVerdict::Invalid);
}

#[test]
fn a_throttle_of_an_unobserved_device_is_invalid() {
    let unseen = Trial { telemetry: None, ..trial(DeviceUse::default()) };
    for (trial, name) in [(unseen, "sdb"), (trial(writes(500.0, 0.0)), "sdc")] {
        let device = Device { host: "db2", name, version: Version::V1 };
        let checks = judge_limits(&trial, device, &[(Limit::WriteIops, 500)].into());
        assert_eq!(checks[0].verdict, CheckVerdict::Invalid);
        assert!(checks[0].message.contains("was not observed"), "{checks:?}");
    }
}

#[test]
fn the_methodology_names_the_tolerance() {
    let sentence = format!("exceed the limit by {EXCESS} and three tenths of a second's worth");
    pgio_results::test_support::assert_documented("METHODOLOGY.md", &sentence);
    assert_eq!(BURST_SECONDS, 0.3);
}
