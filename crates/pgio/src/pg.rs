//! PostgreSQL: a server's version, settings, counters and data directories ([`server`]), the cost of its
//! clock ([`clock`]), sessions left by a killed run ([`leftovers`]), private servers ([`private`]),
//! stopping and starting the user's server ([`control`]), its settings ([`values`], [`pending`]), quoting in SQL
//! text ([`quote`]), whose objects may be used ([`trust`]), and error messages ([`words`]). Every session is opened by [`session`], over the crate
//! `pgio_connect`.
//!
//! This module does not depend on the workload. Next: `dataset` loads through it, `workload` runs on
//! it.

pub mod clock;
pub mod control;
pub mod leftovers;
pub mod pending;
pub mod private;
pub mod quote;
pub mod secrets;
pub mod server;
pub mod session;
pub mod standby_names;
pub mod trust;
pub mod values;
pub mod words;
