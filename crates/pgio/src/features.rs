//! The features that pgio is built with: each has its directory here, its line below, and the Cargo feature of its name.
//!
//! They are above `cli`, because they bring commands: each uses the core, none uses another.

use crate::experiment::application::workloads;
use crate::feature::Feature;

#[cfg(feature = "background")]
mod background;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "device")]
mod device;
#[cfg(feature = "drbd")]
mod drbd;
#[cfg(feature = "drivers")]
mod drivers;
#[cfg(feature = "filesystem")]
mod filesystem;
#[cfg(feature = "link")]
mod link;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "mail")]
mod mail;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "dummy")]
#[path = "../tests/note/mod.rs"]
mod note;
#[cfg(feature = "runs")]
mod runs;
#[cfg(feature = "screening")]
mod screening;
#[cfg(feature = "shell")]
mod shell;
#[cfg(feature = "store")]
mod store;
#[cfg(feature = "sweep")]
mod sweep;
#[cfg(feature = "throttle")]
mod throttle;
#[cfg(feature = "dummy")]
#[path = "../tests/ticks/mod.rs"]
mod ticks;

/// In the order in which their treatments are applied, whatever the order in the file: one that restarts the server
/// comes before those that a restart would undo.
pub(crate) static ALL: &[&Feature] = &[
    &workloads::SLOB,
    &workloads::COMMIT,
    #[cfg(feature = "device")]
    &device::FEATURE,
    &workloads::COMMAND,
    #[cfg(feature = "mail")]
    &mail::FEATURE,
    #[cfg(feature = "screening")]
    &screening::FEATURE,
    #[cfg(feature = "drivers")]
    &drivers::FEATURE,
    #[cfg(feature = "background")]
    &background::FEATURE,
    #[cfg(feature = "drbd")]
    &drbd::FEATURE,
    &crate::treatment::SETTING,
    #[cfg(feature = "filesystem")]
    &filesystem::FEATURE,
    #[cfg(feature = "cache")]
    &cache::FEATURE,
    #[cfg(feature = "memory")]
    &memory::FEATURE,
    #[cfg(feature = "link")]
    &link::FEATURE,
    #[cfg(feature = "throttle")]
    &throttle::FEATURE,
    #[cfg(feature = "shell")]
    &shell::FEATURE,
    #[cfg(feature = "live")]
    &live::FEATURE,
    #[cfg(feature = "runs")]
    &runs::FEATURE,
    #[cfg(feature = "store")]
    &store::FEATURE,
    #[cfg(feature = "sweep")]
    &sweep::FEATURE,
    #[cfg(feature = "dummy")]
    &ticks::FEATURE,
    #[cfg(feature = "dummy")]
    &note::FEATURE,
];
