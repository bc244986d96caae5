//! The one table of workload keys, and [`Layer`], one source's worth of them.
//!
//! A key is written `UPDATE_PCT` in pgio.conf, `update_pct` in an experiment file and
//! `--update-pct` as a flag. The table feeds all three parsers, the help and the docs;
//! nothing about a key is said anywhere else. It must not decide which source wins
//! where: the caller stacks layers with [`Layer::over`], [`super::resolve`] takes the sum.
//!
//! To add a key: one line below; then the settings struct that uses it, in `resolve`.

use std::time::Duration;

use super::value::{Access, Bytes, ConnectString, DeviceTests, Kind, Value};
use crate::units::Scale;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Where the server is.
    Connect,
    /// Loading the data set.
    Load,
    /// The workload `slob`.
    Slob,
    /// The workload `commit`.
    Commit,
    /// The workload `device`.
    Device,
}

#[derive(Debug, Clone)]
pub struct Key {
    /// As in an experiment file.
    pub name: &'static str,
    pub kind: Kind,
    /// As text; where loading has another default, [`Key::default_for`] knows.
    pub default: Option<&'static str>,
    pub uses: &'static [Use],
    pub help: &'static str,
    set: fn(&mut Layer, &str) -> Result<(), String>,
}

/// The original's two defaults differ. Runs are saved by the data set's own mark, which is
/// a layer above the defaults.
const LOAD_SCALE: &str = "4G";

macro_rules! workload_keys {
    ($($name:ident: $type:ty, $kind:expr, $default:expr, $uses:expr, $help:literal;)*) => {
        /// The keys that one source sets; absent ones are left to the layers below.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Layer {
            $(#[doc = $help] pub $name: Option<$type>,)*
        }

        /// All workload keys, in the order of help and docs.
        pub static KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            kind: $kind,
            default: $default,
            uses: $uses,
            help: $help,
            set: |layer, text| {
                layer.$name = Some(<$type as Value>::from_text(text, &$kind)?);
                Ok(())
            },
        },)*];

        impl Layer {
            fn merged(self, below: Self) -> Self {
                Self { $($name: self.$name.or(below.$name),)* }
            }
        }
    };
}

use Use::{Commit, Connect, Device, Load, Slob};

const AT_LEAST_1: Kind = Kind::Whole(1..=u64::MAX);
const AT_LEAST_0: Kind = Kind::Whole(0..=u64::MAX);
/// PostgreSQL's limit of one field is 1 GB.
const PAYLOAD: Kind = Kind::Whole(0..=1_000_000_000);

workload_keys! {
    update_pct: u8, Kind::Whole(0..=100), Some("0"), &[Slob],
        "percentage of calls that update";
    run_time: Duration, Kind::Duration { zero: false }, Some("300"), &[Slob, Commit, Device],
        "length of the measured window; a bare number is seconds";
    num_schemas: u32, Kind::Whole(1..=8192), Some("1"), &[Load, Slob],
        "number of tables, pgio1 to pgioN";
    num_threads: u32, AT_LEAST_1, Some("1"), &[Load, Slob],
        "sessions on each table; when loading, tables loaded at a time";
    work_unit: u64, AT_LEAST_1, Some("255"), &[Slob],
        "blocks that a read call visits";
    update_work_unit: u64, AT_LEAST_1, Some("255"), &[Slob],
        "blocks that an update call visits";
    scale: Scale, Kind::Scale, Some("128G"), &[Load, Slob],
        "size of each table: N blocks of 8 kB or NM, NG, NT";
    dbname: String, Kind::Text, Some("pg10"), &[Connect],
        "database whose statistics are read";
    connect_string: ConnectString, Kind::Text, Some("pg10"), &[Connect],
        "where to connect: a database name, a conninfo string or a URI; without a pgio.conf the PG* variables say it";
    create_base_table: bool, Kind::Switch, Some("TRUE"), &[Load],
        "also make the table pgio_base";
    access: Access, Kind::OneOf(Access::NAMES), Some("index"), &[Slob],
        "how blocks are found: index (one read at a time) or bitmap (prefetched)";
    commit_every: u32, AT_LEAST_0, Some("1"), &[Slob],
        "update calls in a transaction; 0 is one transaction per session, as the original";
    batch: u32, AT_LEAST_1, Some("1"), &[Slob],
        "visits in one statement, where the latency of each is not needed; goes with WORK_UNIT=1; 1 is off";
    tablespace: String, Kind::Text, None, &[Load],
        "tablespace of the tables";
    seed: u64, AT_LEAST_0, None, &[Load, Slob, Commit, Device],
        "seed of all random choices; without it one is drawn and recorded";
    warmup: Duration, Kind::Duration { zero: true }, Some("0"), &[Slob, Commit, Device],
        "time that the workload runs before the window opens";
    sessions: u32, AT_LEAST_1, Some("1"), &[Commit],
        "sessions that commit";
    rows_per_transaction: u32, AT_LEAST_1, Some("1"), &[Commit],
        "rows inserted by each transaction";
    payload: u32, PAYLOAD, Some("0"), &[Commit],
        "bytes of filler in each row";
    transactions: u64, AT_LEAST_1, None, &[Commit],
        "transactions in all, instead of a fixed time";
    path: String, Kind::Text, None, &[Device],
        "block device, file, or directory for a scratch file; without it the target's device";
    test: DeviceTests, Kind::OneOf(DeviceTests::NAMES), Some("all"), &[Device],
        "what is measured there; all: each as a workload of its own";
    size: Bytes, Kind::Bytes, Some("512M"), &[Device],
        "of the scratch file, and the part of a device or file that is worked on";
    block_size: Bytes, Kind::Bytes, None, &[Device],
        "of each read or write; without it 1M (throughput), 4K (latency), 8K (random)";
    depth: u32, Kind::Whole(1..=1024), Some("1"), &[Device],
        "reads or writes in flight";
    destroy: bool, Kind::Switch, Some("FALSE"), &[Device],
        "write tests may write over what a device or file holds";
    uuid: String, Kind::Text, None, &[Device],
        "of the file system or other content that may be lost with destroy";
}

impl Key {
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// As in pgio.conf: `UPDATE_PCT`.
    pub fn conf_name(&self) -> String {
        self.name.to_ascii_uppercase()
    }

    /// As a flag, without the dashes: `update-pct`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Whether pgio.conf and flags have it: a device is measured by an experiment, or by
    /// `pgio device`, whose flags are its own.
    pub fn is_of_conf(&self) -> bool {
        self.uses.iter().any(|using| *using != Device)
    }

    pub fn default_for(&self, using: Use) -> Option<&'static str> {
        match (self.name, using) {
            ("scale", Load) => Some(LOAD_SCALE),
            _ => self.default,
        }
    }

    /// Reads the value into the layer. The error is to follow the key's name.
    pub fn set(&self, layer: &mut Layer, text: &str) -> Result<(), String> {
        (self.set)(layer, text)
    }
}

impl Layer {
    /// This layer where it says something, else the one below.
    #[must_use]
    pub fn over(self, mut below: Self) -> Self {
        // Time and number of transactions answer the same question: the upper answer counts.
        if self.run_time.is_some() && self.transactions.is_none() {
            below.transactions = None;
        }
        self.merged(below)
    }

    /// The lowest layer.
    pub(super) fn defaults(using: Use) -> Self {
        let mut layer = Self::default();
        for key in KEYS {
            if let Some(text) = key.default_for(using) {
                key.set(&mut layer, text).expect("a test reads every default of the table");
            }
        }
        layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(pairs: &[(&str, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (name, text) in pairs {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        layer
    }

    #[test]
    fn every_default_is_read() {
        for using in [Connect, Load, Slob, Commit, Device] {
            let _ = Layer::defaults(using);
        }
    }

    #[test]
    fn names_in_the_three_places() {
        let key = Key::named("update_work_unit").unwrap();
        assert_eq!(key.conf_name(), "UPDATE_WORK_UNIT");
        assert_eq!(key.flag(), "update-work-unit");
        assert!(Key::named("UPDATE_PCT").is_none());
    }

    #[test]
    fn names_are_unique_and_lower_case_and_help_is_one_line() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{}", key.name);
            assert_eq!(key.name, key.name.to_ascii_lowercase());
            assert!(!key.help.contains('\n') && !key.help.ends_with('.'), "{}", key.name);
            assert!(!key.uses.is_empty());
        }
    }

    #[test]
    fn scale_has_a_smaller_default_for_loading() {
        let scale = Key::named("scale").unwrap();
        assert_eq!(scale.default_for(Load), Some("4G"));
        assert_eq!(scale.default_for(Slob), Some("128G"));
    }

    #[test]
    fn the_upper_layer_wins_key_by_key() {
        let flags = layer(&[("update_pct", "50")]);
        let workload = layer(&[("update_pct", "10"), ("work_unit", "8")]);
        let conf = layer(&[("work_unit", "255"), ("scale", "200M")]);
        assert_eq!(
            flags.over(workload).over(conf),
            layer(&[("update_pct", "50"), ("work_unit", "8"), ("scale", "200M")])
        );
    }

    #[test]
    fn the_upper_answer_to_how_long_counts() {
        let time = || layer(&[("run_time", "10s")]);
        let number = || layer(&[("transactions", "10000")]);
        assert_eq!(time().over(number()).transactions, None);
        assert_eq!(number().over(time()).transactions, Some(10_000));
    }
}
