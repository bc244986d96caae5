//! Configuration files: parsing, defaults and checks.
//!
//! [`pgio_conf`] reads the original's pgio.conf, [`experiment`] the TOML file of
//! `pgio compare`. Both fill a [`Layer`] from the table in [`keys`], and [`resolve`]
//! turns layers into settings. Callers read the files; this module sees only their text and
//! a file name for errors. It must not read the environment or use PostgreSQL. The keys of
//! treatments are parsed in `treatment`. [`inventory`] puts the nodes of a fleet into an experiment file.
//!
//! To add a workload key, add one line to [`keys`] and its name to the workloads that take it in [`kinds`]; to add
//! a key of a section of an experiment file, add one line to the section ([`experiment`]).

/// A list of names of workload keys.
macro_rules! names {
    ($($name:ident)*) => { &[$($crate::config::keys::names::$name),*] };
}

/// The names of an enum's values in files.
macro_rules! choice {
    ($type:ident: $($variant:ident $name:literal),*) => {
        // Not each choice needs all of it.
        #[allow(dead_code, unreachable_pub)]
        impl $type {
            pub const NAMES: &'static [&'static str] = &[$($name),*];
            pub const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$variant)),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl $crate::config::from_text::Value for $type {
            fn from_text(text: &str, kind: &$crate::config::value::Kind) -> Result<Self, String> {
                let named = Self::ALL.iter().find(|(name, _)| *name == text);
                named.map(|(_, value)| *value).ok_or_else(|| {
                    $crate::config::from_text::must_be(kind, text)
                })
            }
        }
    };
}

pub mod command;
pub mod engine;
pub mod experiment;
pub(crate) mod from_text;
pub mod inventory;
pub mod keys;
pub mod kinds;
pub mod pgio_conf;
pub mod resolve;
mod slob;
mod slob_calls;
pub mod value;

pub use self::value::ConfigError;
pub(crate) use self::value::nearest;
pub use command::{CommandSettings, CommandSpec};
pub use engine::{ClientSettings, Engine, Pace};
pub use experiment::Experiment;
pub use experiment::key::SectionDef;
pub use keys::{Key, Layer, Use};
pub use pgio_conf::PgioConf;
pub use resolve::{CommitSettings, LoadSettings, ResolveError, SlobSettings};
pub use value::{Access, Arrivals, ConnectString};
