//! The main loop: conditions in random order, each put in force, measured, taken back, stored.
//!
//! [`plan`] draws the order, [`run`] is the loop over any [`run::Stage`], [`live`] the stage on
//! real servers ([`target`]), [`reset`] makes the data the same before each trial, [`trial`] is one trial,
//! [`judging`] asks the analysis what to repeat and when to stop.
//!
//! [`application`] runs an experiment file from its text to its stored results. What other commands share with it:
//! [`state`] (directories, ids, locks), [`connection`], [`admin`] sessions, [`conflicts`] with other runs, [`clusters`],
//! the [`slob`] data set.
//!
//! Nothing here prints: an observer receives [`event`]s.
//! Next: `report` reads what this stores; neither sees the other.

pub mod admin;
pub mod application;
pub mod clusters;
pub mod conflicts;
pub mod connection;
mod controlled;
mod cycles;
pub mod environment;
pub mod error;
pub mod event;
pub mod judging;
pub mod live;
pub mod pace;
pub mod plan;
pub mod reset;
pub mod run;
pub mod slob;
pub mod state;
pub mod target;
pub mod trial;
mod trial_checks;

pub use trial_checks::lies_on;
