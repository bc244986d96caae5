//! The one table of workload keys, and [`Layer`], one source's worth of them.
//!
//! A key is written `UPDATE_PCT` in pgio.conf, `update_pct` in an experiment file and
//! `--update-pct` as a flag. The table feeds all three parsers, the help and the docs;
//! nothing about a key is said anywhere else. It must not decide which source wins
//! where: the caller stacks layers with [`Layer::over`], [`super::resolve`] takes the sum.
//!
//! To add a key: one line below; then the settings struct that uses it, in `resolve`.

use std::time::Duration;

use super::value::mail::{MailProtocol, MailRate, MailServer, Recipients, SizeDistribution};
use super::value::{
    Access, Arrivals, Bytes, ConnectString, Decimal, DeviceTests, EngineName, Kind, Skew, Stretch,
    TableModel, Value,
};
use crate::units::Scale;
use crate::units::layout::{FILLER_WIDTHS, FILLFACTORS, Filler};

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Where the server is.
    Connect,
    /// Loading the data set.
    Load,
    /// The workload `slob`, which also checks that the data set is as asked for.
    Slob,
    /// The workload `commit`.
    Commit,
    /// The workload `device`.
    Device,
    /// The workload `command`; what it runs and prints is no key but a section of its own.
    Command,
    /// The workload `mail`.
    Mail,
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

            /// Names of the keys that are said here and not the same there.
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

use Use::{Command, Commit, Connect, Device, Load, Mail, Slob};

const AT_LEAST_1: Kind = Kind::Whole(1..=u64::MAX);
const AT_LEAST_0: Kind = Kind::Whole(0..=u64::MAX);
/// Each is a process of the server's and a thread or a socket here.
const SESSIONS: Kind = Kind::Whole(1..=10_000);
/// Their parameters and results are held in memory, here or in the server.
const OF_A_STATEMENT: Kind = Kind::Whole(1..=1_000_000);
const PERCENT: Kind = Kind::Decimal(0..=100);
/// Of the tables' rows.
const FILLER: Kind = Kind::Whole(0..=1024);
/// PostgreSQL's limit of one field is 1 GB.
const PAYLOAD: Kind = Kind::Whole(0..=1_000_000_000);

workload_keys! {
    update_pct: u8, Kind::Whole(0..=100), Some("0"), &[Slob],
        "percentage of calls that update";
    run_time: Duration, Kind::Duration { zero: false }, Some("300"), &[Slob, Commit, Device, Command, Mail],
        "length of the measured window; a bare number is seconds";
    num_schemas: u32, Kind::Whole(1..=8192), Some("1"), &[Load, Slob],
        "number of tables, pgio1 to pgioN";
    num_threads: u32, SESSIONS, Some("1"), &[Load, Slob],
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
    batch: u32, OF_A_STATEMENT, Some("1"), &[Slob],
        "visits in one statement, where the latency of each is not needed; goes with WORK_UNIT=1; 1 is off";
    skew: Skew, Kind::OneOf(Skew::NAMES), Some("uniform"), &[Slob],
        "how likely each key is visited";
    zipf_exponent: Decimal, Kind::Decimal(0..=10), None, &[Slob],
        "with skew zipf, key k is visited as often as 1 / k to this power; without it 1";
    gaussian_mean: Decimal, PERCENT, None, &[Slob],
        "with skew gaussian, where the visits centre, in % of the table; without it 50";
    gaussian_sd: Decimal, PERCENT, None, &[Slob],
        "with skew gaussian, their standard deviation, in % of the table; without it 10";
    hot_spot: Stretch, Kind::Stretch, None, &[Slob],
        "size of the hot spot of each table";
    hot_offset: Stretch, Kind::Stretch, None, &[Slob],
        "what lies before the hot spot; without it nothing";
    hot_pct: Decimal, PERCENT, None, &[Slob],
        "percentage of calls that visit the hot spot, the others visit the rest";
    hot_table: u32, Kind::Whole(1..=8192), None, &[Slob],
        "number of the table that all sessions visit beside their own";
    hot_table_pct: Decimal, PERCENT, None, &[Slob],
        "percentage of reads and updates that visit the hot table";
    scan_pct: Decimal, PERCENT, Some("0"), &[Slob],
        "percentage of calls that scan the whole table pgio_scan";
    insert_pct: Decimal, PERCENT, Some("0"), &[Slob],
        "percentage of calls that insert a row into the table pgio_turnover";
    delete_pct: Decimal, PERCENT, Some("0"), &[Slob],
        "percentage of calls that delete the oldest row there; as many as insert";
    update_width: u32, FILLER, Some("0"), &[Slob],
        "bytes of filler that an update writes anew beside its counter, for more WAL";
    think_pct: Decimal, PERCENT, Some("0"), &[Slob],
        "percentage of calls after which a session rests";
    think_min: Duration, Kind::Duration { zero: true }, None, &[Slob],
        "shortest rest; without it 0";
    think_max: Duration, Kind::Duration { zero: false }, None, &[Slob],
        "longest rest";
    work_loop: u64, AT_LEAST_1, None, &[Slob],
        "calls that each session makes, instead of a fixed time";
    ramp: Duration, Kind::Duration { zero: true }, Some("0"), &[Slob],
        "part of the warm-up over which the sessions connect one after the other";
    table_model: TableModel, Kind::OneOf(TableModel::NAMES), Some("many"), &[Slob],
        "many: sessions go round the tables; single: all NUM_SCHEMAS × NUM_THREADS are on pgio1";
    tablespace: String, Kind::Text, None, &[Load],
        "tablespace of the tables";
    filler: Filler, Kind::OneOf(Filler::NAMES), Some("plain"), &[Load, Slob],
        "what fills the rows: plain (all the same, as the original's) or random (does not compress)";
    filler_width: u32, Kind::Whole(FILLER_WIDTHS), Some("1024"), &[Load, Slob],
        "bytes of filler in each row; above 4028 an updated row has no room in its block";
    fillfactor: u8, Kind::Whole(FILLFACTORS), Some("10"), &[Load, Slob],
        "fillfactor of the tables, as long as each row is alone in its block";
    unlogged: bool, Kind::Switch, Some("FALSE"), &[Load, Slob],
        "make unlogged tables, whose changes write no WAL";
    scan_scale: Scale, Kind::Scale, None, &[Load, Slob],
        "size of the table pgio_scan, which is for scans of a whole table; without it none is made";
    seed: u64, AT_LEAST_0, None, &[Load, Slob, Commit, Device, Command],
        "seed of all random choices; without it one is drawn and recorded";
    warmup: Duration, Kind::Duration { zero: true }, Some("0"), &[Slob, Commit, Device, Command, Mail],
        "time that the workload runs before the window opens";
    sessions: u32, SESSIONS, Some("1"), &[Slob, Commit, Command],
        "sessions that commit, or that a command is told to open; of slob in place of NUM_SCHEMAS × NUM_THREADS: with fewer than tables, each visits its share in turn";
    rows_per_transaction: u32, OF_A_STATEMENT, Some("1"), &[Commit],
        "rows inserted by each transaction";
    payload: u32, PAYLOAD, Some("0"), &[Commit],
        "bytes of filler in each row";
    transactions: u64, AT_LEAST_1, None, &[Commit],
        "transactions in all, instead of a fixed time";
    index: bool, Kind::Switch, Some("FALSE"), &[Commit],
        "give the table a primary key, made by a sequence, beside the rows' own columns";
    engine: EngineName, Kind::OneOf(EngineName::NAMES), Some("server"), &[Slob, Commit],
        "who sends the statements: server (blocks in the sessions) or client (pgio, one by one, prepared)";
    pipeline: u32, Kind::Whole(1..=1024), Some("1"), &[Slob, Commit],
        "calls that a session may have under way; with engine = client";
    rate: u64, Kind::Whole(1..=100_000_000), None, &[Slob, Commit],
        "calls per second that all sessions together are to begin (open loop), instead of one after the other; with engine = client";
    arrivals: Arrivals, Kind::OneOf(Arrivals::NAMES), Some("fixed"), &[Slob, Commit],
        "how the calls of a rate lie in time: fixed (equal distances) or poisson (independent of each other)";
    client_threads: u32, Kind::Whole(1..=256), Some("1"), &[Slob, Commit],
        "threads of pgio that send and hear; with engine = client";
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
    server: MailServer, Kind::Text, None, &[Mail],
        "where mail is delivered to: host:port, or the path of a socket; {target} is the target's name";
    protocol: MailProtocol, Kind::OneOf(MailProtocol::NAMES), Some("lmtp"), &[Mail],
        "how: lmtp answers when a message is delivered, smtp when it is taken over";
    threads: u32, Kind::Whole(1..=1000), Some("12"), &[Mail],
        "sessions that deliver at a time";
    message_size: Bytes, Kind::Bytes, Some("70K"), &[Mail],
        "mean size of a message, header included";
    size_distribution: SizeDistribution, Kind::OneOf(SizeDistribution::NAMES), Some("uniform"), &[Mail],
        "of the sizes about their mean: fixed, uniform or lognormal";
    size_spread: u32, Kind::Whole(1..=1000), None, &[Mail],
        "percent of the mean: half the width (uniform), the standard deviation (lognormal); without it 100";
    sender: String, Kind::Text, Some("pgio@localhost"), &[Mail],
        "who the mail is from";
    recipients: Recipients, Kind::Text, Some("user{1..100}@localhost"), &[Mail],
        "who gets it, each as often: addresses with commas between, of which each may have one {1..100}";
    recipients_per_message: u32, Kind::Whole(1..=1000), Some("1"), &[Mail],
        "different recipients of each message";
    messages_per_connection: u32, AT_LEAST_0, Some("0"), &[Mail],
        "messages before a session connects anew; 0 is as many as come";
    messages_rate: MailRate, Kind::Text, None, &[Mail],
        "messages begun by all threads together, such as 1500/min or 25/s; without it as fast as they are taken";
    reply_timeout: Duration, Kind::Duration { zero: false }, Some("60s"), &[Mail],
        "how long an answer of the server may take";
    maildir: String, Kind::Text, None, &[Mail],
        "where a recipient's mail is found, with {user} and {domain}: what was delivered is looked up there, and removed";
    mail_host: String, Kind::Text, None, &[Mail],
        "host of [hosts] that maildir is on; without it the target's";
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

    /// Whether pgio.conf and flags have it: commands and mail are of experiments only, and a device
    /// is measured by those or by `pgio device`, whose flags are its own.
    pub fn is_of_conf(&self) -> bool {
        self.uses.iter().any(|using| !matches!(using, Device | Command | Mail))
    }

    /// Whether a command takes it as a flag: `run` runs `slob`, the other workloads are of experiments.
    pub fn is_flag(&self) -> bool {
        self.uses.iter().any(|using| matches!(using, Connect | Load | Slob))
    }

    pub fn default_for(&self, using: Use) -> Option<&'static str> {
        match (self.name, using) {
            ("scale", Load) => Some(LOAD_SCALE),
            // As many as tables and threads say.
            ("sessions", Slob) => None,
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
        if self.run_time.is_some() {
            below.work_loop = None;
        }
        if self.work_loop.is_some() {
            below.run_time = None;
        }
        self.merged(below)
    }

    /// Complete. A default contradicts nothing, so the rules of [`Layer::over`] are not for it.
    pub(super) fn with_defaults(self, using: Use) -> Self {
        self.merged(Self::defaults(using))
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
        for using in [Connect, Load, Slob, Commit, Device, Command, Mail] {
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
        let calls = || layer(&[("work_loop", "500")]);
        assert_eq!(calls().over(time()), calls());
        assert_eq!(time().over(calls()), time());
    }
}
