//! Several drivers generate the load of one window; the process that runs the experiment coordinates.
//!
//! The code of the two processes is apart: [`coordinator`] runs in the pgio that runs the experiment,
//! [`driver`] in each `pgio drive`. The files beside them hold what both must agree on: [`messages`], errors,
//! environment and the name of a server. They use neither, so that each process can be read without the
//! other.
//!
//! Drivers dial in ([`pgio_link`]) and stay for the whole run. For each trial the coordinator sends each its
//! part of the sessions, waits until all are ready, opens one window for all and adds up what they did. Where
//! each server has drivers of its own, there is one roster for each server.
//!
//! There are never fewer drivers than asked for: one that is lost before the window is waited for, one
//! that is lost later makes the trial invalid.

pub mod coordinator;
pub mod driver;
pub mod environment;
mod error;
mod identity;
pub mod messages;

pub use error::{DriverError, Fault};
pub use identity::server_name;
