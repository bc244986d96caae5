//! The coordinator: what the pgio that runs the experiment does with its drivers.
//!
//! [`launcher_thread`] has them started by what the user has ([`launch`]), [`roster`] waits for them, and
//! [`connected`] knows who is there. [`preflight`] asks all of them whether they reach the server. For each
//! trial [`remote_sessions`] sends each its part ([`assignment`]), waits until all are ready
//! ([`prepare_phase`]) and at the window's start ([`gate_phase`]), opens one window at a moment that it
//! converts to each driver's clock ([`common_start`], [`window_phase`]), and adds up what they did
//! ([`merge`]). PostgreSQL's own count is the proof ([`proof`]). A driver that fails or is lost ends the
//! trial ([`failures`], [`server_sessions`]).
//!
//! Nothing here uses [`super::driver`], which runs in other processes.

mod assignment;
mod common_start;
mod connected;
mod failures;
mod gate_phase;
pub mod launch;
mod launcher_thread;
mod merge;
mod part;
mod preflight;
mod prepare_phase;
pub mod proof;
mod remote_sessions;
mod roster;
mod server_sessions;
mod window_phase;

pub use failures::lost_driver_check;
pub use roster::{DriverCounts, Drivers};
