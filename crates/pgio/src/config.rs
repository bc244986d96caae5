//! Files that say what to do, parsed and never executed.
//!
//! [`pgio_conf`] reads the original's pgio.conf, [`experiment`] the TOML file of
//! `pgio compare`; both fill a [`Layer`] from the one table in [`keys`], and [`resolve`]
//! turns layers into settings. Callers read the files: here is only text, with a name
//! for the errors. No environment, no PostgreSQL; what a treatment's keys mean is known
//! in `treatment`.
//!
//! A new workload key is one line in [`keys`], a key of a section of an experiment file one in
//! [`sections`].

pub mod command;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod keys;
pub mod name;
pub mod pgio_conf;
pub mod resolve;
pub mod sections;
pub mod value;

pub use command::{CommandSettings, CommandSpec};
pub use engine::{ClientSettings, Engine, Pace};
pub use error::ConfigError;
pub(crate) use error::nearest;
pub use experiment::Experiment;
pub use keys::{KEYS, Key, Layer, Use};
pub use pgio_conf::PgioConf;
pub use resolve::{
    CommitSettings, DeviceSettings, LoadSettings, MailSettings, ResolveError, SlobSettings,
};
pub use sections::{SECTIONS, SectionDef};
pub use value::{Access, Arrivals, ConnectString};
