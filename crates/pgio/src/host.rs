//! The hosts of an experiment: processes, /proc and storage, local or over ssh.
//!
//! Only [`exec`] starts processes. [`machine`] gives every host the same interface: single commands,
//! and a persistent [`shell`]. [`proc`] only parses. [`storage`] finds the devices under a directory,
//! [`signature`] reads what a device contains, [`blkio`]
//! limits its I/O. [`rights`] determines privileges, [`stop`] is the flag that stops the program, and
//! [`clock`] the clock by which waits are measured.
//! This module must not depend on PostgreSQL or on what is measured.

pub mod blkio;
pub mod clock;
pub mod command;
mod device_tree;
pub mod diskstats;
pub mod exec;
pub mod json;
pub mod lock;
pub mod machine;
pub mod own_dir;
pub mod proc;
pub mod rights;
pub mod shell;
pub mod signature;
mod ssh;
pub mod stop;
pub mod storage;

pub use machine::{Host, HostError, Hosts, LOCAL, Machine, called, connect_all, refuse_duplicates};
pub use shell::Shell;
