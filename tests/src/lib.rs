//! What the tests of the program share: pgio as a user types it, real servers, and waiting for events.
//!
//! The smoke test of `crates/pgio` and the integration tests beside this file use it. `fixture` has the servers,
//! `workdir` and `command` run pgio, `timing` waits and notes how long each test took.

// All of it is test code, and looks at servers as a user does.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

pub mod command;
pub mod fixture;
pub mod timing;
pub mod workdir;

use std::io::{Write, stderr};

/// Says what a test leaves out, also if it passes: libtest keeps back only what macros print.
pub fn skipped(why: &str) {
    let _ = writeln!(stderr(), "skipped: {why}");
}
