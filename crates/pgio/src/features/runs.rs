//! Many runs of one experiment, each of which is a unit: `pgio history` follows them in time.

mod history;

use crate::feature::Feature;

pub(super) static FEATURE: Feature =
    Feature { name: "runs", commands: &[history::COMMAND], ..Feature::NONE };
