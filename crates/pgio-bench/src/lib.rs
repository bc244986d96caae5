//! Parts that are shared by `main.rs`, which measures pgio, and pgio's integration tests.

pub mod busy_loop;
pub mod loop_disk;
