//! What our sessions wait for, seen by looking again and again: a thread with a session of its own.
//!
//! A round is one look at all sessions. Rounds fall at a random moment of each interval, since work
//! that repeats itself (a commit_delay of 20 ms) would meet a regular beat always in the same state.
//! An interval that passes without a look is missed and counted. Next: `results::waits` groups
//! events, `analysis` divides latencies by them.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::session::{self, SessionError};
use super::{PATIENCE, Span, Watched, lost};
use crate::pg::words;
use crate::results::Warning;
use crate::results::telemetry::Waits;
use crate::rng::SplitMix64;

const SQL: &str = include_str!("sql/activity.sql");

/// 20 a second: enough for shares within a few percent over a window, and each look is work for the
/// server.
const EVERY: Duration = Duration::from_millis(50);

/// What the server says of a session whose user switched track_activities off.
const DISABLED: &str = "disabled";

pub(super) struct Sampler {
    /// The sessions to watch; dropped, it ends the thread.
    pids: Option<Sender<Vec<i32>>>,
    found: Receiver<Found>,
}

/// What a window leaves.
#[derive(Debug, Default)]
pub(super) struct WaitsFound {
    pub(super) waits: Option<Waits>,
    pub(super) warnings: Vec<Warning>,
}

#[derive(Debug, Default)]
struct Found {
    sessions: u32,
    /// Names of events; rounds refer to them by their place.
    events: Vec<String>,
    rounds: Vec<Round>,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
struct Round {
    at: Instant,
    /// Event and number of sessions seen in it.
    seen: Vec<(u16, u32)>,
}

impl Sampler {
    /// Connects; it samples once it is told whom.
    pub(super) fn start(watched: Watched, seed: u64) -> Sampler {
        let (pids, whom) = mpsc::channel();
        let (tell, found) = mpsc::channel();
        // Without a thread `found` is closed, which `finish` reports.
        let _ = thread::Builder::new().name("pgio-waits".to_owned()).spawn(move || {
            let _ = tell.send(sample(&watched, seed, &whom));
        });
        Sampler { pids: Some(pids), found }
    }

    pub(super) fn watch(&self, pids: Vec<i32>) {
        if let Some(sender) = &self.pids {
            let _ = sender.send(pids);
        }
    }

    pub(super) fn finish(mut self, span: Span) -> WaitsFound {
        self.pids = None;
        match self.found.recv_timeout(PATIENCE) {
            Ok(found) => found.sum_up(span),
            Err(_) => WaitsFound {
                warnings: vec![lost("the sessions' waits", "their sampler does not answer")],
                ..WaitsFound::default()
            },
        }
    }
}

impl Found {
    fn sum_up(mut self, span: Span) -> WaitsFound {
        let mut sightings = BTreeMap::new();
        let mut rounds = 0;
        for round in self.rounds.iter().filter(|r| r.at >= span.opened && r.at <= span.closed) {
            rounds += 1;
            for (event, n) in &round.seen {
                let name = self.events[usize::from(*event)].clone();
                *sightings.entry(name).or_default() += u64::from(*n);
            }
        }
        // Only the barrier before the window sleeps: the last of it is no part of the work.
        sightings.remove("Timeout:PgSleep");
        if sightings.remove(DISABLED).is_some() {
            self.warnings.push(lost_to_setting());
            sightings.clear();
        }
        let seconds = (span.closed - span.opened).as_secs_f64();
        let due = (seconds / EVERY.as_secs_f64()).floor() as u64;
        let waits = (!sightings.is_empty()).then(|| Waits {
            rounds,
            missed_rounds: due.saturating_sub(rounds),
            hertz: rounds as f64 / seconds,
            sessions: self.sessions,
            sightings,
        });
        WaitsFound { waits, warnings: self.warnings }
    }

    fn event(&mut self, name: &str) -> u16 {
        let at = self.events.iter().position(|e| e == name).unwrap_or_else(|| {
            self.events.push(name.to_owned());
            self.events.len() - 1
        });
        u16::try_from(at).expect("PostgreSQL has some hundred events")
    }
}

fn lost_to_setting() -> Warning {
    Warning::new(
        "what the sessions waited for is unknown",
        "track_activities is off",
        "turn it on for the role or the database",
    )
}

fn sample(watched: &Watched, seed: u64, whom: &Receiver<Vec<i32>>) -> Found {
    let mut found = Found::default();
    if let Err(error) = sample_into(&mut found, watched, seed, whom) {
        found.warnings.push(lost("the sessions' waits", &words::sentence(&error)));
    }
    found
}

fn sample_into(
    found: &mut Found,
    watched: &Watched,
    seed: u64,
    whom: &Receiver<Vec<i32>>,
) -> Result<(), SessionError> {
    let mut client = session::open(&watched.params)?;
    let statement = client.prepare(SQL)?;
    // The sender is gone where the sessions could not be made ready.
    let Ok(pids) = whom.recv() else { return Ok(()) };
    found.sessions = u32::try_from(pids.len()).unwrap_or(u32::MAX);

    let mut moments = SplitMix64::new(seed);
    let mut interval = Instant::now();
    loop {
        let at = interval + EVERY.mul_f64(moments.next_f64());
        match whom.recv_timeout(at.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let asked = Instant::now();
        match client.query(&statement, &[&pids]) {
            Ok(rows) => {
                let at = asked + asked.elapsed() / 2;
                let seen = rows
                    .iter()
                    .map(|row| (found.event(row.get(0)), row.get::<_, i64>(1) as u32))
                    .collect();
                found.rounds.push(Round { at, seen });
            }
            Err(error) if client.is_closed() => return Err(error.into()),
            // One that took too long is a round missed.
            Err(_) => {}
        }
        let now = Instant::now();
        interval += EVERY;
        while interval + EVERY <= now {
            interval += EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(moments: &[u64], opened: Instant) -> Found {
        let mut found = Found { sessions: 2, ..Found::default() };
        let (cpu, flush) = (found.event("CPU"), found.event("IO:WALSync"));
        let round = |ms: &u64| Round {
            at: opened + Duration::from_millis(*ms),
            seen: vec![(cpu, 1), (flush, 1)],
        };
        found.rounds = moments.iter().map(round).collect();
        found
    }

    #[test]
    fn only_rounds_inside_the_window_count_and_the_missing_are_counted() {
        let start = Instant::now();
        let opened = start + Duration::from_millis(100);
        let span = Span { opened, closed: opened + Duration::from_millis(200) };
        // Of four intervals three were looked at; before and after do not count.
        let waits = found(&[50, 110, 150, 290, 310], start).sum_up(span).waits.unwrap();
        assert_eq!((waits.rounds, waits.missed_rounds, waits.sessions), (3, 1, 2));
        assert!((waits.hertz - 15.0).abs() < 1e-9, "{}", waits.hertz);
        assert_eq!(waits.sightings["CPU"], 3);
        assert_eq!(waits.sightings["IO:WALSync"], 3);
    }

    #[test]
    fn without_a_round_nothing_is_known() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(1) };
        let found = found(&[], opened).sum_up(span);
        assert_eq!(found.waits, None);
    }

    #[test]
    fn switched_off_activities_are_told_and_not_taken_for_clients() {
        let opened = Instant::now();
        let mut off = found(&[10], opened);
        let disabled = off.event(DISABLED);
        off.rounds[0].seen = vec![(disabled, 2)];
        let found = off.sum_up(Span { opened, closed: opened + Duration::from_secs(1) });
        assert_eq!(found.waits, None);
        assert!(found.warnings[0].why.contains("track_activities"));
    }
}
