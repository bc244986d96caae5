//! All treatments of one condition: parses them in order, checks and applies them one after the other.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::context::Context;
use super::contract::{InForce, Prepared, Treatment};
use super::error::TreatmentError;
use super::journal::Journal;
use super::resource::{Resource, Touch};
use super::{kinds, postgres};
use crate::config::experiment::TreatmentSpec;
use pgio_results::change::Change;

/// Treatments in the order of application. One of kind `postgres` is always among them: a server's
/// defaults need proof as well.
pub fn parse_all(specs: &[TreatmentSpec]) -> Result<Vec<Box<dyn Treatment>>, TreatmentError> {
    let mut sorted = postgres::merge_specs(specs);
    sorted.sort_by_key(|spec| kinds::position(&spec.kind));
    let mut all = sorted.iter().map(kinds::parse).collect::<Result<Vec<_>, _>>()?;
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
