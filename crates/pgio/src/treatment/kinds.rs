//! The table of treatments: one line each.

use super::contract::{Kind, ReadStep, Treatment};
use super::error::TreatmentError;
use super::record::Record;
use super::step::Step;
use super::{
    ballast, cache, command, drbd, filesystem, link, postgres, stopped, throttle, workload_table,
};
use crate::config::experiment::TreatmentSpec;

/// In the order of application, whatever the order in the file: one that restarts the server comes
/// before those that a restart would undo.
pub const KINDS: &[Kind] = &[
    drbd::KIND,
    postgres::KIND,
    filesystem::KIND,
    cache::KIND,
    ballast::KIND,
    link::KIND,
    throttle::KIND,
    command::KIND,
];

/// Steps that are no treatment's: several make them, or a workload does.
const OTHER_STEPS: &[(&str, ReadStep)] =
    &[(stopped::STEP, stopped::read), (workload_table::STEP, workload_table::read)];

pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.name).collect()
}

pub(super) fn position(kind: &str) -> Option<usize> {
    KINDS.iter().position(|k| k.name == kind)
}

pub fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let kind = KINDS
        .iter()
        .find(|k| k.name == spec.kind)
        .expect("the experiment file was parsed against the names of this table");
    (kind.parse)(spec)
}

/// Reads a step back from the journal.
pub(super) fn step(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    let of_kinds = KINDS.iter().map(|k| (k.name, k.read));
    let mut all = of_kinds.chain(OTHER_STEPS.iter().copied());
    let Some((_, read)) = all.find(|(name, _)| *name == record.kind) else {
        return Err(TreatmentError::Config(format!(
            "the journal holds a step of kind `{}` that this pgio does not know; use the pgio that wrote it",
            record.kind
        )));
    };
    read(record)
}

/// Whether a step is a table that a workload made, and no change of a condition.
pub fn is_workload_table(record: &Record) -> bool {
    record.kind == workload_table::STEP
}
