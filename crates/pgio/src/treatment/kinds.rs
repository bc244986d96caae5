//! The treatments of all features: parsed, checked and put in force in their order.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::context::Context;
use super::contract::{InForce, Prepared, ReadStep, Treatment};
use super::error::TreatmentError;
use super::journal::Journal;
use super::resource::{Resource, Touch};
use super::step::{Record, Step};
use super::{other_steps, postgres};
use crate::config::experiment::TreatmentSpec;
use crate::feature;
use pgio_results::change::Change;

/// Steps that belong to no single treatment: several use them, or a workload does.
const OTHER_STEPS: &[(&str, ReadStep)] = &[
    (other_steps::STOPPED, other_steps::StopStep::read),
    (other_steps::TABLE, other_steps::TableStep::read),
    (other_steps::RECREATED_DATABASE, other_steps::read_recreation),
];

pub fn names() -> Vec<&'static str> {
    feature::treatments().map(|k| k.name).collect()
}

pub(super) fn position(kind: &str) -> Option<usize> {
    feature::treatments().position(|k| k.name == kind)
}

pub fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let kind = feature::treatments()
        .find(|k| k.name == spec.kind)
        .expect("the experiment file was parsed against the names of this table");
    (kind.parse)(spec)
}

/// Reads a step back from the journal.
pub(super) fn read_step(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    let kinds = feature::treatments().map(|k| (k.name, k.read));
    let mut all = kinds.chain(OTHER_STEPS.iter().copied());
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
    record.kind == other_steps::TABLE
}

/// Treatments in the order of application. One of kind `postgres` is always among them: a server's
/// defaults need proof as well.
pub fn parse_all(specs: &[TreatmentSpec]) -> Result<Vec<Box<dyn Treatment>>, TreatmentError> {
    let mut sorted = postgres::merge_specs(specs);
    sorted.sort_by_key(|spec| position(&spec.kind));
    let mut all = sorted.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if specs.iter().all(|spec| spec.kind != postgres::KIND.name) {
        all.push(postgres::unchanged());
    }
    Ok(all)
}

/// The treatments of a condition at a point of the sweep; cells share them.
pub type Treatments = Rc<[Box<dyn Treatment>]>;

/// The treatments of an experiment file, each combination of bodies parsed once.
#[derive(Debug, Default)]
pub struct Parsed(Vec<(Vec<TreatmentSpec>, Treatments)>);

impl Parsed {
    pub fn add(&mut self, specs: Vec<TreatmentSpec>) -> Result<(), TreatmentError> {
        if self.0.iter().all(|(known, _)| *known != specs) {
            let treatments = parse_all(&specs)?.into();
            self.0.push((specs, treatments));
        }
        Ok(())
    }

    /// The treatments of bodies that were added.
    pub fn get(&self, specs: &[TreatmentSpec]) -> Treatments {
        let known = self.0.iter().find(|(known, _)| known == specs);
        let (_, treatments) = known.expect("every condition of the file was added at every point");
        Rc::clone(treatments)
    }
}

/// Returns whether any of them sets this setting of the server.
pub fn declares(treatments: &[Box<dyn Treatment>], setting: &str) -> bool {
    declared_value(treatments, setting).is_some()
}

/// Returns the value that they set for a setting of the server: the last one, which is applied last.
pub fn declared_value(treatments: &[Box<dyn Treatment>], setting: &str) -> Option<String> {
    changes(treatments).into_iter().rfind(|c| c.sets(setting)).map(|c| c.value)
}

/// Returns all their changes, in the order of application.
pub fn changes(treatments: &[Box<dyn Treatment>]) -> Vec<Change> {
    treatments.iter().flat_map(|t| t.declared().changes).collect()
}

/// The treatments of a condition after their check.
#[derive(Debug)]
pub struct Checked {
    pub prepared: Vec<Box<dyn Prepared>>,
    /// Changes that must be undone even if pgio is killed.
    pub touches: Vec<Touch>,
}

/// Refuses what cannot work; each treatment sees the layout that earlier treatments will make.
pub fn check_all(
    treatments: &[Box<dyn Treatment>],
    context: &mut Context<'_>,
) -> Result<Checked, TreatmentError> {
    let mut checked = Checked { prepared: Vec::new(), touches: Vec::new() };
    for treatment in treatments {
        checked.prepared.push(treatment.check(context)?);
        checked.touches.extend(treatment.touches(context)?);
    }
    Ok(checked)
}

/// [`check_all`] for a further server of a condition; leaves out a treatment that changes only what it already
/// changed for an earlier server, such as the limits of a disk that they share.
pub fn check_further_server(
    treatments: &[Box<dyn Treatment>],
    taken: &BTreeSet<Resource>,
    context: &mut Context<'_>,
) -> Result<Checked, TreatmentError> {
    let mut checked = Checked { prepared: Vec::new(), touches: Vec::new() };
    for treatment in treatments {
        let touches = treatment.touches(context)?;
        let is_taken = |touch: &Touch| match touch {
            Touch::Resource(resource) => taken.contains(resource),
            Touch::Server => false,
        };
        if touches.is_empty() || !touches.iter().all(is_taken) {
            if touches.iter().any(is_taken) {
                treatment.check_shared(context)?;
            }
            checked.prepared.push(treatment.check(context)?);
            checked.touches.extend(touches);
        }
    }
    Ok(checked)
}

/// Returns the touches known before any check. A treatment that another experiment has in force is
/// refused by its check, with a reason that does not name the experiment.
pub fn touched_before_check(
    treatments: &[Box<dyn Treatment>],
    context: &mut Context<'_>,
) -> Vec<Touch> {
    treatments.iter().filter_map(|t| t.touches(context).ok()).flatten().collect()
}

/// Puts treatments in force, one after the other. After an error, `in_force` has those in force so far:
/// their resources must outlive the undo of their steps.
pub fn put_in_force(
    prepared: &[Box<dyn Prepared>],
    context: &mut Context<'_>,
    journal: &mut Journal,
    in_force: &mut Vec<Box<dyn InForce>>,
) -> Result<(), TreatmentError> {
    for treatment in prepared {
        in_force.push(treatment.put_in_force(context, journal)?);
        if context.stop.requested() {
            return Err(TreatmentError::Stopped);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One record of each shape.
    const RECORDS: &str = include_str!("kinds/records.jsonl");

    fn records() -> impl Iterator<Item = Record> {
        let all = RECORDS
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} {line}")));
        let built = names().into_iter().chain(OTHER_STEPS.iter().map(|(name, _)| *name));
        let built: Vec<&str> = built.collect();
        all.filter(move |record: &Record| built.contains(&record.kind.as_str()))
    }

    #[test]
    #[cfg(not(feature = "dummy"))]
    fn steps_of_a_journal_are_read_and_written_unchanged() {
        for record in records() {
            let step = read_step(&record).unwrap_or_else(|e| panic!("{e}: {record:?}"));
            assert_eq!(step.record(), record);
        }
        for kind in names().into_iter().filter(|name| *name != "cache") {
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
        if !cfg!(feature = "all") {
            return;
        }
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
        for record in records() {
            let broken = Record { ours: serde_json::json!(7), ..record };
            let error = read_step(&broken).unwrap_err().to_string();
            assert!(error.contains("cannot be parsed"), "{error}");
        }
    }
}
