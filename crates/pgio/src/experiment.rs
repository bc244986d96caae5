//! The main loop: conditions in random order, each put in force, measured, taken back, stored.
//!
//! [`plan`] draws the order, [`run`] is the loop over any [`run::Stage`], [`live`] the stage on
//! real servers, [`trial`] one trial. Nothing here prints: what happens is told to an observer.
//! Next: `report` reads what this stores; neither sees the other.

pub mod environment;
pub mod live;
pub mod plan;
pub mod run;
pub mod trial;
mod trial_checks;
