//! The table of workload keys, and [`Layer`], the keys that one source sets.
//!
//! A key is written `UPDATE_PCT` in pgio.conf, `update_pct` in an experiment file and
//! `--update-pct` as a flag. All three parsers, the help and the documentation use this table;
//! no other place describes a key. [`super::kinds`] lists the names of the keys that each part of
//! pgio and each workload uses. The table must not decide which source has precedence: callers
//! stack layers with [`Layer::over`], and [`super::resolve`] takes the result.
//!
//! To add a key, add one line below, its name to the workloads that take it ([`super::kinds`]), and a field to their
//! settings.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use Use::{Connect, Load, Work};

use super::kinds::{AS_LOADED, SLOB, Sessions, WorkloadKind};
use super::value::{
    Access, Arrivals, ConnectString, Decimal, EngineName, Kind, Skew, TableModel, TablePortion,
    Value,
};
use pgio_results::units::Scale;
use pgio_results::units::layout::{FILLER_WIDTHS, FILLFACTORS, Filler};

pub use super::kinds::Use;

#[derive(Debug, Clone)]
pub struct Key {
    /// The name in an experiment file.
    pub name: &'static str,
    pub kind: Kind,
    /// As text; [`Key::default_for`] returns defaults that depend on the use.
    pub default: Option<&'static str>,
    pub help: &'static str,
    pub(crate) set: fn(&mut Layer, &str) -> Result<(), String>,
}

/// The original has different defaults for loading and running. A run is not affected, because the
/// data set's mark is a layer above the defaults.
const LOAD_SCALE: &str = "4G";

macro_rules! workload_keys {
    ($($name:ident: $type:ty, $kind:expr, $default:expr, $help:literal;)*) => {
        /// The keys that one source sets; lower layers supply the others.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Layer {
            $(#[doc = $help] pub $name: Option<$type>,)*
            /// Keys that only one kind of workload takes ([`OwnKey`]), as text that its type could read.
            pub own: BTreeMap<&'static str, String>,
        }

        /// Names of the keys: the compiler refuses another one, and warns of one that nothing uses.
        #[allow(non_upper_case_globals)]
        pub(crate) mod names {
            $(pub(crate) const $name: &str = stringify!($name);)*
        }

        /// The keys that several kinds of workload take, or that pgio.conf or a flag can set.
        static KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            kind: $kind,
            default: $default,
            help: $help,
            set: |layer, text| {
                layer.$name = Some(<$type as Value>::from_text(text, &$kind)?);
                Ok(())
            },
        },)*];

        impl Layer {
            fn merged(self, below: Self) -> Self {
                let mut own = below.own;
                own.extend(self.own);
                Self { $($name: self.$name.or(below.$name),)* own }
            }

            /// Names of the keys that are set here and have another value in `other`.
            pub(super) fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name.is_some() && self.$name != other.$name {
                    names.push(stringify!($name));
                })*
                names
            }
        }
    };
}

const AT_LEAST_1: Kind = Kind::Whole(1..=u64::MAX);
pub(crate) const AT_LEAST_0: Kind = Kind::Whole(0..=u64::MAX);
/// Each session is a server process, and a thread or a socket in pgio.
const SESSIONS: Kind = Kind::Whole(1..=10_000);
/// The parameters and results of a statement are kept in memory, in pgio or in the server.
const ROWS_PER_STATEMENT: Kind = Kind::Whole(1..=1_000_000);
const PERCENT: Kind = Kind::Decimal(0..=100);
/// Bytes of filler in a row of the tables.
const FILLER: Kind = Kind::Whole(0..=1024);
/// PostgreSQL limits a field to 1 GB.
const PAYLOAD: Kind = Kind::Whole(0..=1_000_000_000);

workload_keys! {
    update_pct: u8, Kind::Whole(0..=100), Some("0"),
        "percentage of calls that update";
    run_time: Duration, Kind::Duration { zero: false }, Some("300"),
        "length of the measured window; a number without unit is in seconds";
    num_schemas: u32, Kind::Whole(1..=8192), Some("1"),
        "number of tables, pgio1 to pgioN";
    num_threads: u32, SESSIONS, Some("1"),
        "sessions per table; when loading, number of tables to load in parallel";
    work_unit: u64, AT_LEAST_1, Some("255"),
        "blocks visited by a read call";
    update_work_unit: u64, AT_LEAST_1, Some("255"),
        "blocks visited by an update call";
    scale: Scale, Kind::Scale, Some("128G"),
        "size of each table: N blocks of 8 kB, or NM, NG or NT";
    dbname: String, Kind::Text, Some("pg10"),
        "database whose statistics pgio reads";
    connect_string: ConnectString, Kind::Text, Some("pg10"),
        "database to connect to: a database name, a conninfo string or a URI; without a pgio.conf, the PG* variables apply";
    create_base_table: bool, Kind::Switch, Some("TRUE"),
        "also create the table pgio_base";
    access: Access, Kind::OneOf(Access::NAMES), Some("index"),
        "how statements find blocks: index (one read at a time) or bitmap (prefetched)";
    commit_every: u32, AT_LEAST_0, Some("1"),
        "update calls per transaction; 0 is one transaction per session, as in the original";
    batch: u32, ROWS_PER_STATEMENT, Some("1"),
        "visits per statement, if the latency of each visit is not needed; requires WORK_UNIT=1; 1 is off";
    skew: Skew, Kind::OneOf(Skew::NAMES), Some("uniform"),
        "distribution of visits over the keys";
    zipf_exponent: Decimal, Kind::Decimal(0..=10), None,
        "exponent for skew zipf: key k is visited in proportion to 1 / k to this power (default 1)";
    gaussian_mean: Decimal, PERCENT, None,
        "center of the visits for skew gaussian, in % of the table (default 50)";
    gaussian_sd: Decimal, PERCENT, None,
        "standard deviation of the visits for skew gaussian, in % of the table (default 10)";
    hot_spot: TablePortion, Kind::TablePortion, None,
        "size of the hot spot of each table";
    hot_offset: TablePortion, Kind::TablePortion, None,
        "offset of the hot spot in the table (default 0)";
    hot_pct: Decimal, PERCENT, None,
        "percentage of calls that visit the hot spot; the others visit the rest of the table";
    hot_table: u32, Kind::Whole(1..=8192), None,
        "number of a table that all sessions visit in addition to their own";
    hot_table_pct: Decimal, PERCENT, None,
        "percentage of reads and updates that visit the hot table";
    scan_pct: Decimal, PERCENT, Some("0"),
        "percentage of calls that scan the table pgio_scan";
    insert_pct: Decimal, PERCENT, Some("0"),
        "percentage of calls that insert a row into the table pgio_turnover";
    delete_pct: Decimal, PERCENT, Some("0"),
        "percentage of calls that delete the oldest row of pgio_turnover; must equal INSERT_PCT";
    update_width: u32, FILLER, Some("0"),
        "bytes of filler that an update rewrites in addition to its counter, for more WAL";
    think_pct: Decimal, PERCENT, Some("0"),
        "percentage of calls after which a session pauses";
    think_min: Duration, Kind::Duration { zero: true }, None,
        "shortest pause (default 0)";
    think_max: Duration, Kind::Duration { zero: false }, None,
        "longest pause";
    work_loop: u64, AT_LEAST_1, None,
        "number of calls per session, instead of a fixed time";
    ramp: Duration, Kind::Duration { zero: true }, Some("0"),
        "part of the warm-up during which the sessions connect one after another";
    table_model: TableModel, Kind::OneOf(TableModel::NAMES), Some("many"),
        "how sessions are assigned to the tables: many (in turn) or single (all NUM_SCHEMAS × NUM_THREADS sessions use pgio1)";
    tablespace: String, Kind::Text, None,
        "tablespace for the tables";
    filler: Filler, Kind::OneOf(Filler::NAMES), Some("plain"),
        "content of the filler: plain (all rows the same, as in the original) or random (incompressible)";
    filler_width: u32, Kind::Whole(FILLER_WIDTHS), Some("1024"),
        "bytes of filler per row; above 4028, an updated row does not fit into its block";
    fillfactor: u8, Kind::Whole(FILLFACTORS), Some("10"),
        "fillfactor of the tables; each block must hold exactly one row";
    unlogged: bool, Kind::Switch, Some("FALSE"),
        "create unlogged tables, whose changes write no WAL";
    scan_scale: Scale, Kind::Scale, None,
        "size of the table pgio_scan for full table scans; setup loads no such table without it";
    seed: u64, AT_LEAST_0, None,
        "seed of all random choices (default: drawn and recorded)";
    warmup: Duration, Kind::Duration { zero: true }, Some("0"),
        "time that the workload runs before the window starts";
    sessions: u32, SESSIONS, Some("1"),
        "number of sessions; for a command, the value of {sessions}; for slob, replaces NUM_SCHEMAS × NUM_THREADS: if there are fewer sessions than tables, each session visits several tables in turn";
    rows_per_transaction: u32, ROWS_PER_STATEMENT, Some("1"),
        "rows that each transaction inserts";
    payload: u32, PAYLOAD, Some("0"),
        "bytes of filler per row";
    transactions: u64, AT_LEAST_1, None,
        "total number of transactions, instead of a fixed time";
    index: bool, Kind::Switch, Some("FALSE"),
        "add a primary key, filled from a sequence, to the table";
    engine: EngineName, Kind::OneOf(EngineName::NAMES), Some("server"),
        "engine that sends the statements: server (PL/pgSQL blocks in the sessions) or client (pgio sends each prepared statement)";
    pipeline: u32, Kind::Whole(1..=1024), Some("1"),
        "calls in flight per session; requires engine = client";
    rate: u64, Kind::Whole(1..=100_000_000), None,
        "calls per second that all sessions together start (open loop), instead of one call after another; requires engine = client";
    arrivals: Arrivals, Kind::OneOf(Arrivals::NAMES), Some("fixed"),
        "arrival process of a rate: fixed (equal intervals) or poisson (independent arrivals)";
    client_threads: u32, Kind::Whole(1..=256), Some("1"),
        "threads of pgio that send calls and receive results; requires engine = client";
}

/// Returns all workload keys, in the order of help and documentation.
pub fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(WorkloadKind::all().flat_map(|kind| kind.def().own))
}

/// A key that only one kind of workload takes, and with it the type of its value.
#[derive(Debug)]
pub(crate) struct OwnKey<T> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) value: PhantomData<fn() -> T>,
}

impl<T: Value> OwnKey<T> {
    /// Reads the value.
    pub(crate) fn of(&self, layer: &Layer) -> Option<T> {
        let text = layer.own.get(self.name)?;
        Some(T::from_text(text, &self.kind).expect("the layer has only text that was read before"))
    }

    /// Sets the value that a text stands for.
    pub(crate) fn set(&self, layer: &mut Layer, text: &str) -> Result<(), String> {
        T::from_text(text, &self.kind)?;
        layer.own.insert(self.name, text.to_owned());
        Ok(())
    }
}

/// The keys of a kind's own: constants to read them by, and their table `ALL`.
macro_rules! own_keys {
    ($($name:ident: $type:ty, $kind:expr, $default:expr, $help:literal;)*) => {
        #[allow(non_upper_case_globals)]
        mod keys {
            use super::*;

            $(pub(super) const $name: $crate::config::keys::OwnKey<$type> =
                $crate::config::keys::OwnKey {
                    name: stringify!($name),
                    kind: $kind,
                    value: std::marker::PhantomData,
                };)*

            pub(super) const ALL: &[$crate::config::Key] = &[$($crate::config::Key {
                name: stringify!($name),
                kind: $kind,
                default: $default,
                help: $help,
                set: |layer, text| $name.set(layer, text),
            }),*];
        }
    };
}
pub(crate) use own_keys;

impl Key {
    pub fn named(name: &str) -> Option<&'static Self> {
        all().find(|key| key.name == name)
    }

    /// The name in pgio.conf: `UPDATE_PCT`.
    pub fn conf_name(&self) -> String {
        self.name.to_ascii_uppercase()
    }

    /// The name of the flag, without the dashes: `update-pct`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns what uses the key, in the order of the documentation.
    pub fn uses(&self) -> impl Iterator<Item = Use> {
        Use::all().filter(|using| using.takes(self.name))
    }

    pub fn is_used_by(&self, using: Use) -> bool {
        using.takes(self.name)
    }

    /// Returns whether the key is valid in pgio.conf and as a flag. Commands and mail need an experiment
    /// file; a device is measured by an experiment or by `pgio device`, which has its own flags.
    pub fn is_conf_key(&self) -> bool {
        self.uses().any(|using| match using {
            Connect | Load => true,
            Work(kind) => kind.def().in_conf,
        })
    }

    /// Returns whether a command accepts the key as a flag. `run` runs only `slob`; the other workloads
    /// need an experiment file.
    pub fn is_flag(&self) -> bool {
        self.uses().any(|using| matches!(using, Connect | Load) || using == Work(SLOB))
    }

    pub fn default_for(&self, using: Use) -> Option<&'static str> {
        match (self.name, using) {
            (names::scale, Load) => Some(LOAD_SCALE),
            // NUM_SCHEMAS × NUM_THREADS applies.
            (names::sessions, Work(kind)) if kind.def().sessions == Sessions::Tables => None,
            _ => self.default,
        }
    }

    /// Returns whether a run takes the key from the loaded data set, whatever [`Key::default_for`] is.
    pub fn is_as_loaded(&self) -> bool {
        AS_LOADED.contains(&self.name)
    }

    /// Parses the value into the layer. The error completes a sentence that begins with the key.
    pub fn set(&self, layer: &mut Layer, text: &str) -> Result<(), String> {
        (self.set)(layer, text)
    }
}

impl Layer {
    /// Combines two layers: a key set in this layer overrides the one in `below`.
    #[must_use]
    pub fn over(self, mut below: Self) -> Self {
        // A run time and a number of transactions both limit the run: the upper layer takes precedence.
        if self.run_time.is_some() && self.transactions.is_none() {
            below.transactions = None;
        }
        if self.run_time.is_some() {
            below.work_loop = None;
        }
        if self.work_loop.is_some() {
            below.run_time = None;
        }
        self.merged(below)
    }

    /// Completes the layer. A default contradicts no key, so the rules of [`Layer::over`] do not apply.
    pub(crate) fn with_defaults(self, using: Use) -> Self {
        self.merged(Self::defaults(using))
    }

    /// The lowest layer: all defaults for the use.
    pub(crate) fn defaults(using: Use) -> Self {
        let mut layer = Self::default();
        for key in all() {
            if let Some(text) = key.default_for(using) {
                key.set(&mut layer, text).expect("a test reads every default of the table");
            }
        }
        layer
    }
}

/// Unwraps a value of a layer that [`Layer::with_defaults`] completed.
pub(crate) fn required<T>(value: Option<T>) -> T {
    value.expect("the table has a default for every key that settings hold without Option")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn layer(pairs: &[(&str, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (name, text) in pairs {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        layer
    }

    #[test]
    fn every_default_parses() {
        for using in Use::all() {
            let _ = Layer::defaults(using);
        }
    }

    #[test]
    fn names_in_files_and_flags() {
        let key = Key::named("update_work_unit").unwrap();
        assert_eq!(key.conf_name(), "UPDATE_WORK_UNIT");
        assert_eq!(key.flag(), "update-work-unit");
        assert!(Key::named("UPDATE_PCT").is_none());
    }

    #[test]
    fn names_are_unique_and_lower_case_and_help_is_one_line() {
        let mut names = BTreeSet::new();
        for key in all() {
            assert!(names.insert(key.name), "{}", key.name);
            assert_eq!(key.name, key.name.to_ascii_lowercase());
            assert!(!key.help.contains('\n') && !key.help.ends_with('.'), "{}", key.name);
            assert!(key.uses().next().is_some(), "{}", key.name);
        }
    }

    #[test]
    fn scale_has_a_smaller_default_for_loading() {
        let scale = Key::named("scale").unwrap();
        assert_eq!(scale.default_for(Load), Some("4G"));
        assert_eq!(scale.default_for(Work(SLOB)), Some("128G"));
    }

    #[test]
    fn upper_layers_override_single_keys() {
        let flags = layer(&[("update_pct", "50")]);
        let workload = layer(&[("update_pct", "10"), ("work_unit", "8")]);
        let conf = layer(&[("work_unit", "255"), ("scale", "200M")]);
        assert_eq!(
            flags.over(workload).over(conf),
            layer(&[("update_pct", "50"), ("work_unit", "8"), ("scale", "200M")])
        );
    }

    #[test]
    fn the_upper_layer_sets_the_run_length() {
        let time = || layer(&[("run_time", "10s")]);
        let number = || layer(&[("transactions", "10000")]);
        assert_eq!(time().over(number()).transactions, None);
        assert_eq!(number().over(time()).transactions, Some(10_000));
        let calls = || layer(&[("work_loop", "500")]);
        assert_eq!(calls().over(time()), calls());
        assert_eq!(time().over(calls()), time());
    }
}
