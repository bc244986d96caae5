//! Divides the wait samples of one trial among its classes of operations.
//!
//! The parent module documents the rule. Everything is in seconds of session time, summed over sessions:
//! the share of the samples times the number of sessions times the window.

use std::collections::BTreeMap;

use pgio_results::Trial;
use pgio_results::waits::{WaitGroup, by_group, pauses};

/// All operations of one class in one trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Class {
    pub operations: u64,
    /// Their total time.
    pub seconds: f64,
    /// The waits in it; CPU is the rest.
    waits: BTreeMap<WaitGroup, f64>,
    /// Binomial standard errors of the waits.
    errors: BTreeMap<WaitGroup, f64>,
}

impl Class {
    pub(super) fn part(&self, group: WaitGroup) -> f64 {
        match group {
            WaitGroup::Cpu => (self.seconds - self.waits.values().sum::<f64>()).max(0.0),
            _ => self.waits.get(&group).copied().unwrap_or(0.0),
        }
    }

    /// The standard error of [`Class::part`]; for CPU, the error of all other parts together.
    pub(super) fn error(&self, group: WaitGroup) -> f64 {
        match group {
            WaitGroup::Cpu => self.errors.values().map(|e| e * e).sum::<f64>().sqrt(),
            _ => self.errors.get(&group).copied().unwrap_or(0.0),
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = WaitGroup> {
        self.waits.keys().copied().chain([WaitGroup::Cpu])
    }

    fn remaining(&self) -> f64 {
        self.part(WaitGroup::Cpu)
    }

    fn add(&mut self, seen: &SampledWait, seconds: f64) {
        if seconds > 0.0 {
            *self.waits.entry(seen.group).or_default() += seconds;
            *self.errors.entry(seen.group).or_default() += seen.error * seconds / seen.seconds;
        }
    }
}

/// One trial's classes.
pub(super) type Divided = BTreeMap<&'static str, Class>;

/// The time that sessions spent in one kind of wait.
struct SampledWait {
    group: WaitGroup,
    seconds: f64,
    error: f64,
}

/// `None` without samples or timings.
pub(super) fn divide(trial: &Trial) -> Option<Divided> {
    let waits = sampled_waits(trial)?;
    let mut classes = timed(trial);
    if classes.is_empty() {
        return None;
    }
    let waits_in = |groups: &[WaitGroup]| -> Vec<&SampledWait> {
        waits.iter().filter(|s| groups.contains(&s.group)).collect()
    };
    let commit_waits = waits_in(&[WaitGroup::Flush, WaitGroup::SyncRep]);
    if classes.contains_key("commit") {
        let beyond = distribute(&mut classes, &commit_waits, 1.0, &[&["commit"]]);
        distribute(&mut classes, &waits_in(&[WaitGroup::Flush]), beyond, &[CHANGING]);
    } else {
        distribute(&mut classes, &commit_waits, 1.0, &[CHANGING, READING]);
    }
    let others: Vec<&SampledWait> =
        waits.iter().filter(|s| !commit_waits.iter().any(|c| c.group == s.group)).collect();
    let calls = [READING, CHANGING].concat();
    distribute(&mut classes, &others, 1.0, &[calls.as_slice(), &["commit"]]);
    Some(with_transactions(classes))
}

/// A transaction without its commit.
const REST: &str = "rest";

/// Classes that change rows.
const CHANGING: &[&str] = &["update", "insert", "delete", REST];
/// Classes that only read.
const READING: &[&str] = &["read", "scan"];

/// The timed classes, disjoint from each other.
fn timed(trial: &Trial) -> Divided {
    let waits_in = |class: &str| {
        let h = trial.histograms.get(class).filter(|h| h.count() > 0)?;
        Some(Class { operations: h.count(), seconds: h.sum_ns() / 1e9, ..Class::default() })
    };
    let mut classes: Divided = ["read", "scan", "update", "insert", "delete", "commit"]
        .into_iter()
        .filter_map(|class| Some((class, waits_in(class)?)))
        .collect();
    if let Some(mut rest) = waits_in("transaction") {
        rest.seconds -= classes.get("commit").map_or(0.0, |commit| commit.seconds);
        rest.seconds = rest.seconds.max(0.0);
        classes.insert(REST, rest);
    }
    classes
}

/// In such a trial a session waits for its client exactly during the round trip, which the client's
/// latencies include.
fn is_closed_loop_of_client(trial: &Trial) -> bool {
    let key = |name: &str| trial.workload.keys.get(name);
    key("engine").is_some_and(|engine| engine == "client")
        && key("rate").is_none()
        && key("pipeline").is_some_and(|n| *n == 1)
}

fn sampled_waits(trial: &Trial) -> Option<Vec<SampledWait>> {
    let waits = trial.telemetry.as_ref()?.waits.as_ref()?;
    let mut groups = by_group(waits);
    let all: u64 = groups.values().sum();
    if all == 0 {
        return None;
    }
    let sessions = match waits.sessions {
        0 => trial.sessions.len() as f64,
        n => f64::from(n),
    };
    let session_seconds = sessions * trial.window.seconds;
    // A session that pauses is in no operation, but the time is the session's.
    if let Some(others) = groups.get_mut(&WaitGroup::Other) {
        *others = others.saturating_sub(pauses(waits));
    }
    let round_trips = is_closed_loop_of_client(trial);
    let waited = groups.into_iter().filter(|(group, n)| {
        // CPU is the rest; the client's time belongs to no operation of the server.
        *n > 0 && *group != WaitGroup::Cpu && (round_trips || *group != WaitGroup::Client)
    });
    let one = |(group, n): (WaitGroup, u64)| {
        let share = n as f64 / all as f64;
        let error = (share * (1.0 - share) / all as f64).sqrt();
        SampledWait { group, seconds: share * session_seconds, error: error * session_seconds }
    };
    Some(waited.map(one).collect())
}

/// Divides the share `wanted` of the waits among the first group of `order` in proportion to the
/// remaining time of its classes, the excess among the next group, and so on. Returns the share that does
/// not fit.
fn distribute(
    classes: &mut Divided,
    seen: &[&SampledWait],
    mut wanted: f64,
    order: &[&[&str]],
) -> f64 {
    let total: f64 = seen.iter().map(|s| s.seconds).sum();
    for group in order {
        let remaining = |class: &str| classes.get(class).map_or(0.0, Class::remaining);
        let room: Vec<(&str, f64)> = group.iter().map(|class| (*class, remaining(class))).collect();
        let all: f64 = room.iter().map(|(_, seconds)| seconds).sum();
        if all <= 0.0 || total <= 0.0 {
            continue;
        }
        let fits = wanted.min(all / total);
        for (name, seconds) in room {
            if let Some(class) = classes.get_mut(name) {
                seen.iter().for_each(|s| class.add(s, s.seconds * fits * seconds / all));
            }
        }
        wanted -= fits;
    }
    wanted
}

/// Combines commit and rest into the transaction.
fn with_transactions(mut classes: Divided) -> Divided {
    if let Some(mut whole) = classes.remove(REST) {
        if let Some(commit) = classes.get("commit") {
            whole.seconds += commit.seconds;
            for (group, seconds) in &commit.waits {
                *whole.waits.entry(*group).or_default() += seconds;
            }
            for (group, error) in &commit.errors {
                *whole.errors.entry(*group).or_default() += error;
            }
        }
        classes.insert("transaction", whole);
    }
    classes
}
