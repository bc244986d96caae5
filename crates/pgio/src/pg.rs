//! PostgreSQL: how to reach a server ([`connect`]), what it is and counts ([`server`]), where it
//! keeps its data ([`directories`]), sessions that a killed run left there ([`leftovers`]), waits for one
//! that does not answer ([`interrupt`]), a server
//! of one's own ([`private`]), stopping and starting one of the user's ([`control`]), names in SQL
//! text ([`quote`]), and errors told in the server's words ([`words`]).
//!
//! Nothing here knows what is measured. Next: `dataset` loads through it, `workload` runs on it.

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
