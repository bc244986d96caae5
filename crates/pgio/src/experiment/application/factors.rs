//! The factors of an experiment as they are stored, with the changes of each level.
//!
//! The parser refuses two factors with one PostgreSQL setting. Here, other treatments are compared by what
//! they declare, whatever their syntax: an effect would otherwise belong to neither factor.

use crate::config::experiment::{Condition, Experiment, FactorSpec, TreatmentSpec};
use crate::treatment::{self, TreatmentError};
use pgio_results::change::Change;
use pgio_results::screening::{DesignCell, Factor, Screening};

#[derive(Debug)]
pub(super) enum FactorError {
    Treatment(TreatmentError),
    SameSetting(SameSetting),
}

/// Two factors change the same setting; `line` is that of the second.
#[derive(Debug, thiserror::Error)]
#[error(
    "{line}: factor: `{factor}` changes {setting}, as `{other}` does; a setting belongs to one factor"
)]
pub struct SameSetting {
    line: usize,
    factor: String,
    setting: String,
    other: String,
}

/// Returns what the manifest stores; none without factors.
pub(super) fn screening(e: &Experiment) -> Result<Option<Screening>, FactorError> {
    let Some(spec) = &e.screening else { return Ok(None) };
    let factors = spec.factors.iter().map(stored).collect::<Result<Vec<Factor>, _>>();
    let factors = factors.map_err(FactorError::Treatment)?;
    for (n, factor) in factors.iter().enumerate() {
        for earlier in &factors[..n] {
            if let Some(change) = common(earlier, factor) {
                return Err(FactorError::SameSetting(SameSetting {
                    line: spec.factors[n].line,
                    factor: factor.name.clone(),
                    setting: change.setting.clone(),
                    other: earlier.name.clone(),
                }));
            }
        }
    }
    let cell = |(condition, levels): (&Condition, &Vec<bool>)| DesignCell {
        condition: condition.name.clone(),
        high: spec.high(levels).map(str::to_owned).collect(),
    };
    let cells = e.conditions.iter().zip(spec.design.cells()).map(cell).collect();
    Ok(Some(Screening { design: spec.kind, factors, cells }))
}

fn stored(factor: &FactorSpec) -> Result<Factor, TreatmentError> {
    let changes = |specs: &[TreatmentSpec]| -> Result<Vec<Change>, TreatmentError> {
        Ok(treatment::changes(&treatment::parse_all(specs)?))
    };
    Ok(Factor {
        name: factor.name.clone(),
        low: changes(&factor.low)?,
        high: changes(&factor.high)?,
    })
}

fn common<'a>(one: &'a Factor, other: &Factor) -> Option<&'a Change> {
    let of = |factor: &'a Factor| factor.low.iter().chain(&factor.high);
    of(one).find(|ours| other.low.iter().chain(&other.high).any(|c| c.is_of_same_setting(ours)))
}
