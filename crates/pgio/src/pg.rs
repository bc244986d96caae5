//! PostgreSQL: connecting to a server ([`connect`]), its version, settings and counters
//! ([`server`]), its data directories ([`directories`]), sessions left by a killed run
//! ([`leftovers`]), interrupting waits for a server that does not answer ([`interrupt`]), private
//! servers ([`private`]), stopping and starting the user's server ([`control`]), quoting in SQL
//! text ([`quote`]), and error messages ([`words`]).
//!
//! This module does not depend on the workload. Next: `dataset` loads through it, `workload` runs on
//! it.

pub use pgio_connect as connect;
pub use pgio_connect::interrupt;

pub mod control;
pub mod directories;
pub mod leftovers;
pub mod private;
pub mod quote;
pub mod server;
pub mod standby_names;
pub mod words;
