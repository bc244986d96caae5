//! What goes on beside the workload, observed from outside.
//!
//! [`host`] samples a machine, [`storage`] names the devices under a server's directories,
//! [`probes`] measures what a commit should cost. Observing must not disturb: each says what it
//! costs itself. What cannot be read is absent with a warning, and no trial fails for it.

pub mod host;
pub mod probes;
pub mod storage;
