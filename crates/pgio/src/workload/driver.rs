//! A driver: what `pgio drive` runs, one process of several that generate the load of a window.
//!
//! [`serve()`] receives the coordinator's messages, [`preflight`] answers what it asks before anything is
//! changed, [`trial`] does the work of one trial on a thread of its own.
//!
//! Nothing here uses [`super::coordinator`]; what both say to each other is in [`super::drivers`].

mod preflight;
mod serve;
mod trial;

pub use serve::{ServeError, serve};
