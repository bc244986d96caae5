//! The kinds of workload: one record each, which states what pgio must know of a kind before it prepares one.
//!
//! The parser, `--plan`, the doctor, the estimates of time and the documentation ask these records instead of matching
//! on kinds. The records of `slob`, `commit` and `command` are here, others in their features; [`crate::feature`] lists
//! all.

use std::collections::BTreeSet;
use std::fmt;

use super::experiment::WorkloadSpec;
use super::keys::{Key, Layer};
use super::resolve::{CommitSettings, LoadSettings, ResolveError, SlobSettings};
use super::value::EngineName;
use super::{command, slob_calls};
use crate::feature;
use pgio_results::latency::{Class, Work};
use pgio_results::metrics::{self, MetricDef};

/// What follows from the kind alone.
#[derive(Debug)]
pub struct WorkloadDef {
    /// The value of `kind` in an experiment file.
    pub name: &'static str,
    /// The workload keys that it takes, in groups; a data set's keys follow from `data_set`.
    pub keys: &'static [&'static [&'static str]],
    /// Keys that no other kind takes, where they are not in the table of all.
    pub own: &'static [Key],
    /// Whether its keys are valid in pgio.conf.
    pub in_conf: bool,
    /// Whether it runs on the data set that `pgio setup` loads. It then takes the keys of the data set too.
    pub data_set: bool,
    /// Whether its section also names a program to run.
    pub program: bool,
    /// Whether it tests the device of the target, or the one that `path` names, instead of the server.
    pub tests_device: bool,
    pub sessions: Sessions,
    /// Whether it writes WAL whatever its keys are.
    pub writes: bool,
    /// What is made equal before a trial, as `--plan` shows it.
    pub reset: &'static str,
    /// The server that does the work if it is not PostgreSQL: its processes are among the foreign ones of its host.
    pub other_server: Option<&'static str>,
    pub threads: Threads,
    /// Refuses keys that contradict each other.
    pub check_keys: fn(Layer) -> Result<(), ResolveError>,
    /// Whether it measures a metric that neither a server nor a host has.
    pub measures: fn(&MetricDef<'_>) -> bool,
    /// What to change so that it measures such a metric; `keys` are those at each of its points.
    pub lacks: fn(&MetricDef<'_>, keys: &[Layer]) -> Option<&'static str>,
    /// What prevents other processes from doing it, and what to do about that. `judged` are metrics judged beside the
    /// first.
    pub indivisible: fn(&WorkloadSpec, keys: &Layer, judged: &[String]) -> Option<String>,
    /// What to change so that it only reads, with all keys and their defaults.
    pub writing: fn(&WorkloadSpec, keys: &Layer) -> Option<&'static str>,
    /// How one section is several workloads, if it can be.
    pub parts: Option<Parts>,
    pub exclusive: Exclusive,
}

/// A key of which one value stands for all others, each a workload of its own.
#[derive(Debug)]
pub struct Parts {
    pub key: &'static str,
    /// The name of each part and its keys; empty where the value is a single one.
    pub split: fn(&Layer) -> Vec<(&'static str, Layer)>,
}

/// Things, each on a host if that matters, and with a name.
pub type Things = BTreeSet<(Option<String>, String)>;

/// What two of a kind must not have in common at the same time.
#[derive(Debug)]
pub struct Exclusive {
    /// What it has on this target, whose host is known or not.
    pub things: fn(&WorkloadSpec, target: &str, host: Option<&str>) -> Things,
    /// Why it cannot have them beside another work, which is the judged one where it has no name.
    pub refusal: fn(other: Option<&str>, target: &str) -> String,
}

/// The number of sessions that a workload opens on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    None,
    /// As many as `sessions` says.
    Key,
    /// As many as `sessions` says, otherwise NUM_THREADS for each of NUM_SCHEMAS tables.
    Tables,
}

/// The threads of pgio or a driver that issue the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// As many as this key says, or one without it.
    Key(&'static str),
    /// One for each session, in all as many as this key says.
    OfSessions(&'static str),
}

/// Properties that most kinds share: a record states only what differs.
pub(crate) const PLAIN: WorkloadDef = WorkloadDef {
    name: "",
    keys: &[],
    own: &[],
    in_conf: false,
    data_set: false,
    program: false,
    tests_device: false,
    sessions: Sessions::None,
    writes: false,
    reset: "",
    other_server: None,
    threads: Threads::Key("client_threads"),
    check_keys: |_| Ok(()),
    measures: |_| false,
    lacks: |_, _| None,
    indivisible: |_, _, _| None,
    writing: |_, _| Some("use slob with update_pct = 0, or a command that reads"),
    parts: None,
    exclusive: Exclusive { things: |_, _, _| BTreeSet::new(), refusal: |_, _| String::new() },
};

/// Keys of every workload: pgio measures a window after a warm-up.
pub(crate) const WINDOW: &[&str] = names! { run_time warmup };
/// The key of the workloads that run on either engine, beside the keys of the client's engine.
const ENGINE: &[&str] = names! { engine };
/// Keys that only the client-side engine supports.
pub(super) const CLIENT: &[&str] = names! { pipeline rate arrivals client_threads };
/// Keys of the rows of a data set, which its load and its work must agree on.
pub(super) const ROWS: &[&str] = names! { filler filler_width fillfactor unlogged scan_scale seed };

/// A kind of workload.
#[derive(Clone, Copy)]
pub struct WorkloadKind(pub &'static WorkloadDef);

/// Random block visits to the data set, with updates.
pub const SLOB: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "slob",
    keys: &[WINDOW, ENGINE, CLIENT, SLOB_KEYS, ROWS],
    in_conf: true,
    data_set: true,
    sessions: Sessions::Tables,
    reset: "the data set is reloaded (DROP and CREATE of its tables)",
    check_keys: |layer| {
        LoadSettings::resolve(layer.clone())?;
        SlobSettings::resolve(layer).map(drop)
    },
    measures: |metric| slob_calls::calls_of(metric).is_some(),
    lacks: slob_calls::lacks,
    indivisible: needs_client_engine,
    writing: |_, keys| {
        let turns_over =
            [keys.insert_pct, keys.delete_pct].into_iter().flatten().any(|p| !p.is_zero());
        match keys.update_pct {
            Some(0) if turns_over => Some("remove insert_pct and delete_pct"),
            Some(0) => None,
            _ => Some("set update_pct = 0"),
        }
    },
    ..PLAIN
});

/// Transactions of INSERTs.
pub const COMMIT: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "commit",
    keys: &[
        WINDOW,
        ENGINE,
        CLIENT,
        names! { sessions rows_per_transaction payload transactions index seed },
    ],
    in_conf: true,
    sessions: Sessions::Key,
    writes: true,
    reset: "its table is dropped and created again",
    check_keys: |layer| CommitSettings::resolve(layer).map(drop),
    measures: |metric| {
        use metrics::Kind::{Latency, Work as Rate};
        matches!(metric.kind, Rate(Work::Commits) | Latency(Class::Commit | Class::Transaction, _))
    },
    indivisible: needs_client_engine,
    exclusive: Exclusive {
        things: |_, target, _| BTreeSet::from([(None, target.to_owned())]),
        refusal: |other, target| match other {
            Some(other) => format!(
                "`commit` would share its table with `{other}` on `{target}`; use another target, or one with more sessions"
            ),
            None => format!(
                "`commit` would share its table with the judged workload on `{target}`; use another target or slob"
            ),
        },
    },
    ..PLAIN
});

/// A program of the user's.
pub const COMMAND: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "command",
    keys: &[WINDOW, names! { sessions seed }],
    program: true,
    sessions: Sessions::Key,
    reset: "its setup command runs, if any, in a new schema if it names one",
    indivisible: |work, _, judged| command::indivisible(work.command.as_ref()?, judged),
    writing: |work, _| {
        let has_schema = work.command.as_ref().is_some_and(|command| command.schema.is_some());
        has_schema.then_some(
            "set schema = \"\" and setup = [], and let the command read tables that the primary has",
        )
    },
    ..PLAIN
});

fn needs_client_engine(_: &WorkloadSpec, keys: &Layer, _: &[String]) -> Option<String> {
    let message = "the server engine gains nothing from drivers on one target, because its sessions work inside the server; write engine = \"client\" in [workload]";
    (keys.engine != Some(EngineName::Client)).then(|| message.to_owned())
}

/// Keys of the data set that `slob` does not use are missing here; it takes them because of `data_set`.
const SLOB_KEYS: &[&str] = names! {
    update_pct num_schemas num_threads work_unit update_work_unit scale access commit_every batch
    skew zipf_exponent gaussian_mean gaussian_sd hot_spot hot_offset hot_pct hot_table
    hot_table_pct scan_pct insert_pct delete_pct update_width think_pct think_min think_max
    work_loop ramp table_model sessions
};

impl WorkloadKind {
    /// Returns the kind with this name, as stored in a trial.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }

    /// All kinds, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        feature::workloads().map(|workload| workload.kind)
    }

    pub fn def(self) -> &'static WorkloadDef {
        self.0
    }

    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns whether the workload itself uses a key.
    pub fn uses(self, key: &str) -> bool {
        let own = self.0.own.iter().any(|own| own.name == key);
        own || self.0.keys.iter().any(|group| group.contains(&key))
    }
}

impl PartialEq for WorkloadKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for WorkloadKind {}

impl fmt::Debug for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The part of pgio that uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Connecting to the server.
    Connect,
    /// Loading the data set.
    Load,
    /// A workload; one with a data set also checks that it matches the keys.
    Work(WorkloadKind),
}

/// Keys that find the server.
pub const CONNECT: &[&str] = names! { dbname connect_string };

/// Keys that describe the data set, and how it is loaded.
pub const LOAD: &[&[&str]] =
    &[names! { num_schemas num_threads scale create_base_table tablespace }, ROWS];

/// Keys that a run takes from the loaded data set unless they are given.
pub const AS_LOADED: &[&str] =
    names! { num_schemas scale filler filler_width fillfactor unlogged scan_scale };

impl Use {
    /// All uses, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Use> {
        let workloads = WorkloadKind::all().map(Use::Work);
        [Use::Connect, Use::Load].into_iter().chain(workloads)
    }

    pub fn name(self) -> &'static str {
        match self {
            Use::Connect => "connect",
            Use::Load => "load",
            Use::Work(kind) => kind.name(),
        }
    }

    /// Returns whether it uses the key of this name.
    pub fn takes(self, key: &str) -> bool {
        match self {
            Use::Connect => CONNECT.contains(&key),
            Use::Load => LOAD.iter().any(|group| group.contains(&key)),
            Use::Work(kind) => kind.uses(key),
        }
    }
}
