//! Many runs of one experiment, each of which is a unit: `pgio history` follows them in time, `pgio report` compares two
//! sides of them, and its formats OpenMetrics and JUnit are for programs that collect results over many runs.
//!
//! The statistics are in [`pgio_verdict::history`] and [`pgio_verdict::across`].

mod comparison;
mod history;
mod openmetrics;
mod rules;
mod sides;

use crate::feature::{Feature, Format};
use pgio_report::report::junit;

pub(super) static FEATURE: Feature = Feature {
    name: "runs",
    commands: &[history::COMMAND],
    formats: &[OPENMETRICS, JUNIT],
    reports: &[comparison::REPORT],
    ..Feature::NONE
};

const OPENMETRICS: Format = Format {
    name: "openmetrics",
    help: "For Prometheus; a .prom file for node exporter's textfile collector",
    render: openmetrics::render,
};

const JUNIT: Format = Format {
    name: "junit",
    help: "Test cases for CI: each condition, or each --fail-if",
    render: |all| junit::experiments(&all.iter().map(|one| &one.analysis).collect::<Vec<_>>()),
};
