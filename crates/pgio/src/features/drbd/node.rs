//! DRBD on one host: its state, and the commands that change it. Hides the differences of the two
//! kernel modules.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use pgio_results::model::Evidence;

use super::show::{self, Config, Options};
use super::state::{DrbdError, Generation, State, generation};
use super::status;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::rights::{Capability, Prefix, Rights};
use crate::host::stop::Stop;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::Undone;

const LIMIT: Duration = Duration::from_secs(60);

/// How long the state may be unreadable.
const READABLE_LIMIT: Duration = Duration::from_secs(10);
const READ_AGAIN: Duration = Duration::from_millis(200);

/// Reads everything in one command, since each may be a round trip to another machine. The boot id shows
/// a reboot.
const SNAPSHOT_SCRIPT: &str = "cat /proc/sys/kernel/random/boot_id && \
    \"$@\" show --show-defaults $CONFIG && echo '==> state' && \"$@\" $STATE --statistics";

/// Separator of the two parts of the output.
const STATE_SEPARATOR: &str = "==> state\n";

pub(super) struct Node {
    pub(super) name: String,
    pub(super) exec: Arc<dyn Exec>,
    pub(super) generation: Generation,
    root: Prefix,
}

/// The state of a resource at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) boot: String,
    pub(super) states: Vec<State>,
    pub(super) config: Config,
}

impl Snapshot {
    /// The node's own role, the same for all volumes.
    pub(super) fn role(&self) -> Option<&String> {
        self.states.first().map(|state| &state.role)
    }

    pub(super) fn net_options(&self) -> Options {
        self.config.connections.first().map(|c| c.options.clone()).unwrap_or_default()
    }
}

/// All resources that are up on a node.
struct Up {
    boot: String,
    states: Vec<State>,
    configs: Vec<Config>,
}

impl Node {
    pub(super) fn open(host: Arc<Host>) -> Result<Node, TreatmentError> {
        let name = host.name().to_owned();
        Node::open_with(name, host)
    }

    pub(super) fn open_with(name: String, exec: Arc<dyn Exec>) -> Result<Node, TreatmentError> {
        let look = CommandLine::new("cat").arg("/proc/drbd").timeout(LIMIT);
        let output = exec.output(&look)?;
        if !output.status.success() {
            return Err(TreatmentError::Refused(format!(
                "host {name} has no DRBD: run `modprobe drbd` there, and bring the resource up"
            )));
        }
        let generation = generation(&output.stdout).map_err(|e| drbd_error(&name, &e))?;
        let root = Rights::find(exec.as_ref())?
            .as_root(
                exec.as_ref(),
                &name,
                "to read and change DRBD",
                Some(Capability::NetAdmin),
                &["/usr/sbin/drbdsetup", "/usr/sbin/drbdadm"],
            )
            .map_err(|e| TreatmentError::Refused(e.to_string()))?;
        Ok(Node { name, exec, generation, root })
    }

    pub(super) fn snapshot(&self, resource: &str) -> Result<Snapshot, TreatmentError> {
        let up = self.read_all()?;
        let others: Vec<String> = up.configs.iter().map(|c| c.resource.clone()).collect();
        up.into_snapshot(resource).ok_or_else(|| {
            let (up, hint) = match others.as_slice() {
                [] => ("none".to_owned(), ""),
                others => (others.join(", "), "correct the name, or "),
            };
            TreatmentError::Refused(format!(
                "DRBD resource `{resource}` is not up on host {} (up: {up}); {hint}run `drbdadm up {resource}` there",
                self.name
            ))
        })
    }

    /// None if the resource is not up.
    pub(super) fn find(&self, resource: &str) -> Result<Option<Snapshot>, TreatmentError> {
        Ok(self.read_all()?.into_snapshot(resource))
    }

    /// Asks again for a while where the answer cannot be read: DRBD's may be incomplete while its state changes.
    fn read_all(&self) -> Result<Up, TreatmentError> {
        let begun = Instant::now();
        loop {
            match self.read_once() {
                Err(TreatmentError::Refused(_)) if begun.elapsed() < READABLE_LIMIT => {
                    thread::sleep(READ_AGAIN);
                }
                read => return read,
            }
        }
    }

    fn read_once(&self) -> Result<Up, TreatmentError> {
        let (config, state) = match self.generation {
            Generation::V84 => ("", "events2 --now"),
            Generation::V9 => ("--json", "status --json"),
        };
        let script = SNAPSHOT_SCRIPT.replace("$CONFIG", config).replace("$STATE", state);
        let line = CommandLine::new("sh").args(["-c", script.as_str(), "sh"]);
        let text = self.exec.run(&line.args(self.root.words(["drbdsetup"])).timeout(LIMIT))?;
        let (boot, rest) = text.split_once('\n').unwrap_or_default();
        let (configs, states) = rest.split_once(STATE_SEPARATOR).unwrap_or((rest, ""));
        let configs = match self.generation {
            Generation::V84 => show::parse(configs),
            Generation::V9 => show::parse_json(configs),
        };
        Ok(Up {
            boot: boot.to_owned(),
            states: self.parse_states(states)?,
            configs: configs.map_err(|e| drbd_error(&self.name, &e))?,
        })
    }

    /// None if the resource is not up.
    pub(super) fn states(&self, resource: &str) -> Result<Vec<State>, TreatmentError> {
        let text = match self.generation {
            Generation::V84 => self.run(["drbdsetup", "events2", "--now", "--statistics"])?,
            Generation::V9 => self.run(["drbdsetup", "status", "--json", "--statistics"])?,
        };
        let mut states = self.parse_states(&text)?;
        states.retain(|state| state.resource.as_deref() == Some(resource));
        Ok(states)
    }

    fn parse_states(&self, text: &str) -> Result<Vec<State>, TreatmentError> {
        let states = match self.generation {
            Generation::V84 => status::parse_events(text),
            Generation::V9 => status::parse_status(text),
        };
        states.map_err(|e| drbd_error(&self.name, &e))
    }

    /// Connects with these options. Module 9 has kept them; module 8.4 would take the options of its configuration, and
    /// a peer that still waits with another protocol would refuse and stay StandAlone.
    pub(super) fn connect(&self, resource: &str, options: &Options) -> Result<(), TreatmentError> {
        let mut line = vec!["drbdadm".to_owned(), "connect".to_owned()];
        if self.generation == Generation::V84 {
            let given = options.iter().filter(|(_, value)| !value.is_empty());
            line.extend(given.map(|(name, value)| format!("--{name}={value}")));
        }
        line.push(resource.to_owned());
        self.run(line).map(drop)
    }

    pub(super) fn disconnect(&self, resource: &str) -> Result<(), TreatmentError> {
        self.run(["drbdadm", "disconnect", resource]).map(drop)
    }

    /// Changes only these options. drbdadm of module 9 would also set the options of its configuration,
    /// and drbdsetup of 8.4 needs both addresses.
    pub(super) fn set_net(&self, resource: &str, options: &Options) -> Result<(), TreatmentError> {
        let set: Vec<String> =
            options.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let set = || set.iter().map(String::as_str);
        if self.generation == Generation::V84 {
            let line = ["drbdadm", "net-options"].into_iter().chain(set()).chain([resource]);
            return self.run(line).map(drop);
        }
        for connection in &self.snapshot(resource)?.config.connections {
            let peer = connection.node_id.unwrap_or_default().to_string();
            let line = ["drbdsetup", "net-options", resource, &peer];
            self.run(line.into_iter().chain(set()))?;
        }
        Ok(())
    }

    pub(super) fn set_disk(
        &self,
        minor: u32,
        name: &str,
        value: &str,
    ) -> Result<(), TreatmentError> {
        let (minor, option) = (minor.to_string(), format!("--{name}={value}"));
        self.run(["drbdsetup", "disk-options", &minor, &option]).map(drop)
    }

    fn run<A: AsRef<str>>(
        &self,
        words: impl IntoIterator<Item = A>,
    ) -> Result<String, TreatmentError> {
        Ok(self.exec.run(&self.root.line(words).timeout(LIMIT))?)
    }
}

impl Up {
    fn into_snapshot(self, resource: &str) -> Option<Snapshot> {
        let config = self.configs.into_iter().find(|c| c.resource == resource)?;
        let ours = |state: &State| state.resource.as_deref() == Some(resource);
        let states: Vec<State> = self.states.into_iter().filter(ours).collect();
        (!states.is_empty()).then_some(Snapshot { boot: self.boot, states, config })
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.name)
    }
}

fn drbd_error(host: &str, error: &DrbdError) -> TreatmentError {
    TreatmentError::Refused(format!("on host {host}: {}", crate::pg::words::sentence(error)))
}

// Waits for DRBD: for a connection, for its end, for a resync. A resync may take any time while it makes progress;
// one that stalls is an error with its state. A stop request ends a wait that is part of putting a condition in
// force, and the change is undone; an undo keeps waiting for the peer, until a stop is requested a second time.

const STEP: Duration = Duration::from_millis(200);

/// How long a peer may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long the other node may take to notice a change.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// How long a resync may make no progress, or the state before and after it not change.
const STALL_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn until_connected(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    loop {
        let Some(states) = read(node, resource, begun, CONNECT_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_connected) && !states.is_empty() {
            return Ok(());
        }
        // Both StandAlone again: they refused each other.
        let refused = states.iter().all(State::is_standalone) && begun.elapsed() > STEP * 10;
        if refused || begun.elapsed() > CONNECT_LIMIT {
            let why = if refused {
                "the peers refused each other (a split brain?); see the kernel log"
            } else {
                "the peer does not answer; check whether it is StandAlone, and the network"
            };
            return Err(not_in_force(node, resource, "connected", begun, why, &states));
        }
        pause(stop)?;
    }
}

/// Waits for the other node, which receives a new protocol only after the data sent before it.
pub(super) fn until_noticed(
    mut wrong: impl FnMut() -> Option<Evidence>,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    while let Some(e) = wrong() {
        if begun.elapsed() > NOTICE_LIMIT {
            let requested = e.expected.unwrap_or_default();
            return Err(TreatmentError::NotInForce {
                what: e.what,
                seconds: NOTICE_LIMIT.as_secs(),
                why: format!("it is {}, but {requested} was requested", e.found),
            });
        }
        pause(stop)?;
    }
    Ok(())
}

pub(super) fn until_alone(node: &Node, resource: &str, stop: &Stop) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    loop {
        let Some(states) = read(node, resource, begun, CONNECT_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_standalone) {
            return Ok(());
        }
        if begun.elapsed() > CONNECT_LIMIT {
            return Err(not_in_force(node, resource, "disconnected", begun, "timed out", &states));
        }
        pause(stop)?;
    }
}

pub(super) fn until_in_sync(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    let mut progress = Progress::new();
    loop {
        let Some(states) = read(node, resource, progress.at, STALL_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_in_sync) && !states.is_empty() {
            return Ok(());
        }
        if progress.has_stalled(&states) {
            let why = "the resync makes no progress; check the peer, its disk and the network";
            return Err(not_in_force(node, resource, "in sync", begun, why, &states));
        }
        pause(stop)?;
    }
}

/// Waits while a resync makes progress, so that the next trial has the devices to itself. A resync that
/// stalls is no failure of the undo.
pub(super) fn until_resync_ends(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let mut progress = Progress::new();
    while !stop.requested() {
        let Some(states) = read(node, resource, progress.at, STALL_LIMIT)? else {
            thread::sleep(STEP);
            continue;
        };
        let connected = states.iter().all(State::is_connected);
        if !connected || states.iter().all(State::is_in_sync) || progress.has_stalled(&states) {
            return Ok(());
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Waits for the peer to come back after an undo, so that the resync begins.
pub(super) fn until_returned(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<Undone, TreatmentError> {
    let begun = Instant::now();
    loop {
        let states = read(node, resource, begun, CONNECT_LIMIT)?;
        let has_returned = |s: &State| s.is_connected() && s.replication != "Off";
        if states.as_ref().is_some_and(|states| states.iter().all(has_returned)) {
            return Ok(Undone::Restored);
        }
        if stop.urgent() {
            return Ok(Undone::RestoredNotAwaited);
        }
        let states = states.unwrap_or_default();
        if begun.elapsed() > CONNECT_LIMIT {
            let why = "the peer was connected before and does not reconnect; check whether it is StandAlone (`drbdadm connect` there) and the network, then rerun `pgio undo`, or run `pgio undo --keep` to leave it disconnected";
            return Err(not_in_force(node, resource, "connected", begun, why, &states));
        }
        thread::sleep(STEP);
    }
}

/// Returns the state of all volumes; `None` if it cannot be read at this moment, such as while a resync begins. That
/// is an error after `limit`, and at once where no answer may come.
fn read(
    node: &Node,
    resource: &str,
    since: Instant,
    limit: Duration,
) -> Result<Option<Vec<State>>, TreatmentError> {
    match node.states(resource) {
        Ok(states) => Ok(Some(states)),
        Err(TreatmentError::Refused(_) | TreatmentError::Host(ExecError::Failed { .. }))
            if since.elapsed() <= limit =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn pause(stop: &Stop) -> Result<(), TreatmentError> {
    if stop.requested() {
        return Err(TreatmentError::Stopped);
    }
    thread::sleep(STEP);
    Ok(())
}

struct Progress {
    last: (u64, String),
    at: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { last: (u64::MAX, String::new()), at: Instant::now() }
    }

    fn has_stalled(&mut self, states: &[State]) -> bool {
        let left = states.iter().map(|s| s.out_of_sync_kib).sum();
        let now = (left, describe_states(states));
        // Writes may add to what is left; only less of it is progress.
        if now.1 != self.last.1 || now.0 < self.last.0 {
            (self.last, self.at) = (now, Instant::now());
        }
        self.at.elapsed() > STALL_LIMIT
    }
}

fn describe_states(states: &[State]) -> String {
    let one = |s: &State| format!("{} {}", s.link(), s.disks());
    states.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn not_in_force(
    node: &Node,
    resource: &str,
    what: &str,
    begun: Instant,
    why: &str,
    states: &[State],
) -> TreatmentError {
    let left: u64 = states.iter().map(|s| s.out_of_sync_kib).sum();
    let left = if left > 0 { format!(", {left} kB out of sync") } else { String::new() };
    TreatmentError::NotInForce {
        what: format!("DRBD {resource} {what} on host {}", node.name),
        seconds: begun.elapsed().as_secs(),
        why: format!("it is {}{left}; {why}", describe_states(states)),
    }
}
