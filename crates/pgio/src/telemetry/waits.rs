//! Samples the wait events of the workload's sessions on a separate thread and session.
//!
//! A round samples all sessions once. Each round takes place at a random moment of its interval,
//! because a regular schedule would always find periodic work (a commit_delay of 20 ms) in the same
//! state. An interval of the window without a round counts as missed; how many rounds fall into the
//! slices of one condition is random, so they have the window's share of missed rounds. Next:
//! `results::waits` groups events, `pgio_verdict` divides latencies by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::sampling::{self, SAMPLER_TIMEOUT, SessionError, Span, WatchedServer, not_observed};
use crate::pg::words::{self, Shown};
use crate::rng::SplitMix64;
use pgio_results::Warning;
use pgio_results::telemetry::Waits;

const SQL: &str = include_str!("sql/activity.sql");

/// 20 rounds per second: enough for shares within a few percent over a window, without much load on
/// the server.
const INTERVAL: Duration = Duration::from_millis(50);

/// State that the server reports for a session with track_activities off.
const DISABLED: &str = "disabled";
/// Takes the place of the state of a session that the role may not see.
const HIDDEN: &str = "hidden";

pub(super) struct Sampler {
    /// Sends the sessions to watch; dropping it ends the thread.
    pids: Option<Sender<Vec<i32>>>,
    samples: Receiver<Samples>,
}

/// Summary of one window.
#[derive(Debug, Default)]
pub(super) struct WaitSummary {
    pub(super) waits: Option<Waits>,
    /// The samples inside each set of spans.
    pub(super) shares: Vec<Option<Waits>>,
    /// Mean number of active sessions of others, by database.
    pub(super) foreign: Option<BTreeMap<String, f64>>,
    /// The processes of these sessions.
    pub(super) foreign_pids: BTreeSet<i32>,
    pub(super) warnings: Vec<Warning>,
}

#[derive(Debug, Default)]
struct Samples {
    sessions: u32,
    /// Names of events; rounds refer to them by index.
    events: Vec<String>,
    rounds: Vec<Round>,
    foreign_pids: BTreeSet<i32>,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
struct Round {
    at: Instant,
    /// Event and number of sessions that were in it.
    counts: Vec<(u16, u32)>,
    /// Active sessions of others by database.
    foreign: Foreign,
}

/// Without a database: what they do is unknown.
type Foreign = Vec<(Option<String>, u32)>;

impl Sampler {
    /// Connects; sampling starts with [`Sampler::watch`].
    pub(super) fn start(watched: WatchedServer, seed: u64) -> Sampler {
        let (pids, watched_pids) = mpsc::channel();
        let (sender, samples) = mpsc::channel();
        // If the thread cannot start, `samples` is closed, which `finish` reports.
        let _ = thread::Builder::new().name("pgio-waits".to_owned()).spawn(move || {
            let _ = sender.send(sample(&watched, seed, &watched_pids));
        });
        Sampler { pids: Some(pids), samples }
    }

    pub(super) fn watch(&self, pids: Vec<i32>) {
        if let Some(sender) = &self.pids {
            let _ = sender.send(pids);
        }
    }

    /// Summarizes the samples of the window, and those inside each set of spans.
    pub(super) fn finish(mut self, span: Span, sets: &[Vec<Span>]) -> WaitSummary {
        self.pids = None;
        match self.samples.recv_timeout(SAMPLER_TIMEOUT) {
            Ok(samples) => samples.summarize(span, sets),
            Err(_) => WaitSummary {
                warnings: vec![not_observed("the sessions' waits", "the sampler does not answer")],
                ..WaitSummary::default()
            },
        }
    }
}

impl Samples {
    fn summarize(mut self, span: Span, sets: &[Vec<Span>]) -> WaitSummary {
        let unknown = why_unknown(&self.count_in(&[span]).0);
        self.warnings.extend(unknown);
        // `missed`: rounds that the window missed for each round that it has.
        let waits = |spans: &[Span], missed: Option<f64>| {
            let (sightings, rounds) = self.count_in(spans);
            if sightings.is_empty() || why_unknown(&sightings).is_some() {
                return None;
            }
            let lengths = spans.iter().map(|span| (span.closed - span.opened).as_secs_f64());
            let seconds: f64 = lengths.sum();
            let due = (seconds / INTERVAL.as_secs_f64()).floor() as u64;
            Some(Waits {
                rounds,
                missed_rounds: match missed {
                    Some(missed) => (missed * rounds as f64).round() as u64,
                    None => due.saturating_sub(rounds),
                },
                hertz: rounds as f64 / seconds,
                sessions: self.sessions,
                sightings,
            })
        };
        let all = waits(&[span], None);
        // Without a round in the window there is none in a slice.
        let missed = all.as_ref().map_or(0.0, |all| all.missed_rounds as f64 / all.rounds as f64);
        let shares = sets.iter().map(|spans| waits(spans, Some(missed))).collect();
        let foreign = self.foreign_in(span);
        let foreign_pids = self.foreign_pids;
        WaitSummary { waits: all, shares, foreign, foreign_pids, warnings: self.warnings }
    }

    fn foreign_in(&self, span: Span) -> Option<BTreeMap<String, f64>> {
        let inside = |round: &&Round| (span.opened..=span.closed).contains(&round.at);
        let rounds: Vec<&Round> = self.rounds.iter().filter(inside).collect();
        let mut active = BTreeMap::new();
        for (database, sessions) in rounds.iter().flat_map(|round| &round.foreign) {
            *active.entry(database.clone()?).or_default() +=
                f64::from(*sessions) / rounds.len() as f64;
        }
        (!rounds.is_empty()).then_some(active)
    }

    /// Counts the samples by event, and the rounds, inside spans.
    fn count_in(&self, spans: &[Span]) -> (BTreeMap<String, u64>, u64) {
        let mut sightings = BTreeMap::new();
        let mut rounds = 0;
        let inside = |round: &&Round| {
            spans.iter().any(|span| round.at >= span.opened && round.at <= span.closed)
        };
        for round in self.rounds.iter().filter(inside) {
            rounds += 1;
            for (event, n) in &round.counts {
                let name = self.events[usize::from(*event)].clone();
                *sightings.entry(name).or_default() += u64::from(*n);
            }
        }
        (sightings, rounds)
    }

    fn event_index(&mut self, name: &str) -> u16 {
        let index = self.events.iter().position(|e| e == name).unwrap_or_else(|| {
            self.events.push(name.to_owned());
            self.events.len() - 1
        });
        u16::try_from(index).expect("PostgreSQL has a few hundred wait events")
    }
}

/// Returns why the waits of some session are unknown, if they are.
fn why_unknown(sightings: &BTreeMap<String, u64>) -> Option<Warning> {
    let causes = [
        (DISABLED, "track_activities is off", "turn it on for the role or the database"),
        (HIDDEN, "the role may not see the sessions of another role", "GRANT pg_monitor TO ROLE"),
    ];
    let (_, why, remedy) = causes.into_iter().find(|(state, ..)| sightings.contains_key(*state))?;
    Some(Warning::new("the wait events of the sessions are unknown", why, remedy))
}

fn sample(watched: &WatchedServer, seed: u64, pids: &Receiver<Vec<i32>>) -> Samples {
    let mut samples = Samples::default();
    if let Err(error) = sample_into(&mut samples, watched, seed, pids) {
        let warning = not_observed("the sessions' waits", &words::sentence(&error));
        samples.warnings.push(warning);
    }
    samples
}

fn sample_into(
    samples: &mut Samples,
    watched: &WatchedServer,
    seed: u64,
    watched_pids: &Receiver<Vec<i32>>,
) -> Result<(), SessionError> {
    let mut client = sampling::open(&watched.params)?;
    let statement = client.prepare(SQL)?;
    let own_name = &watched.params.application_name;
    sample_rounds(samples, seed, watched_pids, &mut |pids| {
        match client.query(&statement, &[&pids, own_name]) {
            Ok(rows) => {
                let mut seen = Seen::default();
                for row in rows {
                    let count = row.try_get::<_, i64>(1)? as u32;
                    match row.try_get(0)? {
                        Some(event) => seen.events.push((event, count)),
                        None => {
                            let database = row.try_get::<_, Option<Shown>>(2)?.map(String::from);
                            seen.foreign.push((database, count));
                            seen.foreign_pids.extend(row.try_get::<_, Vec<i32>>(3)?);
                        }
                    }
                }
                Ok(Some(seen))
            }
            Err(error) if client.is_closed() => Err(error.into()),
            // A statement timeout is a missed round.
            Err(_) => Ok(None),
        }
    })
}

#[derive(Debug, Default)]
struct Seen {
    /// Events and the number of sessions that are in each.
    events: Vec<(String, u32)>,
    foreign: Foreign,
    foreign_pids: Vec<i32>,
}

/// `None` if the server did not answer in time.
type Counts = Result<Option<Seen>, SessionError>;

/// Samples the sessions that were sent last until the sender is dropped. `query` counts the events of
/// these sessions; without counts the round is missed.
fn sample_rounds(
    samples: &mut Samples,
    seed: u64,
    watched_pids: &Receiver<Vec<i32>>,
    query: &mut dyn FnMut(&[i32]) -> Counts,
) -> Result<(), SessionError> {
    // The sender was dropped: the sessions could not be opened.
    let Ok(mut pids) = watched_pids.recv() else { return Ok(()) };
    let mut moments = SplitMix64::new(seed);
    let mut interval = Instant::now();
    loop {
        let at = interval + INTERVAL.mul_f64(moments.next_f64());
        loop {
            match watched_pids.recv_timeout(at.saturating_duration_since(Instant::now())) {
                // The server now also serves the program of another driver.
                Ok(others) => pids = others,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        samples.sessions = u32::try_from(pids.len()).unwrap_or(u32::MAX);
        let start = Instant::now();
        if let Some(Seen { events, foreign, foreign_pids }) = query(&pids)? {
            let at = start + start.elapsed() / 2;
            let counts = events.iter().map(|(event, n)| (samples.event_index(event), *n)).collect();
            samples.rounds.push(Round { at, counts, foreign });
            samples.foreign_pids.extend(foreign_pids);
        }
        let now = Instant::now();
        interval += INTERVAL;
        while interval + INTERVAL <= now {
            interval += INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methodology_names_the_interval() {
        let sentence = format!("are sampled {} times a second", 1.0 / INTERVAL.as_secs_f64());
        pgio_results::test_support::assert_documented("METHODOLOGY.md", &sentence);
    }

    fn samples(moments: &[u64], opened: Instant) -> Samples {
        let mut samples = Samples { sessions: 2, ..Samples::default() };
        let (cpu, flush) = (samples.event_index("CPU"), samples.event_index("IO:WALSync"));
        let round = |ms: &u64| Round {
            at: opened + Duration::from_millis(*ms),
            counts: vec![(cpu, 1), (flush, 1)],
            foreign: vec![(Some("other".to_owned()), 2)],
        };
        samples.rounds = moments.iter().map(round).collect();
        samples
    }

    #[test]
    fn only_rounds_inside_the_window_count_and_missed_ones_are_reported() {
        let start = Instant::now();
        let opened = start + Duration::from_millis(100);
        let span = Span { opened, closed: opened + Duration::from_millis(200) };
        // Three of four intervals have a round; rounds before and after the window do not count.
        let waits = samples(&[50, 110, 150, 290, 310], start).summarize(span, &[]).waits.unwrap();
        assert_eq!((waits.rounds, waits.missed_rounds, waits.sessions), (3, 1, 2));
        assert!((waits.hertz - 15.0).abs() < 1e-9, "{}", waits.hertz);
        assert_eq!(waits.sightings["CPU"], 3);
        assert_eq!(waits.sightings["IO:WALSync"], 3);
    }

    #[test]
    fn active_sessions_of_others_are_a_mean_over_the_rounds_or_unknown() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_millis(200) };
        let mut seen = samples(&[10, 60, 110, 160, 210], opened);
        seen.rounds[0].foreign.clear();
        let other = || ("other".to_owned(), 1.5);
        assert_eq!(seen.foreign_in(span), Some([other()].into()), "2 in 3 of 4 rounds");
        seen.rounds[2].foreign.push((None, 1));
        assert_eq!(seen.foreign_in(span), None);
        assert_eq!(samples(&[], opened).foreign_in(span), None);
    }

    #[test]
    fn samples_of_a_woven_window_belong_to_the_condition_of_their_slice() {
        let start = Instant::now();
        let span = |from, to| Span {
            opened: start + Duration::from_millis(from),
            closed: start + Duration::from_millis(to),
        };
        let sets = [vec![span(0, 100), span(200, 300)], vec![span(105, 195)]];
        let summary = samples(&[50, 102, 150, 250], start).summarize(span(0, 300), &sets);
        let rounds = |waits: &Option<Waits>| waits.as_ref().map(|waits| waits.rounds);
        assert_eq!(rounds(&summary.waits), Some(4));
        // A sample between two slices belongs to none.
        assert_eq!(summary.shares.iter().map(rounds).collect::<Vec<_>>(), [Some(2), Some(1)]);
    }

    /// The slices of a condition have 35 rounds of 40 intervals by chance alone.
    #[test]
    fn slices_miss_rounds_only_if_the_window_does() {
        let start = Instant::now();
        let second = |from: u64| Span {
            opened: start + Duration::from_secs(from),
            closed: start + Duration::from_secs(from + 1),
        };
        let window = Span { opened: start, closed: start + Duration::from_secs(4) };
        let one = vec![second(0), second(2)];
        let missed = |moments: &[u64]| {
            let summary = samples(moments, start).summarize(window, std::slice::from_ref(&one));
            let share = summary.shares[0].as_ref().unwrap();
            (summary.waits.unwrap().missed_rounds, share.rounds, share.missed_rounds)
        };
        // Five rounds of the first second come in the second one.
        let late = |at: &u64| if *at < 250 { at + 1001 } else { *at };
        let moments: Vec<u64> = (0..80).map(|n| n * 50 + 10).map(|at| late(&at)).collect();
        assert_eq!(missed(&moments), (0, 35, 0));
        let half: Vec<u64> = moments.iter().copied().filter(|at| at % 100 < 50).collect();
        assert_eq!(missed(&half), (40, 17, 17));
    }

    #[test]
    fn pauses_of_sessions_are_samples_like_others() {
        let opened = Instant::now();
        let mut asleep = samples(&[10], opened);
        let pause = asleep.event_index("Timeout:PgSleep");
        asleep.rounds[0].counts = vec![(pause, 2)];
        let span = Span { opened, closed: opened + Duration::from_secs(1) };
        assert_eq!(asleep.count_in(&[span]).0["Timeout:PgSleep"], 2);
    }

    /// Each driver of a program adds the sessions that serve it.
    #[test]
    fn wait_sampling_uses_the_latest_list_of_sessions() {
        let (sender, pids) = mpsc::channel();
        sender.send(vec![1]).unwrap();
        let mut sender = Some(sender);
        let mut samples = Samples::default();
        let mut asked = Vec::new();
        sample_rounds(&mut samples, 1, &pids, &mut |pids| {
            asked.push(pids.to_vec());
            match asked.len() {
                2 => sender.as_ref().unwrap().send(vec![1, 2]).unwrap(),
                4 => drop(sender.take()),
                _ => {}
            }
            let events = vec![("CPU".to_owned(), pids.len() as u32)];
            Ok(Some(Seen { events, ..Seen::default() }))
        })
        .unwrap();
        assert_eq!(asked, [vec![1], vec![1], vec![1, 2], vec![1, 2]]);
        assert_eq!((samples.rounds.len(), samples.sessions), (4, 2));
        assert_eq!(samples.rounds[3].counts, [(0, 2)]);
    }

    #[test]
    fn without_sampling_rounds_there_are_no_waits() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(1) };
        let summary = samples(&[], opened).summarize(span, &[]);
        assert_eq!(summary.waits, None);
    }

    #[test]
    fn unknown_waits_are_a_warning_and_not_counted_as_client() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(1) };
        for (state, cause) in [("disabled", "track_activities"), ("hidden", "pg_monitor")] {
            let mut unknown = samples(&[10], opened);
            let event = unknown.event_index(state);
            unknown.rounds[0].counts.push((event, 1));
            let summary = unknown.summarize(span, &[vec![span]]);
            assert_eq!((summary.waits, summary.shares), (None, vec![None]));
            let [warning] = summary.warnings.as_slice() else { panic!("{:?}", summary.warnings) };
            assert!(format!("{warning:?}").contains(cause), "{warning:?}");
        }
    }
}
