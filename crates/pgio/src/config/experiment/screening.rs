//! Screening: the conditions that a design makes of factors.
//!
//! Each cell of the design is an ordinary condition with the treatments of its factors' levels, so that
//! everything that runs, checks and undoes conditions is the same. `benchmath::factorial` has the
//! designs. A file has either conditions or factors.

use std::collections::BTreeMap;

use benchmath::factorial::Design;

use super::condition::{Condition, TreatmentSpec};
use super::factor::{self, FactorSpec};
use super::section::Section;
use super::target::Target;
use super::workload::{self, WorkloadSpec};
use super::{keys, limits};
use crate::config::value::ConfigError;
pub use pgio_results::factors::DesignKind;

/// The factors of an experiment, and the level of each in each condition.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreeningSpec {
    pub kind: DesignKind,
    pub factors: Vec<FactorSpec>,
    /// In the order of the conditions.
    pub design: Design,
}

/// The name of the condition with all factors low.
const ALL_LOW: &str = "all low";
/// Default maximum number of cells: two minutes a block with windows of one second.
const DEFAULT_CELLS: u64 = 64;

/// Parses the factors and the design; none if the file has no factors.
pub(super) fn parse(
    root: &Section<'_>,
    head: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
) -> Result<Option<ScreeningSpec>, ConfigError> {
    let kind = head.get(&keys::design)?;
    if !root.has("factor") {
        return if head.has(&keys::design) {
            Err(head.error(&keys::design, "requires factors; add [[factor]] tables"))
        } else {
            Ok(None)
        };
    }
    let factors = factor::parse(root, treatments)?;
    if root.has("condition") {
        let message = "conflicts with [[condition]], because a design makes the conditions from the factors; keep only one of them";
        return Err(root.error("factor", message));
    }
    if root.has("axis") {
        let message =
            "conflicts with [[factor]]; give a factor two values, or write [[condition]] tables";
        return Err(root.error("axis", message));
    }
    if targets.len() > 1 {
        let message = "conflicts with several targets, because all cells run on one; keep one";
        return Err(root.error("factor", message));
    }
    if factors.len() < 2 {
        let message = "is the only factor; add another, or write two [[condition]] tables";
        return Err(root.error("factor", message));
    }
    if let Some(factor) = factors.iter().find(|f| f.name == ALL_LOW) {
        let message = format!("`{}` is the name of the cell with all factors low", factor.name);
        return Err(root.error("factor", message));
    }
    let design = design(head, kind, factors.len())?;
    refuse_comparisons(head, kind)?;
    let screening = ScreeningSpec { kind, factors, design };
    screening.check_treatments(root)?;
    Ok(Some(screening))
}

fn design(head: &Section<'_>, kind: DesignKind, factors: usize) -> Result<Design, ConfigError> {
    let most = limits::CONDITIONS as u64;
    let allowed = head.read(&keys::cells_limit)?.unwrap_or(DEFAULT_CELLS).min(most);
    let design = match kind {
        DesignKind::Full => Design::full(factors),
        DesignKind::Fractional => Design::fractional(factors),
        DesignKind::OneAtATime => Some(Design::one_at_a_time(factors)),
    };
    let cells = design.as_ref().map_or(u64::MAX, |design| design.cells().len() as u64);
    match design.filter(|_| cells <= allowed) {
        Some(design) => Ok(design),
        None => {
            let limit = keys::cells_limit.name;
            let key = if head.has(limit) { limit } else { &keys::design };
            Err(head.error(key, too_large(kind, factors, (cells, allowed))))
        }
    }
}

fn too_large(kind: DesignKind, factors: usize, (cells, allowed): (u64, u64)) -> String {
    let cells_text = if cells == u64::MAX { "too many".to_owned() } else { cells.to_string() };
    let smaller = Design::fractional(factors).map(|design| design.cells().len() as u64);
    let smaller = smaller.filter(|n| kind == DesignKind::Full && *n <= allowed);
    let hint = match smaller {
        Some(n) => format!("set design = \"fractional\", which has {n} cells"),
        None => "remove factors".to_owned(),
    };
    let raise = if cells <= limits::CONDITIONS as u64 {
        format!(", or set cells_limit = {cells}")
    } else {
        String::new()
    };
    format!(
        "makes {cells_text} cells of {factors} factors, but only {allowed} are allowed; {hint}{raise}"
    )
}

/// Refuses keys that belong to comparisons with a baseline, which a factorial design does not make.
fn refuse_comparisons(head: &Section<'_>, kind: DesignKind) -> Result<(), ConfigError> {
    if !kind.is_factorial() {
        return Ok(());
    }
    if head.read(&keys::aa)? == Some(true) {
        let message = format!(
            "does not apply to design = \"{}\", where factors without an effect show the noise; delete it",
            kind.name()
        );
        return Err(head.error(&keys::aa, message));
    }
    if head.has(&keys::judge) {
        let message = format!(
            "does not apply to design = \"{}\", which judges all effects as one family; delete it",
            kind.name()
        );
        return Err(head.error(&keys::judge, message));
    }
    Ok(())
}

/// Refuses workloads that do not run under every cell, and lists of values.
pub(super) fn check_workloads(
    root: &Section<'_>,
    workloads: &[WorkloadSpec],
) -> Result<(), ConfigError> {
    for section in root.sections_within("workload", limits::WORKLOADS)? {
        if section.has(&workload::keys::conditions) {
            let message =
                "does not apply with [[factor]], because an effect needs every cell; delete it";
            return Err(section.error(&workload::keys::conditions, message));
        }
    }
    if let Some(axis) = workloads.iter().flat_map(|w| &w.axes).next() {
        let message = format!(
            "cannot have a list of values for `{}` with [[factor]]; write one value, or write [[condition]] tables",
            axis.name
        );
        return Err(root.error("workload", message));
    }
    Ok(())
}

impl ScreeningSpec {
    /// Refuses a baseline with a factor high in a one-at-a-time design: its effects are the ratios to the baseline.
    pub(super) fn check_baseline(
        &self,
        head: &Section<'_>,
        baseline: &str,
    ) -> Result<(), ConfigError> {
        if self.kind.is_factorial() || baseline == ALL_LOW {
            return Ok(());
        }
        let message = format!(
            "cannot be `{baseline}` with design = \"{}\", which compares each factor with `{ALL_LOW}`; delete it",
            self.kind.name()
        );
        Err(head.error(&keys::baseline, message))
    }

    /// Refuses a cell whose factors have more treatments together than a condition may have.
    fn check_treatments(&self, root: &Section<'_>) -> Result<(), ConfigError> {
        let counts = self.design.cells().iter().map(|levels| self.treatments(levels).count());
        let (most, limit) = (counts.max().unwrap_or(0), limits::TREATMENTS);
        if most > limit {
            let message = format!("makes a condition of {most} treatments; the maximum is {limit}");
            return Err(root.error("factor", message));
        }
        Ok(())
    }

    /// Returns the conditions: one for each cell of the design.
    pub(super) fn conditions(&self, targets: &BTreeMap<String, Target>) -> Vec<Condition> {
        let condition = |(n, levels): (usize, &Vec<bool>)| Condition {
            name: self.name(n, levels),
            target: targets.keys().next().cloned(),
            further_targets: Vec::new(),
            treatments: self.treatments(levels).cloned().collect(),
            everywhere: true,
        };
        self.design.cells().iter().enumerate().map(condition).collect()
    }

    /// Returns the treatments of a cell, from each factor's level.
    fn treatments<'a>(&'a self, levels: &'a [bool]) -> impl Iterator<Item = &'a TreatmentSpec> {
        let pairs = self.factors.iter().zip(levels);
        pairs.flat_map(|(factor, high)| if *high { &factor.high } else { &factor.low })
    }

    fn name(&self, n: usize, levels: &[bool]) -> String {
        let mut high = self.high(levels);
        match (high.next(), self.kind) {
            (None, _) => ALL_LOW.to_owned(),
            (Some(only), DesignKind::OneAtATime) => only.to_owned(),
            (Some(_), DesignKind::Full | DesignKind::Fractional) => format!("cell {}", n + 1),
        }
    }

    /// Returns the names of the factors that are high in a cell.
    pub fn high<'a>(&'a self, levels: &'a [bool]) -> impl Iterator<Item = &'a str> {
        let pairs = self.factors.iter().zip(levels);
        pairs.filter(|(_, high)| **high).map(|(factor, _)| factor.name.as_str())
    }
}
