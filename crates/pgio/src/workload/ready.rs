//! Those who do the work, ready and waiting for their window: sessions of the server, or programs.

use std::collections::BTreeMap;
use std::fmt;

use postgres::Client;

use super::engine::{EngineError, Ran, WindowEvent};
use crate::config::resolve::Extent;

/// All of them are ready, or there is none of these.
pub trait Ready: fmt::Debug {
    /// Of the server's processes that do the work.
    fn pids(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Every setting pinned in the sessions, as read back there.
    fn pinned(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Opens the window and returns when the work has ended; `hear` is told of both, and some
    /// twenty times a second between, with a connection that is free for reading evidence.
    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError>;
}
