//! Runs the sessions of a workload together: one thread and one connection each, one window.
//!
//! [`Gang::assemble`] connects and prepares every session, warms it up and leaves it waiting;
//! [`Gang::run`] releases all of them at one moment of the server's clock and adds up what their
//! slices return. Between the two the caller takes its readings, so that nothing but the work
//! lies inside the window. What a session does is in [`super::session`], how it is stopped in
//! [`super::stopping`]. Long, since the life of a gang is one sequence that is best read in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::Client;

use super::command::{CommandError, Left, Said};
use super::device::DeviceError;
use super::mail::MailError;
use super::notice::Notices;
use super::session::{self, Event, Go, SliceDone, server_seed};
use super::stall::{self, Stall};
use super::stopping::{Alive, Stopping};
use super::{Ready, Sessions, Totals};
use crate::config::resolve::Extent;
use crate::host::descriptors;
use crate::host::stop::Stop;
use crate::pg::connect::{Canceller, ConnectError, ConnectParams, WireError};
use crate::pg::server::{self, Connections};
use crate::pg::words;
use crate::results::model::{SessionTotals, Slice};

/// How long a session may go on after the window's end before it counts as stuck: longer than a
/// checkpoint's fsync holds up a commit on a slow device, shorter than anyone's patience.
pub const GRACE: Duration = Duration::from_secs(20);
/// How long a thousand sessions of a former trial may take to be gone.
const ENDING: Duration = Duration::from_secs(5);
/// How often the caller hears of progress.
const TICK: Duration = Duration::from_millis(50);
/// Sessions mostly wait; 256 kB is four times what their stack was seen to use.
const STACK: usize = 256 * 1024;
/// Of a session: its socket, and what its driver waits with.
const DESCRIPTORS: u64 = 5;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("a session cannot connect")]
    Connect(#[source] ConnectError),
    #[error(
        "{needed} sessions are needed but the server has {free} connections free of {max}: lower sessions (or NUM_SCHEMAS × NUM_THREADS), or raise max_connections"
    )]
    TooFewConnections { needed: u32, free: i64, max: i64 },
    #[error(
        "{needed} sessions need more open files than this process may have ({limit}): raise `ulimit -Hn`, or run fewer sessions"
    )]
    TooFewDescriptors { needed: u32, limit: u64 },
    #[error("role {role} may not {what}, which its sessions need; run: GRANT {grant} TO {role}")]
    Privilege { role: String, what: String, grant: String },
    #[error("{doing} failed in a session: {}", words::message(.source))]
    Postgres { doing: &'static str, source: postgres::Error },
    #[error("{doing} failed in a session: {source}")]
    Wire { doing: &'static str, source: WireError },
    #[error(
        "`{statement}` would run as {found}, not as {wanted}: ANALYZE the table, or choose another access"
    )]
    Plan { statement: String, found: String, wanted: &'static str },
    #[error(
        "sessions share server processes: a transaction-pooling proxy is in between; connect to PostgreSQL itself"
    )]
    Pooled,
    #[error(
        "the table {0} is there and is not pgio's: rename it, or let the workload use another schema by the role's search_path"
    )]
    NotOurs(String),
    #[error(
        "SCAN_PCT needs the table pgio_scan and it is not there: load it with `pgio setup --scan-scale SIZE`"
    )]
    NoScanTable,
    #[error("a slice returned what this pgio does not understand: {0}")]
    Slice(String),
    #[error("{0} before the sessions were started")]
    NotInForce(String),
    #[error(transparent)]
    Device(DeviceError),
    #[error(transparent)]
    Command(CommandError),
    #[error(transparent)]
    Mail(#[from] MailError),
    #[error("stopped")]
    Stopped,
    #[error("{0}")]
    Stuck(String),
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        match error {
            DeviceError::Stopped => EngineError::Stopped,
            other => EngineError::Device(other),
        }
    }
}

impl From<CommandError> for EngineError {
    fn from(error: CommandError) -> EngineError {
        match error {
            CommandError::Stopped => EngineError::Stopped,
            other => EngineError::Command(other),
        }
    }
}

/// What all sessions have in common.
#[derive(Clone)]
pub struct Setup {
    pub params: ConnectParams,
    /// Settings that a condition asks for, by session.
    pub settings: Vec<(String, String)>,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: Stop,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("params", &self.params)
            .field("settings", &self.settings)
            .field("warmup", &self.warmup)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// How far the window is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub elapsed: f64,
    /// Seconds of the window that the counts cover, as a mean over the sessions: counts arrive
    /// once a slice, so `elapsed` runs ahead of them.
    pub covered: f64,
    pub block_visits: u64,
    pub commits: u64,
    /// By a program, lately.
    pub said: Said,
    pub messages: u64,
}

/// Counts that lag further behind than this show a standstill, not the length of a slice.
const LAG: f64 = 2.0;

impl Progress {
    /// A count as a mean rate since the window opened; none before the first counts arrived.
    /// Divided by `elapsed` it would fall between two slices and jump with each.
    pub fn per_second(&self, count: u64) -> Option<f64> {
        let seconds = self.covered.max(self.elapsed - LAG);
        (self.covered > 0.0).then(|| count as f64 / seconds)
    }
}

/// What is told while a window is open.
#[derive(Debug, Clone)]
pub enum WindowEvent {
    /// The sessions begin.
    Opened(Instant),
    Progress(Progress),
    /// Processes of the server that serve a program; those of sessions are known before.
    Serving(Vec<i32>),
    /// The last session has ended its last operation, at this moment of this machine's clock.
    Closed(Instant),
    /// What a program wrote, however it ended.
    Left(Box<Left>),
}

/// What came of a window, complete or not.
#[derive(Debug)]
pub struct Ran {
    pub totals: Totals,
    pub sessions: Vec<SessionTotals>,
    pub timeline: Vec<Slice>,
    /// The common start, seconds since the epoch on the server's clock.
    pub started: f64,
    /// To the end of the last operation.
    pub seconds: f64,
    /// How long after the common start the last session began.
    pub late: f64,
    pub error: Option<EngineError>,
    /// Commits that became local because their wait for the standby was cancelled.
    pub cancelled_sync_rep: usize,
    /// Settings of the condition as every session read them back after each slice.
    pub readings: BTreeSet<(String, String)>,
}

impl Ran {
    /// Nothing yet, of a window that opens at this moment of the server's clock.
    pub(super) fn new(started: f64) -> Ran {
        Ran {
            totals: Totals::default(),
            sessions: Vec::new(),
            timeline: Vec::new(),
            started,
            seconds: 0.0,
            late: 0.0,
            error: None,
            cancelled_sync_rep: 0,
            readings: BTreeSet::new(),
        }
    }
}

/// Sessions that are ready and wait for their window.
pub struct Gang {
    setup: Setup,
    members: Vec<Member>,
    events: Receiver<Event>,
    notices: Notices,
    /// Every setting pinned, as the first session read it back.
    pinned: BTreeMap<String, String>,
    /// Of a session's round of its tables.
    turns: u32,
}

struct Member {
    pid: i32,
    table: String,
    canceller: Option<Canceller>,
    go: Sender<Go>,
    thread: Option<JoinHandle<()>>,
    totals: Totals,
    done: bool,
}

impl std::fmt::Debug for Gang {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gang").field("pids", &self.pids()).finish_non_exhaustive()
    }
}

impl Gang {
    /// Connects and prepares all sessions, or none.
    pub fn assemble(
        work: &Arc<dyn Sessions>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Gang, EngineError> {
        let count = work.count();
        wait_for_room(admin, count, &setup.stop)?;
        let notices = Notices::default();
        let (events_in, events) = mpsc::channel();
        let mut members = Vec::new();
        for index in 0..count {
            let (go, go_out) = mpsc::channel();
            let (work, setup) = (Arc::clone(work), setup.clone());
            let (events_in, notices) = (events_in.clone(), notices.clone());
            let thread = thread::Builder::new()
                .name(format!("session-{index}"))
                .stack_size(STACK)
                .spawn(move || session::run(index, &*work, &setup, &notices, &events_in, &go_out))
                .map_err(|e| {
                    EngineError::Stuck(format!("cannot start a thread for a session: {e}"))
                })?;
            members.push(Member {
                pid: 0,
                table: String::new(),
                canceller: None,
                go,
                thread: Some(thread),
                totals: Totals::default(),
                done: false,
            });
        }
        drop(events_in);
        let (pinned, turns) = (BTreeMap::new(), work.turns());
        let mut gang = Gang { setup, members, events, notices, pinned, turns };
        gang.wait_until_ready(admin)?;
        gang.check_unshared(admin)?;
        Ok(gang)
    }

    fn wait_until_ready(&mut self, admin: &mut Client) -> Result<(), EngineError> {
        let mut waiting = self.members.len();
        let mut failed = None;
        let patience = self.setup.warmup.saturating_add(GRACE);
        let mut heard = Instant::now();
        while waiting > 0 && failed.is_none() {
            let event = self.events.recv_timeout(TICK);
            if event.is_ok() {
                heard = Instant::now();
            }
            match event {
                Ok(Event::Connected { index, pid, canceller }) => {
                    let member = &mut self.members[index as usize];
                    (member.pid, member.canceller) = (pid, Some(*canceller));
                }
                Ok(Event::Ready { index, table, pinned }) => {
                    self.members[index as usize].table = table;
                    self.pinned.extend(pinned);
                    waiting -= 1;
                }
                Ok(Event::Failed { index, error }) => {
                    self.members[index as usize].done = true;
                    failed = Some(error);
                }
                Ok(Event::Slice(_) | Event::Done { .. }) => {}
                Err(RecvTimeoutError::Timeout) if self.setup.stop.requested() => {
                    failed = Some(EngineError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    let unready = |m: &&Member| m.table.is_empty();
                    let late: Vec<i32> =
                        self.members.iter().filter(unready).map(|m| m.pid).collect();
                    failed = Some(Stopping::stuck(admin, &late, "were not ready in time"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match failed {
            Some(error) => {
                self.put_down(admin);
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Real sessions have a server process each: two with one process are behind a pooler.
    fn check_unshared(&mut self, admin: &mut Client) -> Result<(), EngineError> {
        let mut pids: BTreeSet<i32> = self.pids().into_iter().collect();
        let own: i32 = admin
            .query_one("SELECT pg_backend_pid()", &[])
            .map_err(|source| EngineError::Postgres { doing: "asking for the process", source })?
            .get(0);
        pids.insert(own);
        if pids.len() == self.members.len() + 1 {
            Ok(())
        } else {
            self.put_down(admin);
            Err(EngineError::Pooled)
        }
    }

    /// Opens the window for all sessions at once and returns when all have ended.
    fn open(
        &mut self,
        admin: &mut Client,
        extent: Extent,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError> {
        // The slowest thread must hear of the start before it comes.
        let lead = 0.02 + 0.000_2 * self.members.len() as f64;
        let (opens, started) = common_start(admin, seconds(lead))?;
        let plan = WindowPlan::new(extent, self.members.len() as u64, self.turns);
        for (index, member) in self.members.iter().enumerate() {
            // A thread that is gone has already sent why.
            let _ = member.go.send(Go {
                start: started,
                end: started + plan.seconds,
                slice: plan.slice / plan.turns as f64,
                at_most: plan.share(index as u64),
                seed: server_seed(self.setup.seed, "session", index as u64),
            });
        }
        thread::sleep(opens.saturating_duration_since(Instant::now()));
        hear(admin, WindowEvent::Opened(opens));
        Ok(self.collect(admin, (opens, started), &plan, hear))
    }

    fn collect(
        &mut self,
        admin: &mut Client,
        (opened, started): (Instant, f64),
        plan: &WindowPlan,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Ran {
        let mut ran = Ran::new(started);
        let mut progress = Progress::default();
        let mut stopping = Stopping::default();
        let mut stall = Stall::new(opened);
        let mut next_tick = Instant::now();
        let mut working = self.members.len();
        let mut covered = vec![0.0; working];
        while self.members.iter().any(|m| !m.done) && !stopping.given_up() {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Slice(slice)) => {
                    stall.heard(Instant::now());
                    let SliceDone { index, number, last, did, readings } = *slice;
                    self.members[index as usize].totals.merge(&did.totals);
                    if number == 0 {
                        ran.late = ran.late.max(did.began - started);
                    }
                    ran.seconds = ran.seconds.max(did.ended - started);
                    let covered = &mut covered[index as usize];
                    let ended = (did.ended - started).max(*covered);
                    progress.covered += (ended - *covered) / plan.members as f64;
                    *covered = ended;
                    ran.readings.extend(readings);
                    progress.block_visits += did.totals.block_visits();
                    progress.commits += did.totals.commits();
                    add_slice(&mut ran.timeline, number, plan, &did.totals);
                    working -= usize::from(last);
                    if last && working == 0 {
                        hear(admin, WindowEvent::Closed(opened + seconds(ran.seconds)));
                    }
                }
                Ok(Event::Done { index }) => self.members[index as usize].done = true,
                Ok(Event::Failed { index, error }) => {
                    self.members[index as usize].done = true;
                    ran.error.get_or_insert(error);
                }
                Ok(Event::Connected { .. } | Event::Ready { .. }) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.setup.stop.requested() {
                ran.error.get_or_insert(EngineError::Stopped);
            }
            if ran.error.is_none() {
                let late = || -> Vec<i32> { self.alive().map(|alive| alive.pid).collect() };
                ran.error = plan.stuck(admin, &late, opened, &mut stall);
            }
            if ran.error.is_some() {
                let alive: Vec<Alive<'_>> = self.alive().collect();
                stopping.advance(admin, &alive, self.setup.stop.urgent());
            } else if working > 0 && next_tick <= Instant::now() {
                progress.elapsed = opened.elapsed().as_secs_f64();
                hear(admin, WindowEvent::Progress(progress));
                next_tick = Instant::now() + TICK;
            }
        }
        for member in &self.members {
            ran.totals.merge(&member.totals);
            ran.sessions.push(member.totals.as_session(member.pid, &member.table));
        }
        ran.cancelled_sync_rep = self.notices.cancelled_sync_rep();
        self.let_go();
        self.join();
        ran
    }

    /// Dropping the sender is how a session learns that nothing more will come.
    fn let_go(&mut self) {
        for member in &mut self.members {
            member.go = mpsc::channel().0;
        }
    }

    /// Ends sessions that never got a window.
    fn put_down(&mut self, admin: &mut Client) {
        let mut stopping = Stopping::default();
        self.let_go();
        while self.members.iter().any(|m| !m.done) && !stopping.given_up() {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Failed { index, .. } | Event::Done { index }) => {
                    self.members[index as usize].done = true;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let alive: Vec<Alive<'_>> = self.alive().collect();
                    stopping.advance(admin, &alive, self.setup.stop.urgent());
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.join();
    }

    fn alive(&self) -> impl Iterator<Item = Alive<'_>> {
        let alive = self.members.iter().filter(|m| !m.done);
        alive.map(|m| Alive { pid: m.pid, canceller: m.canceller.as_ref() })
    }

    fn join(&mut self) {
        for member in &mut self.members {
            if let (true, Some(thread)) = (member.done, member.thread.take()) {
                // A panic of the thread was printed there, and its session counts as lost.
                let _ = thread.join();
            }
        }
    }
}

impl Ready for Gang {
    fn pids(&self) -> Vec<i32> {
        self.members.iter().map(|m| m.pid).collect()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.pinned.clone()
    }

    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError> {
        self.open(admin, extent, hear)
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.go = mpsc::channel().0;
        }
    }
}

/// A moment that is `lead` ahead: here, and in seconds since the epoch on the server's clock.
pub(super) fn common_start(
    admin: &mut Client,
    lead: Duration,
) -> Result<(Instant, f64), EngineError> {
    let asked = Instant::now();
    let now = session::server_clock(admin)?;
    // The server read its clock somewhere between question and answer.
    let read = asked + asked.elapsed() / 2;
    Ok((read + lead, now + lead.as_secs_f64()))
}

/// A clock that was set back gives no span.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The window in slices of about a second; short windows have four. Sessions that go round several
/// tables cut each into turns.
#[derive(Debug)]
pub(super) struct WindowPlan {
    /// Infinite where a number of transactions is asked for.
    pub seconds: f64,
    pub slice: f64,
    /// In a slice.
    turns: usize,
    transactions: Option<u64>,
    members: u64,
}

impl WindowPlan {
    /// `round`: turns in which a session has been at all its tables, if the window lets it.
    pub(super) fn new(extent: Extent, members: u64, round: u32) -> WindowPlan {
        match extent {
            Extent::Time(window) => {
                let seconds = window.as_secs_f64();
                let slice = slice_length(seconds);
                let turns = turns_in(slice, seconds, round);
                WindowPlan { seconds, slice, turns, transactions: None, members }
            }
            Extent::Transactions(n) => {
                let turns = turns_in(1.0, 1.0, round);
                let seconds = f64::INFINITY;
                WindowPlan { seconds, slice: 1.0, turns, transactions: Some(n), members }
            }
            // Shared out again, it is the number of each.
            Extent::Calls(n) => {
                WindowPlan::new(Extent::Transactions(n.saturating_mul(members)), members, round)
            }
        }
    }

    /// A session's part of a fixed number of transactions or calls.
    pub(super) fn share(&self, index: u64) -> Option<u64> {
        self.transactions.map(|n| n / self.members + u64::from(index < n % self.members))
    }

    /// Sessions that are not waited for any more: after the window's end, or in a standstill where a
    /// fixed number of transactions takes as long as it takes.
    pub(super) fn stuck(
        &self,
        admin: &mut Client,
        pids: &dyn Fn() -> Vec<i32>,
        opened: Instant,
        stall: &mut Stall,
    ) -> Option<EngineError> {
        let (over, failure) = match self.patience() {
            Some(patience) => (opened.elapsed() > patience, "did not end with the window"),
            None => {
                let look = || stall::standstill(admin, &pids());
                (stall.is_over(Instant::now(), look), stall::FAILURE)
            }
        };
        over.then(|| Stopping::stuck(admin, &pids(), failure))
    }

    /// How long to wait for the last session, where that is known.
    fn patience(&self) -> Option<Duration> {
        let window = Duration::try_from_secs_f64(self.seconds).ok()?;
        Some(window.saturating_add(GRACE))
    }
}

fn slice_length(seconds: f64) -> f64 {
    let slices = seconds.round().max(4.0);
    seconds / slices
}

fn turns_in(slice: f64, seconds: f64, round: u32) -> usize {
    let turn = (seconds / f64::from(round)).max(session::SHORTEST_TURN);
    (slice / turn).ceil().max(1.0) as usize
}

pub(super) fn add_slice(
    timeline: &mut Vec<Slice>,
    number: usize,
    plan: &WindowPlan,
    totals: &Totals,
) {
    let number = number / plan.turns;
    while timeline.len() <= number {
        let at = plan.slice * (timeline.len() + 1) as f64;
        timeline.push(Slice { at, seconds: plan.slice, ..Slice::default() });
    }
    let slice = &mut timeline[number];
    slice.block_visits += totals.block_visits();
    slice.rows_updated += totals.rows_updated;
    slice.commits += totals.commits();
}

/// Whether the server, and this process, have room for so many sessions beside those there are.
fn check_room(admin: &mut Client, needed: u32) -> Result<(), EngineError> {
    let Connections { max, free } = server::connections(admin)
        .map_err(|source| EngineError::Postgres { doing: "asking for free connections", source })?;
    if i64::from(needed) > free {
        return Err(EngineError::TooFewConnections { needed, free, max });
    }
    descriptors::make_room(u64::from(needed) * DESCRIPTORS)
        .map_err(|limit| EngineError::TooFewDescriptors { needed, limit })
}

/// The same, of a server that may still be ending the sessions of the trial before.
pub fn wait_for_room(admin: &mut Client, needed: u32, stop: &Stop) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        match check_room(admin, needed) {
            Err(EngineError::TooFewConnections { max, .. })
                if i64::from(needed) < max && begun.elapsed() < ENDING && !stop.requested() =>
            {
                thread::sleep(TICK);
            }
            checked => return checked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_steady_between_slices_and_falls_in_a_standstill() {
        let at = |elapsed, covered, commits| {
            let progress = Progress { elapsed, covered, commits, ..Progress::default() };
            progress.per_second(progress.commits)
        };
        assert_eq!(at(0.9, 0.0, 0), None);
        assert_eq!(at(1.0, 1.0, 3000), Some(3000.0));
        assert_eq!(at(1.95, 1.0, 3000), Some(3000.0), "not 1538");
        // Half of the sessions have told of their second slice.
        assert_eq!(at(2.01, 1.5, 4500), Some(3000.0));
        assert_eq!(at(12.0, 2.0, 6000), Some(600.0));
    }

    #[test]
    fn windows_are_cut_into_about_seconds() {
        assert_eq!(slice_length(120.0), 1.0);
        assert_eq!(slice_length(1.0), 0.25);
        assert_eq!(slice_length(2.5), 0.625);
    }

    #[test]
    fn a_slice_has_as_many_turns_as_a_round_of_the_window_needs() {
        assert_eq!(turns_in(1.0, 60.0, 1), 1);
        assert_eq!(turns_in(1.0, 60.0, 128), 3);
        assert_eq!(turns_in(1.0, 60.0, 64), 2);
        // However many tables, a turn is no shorter than makes sense.
        assert_eq!(turns_in(1.0, 10.0, 4096), 4);
        assert_eq!(turns_in(1.0, 1.0, 2), 2);
    }

    #[test]
    fn a_fixed_number_is_shared_out_completely() {
        let plan = WindowPlan::new(Extent::Transactions(10), 4, 1);
        let shares: Vec<u64> = (0..4).filter_map(|i| plan.share(i)).collect();
        assert_eq!(shares, [3, 3, 2, 2]);
        let each = WindowPlan::new(Extent::Calls(10), 4, 1);
        assert!((0..4).all(|i| each.share(i) == Some(10)));
        assert_eq!(plan.patience(), None);
        let timed = WindowPlan::new(Extent::Time(GRACE), 4, 1);
        assert_eq!(timed.patience(), Some(2 * GRACE));
    }
}
