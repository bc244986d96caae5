//! Drivers that run a program or measure storage, each on its own host.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::{check, drivers_of, quiet, recounted, refused, start};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, experiment, metric, pgio_sessions, wait_until};

/// An experiment with this workload under one condition with these settings.
fn text(dsn: &str, keys: &str, workload: &str, postgres: &str) -> String {
    let keys = format!("aa = false\nblocks = 1\n{keys}\n{}", quiet());
    experiment(dsn, &keys, "", &[("a", postgres)]).replace("kind = \"commit\"", workload)
}

/// The numbers that follow `mark` at the beginnings of lines.
fn numbers(text: &str, mark: &str) -> Vec<f64> {
    let found = text.lines().filter_map(|line| line.strip_prefix(mark));
    found.map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

fn has_schema(dsn: &str) -> bool {
    let sql = "SELECT to_regnamespace('pgio_command') IS NOT NULL";
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

/// The first file of this kind among the outputs of programs.
fn output(dir: &Workdir, kind: &str) -> String {
    let files = fs::read_dir(dir.out().join("output")).unwrap().flatten();
    let file = files.map(|file| file.path()).find(|path| path.to_str().unwrap().contains(kind));
    fs::read_to_string(file.unwrap()).unwrap()
}

#[test]
fn drivers_run_one_program_on_data_that_are_made_once() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let workload = "kind = \"command\"\npreset = \"pgbench\"\nsessions = 5\n\
                    parameters = { scale = 1, threads = 1 }\nwarmup = \"1s\"";
    let text = text(&dsn, "duration = \"1s\"", workload, "synchronous_commit = \"off\"");
    start(&dir, &text, "local:3").wait().expect(0, &[]);
    let trial = dir.trials().remove(0);
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    let parts = trial["drivers"].as_array().unwrap();
    let sessions: Vec<_> = parts.iter().map(|part| part["sessions"].as_u64()).collect();
    assert_eq!(sessions, [Some(2), Some(2), Some(1)]);
    assert_eq!(trial["settings"]["synchronous_commit"], "off");
    let seen = trial["evidence"].as_array().unwrap().iter();
    let seen = seen.filter(|e| e["what"] == "sessions of the command").map(|e| &e["found"]);
    assert_eq!(seen.collect::<Vec<_>>(), ["5"]);
    assert!(check(&trial, super::APART).is_some());

    // What each printed, added up here.
    let stdout = output(&dir, "stdout");
    let (rates, means) = (numbers(&stdout, "tps = "), numbers(&stdout, "latency average = "));
    assert_eq!((rates.len(), means.len()), (3, 3), "{stdout}");
    let sum: f64 = rates.iter().sum();
    let mean: f64 = rates.iter().zip(&means).map(|(rate, mean)| rate * mean / 1e3).sum::<f64>();
    assert!((metric(&trial, "transactions_per_second") / sum - 1.0).abs() < 1e-9);
    assert!((metric(&trial, "pgbench_latency_mean") * sum / mean - 1.0).abs() < 1e-9);
    assert_eq!(metric(&trial, "failed_transactions"), 0.0);
    // The deviation of all is not that of the parts.
    assert!(trial["metrics"].get("pgbench_latency_stddev").is_none());
    assert!(!has_schema(&dsn));
    wait_until("no session is left", || pgio_sessions(&dsn) == 0);
}

/// `time_limit` decides, not the run time: programs load data first, or go on until their work is done.
#[test]
#[ignore = "the coordinator's timeout beside it is 40 s"]
fn a_program_may_take_longer_than_its_run_time() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let workload = "kind = \"command\"\nrun = \"sleep 45; echo rate 1\"\nwarm_up = \"sleep 65\"\n\
                    metric = [{ name = \"rate\", unit = \"1/s\", better = \"higher\", regex = 'rate (\\d+)', combine = \"sum\" }]\n\
                    time_limit = \"5m\"\nwarmup = \"1s\"";
    let text = text(&dsn, "duration = \"1s\"", workload, "");
    start(&dir, &text, "local:2").wait().expect(0, &[]);
    let trial = dir.trials().remove(0);
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    assert_eq!(metric(&trial, "rate"), 2.0);
}

#[test]
fn a_driver_that_is_lost_takes_its_program_with_it_and_is_replaced() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let ran = dir.path().join("ran");
    let workload = format!(
        "kind = \"command\"\n\
         run = \"echo >>{0}; psql -qXc 'SELECT pg_sleep(3)' >/dev/null; echo rate 2\"\n\
         cleanup = \"rm -f {0}\"\n\
         metric = [{{ name = \"rate\", unit = \"1/s\", better = \"higher\", regex = \"^rate (.*)\", \
         combine = \"sum\" }}]",
        ran.display()
    );
    let text = text(&dsn, "repeats = 3", &workload, "");
    let mut pgio = start(&dir, &text, "local:2");
    let asleep = || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3)' \
                   AND datname = current_database()";
        connect(&dsn).query_one(sql, &[]).unwrap().get::<_, i64>(0)
    };
    pgio.wait_until("at work", || asleep() == 2);
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    assert_eq!(lines(&ran), 2, "each ran it once");
    let driver = drivers_of(pgio.pid())[&1];
    kill_process(Pid::from_raw(driver).unwrap(), Signal::KILL).unwrap();
    pgio.wait_until("rid of the program", || asleep() < 2);
    pgio.wait().expect(0, &["driver-lost"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    assert!(
        check(&trials[0], "driver-lost").is_some() && trials[0]["metrics"].get("rate").is_none()
    );
    assert!(check(&trials[1], "driver-lost").is_none());
    assert_eq!(metric(&trials[1], "rate"), 4.0);
    assert!(!ran.exists(), "cleaned up");
    wait_until("no session is left", || pgio_sessions(&dsn) == 0);
}

#[test]
fn drivers_measure_places_on_their_own_hosts() {
    let dsn = shared_primary(INSTALLED).primary_conninfo();
    let (dir, place) = (Workdir::new(), tempfile::tempdir_in("/var/tmp").unwrap());
    let workload = format!(
        "kind = \"device\"\npath = {:?}\nsize = \"8M\"\ntest = \"random_write\"\nwarmup = \"300ms\"",
        place.path()
    );
    let text = text(&dsn, "duration = \"1500ms\"", &workload, "");
    start(&dir, &text, "local:2").wait().expect(0, &[]);
    let trial = dir.trials().remove(0);
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    let operations = recounted(&trial, 2);
    assert!(operations > 0 && trial["histograms"]["device"]["count"] == operations);
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let rate = metric(&trial, "device_operations_per_second");
    assert!((rate * seconds / operations as f64 - 1.0).abs() < 1e-9);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn work_that_a_drivers_host_cannot_do_is_refused_before_anything_changes() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let command = |keys: &str, combine: &str| {
        let workload = format!(
            "kind = \"command\"\n{keys}\nmetric = [{{ name = \"rate\", unit = \"1/s\", \
             better = \"higher\", regex = \"x\"{combine} }}]"
        );
        text(&dsn, "", &workload, "")
    };
    let device = |keys: &str| text(&dsn, "", &format!("kind = \"device\"\n{keys}"), "");
    let sum = ", combine = \"sum\"";
    for (text, drivers, code, expected) in [
        (
            command("run = 'true'", ""),
            "local:2",
            4,
            "how to combine the values of several drivers for `rate`",
        ),
        (
            command("run = 'true'\nhost = 'local'", sum),
            "local:2",
            4,
            "on its own host, not on local",
        ),
        (
            command("run = ['no-such-program']", sum),
            "local:2",
            4,
            "program `no-such-program` is not on",
        ),
        (
            command("run = 'x {sessions}'\nsessions = 2", sum),
            "local:3",
            4,
            "3 drivers are more than",
        ),
        (device("test = \"latency\""), "local:2", 4, "write path in [workload]"),
        (device("path = \"/no/such\""), "local:2", 4, "/no/such does not exist"),
    ] {
        refused(&dir, &text, &["--drivers", drivers], code, expected);
    }
    assert!(!has_schema(&dsn));
}
