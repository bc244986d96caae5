//! The main loop: conditions in random order, each put in force, measured, taken back, stored.
//!
//! [`plan`] draws the order, [`run`] is the loop over any [`run::Stage`], [`live`] the stage on
//! real servers, [`reset`] makes the data the same before each trial, [`trial`] is one trial,
//! [`judging`] asks the analysis what to repeat and when to stop. Nothing here prints: what happens
//! is told to an observer.
//! Next: `report` reads what this stores; neither sees the other.

mod admin;
mod controlled;
mod cycles;
pub mod environment;
pub mod judging;
pub mod live;
pub mod plan;
pub mod reset;
pub mod run;
pub mod trial;
mod trial_checks;

pub use trial_checks::lies_on;
