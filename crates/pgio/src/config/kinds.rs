//! The kinds of workload: one record each, which states what pgio must know of a kind before it prepares one.
//!
//! The parser, `--plan`, the doctor, the estimates of time and the documentation ask these records instead of
//! matching on kinds. The code of each kind is in `workload`, and `experiment::application::workloads` has the one
//! table that leads from a kind to its code.
//!
//! To add a kind, begin with one record below; ARCHITECTURE.md lists the other places.

/// What follows from the kind alone.
#[derive(Debug)]
pub struct WorkloadDef {
    /// The value of `kind` in an experiment file.
    pub name: &'static str,
    /// The workload keys that it takes, in groups; a data set's keys follow from `data_set`.
    pub keys: &'static [&'static [&'static str]],
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

/// Properties that most kinds share: a record states only what differs.
const PLAIN: WorkloadDef = WorkloadDef {
    name: "",
    keys: &[],
    in_conf: false,
    data_set: false,
    program: false,
    tests_device: false,
    sessions: Sessions::None,
    writes: false,
    reset: "",
};

/// Keys of every workload: pgio measures a window after a warm-up.
const WINDOW: &[&str] = names! { run_time warmup };
/// The key of the workloads that run on either engine, beside the keys of the client's engine.
const ENGINE: &[&str] = names! { engine };
/// Keys that only the client-side engine supports.
pub(super) const CLIENT: &[&str] = names! { pipeline rate arrivals client_threads };
/// Keys of the rows of a data set, which its load and its work must agree on.
pub(super) const ROWS: &[&str] = names! { filler filler_width fillfactor unlogged scan_scale seed };

macro_rules! workload_kinds {
    ($($(#[$doc:meta])* $kind:ident: $def:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum WorkloadKind {
            $($(#[$doc])* $kind,)*
        }

        impl WorkloadKind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            pub fn def(self) -> &'static WorkloadDef {
                match self {
                    $(Self::$kind => {
                        const DEF: &WorkloadDef = &$def;
                        DEF
                    })*
                }
            }
        }
    };
}

workload_kinds! {
    /// Random block visits to the data set, with updates.
    Slob: WorkloadDef {
        name: "slob",
        keys: &[WINDOW, ENGINE, CLIENT, SLOB, ROWS],
        in_conf: true,
        data_set: true,
        sessions: Sessions::Tables,
        reset: "the data set is reloaded (DROP and CREATE of its tables)",
        ..PLAIN
    };
    /// Transactions of INSERTs.
    Commit: WorkloadDef {
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
        ..PLAIN
    };
    /// fio on a disk, without PostgreSQL.
    Device: WorkloadDef {
        name: "device",
        keys: &[
            WINDOW,
            names! { path test size block_size depth destroy uuid seed },
        ],
        tests_device: true,
        reset: "its file or device is written once in full, if writing is allowed",
        ..PLAIN
    };
    /// A program of the user's.
    Command: WorkloadDef {
        name: "command",
        keys: &[WINDOW, names! { sessions seed }],
        program: true,
        sessions: Sessions::Key,
        reset: "its setup command runs, if any, in a new schema if it names one",
        ..PLAIN
    };
    /// Delivers mail by LMTP or SMTP.
    Mail: WorkloadDef {
        name: "mail",
        keys: &[WINDOW, MAIL],
        reset: "messages of earlier trials are removed",
        ..PLAIN
    };
}

/// Keys of the data set that `slob` does not use are missing here; it takes them because of `data_set`.
const SLOB: &[&str] = names! {
    update_pct num_schemas num_threads work_unit update_work_unit scale access commit_every batch
    skew zipf_exponent gaussian_mean gaussian_sd hot_spot hot_offset hot_pct hot_table
    hot_table_pct scan_pct insert_pct delete_pct update_width think_pct think_min think_max
    work_loop ramp table_model sessions
};

const MAIL: &[&str] = names! {
    server protocol threads message_size size_distribution size_spread sender recipients
    recipients_per_message messages_per_connection messages_rate reply_timeout maildir mail_host
};

impl WorkloadKind {
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// Returns whether the workload itself uses a key.
    pub fn uses(self, key: &str) -> bool {
        self.def().keys.iter().any(|group| group.contains(&key))
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
        let workloads = WorkloadKind::ALL.iter().map(|kind| Use::Work(*kind));
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
