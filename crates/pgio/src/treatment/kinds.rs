//! The table of treatments: one line each.

use super::contract::{Kind, ReadStep, Treatment};
use super::error::TreatmentError;
use super::record::Record;
use super::step::Step;
use super::{recreated_database, stopped, workload_table};
use crate::config::experiment::TreatmentSpec;

/// In the order of application, whatever the order in the file: one that restarts the server comes
/// before those that a restart would undo.
pub const KINDS: &[Kind] = &[
    super::drbd::KIND,
    super::postgres::KIND,
    super::filesystem::KIND,
    super::cache::KIND,
    super::ballast::KIND,
    super::link::KIND,
    super::throttle::KIND,
    super::command::KIND,
];

/// Steps that belong to no single treatment: several use them, or a workload does.
const OTHER_STEPS: &[(&str, ReadStep)] = &[
    (stopped::STEP, stopped::read),
    (workload_table::STEP, workload_table::read),
    (recreated_database::STEP, recreated_database::read),
];

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
pub(super) fn read_step(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    let of_kinds = KINDS.iter().map(|k| (k.name, k.read));
    let mut all = of_kinds.chain(OTHER_STEPS.iter().copied());
    let Some((_, read)) = all.find(|(name, _)| *name == record.kind) else {
        return Err(TreatmentError::Config(format!(
            "the journal holds a step of unknown kind `{}`; use the version of pgio that wrote it",
            record.kind
        )));
    };
    read(record)
}

/// Describes what a step of a journal replaced.
pub fn prior_of(record: &Record) -> Result<String, TreatmentError> {
    Ok(read_step(record)?.prior())
}

/// Returns whether a step is a table that a workload created, not a change of a condition.
pub fn is_workload_table(record: &Record) -> bool {
    record.kind == workload_table::STEP
}

#[cfg(test)]
mod tests {
    use super::super::cache;
    use super::*;

    /// One record of each shape.
    const RECORDS: &str = include_str!("kinds/records.jsonl");

    fn records() -> impl Iterator<Item = Record> {
        RECORDS
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} {line}")))
    }

    #[test]
    fn steps_of_a_journal_are_read_and_written_unchanged() {
        for record in records() {
            let step = read_step(&record).unwrap_or_else(|e| panic!("{e}: {record:?}"));
            assert_eq!(step.record(), record);
        }
        for kind in names().into_iter().filter(|name| *name != cache::KIND.name) {
            assert!(records().any(|record| record.kind == kind), "{kind}");
        }
        for (kind, _) in OTHER_STEPS {
            assert!(records().any(|record| record.kind == *kind), "{kind}");
        }
    }

    #[test]
    fn prior_values_are_shown_in_words() {
        let shown: Vec<String> = records()
            .map(|record| format!("{record}: {}", read_step(&record).unwrap().prior()))
            .collect();
        for expected in [
            "work_mem: `7MB` in postgresql.auto.conf",
            "fsync: absent in postgresql.auto.conf",
            "files written without fsync on host local: on disk",
            "PostgreSQL on host local: `running`",
            "nr_hugepages on host local: 0",
            "mount options of /srv/pg on host local: rw,noatime",
            "write_iops of loop7 (7:7) on host local: absent",
            "protocol of DRBD resource r0 on host db1: `C`",
        ] {
            assert!(shown.iter().any(|shown| shown == expected), "{expected}: {shown:#?}");
        }
    }

    #[test]
    fn fuzzed_records_of_a_journal_are_read_or_refused() {
        let samples: Vec<&str> = include_str!("kinds/records.jsonl").lines().collect();
        pgio_fuzz::fuzz(&samples, |bytes| {
            let Ok(record) = serde_json::from_slice::<Record>(bytes) else { return };
            match read_step(&record) {
                Ok(step) => drop(step.prior()),
                Err(error) => pgio_fuzz::print(&error),
            }
        });
    }

    #[test]
    fn unknown_steps_are_named() {
        let unknown = Record { kind: "registry".to_owned(), ..records().next().unwrap() };
        let error = read_step(&unknown).unwrap_err().to_string();
        assert!(
            error.contains("`registry`") && error.contains("use the version of pgio that wrote it"),
            "{error}"
        );
        for record in records().filter(|record| record.kind != stopped::STEP) {
            let broken = Record { ours: serde_json::json!(7), ..record };
            let error = read_step(&broken).unwrap_err().to_string();
            assert!(error.contains("cannot be parsed"), "{error}");
        }
    }
}
