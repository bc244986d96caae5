use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::*;
use crate::host::proc;

/// A host with two CPUs and one used disk after `seconds`: our processes use one CPU, foreign
/// processes half a CPU.
fn text(seconds: u64, pid: &str, extra: &str) -> String {
    let s = seconds;
    format!(
        "==> /proc/diskstats <==\n 8 0 sda {} 0 {} {} {} 5 {} {} 0 {} 0 0 0 0 0 {} {}\n \
         8 16 sdb 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\n\
         ==> /proc/stat <==\ncpu  {} 0 {} {} 0 0 0 {} 0 0\ncpu0 1 1\ncpu1 1 1\n\n\
         ==> /proc/meminfo <==\nDirty: {} kB\n\n\
         ==> /proc/pressure/io <==\nsome avg10=0 avg60=0 avg300=0 total={}\n\n\
         ==> /proc/net/dev <==\n eth0: {} 0 0 0 0 0 0 0 {} 0 0 0 0 0 0 0\n\n\
         ==> /proc/77/stat <==\n77 (sh) S 50 1 1 0 -1 0 0 0 0 0 {s} 0 0 0 0 0\n\n\
         ==> processes <==\n\
         2 (kthreadd) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 0 0\n\
         50 (pgio) S 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 0 0\n\
         77 (sh) S 50 1 1 0 -1 0 0 0 0 0 {s} 0 0 0 0 0\n\
         100 (postgres) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0\n\
         {pid} (postgres) S 100 1 1 0 -1 0 0 0 0 0 {} 0 0 0 0 0\n{extra}\
         ==> walreceivers <==\n",
        100 * s,
        1600 * s,
        200 * s,
        50 * s,
        800 * s,
        400 * s,
        500 * s,
        10 * s,
        40 * s, // sda
        120 * s,
        30 * s,
        40 * s,
        10 * s,      // cpu
        4 * s,       // dirty
        250_000 * s, // pressure
        1000 * s,
        2000 * s, // eth0
        9 * s,
        90 * s, // pgio, backend
    )
}

fn snapshot(began: Instant, seconds: u64) -> Snapshot {
    Snapshot::parse(&text(seconds, "101", ""), began + Duration::from_secs(seconds)).unwrap()
}

fn near(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1e-9, "{actual} instead of {expected}");
}

#[test]
fn rates_use_the_snapshots_nearest_to_the_window() {
    let began = Instant::now();
    let snapshots: Vec<Snapshot> = (0..6).map(|s| snapshot(began, s)).collect();
    let at = |ms| began + Duration::from_millis(ms);
    let snapshots: Vec<&Snapshot> = snapshots.iter().collect();
    let span = Span::nearest(&snapshots, at(1100), at(3900)).unwrap();
    near(span.seconds, 3.0);
    let mut usage = HostUse::default();
    span.fill_usage(&mut usage, 100.0);
    assert_eq!(usage.cores, Some(2));
    for (share, expected) in [("user", 0.6), ("system", 0.15), ("steal", 0.05), ("idle", 0.2)] {
        near(usage.cpu[share], expected);
    }
    near(usage.cpu.values().sum(), 1.0);
    assert_eq!(usage.memory["dirty"], 16 * 1024, "at the end");
    near(usage.pressure["io"], 0.25);
    assert_eq!(usage.network["eth0"], (1000.0, 2000.0));
    near(usage.sampling_cpu_seconds.unwrap(), 0.03);

    assert_eq!(usage.devices.len(), 1, "sdb was never used");
    let sda = &usage.devices["sda"];
    near(sda.reads_per_second, 100.0);
    near(sda.read_bytes_per_second, 1600.0 * 512.0);
    near(sda.read_seconds.unwrap(), 0.002);
    near(sda.writes_per_second, 50.0);
    near(sda.written_bytes_per_second, 800.0 * 512.0);
    near(sda.write_seconds.unwrap(), 0.008);
    near(sda.merged_writes_per_second, 0.0);
    near(sda.flushes_per_second.unwrap(), 10.0);
    near(sda.flush_seconds.unwrap(), 0.004);
    near(sda.utilisation, 0.5);

    assert!(Span::nearest(&snapshots, at(1100), at(1200)).is_none(), "the same snapshot twice");
    assert!(Span::nearest(&[], at(0), at(1)).is_none());
}

/// The second answer came half a second after its counters were read, as on a busy host.
#[test]
fn late_answers_do_not_shorten_or_lengthen_a_span() {
    let began = Instant::now();
    let at = |uptime: &str, writes: u64, ms: u64| {
        let text = format!(
            "==> /proc/uptime <==\n{uptime} 5.00\n\n==> /proc/stat <==\ncpu 1 1 1 1 1 1 1 1\n\n\
             ==> /proc/diskstats <==\n8 0 sda 0 0 0 0 {writes} 0 0 0 0 0 0\n"
        );
        Snapshot::parse(&text, began + Duration::from_millis(ms)).unwrap()
    };
    let writes = |from: &Snapshot, to: &Snapshot| {
        let span = Span::between(from, to).unwrap();
        (span.seconds, span.devices()["sda"].writes_per_second)
    };
    let late = writes(&at("77.05", 0, 500), &at("80.05", 600, 3000));
    near(late.0, 2.99);
    assert!(late.1 < 201.0, "{late:?} instead of 240/s");
    near(writes(&at("77.05", 0, 0), &at("80.05", 600, 3500)).0, 3.01);
    // An answer in time is dated more finely than the uptime.
    near(writes(&at("77.05", 0, 0), &at("80.06", 600, 3004)).0, 3.004);
    near(writes(&at("77.05", 0, 0), &at("1.05", 600, 3000)).0, 3.0);
}

/// The window lasts from 100 to 130 ms. The closing mark's answer took longer than that.
#[test]
fn a_slow_answer_is_dated_by_the_uptime_of_its_counters() {
    let began = Instant::now();
    let at = |ms| began + Duration::from_millis(ms);
    let between = |asked: u64, answered: u64, uptime: &str| {
        let text = format!(
            "==> /proc/uptime <==\n{uptime} 5.00\n\n==> /proc/stat <==\ncpu 1 1 1 1 1 1 1 1\n"
        );
        let error = Duration::from_millis((answered - asked) / 2);
        Snapshot::parse(&text, at(asked) + error).unwrap().with_error(error)
    };
    let dated = |uptimes: [&str; 3]| {
        let [first, second, last] = uptimes;
        let mut snapshots =
            [between(50, 54, first), between(90, 98, second), between(131, 531, last)];
        date_by_uptime(&mut snapshots);
        snapshots.map(|snapshot| snapshot.at.duration_since(began).as_millis())
    };
    let dated_last = |last: &str| dated(["77.05", "77.09", last]);
    assert_eq!(dated_last("77.13"), [52, 92, 132]);
    assert_eq!(dated_last("78.13"), [52, 92, 531], "not after the answer");
    assert_eq!(dated_last("1.05"), [52, 92, 131], "the host was booted again");
    assert_eq!(dated(["76.97", "77.01", "77.05"]), [52, 92, 132]);
    assert_eq!(dated(["76.92", "76.96", "77.00"]), [52, 92, 132], "by chance a whole second");
    assert_eq!(dated(["77.00", "77.00", "77.00"]), [52, 94, 331], "whole seconds are too coarse");

    let mut snapshots = [between(90, 98, "77.09"), between(131, 531, "77.13")];
    date_by_uptime(&mut snapshots);
    let span = Span::nearest(&snapshots.each_ref(), at(100), at(130)).unwrap();
    near(span.seconds, 0.04);
}

/// Returns the foreign load beside pgio (50) and its shell (77), or the process that is not PostgreSQL's.
fn foreign_cores(from: &Snapshot, to: &Snapshot, watch: &Watch) -> Result<f64, i32> {
    let load =
        Span::between(from, to).unwrap().foreign_load(watch, &BTreeSet::from([50, 77]), 100.0);
    load.unwrap().map(|load| load.cores)
}

#[test]
fn foreign_load_excludes_known_processes() {
    let began = Instant::now();
    let foreign = |backends: &[i32], extra: &str| {
        let [from, to] = [1, 5].map(|s| {
            let extra = extra.replace("TICKS", &(20 * s).to_string());
            let at = began + Duration::from_secs(s);
            Snapshot::parse(&text(s, "101", &extra), at).unwrap()
        });
        let watch = Watch { backend_pids: backends.to_vec(), ..Watch::default() };
        foreign_cores(&from, &to, &watch)
    };
    // Processes use 150 ticks per second: PostgreSQL 90, pgio 9, the shell 1.
    near(foreign(&[101], "").unwrap(), 0.5);
    near(foreign(&[], "").unwrap(), 1.4);
    let kernel = "9 (kworker/0:1) S 2 1 1 0 -1 0 0 0 0 0 TICKS 0 0 0 0 0\n";
    near(foreign(&[101], kernel).unwrap(), 0.3);
    assert_eq!(foreign(&[101, 999], ""), Err(999));
    assert_eq!(foreign(&[50], ""), Err(50), "not a PostgreSQL process");
}

#[test]
fn a_standby_of_another_cluster_is_foreign_load() {
    let began = Instant::now();
    let foreign = |identifier: &str| {
        let [from, to] = [1, 5].map(|s| {
            let standby = format!(
                "200 (postgres) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0\n\
                 201 (postgres) S 200 1 1 0 -1 0 0 0 0 0 {} 0 0 0 0 0\n",
                20 * s
            );
            let text = text(s, "101", &standby) + &format!("/proc/201 {identifier}\n");
            Snapshot::parse(&text, began + Duration::from_secs(s)).unwrap()
        });
        let system_identifiers = Some(BTreeSet::from(["7".to_owned()]));
        let watch = Watch { backend_pids: vec![101], system_identifiers, ..Watch::default() };
        foreign_cores(&from, &to, &watch).unwrap()
    };
    near(foreign("7"), 0.3);
    near(foreign("8"), 0.5);
    // It could not be read.
    near(foreign(""), 0.3);
}

/// A process that is named like a walreceiver, in a data directory.
#[test]
fn a_mark_lists_walreceivers_with_their_system_identifiers() {
    let data = tempfile::tempdir().unwrap();
    let named = |line: &str| {
        // Unlike sleep, most shells ignore their name. It ends with its input, also if the test fails.
        let mut receiver = Command::new("/bin/sh")
            .arg0("postgres: walreceiver")
            .args(["-c", "read -r _"])
            .stdin(Stdio::piped())
            .current_dir(data.path())
            .spawn()
            .unwrap();
        let mut shell = Shell::start(&Host::local(), &PRELUDE, "answer $ask").unwrap();
        let answer = shell.ask("mark", Duration::from_secs(60)).unwrap().text;
        let line = format!("/proc/{} {line}", receiver.id());
        drop(receiver.stdin.take());
        receiver.wait().unwrap();
        answer.lines().any(|found| found == line)
    };
    assert!(named(""), "it is listed without a control file");
    fs::create_dir(data.path().join("global")).unwrap();
    fs::write(data.path().join("global/pg_control"), 42_i64.to_ne_bytes()).unwrap();
    assert!(named("42"));
}

#[test]
fn foreign_load_counts_what_processes_used_up_to_the_time_of_interrupts() {
    let began = Instant::now();
    let cores = |softirq: u64, foreign: u64| {
        let [from, to] = [1, 5].map(|s| {
            let dd = format!("60 (dd) S 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 0 0\n", foreign * s);
            let (user, system, idle) = (120 * s, 30 * s, 40 * s);
            let cpu = format!("cpu  {user} 0 {system} {idle} 0 0");
            let text = text(s, "101", &dd)
                .replace(&format!("{cpu} 0 "), &format!("{cpu} {} ", softirq * s));
            Snapshot::parse(&text, began + Duration::from_secs(s)).unwrap()
        });
        let watch = Watch { backend_pids: vec![101], ..Watch::default() };
        foreign_cores(&from, &to, &watch).unwrap()
    };
    // By the processor's counters 150 ticks per second; ours are 100.
    near(cores(20, 30), 0.5);
    near(cores(20, 65), 0.65);
    near(cores(0, 65), 0.5);
    near(cores(20, 100), 0.7);
}

/// The processors did 100 ticks of work while the processes were listed at the window's opening, and the
/// server's time was read at the end of that.
#[test]
fn what_a_server_does_while_processes_are_listed_is_not_foreign() {
    let began = Instant::now();
    let at = |seconds: u64, busy: u64, after: u64, server: u64| {
        let stat = |user: u64| format!("cpu  {user} 0 0 1000 0 0 0 0 0 0\n");
        let text = format!(
            "==> /proc/stat <==\n{}\n==> processes <==\n\
             100 (postgres) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0\n\
             101 (postgres) S 100 1 1 0 -1 0 0 0 0 0 {server} 0 0 0 0 0\n\
             ==> stat after processes <==\n{}==> walreceivers <==\n",
            stat(busy),
            stat(after),
        );
        Snapshot::parse(&text, began + Duration::from_secs(seconds)).unwrap()
    };
    let foreign = |from: &Snapshot, to: &Snapshot| {
        let watch = Watch { backend_pids: vec![101], ..Watch::default() };
        foreign_cores(from, to, &watch).unwrap()
    };
    let from = at(1, 1000, 1100, 1100);
    near(foreign(&from, &at(2, 1300, 1300, 1300)), 0.0);
    // Programs that came and ended between the marks.
    near(foreign(&from, &at(2, 1350, 1350, 1300)), 0.5);
    // The same work at the closing mark is none of theirs either.
    near(foreign(&from, &at(2, 1300, 1400, 1300)), 0.0);
}

#[test]
fn a_list_of_some_users_processes_is_recognized() {
    let at = |second: u64, extra: &str| {
        let at = Instant::now() + Duration::from_secs(second);
        Snapshot::parse(&text(second, "101", extra), at).unwrap()
    };
    let hides = |extra: &str| {
        let (from, to) = (at(1, extra), at(5, extra));
        Span::between(&from, &to).unwrap().hides_processes()
    };
    assert!(hides(""));
    assert!(!hides("1 (systemd) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0\n"));
}

#[test]
fn disk_counters_may_wrap_and_a_restarted_device_is_left_out() {
    let began = Instant::now();
    let disk = |seconds, numbers: &str| {
        let text = format!(
            "==> /proc/stat <==\ncpu 1 1 1 1 1 1 1 1\n\n==> /proc/diskstats <==\n8 0 sda {numbers}\n"
        );
        Snapshot::parse(&text, began + Duration::from_secs(seconds)).unwrap()
    };
    let before = disk(0, "10 0 0 4294967290 10 0 0 0 0 4294967000 0");
    let wrapped = disk(1, "20 0 0 4 10 0 0 0 0 204 0");
    let devices = Span::between(&before, &wrapped).unwrap().devices();
    near(devices["sda"].read_seconds.unwrap(), 0.001);
    near(devices["sda"].utilisation, 0.5);
    assert_eq!(devices["sda"].write_seconds, None);
    assert_eq!(devices["sda"].flushes_per_second, None);
    let restarted = disk(1, "1 0 0 0 0 0 0 0 0 0 0");
    assert!(Span::between(&before, &restarted).unwrap().devices().is_empty());
}

#[test]
fn host_tracks_have_one_value_per_sampling_interval() {
    let began = Instant::now();
    let snapshots: Vec<Snapshot> = (0..4).map(|s| snapshot(began, s)).collect();
    let tracks = window::tracks("db", &snapshots, began + Duration::from_secs(2));
    let names: Vec<String> = tracks.iter().map(|t| format!("{}/{}", t.subject, t.name)).collect();
    let expected = [
        "/busy_share",
        "/steal_share",
        "/dirty_bytes",
        "sda/reads_per_second",
        "sda/writes_per_second",
        "sda/flushes_per_second",
        "sda/utilisation",
    ];
    assert_eq!(names, expected);
    assert!(tracks.iter().all(|t| t.source == "db" && t.at == [-1.0, 0.0, 1.0]));
    assert_eq!(tracks[3].values, [Some(100.0); 3]);
    near(tracks[0].values[1].unwrap(), 0.75);
    assert_eq!(tracks[2].values[2], Some(3.0 * 4096.0));
}

/// Starts a busy loop that is not a child of this process; returns its pid.
fn burner() -> i32 {
    let script = "(exec timeout 60 sh -c 'echo $$; while :; do :; done') & ";
    let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    child.wait().unwrap();
    line.trim().parse().unwrap()
}

fn cpu_seconds(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    proc::parse_process(&text).unwrap().own_ticks as f64 / 100.0
}

/// A busy machine may take longer to answer than the window lasts.
fn marked(sampler: &Sampler) {
    while sampler.has_pending_mark() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_busy_process_on_this_machine_is_foreign_load() {
    let burner = burner();
    let cadence = Duration::from_millis(50);
    let sampler = Sampler::start(Arc::new(Host::local()), cadence, Watch::default()).unwrap();
    let wait = || thread::sleep(Duration::from_millis(400));
    wait();
    let (opened, before) = (Instant::now(), cpu_seconds(burner));
    sampler.mark();
    marked(&sampler);
    wait();
    wait();
    let (closed, after) = (Instant::now(), cpu_seconds(burner));
    sampler.mark();
    marked(&sampler);
    let (usage, tracks, warnings) = sampler.finish(opened, closed);
    let pid = rustix::process::Pid::from_raw(burner).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();

    assert!(usage.ticks + usage.missed > 0, "{usage:?}");
    near(usage.cpu.values().sum(), 1.0);
    let seconds = closed.duration_since(opened).as_secs_f64();
    let foreign = usage.foreign_cores.unwrap() * seconds;
    assert!(foreign > (after - before) * 0.5, "{foreign} s of at least {}", after - before);
    assert!(usage.sampling_cpu_seconds.is_some() && usage.memory["total"] > 0);
    // The host's `date` reads the same clock between our two readings.
    let (offset, error) = (usage.clock_offset_seconds.unwrap(), usage.clock_error_seconds.unwrap());
    assert!(offset.abs() <= error + 0.001, "{offset} ± {error}");
    assert!(tracks.iter().all(|t| t.at.len() == t.values.len()));
    assert!(tracks.iter().any(|t| t.name == "busy_share" && t.at.len() > 2));
    drop(warnings);
}

#[test]
fn a_backend_that_is_not_a_postgres_process_is_a_warning() {
    let own = i32::try_from(std::process::id()).unwrap();
    let watch = Watch { backend_pids: vec![own], ..Watch::default() };
    let sampler = Sampler::start(Arc::new(Host::local()), Duration::from_secs(60), watch).unwrap();
    let opened = Instant::now();
    sampler.mark();
    marked(&sampler);
    thread::sleep(Duration::from_millis(200));
    let closed = Instant::now();
    sampler.mark();
    marked(&sampler);
    let (usage, _, warnings) = sampler.finish(opened, closed);
    assert_eq!(usage.foreign_cores, None);
    let expected = "the foreign load on host local is unknown";
    assert!(warnings.iter().any(|w| w.what == expected), "{warnings:?}");
}

#[test]
fn a_window_without_samples_is_a_warning() {
    let sampler =
        Sampler::start(Arc::new(Host::local()), Duration::from_secs(60), Watch::default()).unwrap();
    let now = Instant::now();
    let (usage, _, warnings) = sampler.finish(now, now);
    assert!(usage.cpu.is_empty() && usage.cores.is_none());
    assert!(warnings.iter().any(|w| w.what == "host local was not observed"), "{warnings:?}");
}

#[test]
fn pids_in_the_environment_variable_must_be_numbers() {
    assert_eq!(parse_pids(" 12 x 34\n").collect::<Vec<_>>(), [12, 34]);
    assert_eq!(parse_pids("").count(), 0);
}
