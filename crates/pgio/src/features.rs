//! The features that pgio is built with: each has its directory here, its line below, and the Cargo feature of its name.
//!
//! They are above `experiment`: each uses the core, none uses another.

use crate::feature::Feature;

#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "drbd")]
pub mod drbd;
#[cfg(feature = "filesystem")]
pub mod filesystem;
#[cfg(feature = "link")]
pub mod link;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "shell")]
pub mod shell;
#[cfg(feature = "throttle")]
pub mod throttle;

/// In the order in which their treatments are applied, whatever the order in the file: one that restarts the server
/// comes before those that a restart would undo.
pub(crate) static ALL: &[&Feature] = &[
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
];
