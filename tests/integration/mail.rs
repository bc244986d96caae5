//! The workload `mail`: to a real Dovecot, and to servers that do not keep to what is expected.

pub(crate) mod dovecot;
mod fake;

use std::collections::BTreeSet;
use std::net::TcpListener;

use serde_json::Value;

use crate::disk::{self, LoopDevice};
use crate::examples;
use crate::sshd::Sshd;
use dovecot::Dovecot;
use fake::{Fake, Manner};
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{self, Workdir, check, failed_checks, metric};

/// Runs one short trial and returns its record.
fn delivered(dir: &Workdir, workload: &str, more: &str) -> workdir::CommandResult {
    one_trial(dir, "500ms", workload, more)
}

/// Where the number of messages is known in advance, or each takes long.
fn delivered_for_a_second(dir: &Workdir, workload: &str) -> workdir::CommandResult {
    one_trial(dir, "1s", workload, "")
}

fn one_trial(dir: &Workdir, duration: &str, workload: &str, more: &str) -> workdir::CommandResult {
    let keys = format!("blocks = 1\nduration = {duration:?}\naa = false\nrepeats = 0");
    dir.compare(&experiment(&keys, workload, more))
}

fn experiment(keys: &str, workload: &str, more: &str) -> String {
    let target = format!("dsn = {:?}\n{more}", fresh_database(shared_primary(INSTALLED)));
    let text = workdir::experiment_on(&target, keys, "", &[("a", "")]);
    text.replace("kind = \"commit\"", &format!("kind = \"mail\"\n{workload}"))
}

/// Complete, and everything that was accepted is there once, as it was.
fn assert_all_there(trial: &Value) {
    assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
    assert_eq!(check(trial, "mail-lost")["verdict"], "ok", "{}", check(trial, "mail-lost"));
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let messages = trial["histograms"]["delivery"]["count"].as_f64().unwrap();
    assert!(messages > 0.0);
    assert!((metric(trial, "messages_per_minute") * seconds / 60.0 - messages).abs() < 1e-3);
}

/// The check is a warning and the trial counts: it is the condition's behavior.
fn assert_behaved_badly(trial: &Value, id: &str) {
    assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial:#}");
    assert!(failed_checks(trial, "warning").contains(&id.to_owned()), "{trial:#}");
}

#[test]
fn dovecot_loses_and_alters_nothing() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let dir = Workdir::new();
    let workload = format!(
        "{}\nmessage_size = \"20K\"\nsize_distribution = \"lognormal\"\nrecipients_per_message = 3\n\
         warmup = \"1s\"",
        dovecot.workload()
    );
    dovecot.leave_foreign_mail("user1");
    delivered(&dir, &workload, "").expect(0, &["messages/min"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert_eq!(trial["workload"]["keys"]["threads"], 12);
    assert_eq!(trial["workload"]["primary_metric"], "messages_per_minute");
    assert_eq!(failed_checks(trial, "invalid"), [""; 0]);
    assert_eq!(metric(trial, "mail_refused"), 0.0);
    // Warm-up and window are both looked up: three copies of each message.
    let message = check(trial, "mail-lost")["message"].as_str().unwrap();
    let numbers: Vec<f64> = message.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [sent, copies] = numbers[..] else { panic!("{message}") };
    assert!(sent > trial["histograms"]["delivery"]["count"].as_f64().unwrap());
    assert_eq!(copies, 3.0 * sent, "{message}");
    assert_eq!(dovecot.files(), 1, "only what was there before is left");
}

#[test]
fn dovecot_asks_postgresql_for_its_users_and_refuses_others() {
    let server = shared_primary(INSTALLED);
    let conninfo = fresh_database(server);
    let Some(dovecot) = Dovecot::start(Some(&conninfo)) else { return };
    let dir = Workdir::new();
    let all = dovecot.workload();
    delivered(&dir, &all, "").expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
    // user101 is not in the table: 1 of 101 is just under the limit, 1 of 3 is over it.
    let dir = Workdir::new();
    let some = all.replace("user{1..100}@localhost", "user{100..102}@localhost");
    delivered(&dir, &some, "");
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert!(metric(trial, "mail_refused") > 0.0);
    assert_behaved_badly(trial, "mail-refused");
    let dir = Workdir::new();
    let none = all.replace("user{1..100}@localhost", "user{101..109}@localhost");
    delivered(&dir, &none, "")
        .expect(5, &["refuses every message, for example with 550", "; see its log"]);
    assert_eq!(dovecot.files(), 0);
}

#[test]
fn mail_is_delivered_by_socket_with_one_connection_per_message() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let dir = Workdir::new();
    let workload = format!(
        "server = {:?}\nmaildir = {:?}\nthreads = 3\nmessages_per_connection = 1",
        dovecot.socket(),
        dovecot.maildir()
    );
    delivered(&dir, &workload, "").expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
}

#[test]
fn mail_on_another_host_is_looked_up_there() {
    let Some(dovecot) = Dovecot::start(None) else { return };
    let (dir, sshd) = (Workdir::new(), Sshd::start());
    let spec = sshd.spec();
    let hosts = format!(
        "[hosts.box]\nssh = {:?}\nssh_config = {:?}",
        spec.ssh.unwrap(),
        spec.ssh_config.unwrap()
    );
    let workload = format!("{}\nmail_host = \"box\"\nmessage_size = \"4K\"", dovecot.workload());
    delivered(&dir, &workload, &hosts).expect(0, &["messages/min"]);
    assert_all_there(&dir.trials()[0]);
    assert_eq!(dovecot.files(), 0);
    sshd.wait_until_idle();
}

/// Follows the comment of the example, on a device of the test.
#[test]
fn the_example_of_ext4() {
    if !disk::is_root("mail") || !dovecot::is_installed(false) {
        return;
    }
    let device = LoopDevice::new(2 << 30);
    device.format();
    let point = device.mount();
    let dovecot = Dovecot::start_in(&point, None);
    let short = [("blocks", "1"), ("warmup", "\"100ms\""), ("duration", "\"400ms\"")];
    let text = examples::replace_keys(&examples::example("mail-ext4.toml"), &short)
        .replace("/srv/mail", point.to_str().unwrap())
        .replace("127.0.0.1:2424", &dovecot.address());
    let (_dir, results) = examples::compare(&text, "");
    let trials = examples::stored(&results);
    let all = ["barrier=0", "default", "default (A/A)", "max_batch_time=0", "max_batch_time=30000"];
    assert_eq!(examples::conditions(&trials), BTreeSet::from(all));
    trials.iter().for_each(assert_all_there);
    assert_eq!(dovecot.files(), 0);
}

#[test]
fn smtp_delivery_at_a_rate_reaches_the_rate_and_loses_nothing() {
    let fake = Fake::start(Manner::Good);
    let dir = Workdir::new();
    // One that is held up leaves the moments that come to others.
    let closed = fake.workload().replace("threads = 3", "threads = 20");
    let workload = format!("{closed}\nprotocol = \"smtp\"\nmessages_rate = \"50/s\"");
    delivered_for_a_second(&dir, &workload).expect(0, &["delivery latency mean"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert_eq!(trial["histograms"]["delivery"]["count"], 50);
    assert_eq!(metric(trial, "mail_rate_reached"), 100.0);
    assert_eq!(check(trial, "mail-rate")["verdict"], "ok");
    assert_eq!(fake.files(), 0);
}

#[test]
fn a_rate_above_capacity_counts_and_its_latency_grows() {
    // Two sessions of 50 ms a message: 40 a second.
    let fake = Fake::start(Manner::Slow);
    let dir = Workdir::new();
    let closed = fake.workload().replace("threads = 3", "threads = 2");
    delivered_for_a_second(&dir, &closed).expect(0, &[]);
    let latency = metric(&dir.trials()[0], "delivery_latency_p50");
    let dir = Workdir::new();
    delivered_for_a_second(&dir, &format!("{closed}\nmessages_rate = \"200/s\""))
        .expect(0, &["mail-rate"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert_behaved_badly(trial, "mail-rate");
    assert!(metric(trial, "mail_rate_reached") < 50.0);
    assert!(metric(trial, "delivery_latency_p95") > 4.0 * latency);
    assert!(metric(trial, "mail_lag_mean") > latency);
    // Most of what was due never began: its latency is known to be no less.
    for name in ["delivery_latency_p95", "delivery_latency_mean", "mail_lag_mean"] {
        assert_eq!(trial["metrics"][name]["at_least"], true, "{name}: {trial:#}");
    }
    let delivery = &trial["histograms"]["delivery"];
    let known =
        delivery["count"].as_u64().unwrap() + delivery["censored"]["count"].as_u64().unwrap();
    assert_eq!(known, 200, "a message for each moment of the window: {delivery:#}");
    assert_eq!(metric(trial, "mail_offered_per_minute"), 12_000.0);
}

#[test]
fn deferred_messages_are_sent_again() {
    let fake = Fake::start(Manner::DefersFirst);
    let dir = Workdir::new();
    delivered(&dir, &fake.workload(), "").expect(0, &["mail-refused"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    let messages = trial["histograms"]["delivery"]["count"].as_f64().unwrap();
    assert!(
        metric(trial, "mail_deferred") >= messages && metric(trial, "mail_retries") >= messages
    );
    assert_eq!(check(trial, "mail-refused")["verdict"], "warning");

    let fake = Fake::start(Manner::DefersAlways);
    let dir = Workdir::new();
    delivered(&dir, &fake.workload(), "")
        .expect(5, &["failed: ", "accepted no message", "deferred", "; see its log"]);
    assert_eq!(metric(&dir.trials()[0], "messages_per_minute"), 0.0);
}

#[test]
fn connections_that_break_cost_no_message_and_invent_none() {
    // In the middle of a message, of which the end is still here: nothing can have been accepted.
    let fake = Fake::start(Manner::DropsInMessage);
    let dir = Workdir::new();
    let large = fake.workload().replace("\"3K\"", "\"12M\"\nsize_distribution = \"fixed\"");
    delivered_for_a_second(&dir, &large).expect(0, &["connections dropped"]);
    let trial = &dir.trials()[0];
    assert_all_there(trial);
    assert!(metric(trial, "mail_dropped_connections") > 0.0);
    assert_eq!(metric(trial, "mail_unknown"), 0.0);

    // Lost after the dot: whether it was kept is unknown, so it is sent again under the same id.
    for manner in [Manner::DropsAfterDot { keeps: true }, Manner::DropsAfterDot { keeps: false }] {
        let fake = Fake::start(manner);
        let dir = Workdir::new();
        delivered(&dir, &fake.workload(), "");
        let trial = &dir.trials()[0];
        assert_all_there(trial);
        assert!(metric(trial, "mail_unknown") > 0.0);
        assert_eq!(fake.most_copies() > 1, manner == Manner::DropsAfterDot { keeps: true });
        assert_behaved_badly(trial, "mail-refused");
    }

    let fake = Fake::start(Manner::LeavesAfterThree);
    let dir = Workdir::new();
    delivered(&dir, &fake.workload(), "").expect(0, &["connections dropped"]);
    assert_all_there(&dir.trials()[0]);
}

#[test]
fn a_mail_server_that_loses_or_alters_messages_is_detected() {
    for (manner, what) in [
        (Manner::Loses, "copies were lost, 0 altered, 0 surplus"),
        (Manner::Alters, "altered, 0 surplus"),
        (Manner::Doubles, "0 copies were lost, 0 altered"),
    ] {
        let fake = Fake::start(manner);
        let dir = Workdir::new();
        delivered(&dir, &fake.workload(), "").expect(0, &["mail-lost", what]);
        let trial = &dir.trials()[0];
        assert_behaved_badly(trial, "mail-lost");
        assert_eq!(fake.files(), 0, "{manner:?}");
    }
}

#[test]
fn an_unusable_server_fails_the_trial_with_the_reason() {
    for (manner, texts) in [
        (Manner::Refuses, &["refuses every message, for example with 550 5.1.1 nobody here"][..]),
        (
            Manner::Babbles,
            &["cannot reach the mail server", "malformed reply from the server: who goes there"],
        ),
        (Manner::Full, &["refuses the session: 421 too many", "use fewer threads"]),
        (Manner::Stalls, &["accepted no message in the window", "without a reply"]),
    ] {
        let fake = Fake::start(manner);
        let dir = Workdir::new();
        let workload = format!("{}\nreply_timeout = \"1s\"", fake.workload());
        delivered_for_a_second(&dir, &workload).expect(5, texts);
        assert!(dir.trials().iter().all(|t| t["outcome"]["state"] == "failed"), "{manner:?}");
        assert_eq!(fake.files(), 0);
    }
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = Workdir::new();
    delivered_for_a_second(&dir, &format!("server = \"127.0.0.1:{port}\""))
        .expect(5, &["cannot reach the mail server", "refused", "start it, or correct server"]);
}

#[test]
fn delivered_mail_is_removed_after_an_interrupt_or_by_the_next_run() {
    let fake = Fake::start(Manner::Good);
    let dir = Workdir::new();
    let text = experiment("blocks = 1\nduration = \"600s\"\naa = false", &fake.workload(), "");
    let mut running = dir.start_compare(&text);
    running.wait_until("delivering", || fake.files() > 20);
    running.signal(rustix::process::Signal::INT);
    running.wait().expect(130, &[]);
    assert_eq!(fake.files(), 0);
    assert_eq!(dir.trials()[0]["outcome"]["state"], "interrupted");
    // The next run removes leftovers of a killed one.
    let dir = Workdir::new();
    let mut running = dir.start_compare(&text);
    running.wait_until("delivering", || fake.files() > 20);
    running.kill();
    assert!(fake.files() > 20);
    let dir = Workdir::new();
    delivered(&dir, &fake.workload(), "").expect(0, &[]);
    assert_all_there(&dir.trials()[0]);
    assert_eq!(fake.files(), 0);
}

#[test]
fn bad_values_and_contradictions_are_refused_before_anything() {
    let dir = Workdir::new();
    let mut result = Vec::new();
    for (workload, texts) in [
        ("", &["has no server"][..]),
        ("server = \"mail\"", &["workload.server", "host:port"]),
        ("server = \"m:24\"\nprotocol = \"pop3\"", &["must be lmtp or smtp"]),
        ("server = \"m:24\"\nthreads = 0", &["workload.threads"]),
        ("server = \"m:24\"\nthreads = 5000", &["1 to 1000"]),
        ("server = \"m:24\"\nmessages_rate = \"fast\"", &["1500/min or 25/s"]),
        ("server = \"m:24\"\nrecipients = \"a b\"", &["`a b` is not an address"]),
        (
            "server = \"m:24\"\nrecipients_per_message = 200",
            &["larger than the number of recipients"],
        ),
        (
            "server = \"m:24\"\nsize_distribution = \"fixed\"\nsize_spread = 5",
            &["conflicts with size_distribution"],
        ),
        ("server = \"m:24\"\nmaildir = \"/srv/mail\"", &["write {user}"]),
        (
            "server = \"m:24\"\nmaildir = \"/m/{user}\"\nmail_host = \"x\"",
            &["names host `x`, which is not in [hosts]"],
        ),
        ("server = \"m:24\"\nmessage_size = \"600\"", &["at least 1K"]),
        ("server = \"m:24\"\nsessions = 3", &["does not apply to the workload `mail`"]),
        ("server = \"m:24\"\nreply_timeout = \"0s\"", &["a duration above zero"]),
    ] {
        result.push(delivered(&dir, workload, "").expect(2, texts));
        assert!(!dir.out().exists(), "{workload}");
    }
    assert_eq!(result.len(), 14);
}
