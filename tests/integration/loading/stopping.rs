//! A load that is stopped: finished tables are kept, and nothing keeps running.

use std::thread;
use std::time::{Duration, Instant};

use pgio::dataset::{DatasetError, LoadEvent, LoadSpec, check_for_run};
use pgio::host::stop::Stop;
use pgio_connect::Client;

use super::{database, load, load_by, load_telling, number, relations, spec, tables};
use pgio_tests::fixture::{INSTALLED, connect};
use pgio_tests::workdir::wait_until;

#[test]
fn a_stop_leaves_finished_tables_and_nothing_running() {
    let conninfo = database(INSTALLED);
    let stop = Stop::new();
    let spec = LoadSpec { streams: 1, ..spec(3, 8192) };
    let error = load_telling(&conninfo, &spec, &stop, &mut |event| {
        if let LoadEvent::TableLoaded { .. } = event {
            stop.request();
        }
    })
    .unwrap_err();
    assert!(matches!(error, DatasetError::Stopped { finished: 1, tables: 3 }), "{error}");
    let mut client = connect(&conninfo);
    assert_eq!(tables(&mut client), "pgio1");
    wait_until("its sessions ended", || sessions(&mut client) == 0);
    check_for_run(&mut client, 1, None).unwrap();
}

fn sessions(client: &mut Client) -> i64 {
    number(
        client,
        "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND backend_type LIKE 'client%'",
    )
}

#[test]
fn a_stop_in_the_middle_of_a_table_keeps_the_former_one() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(1, 256));
    let mut client = connect(&conninfo);
    let before = relations(&mut client);
    let stop = Stop::new();
    let mut seen = 0;
    let error = load_telling(&conninfo, &spec(1, 1 << 19), &stop, &mut |event| {
        if let LoadEvent::Progress { done, total, .. } = event {
            seen = done;
            assert!(done < total, "the stop comes in the middle");
            if done > 0 {
                stop.request();
            }
        }
    })
    .unwrap_err();
    assert!(matches!(error, DatasetError::Stopped { finished: 0, tables: 1 }), "{error}");
    assert!(seen > 0);
    assert_eq!(relations(&mut client), before);
    wait_until("its sessions ended", || sessions(&mut client) == 0);
}

#[test]
fn a_stop_reaches_a_statement_that_waits() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(1, 256));
    // DROP waits for this reader, up to its lock_timeout.
    let mut reader = connect(&conninfo);
    let mut reading = reader.transaction().unwrap();
    reading.batch_execute("SELECT FROM pgio1").unwrap();
    let stop = Stop::new();
    let stopped = thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = connect(&conninfo);
            let waiting = "SELECT count(*) FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let began = Instant::now();
            while number(&mut client, waiting) == 0 && began.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(10));
            }
            stop.request();
        });
        load_by(&conninfo, &spec(1, 256), &stop)
    });
    assert!(matches!(stopped, Err(DatasetError::Stopped { .. })), "{stopped:?}");
    drop(reading);
    check_for_run(&mut reader, 1, None).unwrap();
}
