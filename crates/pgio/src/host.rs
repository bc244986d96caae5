//! The machine: processes and, later, /proc.
//!
//! [`stop`] is the flag that ends everything.
//! [`exec`] is the only place in the crate that starts a process.
//! Nothing here knows PostgreSQL or what is measured.

pub mod exec;
pub mod stop;
