//! A small mail server with configurable behavior: correct, or with one kind of fault.
//!
//! Keeps what it takes as mail directories, and ends with the test.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::dovecot::files;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
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
pub(crate) struct Fake {
    state: Arc<State>,
    port: u16,
}

impl Fake {
    pub(crate) fn start(manner: Manner) -> Fake {
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

    pub(crate) fn workload(&self) -> String {
        format!(
            "server = \"127.0.0.1:{}\"\nmaildir = \"{}/{{user}}\"\nthreads = 3\nmessage_size = \"3K\"\n\
             recipients = \"user{{1..5}}@localhost\"",
            self.port,
            self.state.dir.path().display()
        )
    }

    pub(crate) fn files(&self) -> usize {
        files(self.state.dir.path())
    }

    /// The largest number of copies that were kept of one message for one recipient.
    pub(crate) fn most_copies(&self) -> u64 {
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
