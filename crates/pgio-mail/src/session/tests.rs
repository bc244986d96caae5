//! One session against a server that accepts everything: which messages are due, started and late.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use super::*;
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

/// Accepts everything on one connection.
fn server() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut out = stream.try_clone().unwrap();
        out.write_all(b"220 here\r\n").unwrap();
        let mut in_text = false;
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let answer = match line.as_str() {
                "." if in_text => "250 kept\r\n",
                _ if in_text => continue,
                "DATA" => "354 go on\r\n",
                _ => "250 yes\r\n",
            };
            in_text = answer.starts_with("354");
            if out.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    address.to_string()
}

fn session(rate: Option<MailRate>) -> MailSession {
    let shared = Shared {
        settings: settings(server(), rate),
        share: Share::whole(1),
        token: "t".to_owned(),
        seed: 1,
        halt: Halt::default(),
        ledger: Ledger::default(),
        accepted: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        done: AtomicU64::new(0),
    };
    MailSession::connect_new(0, Arc::new(shared)).unwrap()
}

fn span(start: Instant, length: Duration, taken: u64) -> Span {
    let taken = Arc::new(AtomicU64::new(taken));
    Span { name: "test", start, end: start + length, slice: 0.1, taken, share: Share::whole(1) }
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
