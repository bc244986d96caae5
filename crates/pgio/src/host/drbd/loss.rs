//! What the samples of a connection say about a lost peer, for every check of DRBD.

use super::{CONNECTED, UP_TO_DATE};
use pgio_results::telemetry::DrbdState;

pub const LOST_ID: &str = "drbd-connection-lost";
pub const LOST_REMEDY: &str = "check the kernel log of both hosts and the network between them";
pub const CONGESTED_ID: &str = "drbd-congested";
pub const CONGESTED_REMEDY: &str =
    "offer a lower rate than the link can carry, or increase sndbuf-size";

/// Describes a state in which writes do not reach the peer; `None` for a healthy one.
pub fn connection_loss(state: &DrbdState) -> Option<String> {
    if state.connection != CONNECTED {
        Some(state.connection.clone())
    } else if [&state.disk, &state.peer_disk].iter().any(|disk| *disk != UP_TO_DATE) {
        Some(format!("{}/{}", state.disk, state.peer_disk))
    } else {
        state.suspended.then(|| "suspended".to_owned())
    }
}

pub fn samples(n: u64) -> String {
    counted(n, "sample")
}

pub fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
