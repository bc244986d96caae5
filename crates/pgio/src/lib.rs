//! pgio: what a storage or replication choice costs a PostgreSQL database.
//!
//! The modules by level; a module uses only lower levels (a test checks every `crate::` path against
//! this table). The crates `benchmath`, `printable`, `pgio_results`, `pgio_report`, `pgio_connect`, `pgio_link` and
//! `pgio_mail` come first and are used under their own names; each uses only crates listed before it.
//!
//! | level | modules |
//! |---|---|
//! | 0 | [`rng`]; [`exit_code`]: which error ends the program how |
//! | 1 | [`config`]: pgio.conf and experiment files, parsed |
//! | 2 | [`host`]: processes, /proc and storage |
//! | 3 | [`pg`]: PostgreSQL |
//! | 4 | [`dataset`]: plan, load, verify |
//! | 5 | [`workload`], [`treatment`], [`telemetry`]: one shape per family |
//! | 6 | [`experiment`] orchestrates |
//! | 7 | [`cli`] interacts with the user |
//! | 8 | `features`: each in a directory of its own |
//!
//! [`feature`] is the list of features, which any level may ask.
//!
//! Start reading at [`experiment`] for the main loop, or at [`cli`] for a command.

// These macros panic if their stream fails, which unwinds past the undo of a condition. `cli::output` prints.
#![cfg_attr(test, allow(clippy::disallowed_methods))]
#![warn(clippy::print_stderr, clippy::print_stdout)]
// Some of what the core offers has one user only.
#![cfg_attr(not(feature = "all"), allow(dead_code, unused_imports, unused_macros))]

/// A table of cases for a test, each an input and what is expected of it.
#[cfg(test)]
macro_rules! cases {
    ($($input:expr => $expected:expr;)*) => { [$(($input, $expected)),*] };
}

/// An experiment of examples/, named without its extension.
macro_rules! example {
    ($name:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shipped/", $name, ".toml")))
    };
}

pub mod exit_code;
pub mod rng;

#[macro_use]
pub mod config;

pub mod host;

pub mod pg;

pub mod dataset;

pub mod telemetry;
pub mod treatment;
pub mod workload;

pub mod experiment;

pub mod cli;

pub mod feature;
mod features;
