//! Loading: as many tables at a time as there are streams, each by a thread and connection of its own.
//!
//! What happens is told by [`LoadEvent`]s on the caller's thread; nothing is printed. The caller's
//! connection coordinates only: it looks first, cancels what still runs when the load is stopped or
//! has failed, and drops surplus tables of a former load at the end.
//!
//! Next: `preflight` (what is refused), `stream` (one table), `rows` (the bytes).

mod preflight;
mod rows;
mod stream;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use self::preflight::{Ground, preflight};
use self::stream::{Ended, Shared, load_part, prepare};
use super::error::DatasetError;
use super::lines::Batches;
use super::mark::Part;
use super::plan::LoadSpec;
use super::{space, sql};
use crate::host::stop::Stop;
use crate::results::Warning;

/// How often progress is told and the stop flag looked at.
const TICK: Duration = Duration::from_millis(200);

/// How often the server's WAL writer is woken. A COPY goes round a ring of 16 MB of buffers in under
/// its own delay of 200 ms, and then waits for a flush by itself at every page; woken, it flushes
/// while the tables fill.
const NUDGE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq)]
pub enum LoadEvent {
    /// Before anything is changed; loading goes on.
    Warning(Warning),
    BaseLoaded {
        elapsed: Duration,
    },
    ScanLoaded {
        elapsed: Duration,
    },
    /// A line of the original's; elapsed is since the first table was begun.
    BatchWaiting {
        count: u32,
        elapsed: Duration,
    },
    /// Bytes of tables, base table included; elapsed is since the load was begun.
    Progress {
        done: u64,
        total: u64,
        elapsed: Duration,
    },
    TableLoaded {
        table: u32,
        elapsed: Duration,
    },
    GroupComplete {
        elapsed: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub tables: u32,
    /// Bytes of the tables without their indexes.
    pub heap_bytes: u64,
    pub elapsed: Duration,
    /// Tables of a former, larger load that were dropped.
    pub dropped: Vec<String>,
}

type Connect<'a> = &'a (dyn Fn() -> Result<Client, DatasetError> + Sync);

/// Loads the data set. Tables that are complete when it fails or is stopped are kept.
pub fn load<E>(
    admin: &mut Client,
    connect: &(dyn Fn() -> Result<Client, E> + Sync),
    spec: &LoadSpec,
    stop: &Stop,
    on_event: &mut dyn FnMut(LoadEvent),
) -> Result<Loaded, DatasetError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let connect = || connect().map_err(|e| DatasetError::Connect(Box::new(e)));
    exclusively(admin, |admin| load_locked(admin, &connect, spec, stop, on_event))
}

/// Runs alone among the loads and removals of one schema's data set.
pub(super) fn exclusively<T>(
    admin: &mut Client,
    work: impl FnOnce(&mut Client) -> Result<T, DatasetError>,
) -> Result<T, DatasetError> {
    let locked = |e| DatasetError::from_pg("lock", "the data set", e);
    if !admin.query_one(sql::LOCK, &[]).map_err(locked)?.get::<_, bool>(0) {
        return Err(DatasetError::Busy);
    }
    let result = work(admin);
    // Fails only when the connection is gone, and the lock with it.
    let _ = admin.query_one(sql::UNLOCK, &[]);
    result
}

fn load_locked(
    admin: &mut Client,
    connect: Connect<'_>,
    spec: &LoadSpec,
    stop: &Stop,
    on_event: &mut dyn FnMut(LoadEvent),
) -> Result<Loaded, DatasetError> {
    let ground = preflight(admin, spec)?;
    for warning in space::check(admin, spec, &ground.tablespace_location, &ground.ours)? {
        on_event(LoadEvent::Warning(warning));
    }
    let replaced: Vec<Part> = ground.ours.iter().map(|n| n.part).collect();
    let shared = Shared {
        spec,
        schema: &ground.schema,
        tablespace: &ground.tablespace,
        replaced: &replaced,
        stop,
        failed: AtomicBool::new(false),
        loaded: AtomicU64::new(0),
    };
    let began = Instant::now();

    // The base table is one more part in the queue, and the first: nothing is read from it, so the
    // tables need not wait for it. Only the lines about them do, to keep the original's order.
    let mut batches = Batches::new(spec.tables, spec.streams.max(1));
    let mut waiting = |complete: u32, on_event: &mut dyn FnMut(LoadEvent)| {
        for count in batches.due(complete) {
            on_event(LoadEvent::BatchWaiting { count, elapsed: began.elapsed() });
        }
    };
    let total = spec.total_heap_bytes();
    let mut base_is_due = spec.base_table;
    let mut complete = 0;
    if !base_is_due {
        waiting(complete, on_event);
    }
    group(admin, connect, &shared, &spec.parts(), &mut |news| {
        match news {
            News::Loaded(Part::Base) => {
                base_is_due = false;
                on_event(LoadEvent::BaseLoaded { elapsed: began.elapsed() });
            }
            News::Loaded(Part::Scan) => {
                on_event(LoadEvent::ScanLoaded { elapsed: began.elapsed() });
            }
            News::Loaded(Part::Table(table)) => {
                complete += 1;
                on_event(LoadEvent::TableLoaded { table, elapsed: began.elapsed() });
            }
            News::Tick => {}
        }
        if !base_is_due {
            waiting(complete, on_event);
        }
        let done = shared.loaded.load(Ordering::Relaxed);
        on_event(LoadEvent::Progress { done, total, elapsed: began.elapsed() });
    })?;
    let dropped = drop_surplus(admin, &ground, spec)?;
    on_event(LoadEvent::GroupComplete { elapsed: began.elapsed() });
    Ok(Loaded { tables: spec.tables, heap_bytes: total, elapsed: began.elapsed(), dropped })
}

enum News {
    Tick,
    Loaded(Part),
}

/// Loads the parts, `spec.streams` at a time, each as soon as a stream is free.
fn group(
    admin: &mut Client,
    connect: Connect<'_>,
    shared: &Shared<'_>,
    parts: &[Part],
    on_news: &mut dyn FnMut(News),
) -> Result<(), DatasetError> {
    let queue = Queue { parts, next: AtomicU32::new(0), sessions: Mutex::default() };
    let streams = (shared.spec.streams.max(1) as usize).min(parts.len());
    let (mut finished, mut tables_finished) = (0, 0);
    let mut failure = None;
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..streams {
            let (send, queue) = (send.clone(), &queue);
            scope.spawn(move || {
                if let Err(ended) = run_stream(connect, shared, queue, &send) {
                    // The other streams stop too; what they have completed stays.
                    if matches!(ended, Ended::Failed(_)) {
                        shared.failed.store(true, Ordering::Relaxed);
                    }
                    let _ = send.send(Err(ended));
                }
            });
        }
        drop(send);
        let mut nudging = true;
        let mut told = Instant::now();
        loop {
            match receive.recv_timeout(NUDGE) {
                Ok(Ok(part)) => {
                    finished += 1;
                    tables_finished += u32::from(matches!(part, Part::Table(_)));
                    on_news(News::Loaded(part));
                }
                Ok(Err(Ended::Failed(error))) => failure = failure.take().or(Some(error)),
                Ok(Err(Ended::Halted)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // Where it is not allowed, the load is slower and nothing else.
            nudging = nudging && admin.batch_execute(sql::NUDGE).is_ok();
            if told.elapsed() < TICK {
                continue;
            }
            told = Instant::now();
            on_news(News::Tick);
            if shared.halting() {
                cancel(admin, &queue);
            }
        }
    });
    await_sessions(admin, &queue);
    match failure {
        Some(error) => Err(error),
        None if finished == parts.len() => Ok(()),
        None => {
            let tables = shared.spec.tables;
            Err(DatasetError::Stopped { finished: tables_finished, tables })
        }
    }
}

struct Queue<'a> {
    parts: &'a [Part],
    next: AtomicU32,
    sessions: Mutex<Sessions>,
}

/// Server processes of the streams and when each began, as process numbers come again.
#[derive(Debug, Clone, Default)]
struct Sessions {
    pids: Vec<i32>,
    began: Vec<i64>,
}

impl Queue<'_> {
    fn take(&self) -> Option<Part> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        self.parts.get(at).copied()
    }

    fn register(&self, pid: i32, began: i64) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.pids.push(pid);
        sessions.began.push(began);
    }

    fn sessions(&self) -> Sessions {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn run_stream(
    connect: Connect<'_>,
    shared: &Shared<'_>,
    queue: &Queue<'_>,
    send: &mpsc::Sender<Result<Part, Ended>>,
) -> Result<(), Ended> {
    let mut client = connect()?;
    prepare(&mut client)?;
    let id = client
        .query_one(sql::SESSION_ID, &[])
        .map_err(|e| DatasetError::from_pg("set up", "a session", e))?;
    queue.register(id.get("pid"), id.get("began"));
    while let Some(part) = queue.take() {
        if shared.halting() {
            return Err(Ended::Halted);
        }
        load_part(&mut client, shared, part)?;
        let _ = send.send(Ok(part));
    }
    Ok(())
}

/// Between chunks a stream sees the flag itself; this is for one that waits inside a statement
/// (CREATE INDEX, VACUUM, a server that does not take data any more).
fn cancel(admin: &mut Client, queue: &Queue<'_>) {
    // When this fails the streams still end by themselves, only later.
    let sessions = queue.sessions();
    let _ = admin.query(sql::CANCEL, &[&sessions.pids, &sessions.began]);
}

/// A session lives on for a moment after its connection was closed; wait, so that nothing of ours
/// runs on the server when this returns.
fn await_sessions(admin: &mut Client, queue: &Queue<'_>) {
    let sessions = queue.sessions();
    for _ in 0..100 {
        match admin.query_one(sql::RUNNING, &[&sessions.pids, &sessions.began]) {
            Ok(row) if row.get::<_, i64>(0) > 0 => thread::sleep(Duration::from_millis(10)),
            _ => return,
        }
    }
}

fn drop_surplus(
    admin: &mut Client,
    ground: &Ground,
    spec: &LoadSpec,
) -> Result<Vec<String>, DatasetError> {
    let surplus = ground.ours.iter().map(|n| n.part).filter(|part| !spec.makes(*part));
    let names: Vec<String> = surplus.map(|part| part.to_string()).collect();
    super::destroy::drop_tables(admin, &ground.schema, &names)?;
    Ok(names)
}
