//! Drivers that deliver mail to a real Dovecot: what each of them sent is looked up.

use serde_json::Value;

use super::{check, quiet, recounted, start};
use crate::mail::Dovecot;
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{Workdir, experiment_on};

const DRIVERS: usize = 3;

/// Delivers for a second with three drivers; returns the trial.
fn delivered(dovecot: &Dovecot, workload: &str) -> Value {
    let dir = Workdir::new();
    let keys =
        format!("aa = false\nblocks = 1\nduration = \"1s\"\ntelemetry = \"0s\"\n{}", quiet());
    let target = format!("dsn = {:?}", fresh_database(shared_primary(INSTALLED)));
    let text = experiment_on(&target, &keys, "", &[("a", "")]);
    let mail =
        format!("kind = \"mail\"\nmessage_size = \"3K\"\n{}\n{workload}", dovecot.workload());
    let text = text.replace("kind = \"commit\"", &mail);
    start(&dir, &text, &format!("local:{DRIVERS}")).wait().expect(0, &[]);
    dir.trials().remove(0)
}

/// Returns the numbers of messages sent and of copies found.
fn looked_up(trial: &Value) -> [u64; 2] {
    let check = check(trial, "mail-lost").unwrap_or_else(|| panic!("{trial:#}"));
    assert_eq!(check["verdict"], "ok", "{check}");
    let message = check["message"].as_str().unwrap();
    let numbers: Vec<u64> = message.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{message}"))
}

#[test]
fn drivers_deliver_mail_and_all_of_it_is_looked_up() {
    run_in_parallel(["warmup = \"300ms\"", "messages_rate = \"61/s\""], |workload| {
        let Some(dovecot) = Dovecot::start(None) else { return };
        let trial = delivered(&dovecot, workload);
        assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
        let calls = recounted(&trial, DRIVERS);
        let parts = trial["drivers"].as_array().unwrap();
        let sessions: Vec<_> = parts.iter().map(|part| part["sessions"].as_u64()).collect();
        assert_eq!(sessions, [Some(4); DRIVERS], "12 sessions");
        let delivery = &trial["histograms"]["delivery"];
        assert_eq!(delivery["count"], calls);
        let [sent, copies] = looked_up(&trial);
        assert_eq!(copies, sent, "one recipient each");
        if workload.starts_with("warmup") {
            assert!(sent > calls, "{sent} with the warm-up's, {calls} without");
        } else {
            // All drivers together keep one schedule.
            let censored = delivery["censored"]["count"].as_u64().unwrap_or(0);
            assert_eq!(calls + censored, 61, "{delivery}");
        }
        assert_eq!(dovecot.files(), 0);
    });
}
