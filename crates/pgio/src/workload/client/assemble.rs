//! Connects the sessions of the client-side engine with identical settings.
//!
//! One session of the `postgres` crate goes first: it determines the server's address, pins the
//! settings, checks privileges and plans, and ends before the others connect. A few threads open the
//! other sessions concurrently, because the server's pace should be the only limit; each session needs
//! two round trips after authentication.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use bytes::BytesMut;
use pgio_connect::{self, Client, ConnectParams, Route, Wire, WireError};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use super::calls::{
    AllCalls, BIGINT, Call, Calls, Counts, Parameter, Prepared, Statement, Step, TEXT,
};
use super::driver::Driver;
use super::pool::{ClientPool, ClientSession};
use super::session::Session;
use crate::config::ClientSettings;
use crate::config::resolve::CommitSettings;
use crate::pg::{literal, session};
use crate::workload::commit::Commit;
use crate::workload::error::EngineError;
use crate::workload::participants::Setup;
use crate::workload::phase::{self, Phase};
use crate::workload::slob::Slob;
use crate::workload::slob::tables::key_range;
use crate::workload::stopping::Notices;
use crate::workload::window::GRACE;
use crate::workload::{Script, Sessions, prepare, room, sql};

/// Threads that connect: enough to keep a server on another continent busy, too few to occupy its
/// cores.
const CONNECTORS: usize = 16;

/// The statement that reads the condition's settings.
const SETTINGS_STATEMENT: &str = "pgio_reading";

/// The parameters of all sessions.
struct Plan {
    params: ConnectParams,
    route: Route,
    calls: AllCalls,
    /// All pinned settings, with the values that must be read back.
    pinned: BTreeMap<String, String>,
    /// The condition's settings.
    settings: Vec<String>,
    reads_settings: bool,
}

/// Connects and prepares all sessions; fails if one of them fails.
pub(super) fn assemble(
    calls: AllCalls,
    settings: ClientSettings,
    setup: Setup,
    admin: &mut Client,
) -> Result<ClientPool, EngineError> {
    let needed = u32::try_from(calls.sessions()).unwrap_or(u32::MAX);
    room::wait_for_room(admin, needed, &setup.stop)?;
    let notices = Notices::default();
    let received = notices.clone();
    let params = setup.params.clone().with_notices(move |routine| received.push(routine));
    let (route, pinned, version) = prepare_first_session(&params, &calls, &setup, admin)?;
    let plan = Arc::new(Plan {
        params,
        route,
        calls,
        pinned,
        settings: setup.settings.iter().map(|(name, _)| name.clone()).collect(),
        reads_settings: setup.reads_settings,
    });
    let sessions = open_all(&plan, &setup)?;
    check_unshared(&sessions, admin)?;
    let pooled = |session: &Session| ClientSession {
        pid: session.pid,
        table: plan
            .calls
            .for_session(session.index as usize)
            .map_or_else(String::new, Calls::table),
        canceller: session.wire.canceller(),
        done: false,
    };
    let pooled = sessions.iter().map(pooled).collect();
    // Distribute sessions round-robin, so that each thread has its share of every table.
    let threads = (settings.threads as usize).clamp(1, sessions.len().max(1));
    let mut shares: Vec<Vec<Session>> = (0..threads).map(|_| Vec::new()).collect();
    for session in sessions {
        shares[session.index as usize % threads].push(session);
    }
    let pinned = plan.pinned.clone();
    let mut pool = ClientPool::new((setup, settings), pooled, notices.clone(), pinned);
    for share in shares {
        let driver = Driver::new(share, notices.clone(), plan.settings.clone(), version)
            .map_err(|e| EngineError::Wire { doing: "waiting for sessions", source: e.into() })?;
        pool.start(driver)?;
    }
    Ok(pool)
}

/// Returns the server's address, the pinned settings as read back, and the server's version.
fn prepare_first_session(
    params: &ConnectParams,
    calls: &AllCalls,
    setup: &Setup,
    admin: &mut Client,
) -> Result<(Route, BTreeMap<String, String>, u32), EngineError> {
    let mut client = session::open(params).map_err(EngineError::Connect)?;
    let pid = prepare::backend_pid(&mut client)?;
    let mut pinned = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for Calls { script, .. } in calls.distinct() {
        if pinned.is_empty() {
            pinned = prepare::pin(&mut client, script, &setup.settings)?;
        }
        if !seen.insert(script.table.as_str()) {
            continue;
        }
        if setup.stop.requested() {
            return Err(EngineError::Stopped);
        }
        prepare::check_privileges(&mut client, script)?;
        for plan in &script.plans {
            prepare::check_plan(&mut client, plan)?;
        }
    }
    let version = prepare::version_num(&mut client)?;
    let route = client.route().clone();
    drop(client);
    wait_until_gone(admin, pid);
    Ok((route, pinned, version))
}

/// Waits until the first session has ended, because its connection slot may be needed.
fn wait_until_gone(admin: &mut Client, pid: i32) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let found = admin.query_opt("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&pid]);
        if !matches!(found, Ok(Some(_))) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn open_all(plan: &Arc<Plan>, setup: &Setup) -> Result<Vec<Session>, EngineError> {
    let count = plan.calls.sessions();
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, opened) = mpsc::channel();
    for _ in 0..CONNECTORS.min(count) {
        let (plan, next, sender) = (Arc::clone(plan), Arc::clone(&next), sender.clone());
        thread::Builder::new()
            .name("connecting".to_owned())
            .spawn(move || open_some(&plan, &next, &sender))
            .map_err(|source| EngineError::Thread { purpose: "connecting", source })?;
    }
    drop(sender);
    let sessions = Vec::with_capacity(count);
    let mut opening = Opening { sessions, count, next, last_event: Instant::now() };
    if let Some(error) = phase::run(&mut opening, &opened, &setup.stop) {
        return Err(error);
    }
    let mut sessions = opening.sessions;
    sessions.sort_unstable_by_key(|session: &Session| session.index);
    Ok(sessions)
}

/// The phase that opens the sessions.
struct Opening {
    sessions: Vec<Session>,
    count: usize,
    /// The next session to open.
    next: Arc<AtomicUsize>,
    /// When the last session was opened.
    last_event: Instant,
}

impl Phase for Opening {
    type Event = Result<Session, EngineError>;

    fn take(&mut self, opened: Self::Event, now: Instant) -> Result<(), EngineError> {
        self.sessions.push(opened?);
        self.last_event = now;
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        self.sessions.len() < self.count && !ending
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        let (late, count) = (self.count - self.sessions.len(), self.count);
        (late > 0 && now - self.last_event > GRACE).then(|| {
            EngineError::Overdue(format!(
                "{late} of {count} sessions were not ready in time; see the server's log"
            ))
        })
    }

    /// A thread that waits for the server ends when the server answers, and opens no other session.
    fn end(&mut self, _urgent: bool, _: Instant) {
        self.next.store(self.count, Ordering::Relaxed);
    }
}

fn open_some(plan: &Plan, next: &AtomicUsize, events: &Sender<Result<Session, EngineError>>) {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(calls) = plan.calls.for_session(index) else { return };
        let opened = open_one(plan, calls, index as u32);
        let failed = opened.is_err();
        if events.send(opened).is_err() || failed {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "`pin` prepares the session")]
fn open_one(plan: &Plan, calls: &Calls, index: u32) -> Result<Session, EngineError> {
    let failed = |doing| move |source| EngineError::Wire { doing, source };
    let mut wire = Wire::open(&plan.params, &plan.route).map_err(EngineError::Connect)?;
    let pid = pin(&mut wire, &plan.pinned)?;
    let mut statements: Vec<(String, String, Vec<u32>)> = calls
        .statements
        .iter()
        .map(|s| (s.name.clone().into_owned(), s.sql.clone(), s.types.clone()))
        .collect();
    let mut settings_query = Vec::new();
    if plan.reads_settings {
        // Possibly of no setting: the round trip must not distinguish conditions.
        statements.push((SETTINGS_STATEMENT.to_owned(), settings_sql(&plan.settings), Vec::new()));
        settings_query =
            settings_message().map_err(WireError::from).map_err(failed("preparing"))?;
    }
    wire.prepare(&statements).map_err(failed("preparing"))?;
    wire.set_nonblocking(true).map_err(WireError::from).map_err(failed("preparing"))?;
    let prepared = Prepared::prepare_all(&calls.calls).map_err(WireError::from);
    Ok(Session::new(wire, index, pid, prepared.map_err(failed("preparing"))?, settings_query))
}

/// Sets all settings at once and reads them back; returns the process ID of the session.
fn pin(wire: &mut Wire, pinned: &BTreeMap<String, String>) -> Result<i32, EngineError> {
    let mut sql = format!("{}; SELECT pg_backend_pid()", session::PREAMBLE);
    for (name, value) in pinned {
        // Do not use SET, which takes the text of a list as one element.
        sql.push_str(&format!(", set_config({}, {}, false)", literal(name), literal(value)));
    }
    let asked = wire.query(&sql);
    let mut rows =
        asked.map_err(|source| EngineError::Wire { doing: "pinning a setting", source })?;
    let mut row = rows.pop().unwrap_or_default().into_iter();
    session::check(rows).map_err(EngineError::NotInForce)?;
    let pid = row.next().flatten().and_then(|pid| pid.parse().ok());
    for ((name, wanted), found) in pinned.iter().zip(row) {
        let found = found.unwrap_or_default();
        if found != *wanted {
            return Err(EngineError::NotInForce(format!("{name} was {found} instead of {wanted}")));
        }
    }
    pid.ok_or(EngineError::Wire { doing: "pinning a setting", source: WireError::Malformed })
}

fn settings_sql(settings: &[String]) -> String {
    let each: Vec<String> =
        settings.iter().map(|name| format!("current_setting({})", literal(name))).collect();
    format!("SELECT {}", each.join(", "))
}

fn settings_message() -> io::Result<Vec<u8>> {
    let mut bytes = BytesMut::new();
    let none: [(); 0] = [];
    let bound =
        frontend::bind("", SETTINGS_STATEMENT, [], none, |(), _| Ok(IsNull::Yes), [], &mut bytes);
    bound.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    frontend::execute("", 0, &mut bytes)?;
    frontend::sync(&mut bytes);
    Ok(bytes.to_vec())
}

/// Checks that each session has its own server process. If two share one, a pooler is in between.
fn check_unshared(sessions: &[Session], admin: &mut Client) -> Result<(), EngineError> {
    let mut pids: BTreeSet<i32> = sessions.iter().map(|session| session.pid).collect();
    pids.insert(prepare::backend_pid(admin)?);
    if pids.len() == sessions.len() + 1 { Ok(()) } else { Err(EngineError::Pooled) }
}

// The workloads of the client-side engine: the statements of `slob` and `commit`. `slob` sends the same statements,
// one at a time, with keys drawn by the client. An UPDATE commits in its own round trip, so its latency includes the
// commit. `commit` sends one INSERT that commits by itself, or BEGIN, several INSERTs and COMMIT together; each row
// sends its filler, as an application would.

/// Returns the work of all sessions.
pub(in crate::workload) fn slob_calls(slob: &Slob) -> AllCalls {
    AllCalls::per_session((0..slob.count()).map(|session| session_calls(slob, session)).collect())
}

fn session_calls(slob: &Slob, session: u32) -> Calls {
    let s = &slob.settings;
    let script = Script { body: String::new(), ..slob.script(session) };
    let table = sql::qualified(&slob.schema, &script.table);
    let keys = s.scale.blocks();
    let (what, counts) = match s.work_unit {
        1 => ("scratch", Counts::Read),
        _ => ("count(*)", Counts::ReadCount),
    };
    let call = |statement: &'static str, share, counts, unit| Call {
        share,
        counts,
        steps: vec![Step {
            statement: statement.into(),
            parameters: vec![Parameter::Key(keys - unit + 1)],
            times: 1,
        }],
    };
    let statement =
        |name: &'static str, sql| Statement { name: name.into(), sql, types: vec![BIGINT] };
    let share = f64::from(s.update_pct) / 100.0;
    let mut calls = Calls { script, statements: Vec::new(), calls: Vec::new() };
    if share < 1.0 {
        let sql = format!("SELECT {what} FROM {table} WHERE {}", key_range("$1", s.work_unit));
        calls.statements.push(statement("r", sql));
        calls.calls.push(call("r", 1.0 - share, counts, s.work_unit));
    }
    if share > 0.0 {
        let range = key_range("$1", s.update_work_unit);
        let sql = format!("UPDATE {table} SET scratch = scratch + 1 WHERE {range}");
        calls.statements.push(statement("u", sql));
        calls.calls.push(call("u", share, Counts::Update, s.update_work_unit));
    }
    calls
}

/// Returns the work of all sessions.
pub(in crate::workload) fn commit_calls(commit: &Commit) -> AllCalls {
    let s = &commit.settings;
    let script = Script { body: String::new(), ..commit.script(0) };
    let statement = |name, sql: &str| Statement {
        name: Cow::Borrowed(name),
        sql: sql.to_owned(),
        types: Vec::new(),
    };
    let insert = format!("INSERT INTO {} (n, filler) VALUES ($1, $2)", commit.qualified());
    let insert = Statement { name: "i".into(), sql: insert, types: vec![BIGINT, TEXT] };
    let mut statements = vec![insert];
    if s.rows_per_transaction > 1 {
        statements.extend([statement("b", "BEGIN"), statement("c", "COMMIT")]);
    }
    let call = Call { share: 1.0, counts: Counts::Insert, steps: steps(s) };
    AllCalls::shared(Calls { script, statements, calls: vec![call] }, s.sessions)
}

fn steps(settings: &CommitSettings) -> Vec<Step> {
    let filler = match settings.payload {
        0 => Parameter::Null,
        length => Parameter::Filler(length),
    };
    let rows = settings.rows_per_transaction;
    let insert = Step {
        statement: "i".into(),
        parameters: vec![Parameter::Repetition, filler],
        times: rows,
    };
    let alone =
        |statement| Step { statement: Cow::Borrowed(statement), parameters: Vec::new(), times: 1 };
    match rows {
        1 => vec![insert],
        _ => vec![alone("b"), insert, alone("c")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve::Extent;
    use crate::config::{ClientSettings, Engine};
    use crate::host::clock::Clock;
    use crate::host::stop::Stop;
    use crate::workload::client::ClientWork;
    use crate::workload::shared::{Proof, SharedWork};
    use std::time::Duration;

    #[test]
    fn sessions_that_do_not_open_are_given_up_and_no_other_is_opened() {
        let (clock, (_sender, opened)) = (Clock::fake(), mpsc::channel());
        let (begun, next) = (clock.now(), Arc::new(AtomicUsize::new(1)));
        let mut opening =
            Opening { sessions: Vec::new(), count: 3, next: Arc::clone(&next), last_event: begun };
        let error = phase::run_by(&clock, &mut opening, &opened, &Stop::new()).unwrap();
        let expected = "3 of 3 sessions were not ready in time; see the server's log";
        assert_eq!(error.to_string(), expected);
        let waited = clock.now() - begun;
        assert!(waited > GRACE && waited < GRACE + Duration::from_secs(1), "{waited:?}");
        assert_eq!(next.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_work_of_many_sessions_with_many_long_rows_is_a_short_message() {
        let client = ClientSettings { threads: 1, pipeline: 1, pace: None };
        let settings = CommitSettings {
            sessions: 1000,
            rows_per_transaction: 1_000_000,
            payload: 100_000,
            index: false,
            extent: Extent::Time(Duration::from_secs(1)),
            engine: Engine::Client(client),
            warmup: Duration::ZERO,
            seed: None,
        };
        let calls = commit_calls(&Commit { settings, schema: "public".to_owned() });
        assert_eq!(calls.sessions(), 1000);
        let proof = Proof::Scanned { tables: Vec::new() };
        let part = ClientWork { calls, settings: client, proof }.part(0, 1000).unwrap();
        assert!(part.work.get().len() < 10_000, "{}", part.work.get().len());
    }
}
