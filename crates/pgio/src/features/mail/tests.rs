//! The workload `mail` with servers that do not keep to what is expected: what a trial records, and what its checks say.
//!
//! A window of mail asks PostgreSQL only for the time. The integration tests have Dovecot and kills.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pgio_connect::scripted::{self, Answer, Value};
use pgio_connect::{Env, resolve};
use pgio_mail::settings::MailSettings;
use pgio_results::CheckVerdict::{self, Ok as Fine, Warning};
use pgio_results::model::{Check, Outcome, Trial};
use tempfile::TempDir;

use super::work::Mail;
use super::{WorkloadKind, settings};
use crate::config::experiment::tests::{error, read};
use crate::config::{Key, Layer};
use crate::experiment::trial::{outcome_of, record_totals};
use crate::experiment::trial_checks;
use crate::host::Host;
use crate::host::stop::Stop;
use crate::workload::{Generator, Setup, Workload};

fn settings(keys: &[(&str, &str)]) -> MailSettings {
    let mut layer = Layer::default();
    for (name, text) in keys {
        Key::named(name).unwrap().set(&mut layer, text).unwrap();
    }
    settings::resolve(layer, "mail").unwrap()
}

/// Delivers for one window as a trial does.
fn delivered(settings: MailSettings) -> Trial {
    let mail = Arc::new(Mail::new(settings, Arc::new(Host::local())));
    let now = Answer::row(vec![Value::Float8(1e9)]);
    let mut admin = scripted::client(vec![("SELECT date_part('epoch'", now)]);
    let stop = Stop::new();
    let setup = Setup {
        params: resolve("host=h user=u dbname=d", &Env::default()).unwrap(),
        settings: Vec::new(),
        reads_settings: false,
        warmup: Duration::ZERO,
        seed: 1,
        stop: stop.clone(),
        opener: None,
        generator: Generator::Alone,
    };
    let mut trial = Trial { workload: mail.info(), ..Trial::new() };
    let ran = Arc::clone(&mail).prepare(setup, &mut admin);
    let ran = ran.and_then(|ready| ready.run(&mut admin, mail.extent(), &mut |_, _| {}));
    let error = match ran {
        Ok(ran) => {
            trial.window.seconds = ran.seconds;
            record_totals(&*mail, &mut trial, ran.totals, ran.seconds);
            ran.error
        }
        Err(error) => Some(error),
    };
    trial.outcome = outcome_of(error.as_ref());
    trial.checks = mail.after_trial(&stop);
    trial_checks::judge(&mut trial, None, &[], false, &[]);
    trial
}

fn metric(trial: &Trial, name: &str) -> f64 {
    trial.metrics[name].value.unwrap()
}

fn messages(trial: &Trial) -> f64 {
    trial.histograms["delivery"].count() as f64
}

#[track_caller]
fn check(trial: &Trial, id: &str, verdict: CheckVerdict) -> Check {
    let found = trial.checks.iter().find(|check| check.id == id);
    let found = found.unwrap_or_else(|| panic!("no {id}: {:?}", trial.checks)).clone();
    assert_eq!(found.verdict, verdict, "{found:?}");
    found
}

/// Complete, and everything that was accepted is there once, as it was.
#[track_caller]
fn assert_all_there(trial: &Trial) {
    assert_eq!(trial.outcome, Outcome::Complete);
    check(trial, "mail-lost", Fine);
    assert!(messages(trial) > 0.0);
    let counted = metric(trial, "messages_per_minute") * trial.window.seconds / 60.0;
    assert!((counted - messages(trial)).abs() < 1e-3);
}

#[test]
fn smtp_delivery_at_a_rate_reaches_the_rate_and_loses_nothing() {
    let fake = Fake::start(Manner::Good);
    // One that is held up leaves the moments that come to others.
    let paced = [("protocol", "smtp"), ("messages_rate", "50/s"), ("threads", "20")];
    let trial = delivered(fake.keys(&[&paced[..], &[("run_time", "1s")]].concat()));
    assert_all_there(&trial);
    assert_eq!(messages(&trial), 50.0);
    assert_eq!(metric(&trial, "mail_rate_reached"), 100.0);
    check(&trial, "mail-rate", Fine);
    assert_eq!(fake.files(), 0);
}

#[test]
fn a_rate_above_capacity_counts_and_its_latency_grows() {
    // Two sessions of 50 ms a message: 40 a second.
    let fake = Fake::start(Manner::Slow);
    let two = [("threads", "2"), ("run_time", "1s")];
    let closed = metric(&delivered(fake.keys(&two)), "delivery_latency_p50");
    let trial = delivered(fake.keys(&[&two[..], &[("messages_rate", "200/s")]].concat()));
    assert_all_there(&trial);
    check(&trial, "mail-rate", Warning);
    assert!(metric(&trial, "mail_rate_reached") < 50.0);
    assert!(metric(&trial, "delivery_latency_p95") > 4.0 * closed);
    assert!(metric(&trial, "mail_lag_mean") > closed);
    // Most of what was due never began: its latency is known to be no less.
    for name in ["delivery_latency_p95", "delivery_latency_mean", "mail_lag_mean"] {
        assert!(trial.metrics[name].at_least, "{name}");
    }
    let censored = trial.histograms["delivery"].censored().unwrap().count();
    let known = messages(&trial) + censored as f64;
    assert_eq!(known, 200.0, "a message for each moment of the window");
    assert_eq!(metric(&trial, "mail_offered_per_minute"), 12_000.0);
}

#[test]
fn deferred_messages_are_sent_again() {
    let trial = delivered(Fake::start(Manner::DefersFirst).keys(&[]));
    assert_all_there(&trial);
    for name in ["mail_deferred", "mail_retries"] {
        assert!(metric(&trial, name) >= messages(&trial), "{name}");
    }
    check(&trial, "mail-refused", Warning);
    let trial = delivered(Fake::start(Manner::DefersAlways).keys(&[]));
    assert_failed(&trial, &["accepted no message", "deferred", "; see its log"]);
    assert_eq!(metric(&trial, "messages_per_minute"), 0.0);
}

#[track_caller]
fn assert_failed(trial: &Trial, texts: &[&str]) {
    let Outcome::Failed { error } = &trial.outcome else { panic!("{:?}", trial.outcome) };
    assert!(texts.iter().all(|text| error.contains(text)), "{texts:?} in {error}");
}

#[test]
fn connections_that_break_cost_no_message_and_invent_none() {
    // In the middle of a message, of which the end is still here: nothing can have been accepted.
    let large = [("message_size", "12M"), ("size_distribution", "fixed"), ("run_time", "1s")];
    let trial = delivered(Fake::start(Manner::DropsInMessage).keys(&large));
    assert_all_there(&trial);
    assert!(metric(&trial, "mail_dropped_connections") > 0.0);
    assert_eq!(metric(&trial, "mail_unknown"), 0.0);

    // Lost after the dot: whether it was kept is unknown, so it is sent again under the same id.
    for keeps in [true, false] {
        let fake = Fake::start(Manner::DropsAfterDot { keeps });
        let trial = delivered(fake.keys(&[]));
        assert_all_there(&trial);
        assert!(metric(&trial, "mail_unknown") > 0.0);
        assert_eq!(fake.most_copies() > 1, keeps);
        check(&trial, "mail-refused", Warning);
    }

    let trial = delivered(Fake::start(Manner::LeavesAfterThree).keys(&[]));
    assert_all_there(&trial);
    let refused = check(&trial, "mail-refused", Warning).message;
    assert!(refused.contains("connections dropped"), "{refused}");
}

#[test]
fn a_mail_server_that_loses_or_alters_messages_is_detected() {
    for (manner, what) in [
        (Manner::Loses, "copies were lost, 0 altered, 0 surplus"),
        (Manner::Alters, "altered, 0 surplus"),
        (Manner::Doubles, "0 copies were lost, 0 altered"),
    ] {
        let fake = Fake::start(manner);
        let lost = check(&delivered(fake.keys(&[])), "mail-lost", Warning).message;
        assert!(lost.contains(what), "{manner:?}: {lost}");
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
        assert_failed(&delivered(fake.keys(&[("reply_timeout", "1s")])), texts);
        assert_eq!(fake.files(), 0, "{manner:?}");
    }
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let trial = delivered(settings(&[("server", &format!("127.0.0.1:{port}"))]));
    let texts = ["cannot reach the mail server", "refused", "start it, or correct server"];
    assert_failed(&trial, &texts);
}

/// How a small mail server behaves: correct, or with one kind of fault. It keeps what it takes as mail directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Good,
    /// 50 ms for each message.
    Slow,
    Refuses,
    /// Every message, the first time.
    DefersFirst,
    DefersAlways,
    /// Now and then.
    DropsInMessage,
    DropsAfterDot {
        keeps: bool,
    },
    /// With 421, after three messages.
    LeavesAfterThree,
    /// Takes no connection, with 421.
    Full,
    /// Never answers what comes after the dot.
    Stalls,
    Babbles,
    /// Says yes, and
    Loses,
    Alters,
    Doubles,
}

/// One of this many messages is handled wrongly.
const NOW_AND_THEN: u64 = 10;

#[derive(Debug)]
struct State {
    manner: Manner,
    dir: TempDir,
    messages: AtomicU64,
    /// Attempts by id.
    attempts: Mutex<BTreeMap<String, u64>>,
    /// Copies kept, by file name without its number.
    copies: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Fake {
    state: Arc<State>,
    port: u16,
}

impl Fake {
    fn start(manner: Manner) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            manner,
            dir: tempfile::tempdir().unwrap(),
            messages: AtomicU64::new(0),
            attempts: Mutex::default(),
            copies: Mutex::default(),
        });
        let all = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&all);
                // A connection that breaks is what some of these are about.
                thread::spawn(move || serve(&state, stream));
            }
        });
        Fake { state, port }
    }

    /// Keys of three sessions and five recipients.
    fn keys(&self, more: &[(&str, &str)]) -> MailSettings {
        let maildir = format!("{}/{{user}}", self.state.dir.path().display());
        let own = [
            ("server", &*format!("127.0.0.1:{}", self.port)),
            ("maildir", &maildir),
            ("threads", "3"),
            ("message_size", "3K"),
            ("recipients", "user{1..5}@localhost"),
            ("run_time", "300ms"),
        ];
        settings(&[&own[..], more].concat())
    }

    /// Messages in all mail directories.
    fn files(&self) -> usize {
        let users = fs::read_dir(self.state.dir.path()).unwrap().flatten();
        let kept = users.filter_map(|user| fs::read_dir(user.path().join("new")).ok());
        kept.map(Iterator::count).sum()
    }

    /// The largest number of copies that were kept of one message for one recipient.
    fn most_copies(&self) -> u64 {
        self.state.copies.lock().unwrap().values().copied().max().unwrap_or(0)
    }
}

impl State {
    fn keep(&self, user: &str, id: &str, text: &str) {
        let new = self.dir.path().join(user).join("new");
        fs::create_dir_all(&new).unwrap();
        let mut copies = self.copies.lock().unwrap();
        let number = copies.entry(format!("{user} {id}")).or_default();
        *number += 1;
        let file = new.join(format!("{id}.{number}"));
        let beside = Path::new(self.dir.path()).join(format!("{id}.{number}.{user}"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, file).unwrap();
    }
}

/// Until the client goes, or is left.
fn serve(state: &State, mut stream: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let mut say = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).ok();
    match state.manner {
        Manner::Babbles => return say("who goes there"),
        Manner::Full => return say("421 too many"),
        _ => say("220 fake")?,
    }
    let (mut lmtp, mut to, mut here) = (false, Vec::new(), 0);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (verb, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        match verb {
            "LHLO" | "EHLO" => {
                lmtp = verb == "LHLO";
                say("250-fake")?;
                say("250 8BITMIME")?;
            }
            "MAIL" if state.manner == Manner::LeavesAfterThree && here == 3 => {
                return say("421 come back later");
            }
            "MAIL" => say("250 ok")?,
            "RCPT" if state.manner == Manner::Refuses => say("550 5.1.1 nobody here")?,
            "RCPT" => {
                to.push(rest.trim_start_matches("TO:<").split('@').next()?.to_owned());
                say("250 ok")?;
            }
            "RSET" => {
                to.clear();
                say("250 ok")?;
            }
            "DATA" => {
                let number = state.messages.fetch_add(1, Ordering::Relaxed) + 1;
                let bad = number.is_multiple_of(NOW_AND_THEN);
                say("354 go on")?;
                if number % NOW_AND_THEN == 1 && state.manner == Manner::DropsInMessage {
                    let mut some = [0; 1500];
                    lines.read_exact(&mut some).ok()?;
                    return None;
                }
                let text = message(&mut lines)?;
                here += 1;
                let id = text.lines().find_map(|l| l.strip_prefix("Message-ID: "))?;
                let id = id.trim_matches(['<', '>']).to_owned();
                let first = {
                    let mut attempts = state.attempts.lock().unwrap();
                    let n = attempts.entry(id.clone()).or_default();
                    *n += 1;
                    *n == 1
                };
                for user in std::mem::take(&mut to) {
                    let answer = take(state, &user, &id, &text, first, bad)?;
                    if lmtp {
                        say(answer)?;
                    } else {
                        to.push(answer.to_owned());
                    }
                }
                if let Some(answer) = to.pop() {
                    say(&answer)?;
                }
                to.clear();
            }
            _ => return say("221 bye"),
        }
    }
}

/// The answer for one recipient; none where the connection ends.
fn take(
    state: &State,
    user: &str,
    id: &str,
    text: &str,
    first: bool,
    bad: bool,
) -> Option<&'static str> {
    match state.manner {
        Manner::DefersAlways => return Some("452 full"),
        Manner::DefersFirst if first => return Some("451 later"),
        Manner::Stalls => {
            thread::sleep(Duration::from_secs(30));
            return None;
        }
        Manner::Slow => thread::sleep(Duration::from_millis(50)),
        Manner::DropsAfterDot { keeps } if bad && first => {
            if keeps {
                state.keep(user, id, text);
            }
            return None;
        }
        _ => {}
    }
    match state.manner {
        Manner::Loses if bad => {}
        Manner::Alters if bad => {
            let mut text = text.to_owned();
            let last = text.trim_end().len() - 1;
            text.replace_range(last..=last, "!");
            state.keep(user, id, &text);
        }
        _ => state.keep(user, id, text),
    }
    if state.manner == Manner::Doubles && bad {
        state.keep(user, id, text);
    }
    Some("250 kept")
}

/// The content after DATA, without dot-stuffing.
fn message(lines: &mut impl BufRead) -> Option<String> {
    let mut text = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == ".\r\n" {
            return Some(text);
        }
        text.push_str(line.strip_prefix('.').unwrap_or(&line));
    }
}

#[test]
fn deliveries_are_measured_by_mail_alone() {
    for name in ["messages_per_minute", "delivery_latency_p99", "mail_rate_reached"] {
        let metric = pgio_results::metrics::definition(name).unwrap();
        let measures: Vec<&str> = WorkloadKind::all()
            .filter(|kind| (kind.def().measures)(metric))
            .map(WorkloadKind::name)
            .collect();
        assert_eq!(measures, ["mail"], "{name}");
    }
}

#[test]
#[cfg(feature = "background")]
fn mail_beside_mail_has_directories_of_its_own() {
    const HEAD: &str = "[experiment]\nwarmup = '1s'\nduration = '4s'\n[targets.n1]\nprivate = true\n\
                [targets.judged]\nprivate = true\n[workload]\nkind = 'commit'\n\
                [[condition]]\nname = 'quiet'\ntarget = 'judged'\n\
                [[condition]]\nname = 'noisy'\ntarget = 'judged'\n[[background]]\n";
    let keys = "kind = 'mail'\nserver = 'm:24'\n";
    let judged = format!("{keys}maildir = '/srv/{{user}}'");
    let head = HEAD.replace("kind = 'commit'", &judged);
    let beside = |maildir: &str| {
        format!("{head}target = 'n1'\nconditions = ['noisy']\n{keys}maildir = '{maildir}'\n")
    };
    let refused = error(&beside("/srv/{user}"));
    let expected = "background.kind: `mail` would remove messages of the judged workload";
    assert!(refused.contains(expected), "{refused}");
    read(&(beside("/srv/{user}") + "recipients = 'v{1..9}@localhost'\n"));
    let apart = beside("/srv/{target}/{user}");
    read(&apart);
    let second = format!(
        "[[background]]\nname = 'b'\ntarget = 'judged'\nconditions = ['noisy']\n{keys}maildir = '/srv/n1/{{user}}'\n"
    );
    let refused = error(&(apart + &second));
    assert!(refused.contains("would remove messages of `mail`"), "{refused}");
}
