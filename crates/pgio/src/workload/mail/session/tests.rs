//! One session against a server that takes everything: what is due, what is begun, what is late.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use super::*;
use crate::config::{Key, Layer};

fn settings(keys: &[(&str, &str)]) -> MailSettings {
    let mut layer = Layer::default();
    for (name, text) in keys {
        Key::named(name).unwrap().set(&mut layer, text).unwrap();
    }
    MailSettings::resolve(layer, "here").unwrap()
}

fn rate(text: &str) -> MailRate {
    settings(&[("server", "nowhere:24"), ("messages_rate", text)]).rate.unwrap()
}

/// Takes whatever comes, on one connection.
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

fn session(more: &[(&str, &str)]) -> MailSession {
    let server = server();
    let keys = [("server", server.as_str()), ("protocol", "smtp"), ("message_size", "2K")];
    let settings = settings(&[&keys[..], more].concat());
    let shared = Shared {
        settings,
        token: "t".to_owned(),
        seed: 1,
        halt: Halt::default(),
        ledger: Ledger::default(),
        accepted: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        done: AtomicU64::new(0),
    };
    MailSession::ready(0, Arc::new(shared)).unwrap()
}

fn span(start: Instant, length: Duration, taken: u64) -> Span {
    let taken = Arc::new(AtomicU64::new(taken));
    Span { name: "test", start, end: start + length, slice: 0.1, taken }
}

#[test]
fn due_is_what_falls_into_the_window() {
    let due = |seconds: f64, text: &str| {
        span(Instant::now(), Duration::from_secs_f64(seconds), 0).due(rate(text))
    };
    assert_eq!(due(1.0, "50/s"), 50);
    assert_eq!(due(1.0, "3/s"), 3);
    assert_eq!(due(0.01, "1/min"), 1);
    assert_eq!(due(8.0, "1500/min"), 200);
    assert_eq!(due(60.0, "7/min"), 7);
    assert_eq!(due(60.1, "7/min"), 8);
}

#[test]
fn a_message_of_the_last_moment_is_begun_and_whoever_waited_for_it_is_not_late() {
    let wait = Duration::from_millis(250);
    let mut session = session(&[("messages_rate", "4/s")]);
    // Two messages are due; another session has the first.
    let span = span(Instant::now(), wait + Duration::from_nanos(1), 1);
    assert_eq!(span.due(rate("4/s")), 2);
    let tally = session.work(&span).unwrap();
    assert_eq!((tally.scheduled, tally.messages), (1, 1));
    assert!(tally.late.unwrap() < wait, "{:?}", tally.late);
}

#[test]
fn without_a_rate_all_are_to_begin_at_the_opening() {
    let behind = Duration::from_millis(100);
    let mut session = session(&[]);
    let span = span(Instant::now() - behind, behind + Duration::from_secs(1), 0);
    let tally = session.work(&span).unwrap();
    assert!(tally.messages > 0);
    assert!(tally.late.unwrap() >= behind, "{:?}", tally.late);
}
