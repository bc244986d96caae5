//! Loads the data set with parallel streams, each with its own thread and connection.
//!
//! The loader reports progress as [`LoadEvent`]s on the caller's thread and must not print. The
//! caller's connection only coordinates: it makes the checks before the load, cancels running
//! statements if the load stops or fails, and drops surplus tables of an earlier load at the end.
//!
//! Next: `stream`, which loads one table.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use pgio_results::Warning;
use pgio_results::units::BLOCK_BYTES;

use super::destroy::with_lock;
use super::error::DatasetError;
use super::lines::Batches;
use super::mark::{self, Named, Part};
use super::plan::LoadSpec;
use super::space;
use super::stream::{Shared, StreamError, load_part, prepare};
use crate::host::stop::Stop;
use crate::pg::session::{Owners, find_untrusted};
use crate::pg::words::ServerPath;

/// Interval of progress reports and of checks of the stop flag.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Interval at which pgio wakes the server's WAL writer. COPY cycles through a 16 MB ring of buffers in
/// less than wal_writer_delay (200 ms), after which each reused page waits for its own WAL flush; a
/// WAL writer that is woken flushes in the background instead.
const WAL_WRITER_WAKE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq)]
pub enum LoadEvent {
    /// A warning before any change; loading continues.
    Warning(Warning),
    BaseLoaded {
        elapsed: Duration,
    },
    ScanLoaded {
        elapsed: Duration,
    },
    /// A line of the original; elapsed is since the start of the first table.
    BatchWaiting {
        count: u32,
        elapsed: Duration,
    },
    /// Bytes of tables, base table included; elapsed is since the start of the load.
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
pub struct LoadSummary {
    pub tables: u32,
    /// Bytes of the tables without their indexes.
    pub heap_bytes: u64,
    pub elapsed: Duration,
    /// Dropped tables of an earlier, larger load.
    pub dropped: Vec<String>,
}

type Connect<'a> = &'a (dyn Fn() -> Result<Client, DatasetError> + Sync);

/// Loads the data set. If it fails or is stopped, complete tables are kept.
pub fn load<E>(
    admin: &mut Client,
    connect: &(dyn Fn() -> Result<Client, E> + Sync),
    spec: &LoadSpec,
    stop: &Stop,
    on_event: &mut dyn FnMut(LoadEvent),
) -> Result<LoadSummary, DatasetError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let connect = || connect().map_err(|e| DatasetError::Connect(Box::new(e)));
    with_lock(admin, |admin| load_locked(admin, &connect, spec, stop, on_event))
}

fn load_locked(
    admin: &mut Client,
    connect: Connect<'_>,
    spec: &LoadSpec,
    stop: &Stop,
    on_event: &mut dyn FnMut(LoadEvent),
) -> Result<LoadSummary, DatasetError> {
    let preflight = check_server(admin, spec)?;
    for warning in space::check(admin, spec, &preflight.tablespace_location, &preflight.existing)? {
        on_event(LoadEvent::Warning(warning));
    }
    let replaced: Vec<Part> = preflight.existing.iter().map(|n| n.part).collect();
    let shared = Shared {
        spec,
        schema: &preflight.schema,
        tablespace: &preflight.tablespace,
        replaced: &replaced,
        stop,
        failed: AtomicBool::new(false),
        loaded: AtomicU64::new(0),
        committed: Mutex::default(),
    };
    let started = Instant::now();

    // The base table is the first part in the queue. Nothing reads it, so tables do not wait for it;
    // only their events do, to keep the order of the original.
    let mut batches = Batches::new(spec.tables, spec.streams.max(1));
    let mut report_batches = |complete: u32, on_event: &mut dyn FnMut(LoadEvent)| {
        for count in batches.due(complete) {
            on_event(LoadEvent::BatchWaiting { count, elapsed: started.elapsed() });
        }
    };
    let total = spec.total_heap_bytes();
    let mut base_pending = spec.base_table;
    let mut complete = 0;
    if !base_pending {
        report_batches(complete, on_event);
    }
    load_parts(admin, connect, &shared, &spec.parts(), &mut |update| {
        match update {
            Update::Loaded(Part::Base) => {
                base_pending = false;
                on_event(LoadEvent::BaseLoaded { elapsed: started.elapsed() });
            }
            Update::Loaded(Part::Scan) => {
                on_event(LoadEvent::ScanLoaded { elapsed: started.elapsed() });
            }
            Update::Loaded(Part::Table(table)) => {
                complete += 1;
                on_event(LoadEvent::TableLoaded { table, elapsed: started.elapsed() });
            }
            Update::Tick => {}
        }
        if !base_pending {
            report_batches(complete, on_event);
        }
        let done = shared.loaded.load(Ordering::Relaxed);
        on_event(LoadEvent::Progress { done, total, elapsed: started.elapsed() });
    })
    .map_err(|error| {
        if error.is_disk_full() {
            remove_load(admin, &preflight.schema, &shared, error)
        } else {
            error
        }
    })?;
    let dropped = drop_surplus(admin, &preflight, spec)?;
    on_event(LoadEvent::GroupComplete { elapsed: started.elapsed() });
    Ok(LoadSummary { tables: spec.tables, heap_bytes: total, elapsed: started.elapsed(), dropped })
}

/// Removes what a load without room committed, which would leave none to others.
fn remove_load(
    admin: &mut Client,
    schema: &str,
    shared: &Shared<'_>,
    error: DatasetError,
) -> DatasetError {
    let committed = shared.committed.lock().unwrap_or_else(PoisonError::into_inner);
    let names: Vec<String> = committed.iter().map(Part::to_string).collect();
    let source = match error {
        // None of them stays complete.
        DatasetError::Incomplete { source, .. } => source,
        error => Box::new(error),
    };
    match super::destroy::drop_tables(admin, schema, &names) {
        Ok(()) => DatasetError::Removed(source),
        Err(_) => DatasetError::NotRemoved { tables: names.join(", "), source },
    }
}

enum Update {
    Tick,
    Loaded(Part),
}

/// Loads all parts of the spec with [`LoadSpec::concurrent`] streams; a part starts as soon as a stream is
/// free.
fn load_parts(
    admin: &mut Client,
    connect: Connect<'_>,
    shared: &Shared<'_>,
    parts: &[Part],
    on_update: &mut dyn FnMut(Update),
) -> Result<(), DatasetError> {
    let queue = Queue { parts, next: AtomicU32::new(0), sessions: Mutex::default() };
    let streams = shared.spec.concurrent();
    let (mut finished, mut tables_finished) = (0, 0);
    let mut failure = None;
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for number in 0..streams {
            let (sender, queue) = (send.clone(), &queue);
            let load = move || {
                let send = sender;
                if let Err(error) = run_stream(connect, shared, queue, &send) {
                    // The other streams stop too; complete tables stay.
                    if matches!(error, StreamError::Failed(_)) {
                        shared.failed.store(true, Ordering::Relaxed);
                    }
                    let _ = send.send(Err(error));
                }
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, load) {
                // Those that run share the work.
                if number == 0 {
                    let error = DatasetError::Connect(error.into());
                    let _ = send.send(Err(StreamError::Failed(error)));
                }
                break;
            }
        }
        drop(send);
        let mut waking = true;
        let mut last_tick = Instant::now();
        loop {
            match receive.recv_timeout(WAL_WRITER_WAKE) {
                Ok(Ok(part)) => {
                    finished += 1;
                    tables_finished += u32::from(matches!(part, Part::Table(_)));
                    on_update(Update::Loaded(part));
                }
                Ok(Err(StreamError::Failed(error))) => failure = failure.take().or(Some(error)),
                Ok(Err(StreamError::Stopped)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // Without the privilege, the load is only slower.
            waking = waking && admin.batch_execute(super::WAKE_WAL_WRITER).is_ok();
            if last_tick.elapsed() < PROGRESS_INTERVAL {
                continue;
            }
            last_tick = Instant::now();
            on_update(Update::Tick);
            if shared.should_stop() {
                cancel(admin, &queue);
            }
        }
    });
    wait_for_sessions(admin, &queue);
    let tables = shared.spec.tables;
    match failure {
        Some(error) if tables_finished > 0 => Err(DatasetError::Incomplete {
            finished: tables_finished,
            tables,
            source: Box::new(error),
        }),
        Some(error) => Err(error),
        None if finished == parts.len() => Ok(()),
        None => Err(DatasetError::Stopped { finished: tables_finished, tables }),
    }
}

struct Queue<'a> {
    parts: &'a [Part],
    next: AtomicU32,
    sessions: Mutex<Sessions>,
}

/// Server processes of the streams with their start times, because pids are reused.
#[derive(Debug, Clone, Default)]
struct Sessions {
    pids: Vec<i32>,
    started: Vec<i64>,
}

impl Queue<'_> {
    fn next_part(&self) -> Option<Part> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        self.parts.get(at).copied()
    }

    fn register(&self, pid: i32, started: i64) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.pids.push(pid);
        sessions.started.push(started);
    }

    fn sessions(&self) -> Sessions {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn run_stream(
    connect: Connect<'_>,
    shared: &Shared<'_>,
    queue: &Queue<'_>,
    send: &mpsc::Sender<Result<Part, StreamError>>,
) -> Result<(), StreamError> {
    let mut client = connect()?;
    prepare(&mut client)?;
    let id = client
        .query_one(super::SESSION_ID, &[])
        .map_err(|e| DatasetError::from_pg("set up", "a session", e))?;
    let id = id.try_get("pid").and_then(|pid| Ok((pid, id.try_get("started")?)));
    let (pid, started) = id.map_err(DatasetError::from)?;
    queue.register(pid, started);
    while let Some(part) = queue.next_part() {
        if shared.should_stop() {
            return Err(StreamError::Stopped);
        }
        load_part(&mut client, shared, part)?;
        let _ = send.send(Ok(part));
    }
    Ok(())
}

/// Cancels running statements. A stream checks the flag between chunks, but it may wait inside a
/// statement (CREATE INDEX, VACUUM, a server that no longer accepts data).
fn cancel(admin: &mut Client, queue: &Queue<'_>) {
    // If this fails, the streams still end, but later.
    let sessions = queue.sessions();
    let _ = admin.query(super::CANCEL, &[&sessions.pids, &sessions.started]);
}

/// Waits until the sessions have ended: a server process exits shortly after its connection is closed.
fn wait_for_sessions(admin: &mut Client, queue: &Queue<'_>) {
    let sessions = queue.sessions();
    for _ in 0..100 {
        match admin.query_one(super::RUNNING, &[&sessions.pids, &sessions.started]) {
            Ok(row) if row.try_get::<_, i64>(0).is_ok_and(|n| n > 0) => {
                thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

fn drop_surplus(
    admin: &mut Client,
    preflight: &Preflight,
    spec: &LoadSpec,
) -> Result<Vec<String>, DatasetError> {
    let surplus = preflight.existing.iter().map(|n| n.part).filter(|part| !spec.includes(*part));
    let names: Vec<String> = surplus.map(|part| part.to_string()).collect();
    super::destroy::drop_tables(admin, &preflight.schema, &names)?;
    Ok(names)
}

/// The state of the server before a load.
#[derive(Debug)]
struct Preflight {
    schema: String,
    tablespace: String,
    /// Empty for a tablespace in the data directory.
    tablespace_location: PathBuf,
    /// Marked tables of an earlier load.
    existing: Vec<Named>,
}

fn check_server(client: &mut Client, spec: &LoadSpec) -> Result<Preflight, DatasetError> {
    let row = client
        .query_one(super::PREFLIGHT, &[&spec.tablespace])
        .map_err(|e| DatasetError::from_pg("inspect", "the server", e))?;
    let schema: Option<String> = row.try_get("schema")?;
    let role: String = row.try_get("role")?;
    let tablespace: String = row.try_get("tablespace")?;
    let block_size: i32 = row.try_get("block_size")?;

    if row.try_get("in_recovery")? {
        return Err(DatasetError::ReadOnly);
    }
    if i64::from(block_size) != BLOCK_BYTES as i64 {
        return Err(DatasetError::BlockSize(block_size));
    }
    let schema = schema.ok_or(DatasetError::NoSchema)?;
    if !row.try_get::<_, bool>("tablespace_exists")? {
        return Err(DatasetError::NoTablespace(tablespace));
    }
    let untrusted = find_untrusted(client, &schema, &[], Owners::Trusted)
        .map_err(|e| DatasetError::from_pg("inspect", "the schema", e))?;
    if let Some(untrusted) = untrusted {
        return Err(DatasetError::Untrusted(untrusted));
    }
    let named = mark::find(client).map_err(|e| DatasetError::from_pg("find", "the data set", e))?;
    let existing = replaceable(named, spec, &schema, &role)?;
    if !row.try_get::<_, bool>("may_create")? {
        return Err(DatasetError::NoCreate { schema, role });
    }
    if !row.try_get::<_, bool>("tablespace_usable")? {
        return Err(DatasetError::TablespacePrivilege { tablespace, role });
    }
    let ServerPath(tablespace_location) = row.try_get("tablespace_location")?;
    Ok(Preflight { schema, tablespace, tablespace_location, existing })
}

/// Returns the marked tables that this load replaces or drops. Tables with other names are not checked.
fn replaceable(
    named: Vec<Named>,
    spec: &LoadSpec,
    schema: &str,
    role: &str,
) -> Result<Vec<Named>, DatasetError> {
    let mut existing = Vec::new();
    for found in named {
        let needed = spec.includes(found.part);
        // Nothing reads pgio_base, so a base table of another load is harmless.
        let surplus = !needed && found.part != Part::Base;
        let (schema, name) = (schema.to_owned(), found.part.to_string());
        match found.mark {
            None if needed => return Err(DatasetError::NotOurs { schema, name }),
            Some(_) if (needed || surplus) && !found.owned => {
                let (owner, role) = (found.owner, role.to_owned());
                return Err(DatasetError::NotOwner { schema, name, owner, role });
            }
            Some(_) if needed || surplus => existing.push(found),
            _ => {}
        }
    }
    Ok(existing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::plan::SpaceCheck;
    use pgio_results::units::Layout;

    fn spec(tables: u32, base_table: bool) -> LoadSpec {
        LoadSpec {
            tables,
            streams: 1,
            scale: "8M".to_owned(),
            blocks: 1024,
            seed: 1,
            base_table,
            tablespace: None,
            layout: Layout::default(),
            scan: None,
            space: SpaceCheck::Required,
        }
    }

    fn named(part: Part, marked: bool, owned: bool) -> Named {
        let mark = marked.then(|| spec(9, true).mark(part));
        Named { part, mark, owner: "ada".into(), owned, bytes: 1 }
    }

    #[test]
    fn only_required_names_must_be_marked() {
        let unmarked = || vec![named(Part::Base, false, true), named(Part::Table(3), false, true)];
        let refused =
            |tables, base| replaceable(unmarked(), &spec(tables, base), "s", "r").is_err();
        assert!(!refused(2, false));
        assert!(refused(2, true));
        assert!(refused(3, false));
    }

    #[test]
    fn surplus_tables_are_found_and_must_be_owned() {
        let found = vec![named(Part::Base, true, true), named(Part::Table(7), true, true)];
        let existing = replaceable(found, &spec(2, false), "s", "r").unwrap();
        assert_eq!(existing.iter().map(|n| n.part).collect::<Vec<_>>(), [Part::Table(7)]);
        // A scan table that is not requested would belong to another load.
        let found = vec![named(Part::Scan, true, true)];
        assert_eq!(replaceable(found, &spec(2, false), "s", "r").unwrap().len(), 1);
        let others = vec![named(Part::Table(7), true, false)];
        let error = replaceable(others, &spec(2, false), "s", "r").unwrap_err();
        assert!(matches!(error, DatasetError::NotOwner { owner, .. } if owner == "ada"));
    }
}
