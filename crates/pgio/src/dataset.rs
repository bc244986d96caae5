//! The data set: tables `pgio1..pgioN` with one row per 8 kB block, and a b-tree on the key.
//!
//! [`load()`] generates rows and loads them with binary COPY FREEZE, each table in the transaction
//! that creates it. Every table has a comment, its mark ([`mark`]); pgio never drops a table without
//! one. [`verify`] checks whether a run may use the data set, [`destroy()`] removes it, [`vacuum()`]
//! removes dead rows, [`tablespace`] moves it to a tablespace, [`lines`] formats the output of the original.
//! [`database`] re-creates a database that contains only the data set.
//!
//! This module must not print, and must not open connections: callers supply them.
//! Next: `workload` runs on these tables.

pub mod database;
pub mod destroy;
pub mod error;
pub mod lines;
pub mod load;
pub mod mark;
pub mod plan;
pub mod space;
pub mod tablespace;
pub mod vacuum;
pub mod verify;

mod sql;

pub use destroy::{DestroySummary, destroy, helper_names, refuse_while_loading};
pub use error::DatasetError;
pub use load::{LoadEvent, LoadSummary, load};
pub use mark::{Mark, Part};
pub use plan::{LoadSpec, SpaceCheck};
pub use vacuum::vacuum;
pub use verify::{Dataset, check_for_run, loaded_spec, size};
