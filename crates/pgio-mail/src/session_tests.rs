//! One session against a server that accepts everything: which messages are due, started and late.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::schedule::Schedule;
use crate::settings::{MailProtocol, MailRate, MailServer, MessageSizes, SizeDistribution};

fn settings(server: String, rate: Option<MailRate>) -> MailSettings {
    MailSettings {
        server: MailServer::Tcp(server),
        protocol: MailProtocol::Smtp,
        threads: 1,
        sizes: MessageSizes { mean: 2048, distribution: SizeDistribution::Fixed, spread: 0 },
        sender: "pgio@localhost".to_owned(),
        recipients: vec!["user1@localhost".to_owned()],
        recipients_per_message: 1,
        messages_per_connection: 0,
        rate,
        timeout: Duration::from_secs(10),
        maildir: None,
        run_time: Duration::from_secs(1),
    }
}

fn per_second(messages: u32) -> MailRate {
    MailRate::new(messages, false)
}

fn per_minute(messages: u32) -> MailRate {
    MailRate::new(messages, true)
}

/// Returns the delay and the reply after the text of a message, by its number among all texts from 1.
type Reply = fn(u32) -> (Duration, &'static str);

const KEPT: Reply = |_| (Duration::ZERO, "250 kept\r\n");

/// Accepts connections and replies to each text in this way.
fn server(reply: Reply) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let texts = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let texts = Arc::clone(&texts);
            thread::spawn(move || serve(stream.unwrap(), reply, &texts));
        }
    });
    address.to_string()
}

fn serve(stream: TcpStream, reply: Reply, texts: &AtomicU64) {
    let mut out = stream.try_clone().unwrap();
    out.write_all(b"220 here\r\n").unwrap();
    let mut in_text = false;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match line.as_str() {
            "." if in_text => {
                let (delay, answer) = reply(texts.fetch_add(1, Ordering::SeqCst) as u32 + 1);
                thread::sleep(delay);
                answer
            }
            _ if in_text => continue,
            "DATA" => "354 go on\r\n",
            _ => "250 yes\r\n",
        };
        in_text = answer.starts_with("354");
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn session(rate: Option<MailRate>) -> MailSession {
    sessions(rate, KEPT, 1).remove(0)
}

fn sessions(rate: Option<MailRate>, reply: Reply, count: u32) -> Vec<MailSession> {
    let shared = Arc::new(Shared {
        settings: settings(server(reply), rate),
        share: Share::all(count),
        token: "t".to_owned(),
        seed: 1,
        halt: Halt::default(),
        ledger: SentMessages::default(),
        accepted: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    let session = |index| MailSession::connect_new(index, Arc::clone(&shared)).unwrap();
    (0..count).map(session).collect()
}

fn span(start: Instant, length: Duration, taken: u64) -> Span {
    let schedule = Arc::new(Schedule::with_taken(taken));
    Span { name: "test", start, end: start + length, slice: 0.1, schedule, share: Share::all(1) }
}

#[test]
fn messages_are_due_until_the_end_of_the_window() {
    let due = |seconds: f64, rate: MailRate| {
        span(Instant::now(), Duration::from_secs_f64(seconds), 0).due(rate)
    };
    assert_eq!(due(1.0, per_second(50)), 50);
    assert_eq!(due(1.0, per_second(3)), 3);
    assert_eq!(due(0.01, per_minute(1)), 1);
    assert_eq!(due(8.0, per_minute(1500)), 200);
    assert_eq!(due(60.0, per_minute(7)), 7);
    assert_eq!(due(60.1, per_minute(7)), 8);
}

#[test]
fn a_message_due_at_the_last_moment_is_started_and_not_late() {
    let wait = Duration::from_millis(250);
    let mut session = session(Some(per_second(4)));
    // Two messages are due; another session has the first.
    let span = span(Instant::now(), wait + Duration::from_nanos(1), 1);
    assert_eq!(span.due(per_second(4)), 2);
    let tally = session.run(&span).unwrap();
    assert_eq!((tally.scheduled, tally.messages), (1, 1));
    assert!(tally.late.unwrap() < wait, "{:?}", tally.late);
}

#[test]
fn without_a_rate_all_sessions_are_due_at_the_start() {
    let behind = Duration::from_millis(100);
    let mut session = session(None);
    let span = span(Instant::now() - behind, behind + Duration::from_secs(1), 0);
    let tally = session.run(&span).unwrap();
    assert!(tally.messages > 0);
    assert!(tally.late.unwrap() >= behind, "{:?}", tally.late);
}

#[test]
fn a_message_falls_to_another_session_while_one_repeats_its_own() {
    // The first message is deferred, and its second attempt takes long.
    let reply = |text: u32| match text {
        1 => (Duration::ZERO, "451 later\r\n"),
        2 => (Duration::from_millis(700), "250 kept\r\n"),
        _ => (Duration::ZERO, "250 kept\r\n"),
    };
    let sessions = sessions(Some(per_second(4)), reply, 2);
    let mut span = span(Instant::now(), Duration::from_millis(700), 0);
    span.share = Share::all(2);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let run = |mut session: MailSession| {
            scope.spawn({
                let span = &span;
                move || session.run(span).unwrap()
            })
        };
        let running: Vec<_> = sessions.into_iter().map(run).collect();
        running.into_iter().map(|session| session.join().unwrap()).collect()
    });
    let mut all = Tally::default();
    tallies.iter().for_each(|tally| all.merge(tally));
    assert_eq!((all.scheduled, all.retries, all.messages), (3, 1, 3));
    assert!(all.lag < Duration::from_millis(150), "{:?}", all.lag);
}

#[test]
fn a_message_given_up_is_censored() {
    let always = |_: u32| (Duration::ZERO, "451 later\r\n");
    let mut session = sessions(Some(per_minute(1)), always, 1).remove(0);
    let tally = session.run(&span(Instant::now(), Duration::from_secs(5), 0)).unwrap();
    assert_eq!((tally.retries, tally.undelivered, tally.left_over), (5, 1, 0));
    let latency = &tally.latency;
    assert_eq!((latency.count(), latency.censored_count()), (0, 1));
    // 0.1 s, doubled four times.
    assert!(latency.max().unwrap().seconds() > 3.0, "{:?}", latency.max());
}

#[test]
fn a_late_answer_extends_the_window_whether_it_is_good_or_bad() {
    let late: [Reply; 2] = [
        |_| (Duration::from_millis(700), "250 kept\r\n"),
        |_| (Duration::from_millis(700), "451 later\r\n"),
    ];
    for (reply, messages) in late.into_iter().zip([1, 0]) {
        let mut session = sessions(None, reply, 1).remove(0);
        let span = span(Instant::now(), Duration::from_millis(500), 0);
        let tally = session.run(&span).unwrap();
        assert_eq!(tally.messages, messages);
        assert!(tally.ended.is_some_and(|ended| ended > span.end), "{tally:?}");
    }
}
