//! The machines of an experiment: processes, /proc and storage, here or over ssh.
//!
//! [`exec`] is the only place in the crate that starts a process; [`machine`] gives every host
//! the same two ways in, a command and a [`shell`] that lives on. [`proc`] parses and touches
//! nothing; [`storage`] finds the devices under a directory, [`signature`] what a device holds,
//! [`drbd_disks`] whether it is one of DRBD's, [`blkio`] slows them down, [`loop_disk`] makes one.
//! [`rights`] is who may do what, [`stop`] the flag that ends everything. Nothing here knows
//! PostgreSQL or what is measured.

pub mod blkio;
pub mod command;
pub mod descriptors;
pub mod drbd;
pub mod drbd_disks;
pub mod error;
pub mod exec;
pub mod lock;
pub mod loop_disk;
pub mod machine;
pub mod own_dir;
pub mod proc;
pub mod rights;
mod runner;
pub mod shell;
pub mod signature;
mod ssh;
pub mod stop;
pub mod storage;

pub use error::HostError;
pub use machine::{Host, Hosts, LOCAL, connect_all, refuse_twins};
pub use shell::Shell;
