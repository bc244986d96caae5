//! Several drivers generate the load of one window; the process that runs the experiment coordinates.
//!
//! Drivers dial in ([`pgio_link`]) and stay for the whole run. For each trial the coordinator sends each
//! its part of the sessions ([`messages`]), waits until all are ready ([`preparing`]), opens one window at
//! a moment that it converts to each driver's clock ([`remote`], [`working`]), and adds up what they did ([`merge`]).
//! PostgreSQL's own count is the proof ([`proof`]). [`roster`] knows who is connected, [`asking`] asks all of
//! them something, [`engine`] starts them by what the user has ([`launch`]); [`serve`] and [`work`] are the
//! driver's side. Where each server has drivers of its own, there is one roster for each server.
//!
//! There are never fewer drivers than asked for: one that is lost before the window is waited for, one
//! that is lost later makes the trial invalid.

mod asking;
mod engine;
mod error;
pub mod launch;
mod merge;
pub mod messages;
mod preparing;
pub mod proof;
pub mod remote;
mod roster;
mod serve;
mod work;
mod working;

pub use error::{DriverError, Fault};
pub use roster::Drivers;
pub use serve::{ServeError, serve};
pub use work::server_name;
