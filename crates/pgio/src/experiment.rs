//! The main loop: applies conditions in random order, measures, stores and undoes each.
//!
//! [`plan`] draws the order; [`run`] is the loop over any [`run::Runner`]; [`live`] is the runner on
//! real servers ([`target`]); [`reset`] restores the data before each trial; [`trial`] runs one trial, a [`companion`]
//! accompanies it. [`results`] stores the trials, and decides with [`judging`] what to repeat and when to stop;
//! `calibration` finds the length of woven slices.
//!
//! [`application`] runs an experiment file from its text to its stored results; [`doctor`] finds beforehand what would
//! spoil them. Other commands share [`state`] (directories, ids, locks), [`target`], [`admin`] sessions and conflicts
//! with other runs, [`clusters`], the [`slob`] data set. [`undo`] restores what interrupted runs left changed.
//!
//! Nothing here prints: an observer receives [`event`]s.
//! Next: `report` reads the stored results; neither module sees the other.

pub mod admin;
pub mod application;
mod calibration;
pub mod clusters;
pub mod companion;
pub mod doctor;
pub mod environment;
pub mod event;
pub mod generators;
pub mod judging;
pub mod live;
pub mod pace;
pub mod plan;
pub mod reset;
pub mod results;
pub mod run;
pub mod slob;
pub mod state;
pub mod target;
pub mod trial;
pub(crate) mod trial_checks;
pub mod undo;
