//! The data set: tables `pgio1..pgioN` with one row per 8 kB block, and a b-tree on the key.
//!
//! Rows are generated here and loaded by binary COPY FREEZE ([`load()`]), each table in the
//! transaction that creates it. Every table carries a comment with our mark ([`mark`]); nothing
//! without it is ever dropped. [`verify`] says whether a run may use what is there, [`destroy()`]
//! removes it, [`vacuum()`] clears its dead rows away, [`place`] moves it, [`lines`] renders what the
//! original printed. [`database`] makes a database anew that holds nothing else.
//!
//! Nothing here prints, and nothing here opens a connection of its own: connections are handed in.
//! Next: `workload` runs on these tables.

pub mod database;
pub mod destroy;
pub mod error;
pub mod lines;
pub mod load;
pub mod mark;
pub mod place;
pub mod plan;
pub mod sizes;
pub mod space;
pub mod vacuum;
pub mod verify;

mod sql;

pub use destroy::{Destroyed, destroy};
pub use error::DatasetError;
pub use load::{LoadEvent, Loaded, load};
pub use mark::{Mark, Part};
pub use plan::LoadSpec;
pub use vacuum::vacuum;
pub use verify::{Dataset, as_loaded, check_for_run, size};
