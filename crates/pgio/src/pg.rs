//! PostgreSQL: how to reach a server ([`connect`]), and one of our own ([`private`]).
//!
//! Nothing here knows what is measured. Next: `dataset` loads through it, `workload` runs on it.

pub mod connect;
pub mod private;
