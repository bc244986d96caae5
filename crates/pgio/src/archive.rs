//! The results database: experiments, trials, metrics and comparisons in the schema `pgio_results` of any
//! PostgreSQL, where many can read them.
//!
//! `pgio store` writes whole experiments, each in one transaction and known by its run id and name, so that
//! storing twice changes nothing. `pgio history --store` reads the views. Analyses come from
//! `pgio_report`; nothing is judged here, and the server under test is never needed. Next: [`schema`] for
//! versions and rights, [`record`] for what is stored, [`write`](mod@write), [`read`](mod@read).

mod copy;
pub mod error;
pub mod read;
pub mod record;
pub mod schema;
pub mod write;

pub use self::error::ArchiveError;
pub use self::read::{experiments, runs};
pub use self::record::Record;
pub use self::write::{StoreOutcome, is_stored, store};
