//! Configuration files: parsing, defaults and checks.
//!
//! [`pgio_conf`] reads the original's pgio.conf, [`experiment`] the TOML file of
//! `pgio compare`. Both fill a [`Layer`] from the table in [`keys`], and [`resolve`]
//! turns layers into settings. Callers read the files; this module sees only their text and
//! a file name for errors. It must not read the environment or use PostgreSQL. The keys of
//! treatments are parsed in `treatment`. [`inventory`] puts the nodes of a fleet into an experiment file.
//!
//! To add a workload key, add one line to [`keys`] and its name to the workloads that take it in [`kinds`]; to add
//! a key of a section of an experiment file, add one line to [`sections`].

/// A list of names of keys as texts.
macro_rules! names {
    ($($name:ident)*) => { &[$(stringify!($name)),*] };
}

pub mod command;
pub mod drivers;
pub mod engine;
pub mod experiment;
mod from_text;
pub mod inventory;
pub mod keys;
pub mod kinds;
pub mod mail;
pub mod pgio_conf;
pub mod resolve;
pub mod sections;
mod slob;
pub mod value;

pub use self::value::ConfigError;
pub(crate) use self::value::nearest;
pub use command::{CommandSettings, CommandSpec};
pub use engine::{ClientSettings, Engine, Pace};
pub use experiment::Experiment;
pub use keys::{KEYS, Key, Layer, Use};
pub use pgio_conf::PgioConf;
pub use resolve::{CommitSettings, DeviceSettings, LoadSettings, ResolveError, SlobSettings};
pub use sections::{SECTIONS, SectionDef};
pub use value::{Access, Arrivals, ConnectString};
