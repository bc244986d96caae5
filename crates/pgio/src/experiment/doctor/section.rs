//! What the doctor found on one subject: this machine, a host, a server.
//!
//! A file of its own, though short: every subject makes sections, and no subject uses another.

use pgio_results::Check;

/// The checks of one subject, in the order in which they are shown.
#[derive(Debug)]
pub struct Section {
    pub title: String,
    pub checks: Vec<Check>,
}
