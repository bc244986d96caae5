use std::collections::BTreeMap;

use super::*;
use pgio_results::checks::definition;
use pgio_results::model::{CheckVerdict, Metric, SessionTotals};
use pgio_results::telemetry::Moment;
use pgio_results::telemetry::{Device, DeviceUse, HostUse, Probes, Waits};
use pgio_results::test_support::full_trial;

/// A window of 10 s on two quiet hosts, a flush of 1 ms, 500 commits/s by one session.
fn observed() -> (Trial, Series) {
    let host = |offset| HostUse {
        cadence_seconds: 1.0,
        ticks: 10,
        cores: Some(4),
        foreign_cores: Some(0.04),
        sampling_cpu_seconds: Some(0.01),
        clock_offset_seconds: Some(offset),
        clock_error_seconds: Some(0.001),
        cpu: BTreeMap::from([("steal".to_owned(), 0.0)]),
        pressure: BTreeMap::from([("memory".to_owned(), 0.0)]),
        memory: BTreeMap::from([("total".to_owned(), 4 << 30)]),
        ..HostUse::default()
    };
    let storage = |role: &str, devices: &[&str]| Storage {
        role: role.to_owned(),
        host: "db".to_owned(),
        directory: format!("/srv/{role}"),
        mount_point: "/srv".to_owned(),
        mount_options: "rw,noatime".to_owned(),
        devices: devices
            .iter()
            .map(|d| Device { name: (*d).to_owned(), ..Device::default() })
            .collect(),
        ..Storage::default()
    };
    let mut trial = full_trial();
    trial.window.seconds = 10.0;
    trial.settings.insert("synchronous_commit".to_owned(), "on".to_owned());
    trial.sessions = vec![SessionTotals::default()];
    commits(&mut trial, 500.0);
    trial.telemetry = Some(Telemetry {
        hosts: BTreeMap::from([("db".to_owned(), host(0.002)), ("local".to_owned(), host(0.0))]),
        storage: vec![storage("data", &["dm-0", "vdb"]), storage("wal", &["vdb"])],
        waits: Some(Waits {
            rounds: 500,
            sightings: BTreeMap::from([("CPU".to_owned(), 990), ("Client".to_owned(), 10)]),
            ..Waits::default()
        }),
        probes: Some(Probes { flush_seconds: Some(0.001), ..Probes::default() }),
        driver_cpu_seconds: Some(0.2),
        sampling_cpu_seconds: Some(0.05),
        ..Telemetry::default()
    });
    (trial, Series::new(10.0))
}

fn commits(trial: &mut Trial, rate: f64) {
    let metric = Metric::new(Some(rate), "commits/s");
    trial.metrics.insert("commits_per_second".to_owned(), metric);
}

/// Returns the failed checks after a change.
fn after(change: impl FnOnce(&mut Trial, &mut Telemetry)) -> Vec<(String, CheckVerdict, String)> {
    after_commits(true, change)
}

/// The same, where commits wait for a flush or not.
fn after_commits(
    wait_for_flush: bool,
    change: impl FnOnce(&mut Trial, &mut Telemetry),
) -> Vec<(String, CheckVerdict, String)> {
    let (mut trial, series) = observed();
    let mut telemetry = trial.telemetry.take().unwrap();
    change(&mut trial, &mut telemetry);
    trial.telemetry = Some(telemetry);
    let all = checks(&trial, Some(&series), wait_for_flush).into_iter();
    let faults = all.filter(|c| c.verdict != CheckVerdict::Ok);
    faults.map(|c| (c.id, c.verdict, c.message)).collect()
}

#[track_caller]
fn only(found: &[(String, CheckVerdict, String)], id: &str, verdict: CheckVerdict, message: &str) {
    assert_eq!(found, [(id.to_owned(), verdict, message.to_owned())]);
}

fn db(telemetry: &mut Telemetry) -> &mut HostUse {
    telemetry.hosts.get_mut("db").unwrap()
}

const INVALID: CheckVerdict = CheckVerdict::Invalid;
const WARNING: CheckVerdict = CheckVerdict::Warning;

#[test]
fn a_quiet_trial_passes_everything() {
    assert_eq!(after(|_, _| {}), []);
    let (trial, series) = observed();
    let all = checks(&trial, Some(&series), true);
    let mut ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        [
            "cache",
            "clock-skew",
            "foreign-load",
            "generator-bound",
            "lying-cache",
            "pressure",
            "steal",
            "telemetry-cost",
            "telemetry-missed"
        ]
    );
    assert!(ids.iter().all(|id| definition(id).is_some()));
    let cache = all.iter().find(|c| c.id == "cache").unwrap();
    insta::assert_snapshot!(cache.message, @"data 231 MiB : shared_buffers 128 MiB : memory 4 GiB; blocks that miss shared_buffers may be in the page cache");
}

#[test]
fn memory_of_a_machine_that_is_not_known_to_run_the_server_is_not_shown() {
    let (mut trial, series) = observed();
    trial.telemetry.as_mut().unwrap().storage.clear();
    let message = |trial: &Trial| {
        let all = checks(trial, Some(&series), true);
        all.into_iter().find(|c| c.id == "cache").unwrap().message
    };
    assert_eq!(message(&trial), "data 231 MiB : shared_buffers 128 MiB");
    trial.server.shared_buffers = "1GB".to_owned();
    let held = "data 231 MiB : shared_buffers 1 GiB; shared_buffers can hold all data";
    assert_eq!(message(&trial), held);
}

#[test]
fn without_observations_no_check_is_made() {
    let (mut trial, _) = observed();
    trial.telemetry = Some(Telemetry::default());
    assert_eq!(checks(&trial, None, true), []);
    trial.telemetry = None;
    assert_eq!(checks(&trial, None, true), []);
}

#[test]
#[cfg(feature = "mail")]
fn foreign_load_is_judged() {
    only(
        &after(|_, t| db(t).foreign_cores = Some(1.0)),
        "foreign-load",
        INVALID,
        "other processes used 1.00 of 4 cores (25.0 %) on `db`",
    );
    only(
        &after(|_, t| db(t).foreign_cores = Some(0.4)),
        "foreign-load",
        WARNING,
        "other processes used 0.40 of 4 cores (10.0 %) on `db`",
    );
    only(
        &after(|trial, t| {
            trial.workload.kind = "mail".to_owned();
            db(t).foreign_cores = Some(1.0);
        }),
        "foreign-load",
        WARNING,
        "other processes, including the mail server, used 1.00 of 4 cores (25.0 %) on `db`",
    );
    for (share, verdict, shown) in [(0.08, WARNING, "8.0 %"), (0.21, INVALID, "21.0 %")] {
        only(
            &after(|_, t| {
                db(t).cpu.insert("steal".to_owned(), share);
            }),
            "steal",
            verdict,
            &format!("the hypervisor took {shown} of the time of `db`"),
        );
    }
    only(
        &after(|_, t| {
            db(t).pressure.insert("memory".to_owned(), 0.3);
        }),
        "pressure",
        WARNING,
        "tasks stalled on memory 30.0 % of the time on `db`",
    );
}

#[test]
#[cfg(feature = "mail")]
fn the_load_of_pgio_is_judged() {
    let busy = |t: &mut Telemetry, client| {
        t.driver_cpu_seconds = Some(9.5);
        t.waits.as_mut().unwrap().sightings.insert("Client".to_owned(), client);
    };
    only(
        &after(|_, t| busy(t, 990)),
        "generator-bound",
        INVALID,
        "pgio used 0.95 cores, and sessions waited for it 50.0 % of their time",
    );
    // Busy for many sessions, none of which waits for it.
    assert_eq!(after(|_, t| busy(t, 10)), []);
    only(
        &after(|_, t| {
            busy(t, 10);
            t.waits = None;
        }),
        "generator-bound",
        INVALID,
        "pgio used 0.95 cores",
    );
    // Twelve threads may have more than one, but no more than there are.
    let mail = |cpu, cores| {
        after(|trial, t| {
            trial.workload.kind = "mail".to_owned();
            trial.workload.keys.insert("threads".to_owned(), 12.into());
            t.driver_cpu_seconds = Some(cpu);
            t.waits = None;
            let local = HostUse { cores: Some(cores), ..HostUse::default() };
            t.hosts.insert(LOCAL.to_owned(), local);
        })
    };
    let bound = |found: &[(String, CheckVerdict, String)]| {
        found.iter().any(|(id, verdict, _)| id == "generator-bound" && *verdict == INVALID)
    };
    assert!(!bound(&mail(12.0, 8)));
    assert!(bound(&mail(18.0, 2)));
    only(
        &after(|_, t| db(t).sampling_cpu_seconds = Some(0.3)),
        "telemetry-cost",
        WARNING,
        "telemetry on `db`, every 1 s, took 3.0 % of a core",
    );
    only(
        &after(|_, t| t.sampling_cpu_seconds = Some(0.4)),
        "telemetry-cost",
        WARNING,
        "telemetry's threads in pgio, every 1 s, took 4.0 % of a core",
    );
    // Ticks are too coarse to say that 30 ms in a window of 1 s are more than 1 %.
    assert_eq!(
        after(|trial, t| {
            trial.window.seconds = 1.0;
            db(t).sampling_cpu_seconds = Some(0.03);
            t.sampling_cpu_seconds = Some(0.005);
        }),
        []
    );
    let (mut trial, series) = observed();
    db(trial.telemetry.as_mut().unwrap()).sampling_cpu_seconds = Some(0.3);
    let all = checks(&trial, Some(&series), true);
    let cost = all.iter().find(|c| c.id == "telemetry-cost").unwrap();
    assert!(cost.remedy.contains("telemetry = \"5s\""), "{}", cost.remedy);
    assert_eq!(
        after(|trial, t| {
            trial.window.seconds = 0.5;
            t.sampling_cpu_seconds = Some(0.1);
        }),
        []
    );
    only(
        &after(|_, t| db(t).missed = 10),
        "telemetry-missed",
        WARNING,
        "50.0 % of the samples of `db` were late",
    );
    only(
        &after(|_, t| t.waits.as_mut().unwrap().missed_rounds = 500),
        "telemetry-missed",
        WARNING,
        "50.0 % of the samples of wait events were late",
    );
}

#[test]
fn clock_skew_beyond_its_error_is_a_warning() {
    only(
        &after(|_, t| db(t).clock_offset_seconds = Some(-0.07)),
        "clock-skew",
        WARNING,
        "the clocks of `db` and `local` differ by 70 ± 2 ms",
    );
    assert_eq!(
        after(|_, t| {
            db(t).clock_offset_seconds = Some(0.07);
            db(t).clock_error_seconds = Some(0.03);
        }),
        []
    );
}

#[test]
fn commits_faster_than_the_device() {
    let fast = "5200 commits/s a session but one flush of the WAL device takes 1.00 ms";
    only(&after(|trial, _| commits(trial, 5200.0)), "lying-cache", WARNING, fast);
    only(
        &after(|trial, t| {
            commits(trial, 5200.0);
            t.storage[1].devices[0].queue.insert("write_cache".to_owned(), "write back".to_owned());
        }),
        "lying-cache",
        WARNING,
        &format!("{fast} (write back)"),
    );
    let flushed = |rate: f64| {
        after(|trial, t| {
            commits(trial, 5200.0);
            let device = DeviceUse { flushes_per_second: Some(rate), ..DeviceUse::default() };
            db(t).devices.insert("vdb".to_owned(), device);
        })
    };
    // A volume counts no flushes; the disk below it does.
    let below = after(|trial, t| {
        commits(trial, 5200.0);
        let disk = t.storage[1].devices[0].clone();
        t.storage[1].devices.insert(0, Device { name: "dm-1".to_owned(), ..disk });
        db(t).devices.insert("dm-1".to_owned(), DeviceUse::default());
        let flushed = DeviceUse { flushes_per_second: Some(1500.0), ..DeviceUse::default() };
        db(t).devices.insert("vdb".to_owned(), flushed);
    });
    assert_eq!(below, []);
    // The device kept up; the probe met it busy. Without flushes in the window, the probe decides.
    assert_eq!(flushed(1500.0), []);
    only(&flushed(3.0), "lying-cache", WARNING, fast);
    // Spread over sessions, asked for, or never meant to be durable.
    assert_eq!(
        after(|trial, _| {
            commits(trial, 5200.0);
            trial.sessions = vec![SessionTotals::default(); 4];
        }),
        []
    );
    assert_eq!(
        after(|trial, _| {
            commits(trial, 5200.0);
            trial.server.fsync = "off".to_owned();
        }),
        []
    );
    assert_eq!(
        after(|trial, _| {
            commits(trial, 5200.0);
            trial.settings.insert("synchronous_commit".to_owned(), "off".to_owned());
        }),
        []
    );
    // Such as NOTIFY, reads, or unlogged tables: the workload says that its commits wait for no flush.
    assert_eq!(after_commits(false, |trial, _| commits(trial, 5200.0)), []);
    let found = after(|_, t| t.storage[1].mount_options = "rw,nobarrier".to_owned());
    assert_eq!((found[0].0.as_str(), found[0].1), ("lying-cache", WARNING));
}

#[test]
fn autovacuum_counts_inside_the_window_only() {
    let (_, mut series) = observed();
    series.moments = vec![
        Moment { at: -1.0, what: "autovacuum".to_owned() },
        Moment { at: 3.0, what: "checkpoint".to_owned() },
    ];
    assert_eq!(autovacuum(&series), None);
    series.moments.push(Moment { at: 3.0, what: "autovacuum".to_owned() });
    assert_eq!(autovacuum(&series).unwrap().verdict, WARNING);
}

#[test]
fn data_and_wal_must_lie_on_the_named_device() {
    let (mut trial, _) = observed();
    let found = storage(&trial, "vdb");
    assert_eq!(
        (found.verdict, found.message.as_str()),
        (CheckVerdict::Ok, "data and wal lie on vdb")
    );
    assert_eq!(storage(&trial, "/dev/vdb").verdict, CheckVerdict::Ok);
    let found = storage(&trial, "dm-0");
    assert_eq!(found.verdict, INVALID);
    assert_eq!(found.message, "wal (/srv/wal) lies on vdb, not on dm-0");
    let found = storage(&trial, "sdz");
    assert_eq!(
        found.message,
        "data (/srv/data) lies on dm-0 over vdb; wal (/srv/wal) lies on vdb, not on sdz"
    );
    let places = &mut trial.telemetry.as_mut().unwrap().storage;
    places[1] =
        Storage { role: "wal".to_owned(), directory: "/srv/wal".to_owned(), ..Storage::default() };
    let found = storage(&trial, "vdb");
    assert_eq!(found.verdict, INVALID);
    assert_eq!(found.message, "pgio cannot read wal (/srv/wal), which may not be on vdb");
    trial.telemetry = None;
    assert_eq!(storage(&trial, "vdb").verdict, INVALID);
}

fn judged_drivers(cpu: &[f64], waited: Option<f64>) -> Check {
    let part = |(rank, cpu_seconds): (usize, &f64)| GeneratorPart {
        rank: rank as u32,
        host: format!("h{rank}"),
        seconds: 10.0,
        cores: 4,
        cpu_seconds: *cpu_seconds,
        ..GeneratorPart::default()
    };
    let generators = cpu.iter().enumerate().map(part).collect();
    busy_driver(&Trial { generators, ..full_trial() }, waited).unwrap()
}

#[test]
fn one_busy_driver_is_named_and_one_more_is_asked_for() {
    let check = judged_drivers(&[1.0, 9.5, 2.0], Some(0.3));
    assert_eq!(check.verdict, CheckVerdict::Invalid);
    assert_eq!(
        check.message,
        "driver 1 on h1 used 0.95 cores, and sessions waited for their drivers 30.0 % of the time"
    );
    assert!(check.remedy.starts_with("use one driver more (4 instead of 3)"));
    assert_eq!(judged_drivers(&[1.0, 9.5], Some(0.01)).verdict, CheckVerdict::Ok);
    assert_eq!(judged_drivers(&[1.0, 7.0], None).verdict, CheckVerdict::Ok);
    assert_eq!(judged_drivers(&[1.0, 9.0], None).verdict, CheckVerdict::Invalid);
}
