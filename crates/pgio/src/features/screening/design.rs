//! Screening: the conditions that a design makes of factors.
//!
//! Each cell of the design is an ordinary condition with the treatments of its factors' levels, so that
//! everything that runs, checks and undoes conditions is the same. `benchmath::factorial` has the
//! designs. A file has either conditions or factors.

use std::collections::BTreeMap;

use benchmath::factorial::Design;

use super::factor::{self, FactorSpec};
use crate::config::experiment::key::section;
use crate::config::experiment::part::{File, FilePart, MadeConditions};
use crate::config::experiment::section::Section;
use crate::config::experiment::{
    Condition, Experiment, Target, TreatmentSpec, WorkloadSpec, keys, limits, workload,
};
use crate::config::value::ConfigError;
use crate::treatment;
use pgio_results::change::Change;
use pgio_results::factors::{DesignCell, DesignKind, Factor, FactorDesign};

pub(super) static PART: FilePart = FilePart {
    sections: &[factor::keys::SECTION, experiment_keys::SECTION],
    conditions: Some(parse),
    complete,
    ..FilePart::NONE
};

section! { experiment_keys, "[experiment]", "";
    // A fraction measures each factor with all trials and still shows which act together.
    design: OneOf<DesignKind>(DesignKind::ALL) = DesignKind::Fractional,
        "which combinations of the factors' levels become conditions: a fraction of resolution IV, all of them, or each factor high alone";
}

/// The factors of an experiment, and the level of each in each condition.
struct DesignSpec {
    kind: DesignKind,
    factors: Vec<FactorSpec>,
    /// In the order of the conditions.
    design: Design,
}

/// The name of the condition with all factors low.
const ALL_LOW: &str = "all low";
/// Default maximum number of cells: two minutes a block with windows of one second.
const DEFAULT_CELLS: u64 = 64;

/// Parses the factors and the design; none if the file has no factors.
fn parse(
    &File { root, head, treatments }: &File<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<Option<MadeConditions>, ConfigError> {
    let kind = head.get(&experiment_keys::design)?;
    if !root.has("factor") {
        return if head.has(&experiment_keys::design) {
            Err(head.error(&experiment_keys::design, "requires factors; add [[factor]] tables"))
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
    let spec = DesignSpec { kind, factors, design };
    spec.check_treatments(root)?;
    let conditions = spec.conditions(targets);
    // A condition whose treatments cannot be parsed is refused later, as without factors.
    let are_parsed = conditions.iter().all(|c| treatment::parse_all(&c.treatments).is_ok());
    let factors = if are_parsed { stored(root, &spec.factors)? } else { Vec::new() };
    let cell = |(condition, levels): (&Condition, &Vec<bool>)| DesignCell {
        condition: condition.name.clone(),
        high: spec.high(levels).map(str::to_owned).collect(),
    };
    let cells = conditions.iter().zip(spec.design.cells()).map(cell).collect();
    Ok(Some(MadeConditions { conditions, design: FactorDesign { kind, factors, cells } }))
}

/// Returns the factors with the changes of each level. The parser of factors refuses two with one PostgreSQL setting.
/// Here, other treatments are compared by what they declare, whatever their syntax: an effect would otherwise belong
/// to neither factor.
fn stored(root: &Section<'_>, specs: &[FactorSpec]) -> Result<Vec<Factor>, ConfigError> {
    let mut factors: Vec<Factor> = Vec::new();
    for (spec, section) in specs.iter().zip(root.sections_within("factor", limits::FACTORS)?) {
        let changes = |specs: &[TreatmentSpec]| {
            let parsed = treatment::parse_all(specs);
            parsed
                .map(|all| treatment::changes(&all))
                .map_err(|error| section.header_error(error.to_string()))
        };
        let (low, high) = (changes(&spec.low)?, changes(&spec.high)?);
        let factor = Factor { name: spec.name.clone(), low, high };
        for earlier in &factors {
            if let Some(Change { setting, .. }) = common_setting(earlier, &factor) {
                return Err(section.header_error(format!(
                    "`{}` changes {setting}, as `{}` does; a setting belongs to one factor",
                    factor.name, earlier.name
                )));
            }
        }
        factors.push(factor);
    }
    Ok(factors)
}

fn common_setting<'a>(one: &'a Factor, other: &Factor) -> Option<&'a Change> {
    let changes = |factor: &'a Factor| factor.low.iter().chain(&factor.high);
    changes(one)
        .find(|ours| other.low.iter().chain(&other.high).any(|c| c.is_of_same_setting(ours)))
}

/// Refuses what a design cannot have beside its conditions.
fn complete(file: &File<'_>, experiment: &mut Experiment) -> Result<(), ConfigError> {
    let Some(design) = &experiment.design else { return Ok(()) };
    check_baseline(file.head, design.kind, &experiment.baseline)?;
    check_workloads(file.root, &experiment.workloads)
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
            let key = if head.has(limit) { limit } else { &experiment_keys::design };
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
fn check_workloads(root: &Section<'_>, workloads: &[WorkloadSpec]) -> Result<(), ConfigError> {
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

/// Refuses a baseline with a factor high in a one-at-a-time design: its effects are the ratios to the baseline.
fn check_baseline(head: &Section<'_>, kind: DesignKind, baseline: &str) -> Result<(), ConfigError> {
    if kind.is_factorial() || baseline == ALL_LOW {
        return Ok(());
    }
    let message = format!(
        "cannot be `{baseline}` with design = \"{}\", which compares each factor with `{ALL_LOW}`; delete it",
        kind.name()
    );
    Err(head.error(&keys::baseline, message))
}

impl DesignSpec {
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
    fn conditions(&self, targets: &BTreeMap<String, Target>) -> Vec<Condition> {
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
    fn high<'a>(&'a self, levels: &'a [bool]) -> impl Iterator<Item = &'a str> {
        let pairs = self.factors.iter().zip(levels);
        pairs.filter(|(_, high)| **high).map(|(factor, _)| factor.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use pgio_results::change::Change;

    use crate::experiment::application::{Job, JobError};
    use crate::experiment::target::ConnectionKeys;

    fn with_factors(factors: &str) -> Result<Job, JobError> {
        let text = format!("[target]\nprivate = true\n[workload]\nkind = 'commit'\n{factors}");
        Job::parse(&text, "x.toml", "x", ConnectionKeys::default())
    }

    const JIT: &str = "[[factor]]\nname = 'jit'\nsetting = ['on', 'off']\n";

    #[test]
    fn factors_are_stored_with_the_changes_of_both_levels_and_their_cells() {
        let delay =
            "[[factor]]\nname = 'delay'\nlow = {}\nhigh = { postgres = { commit_delay = 50 } }\n";
        let job = with_factors(&format!("{JIT}{delay}")).unwrap();
        let stored = job.experiment.design.unwrap();
        let shown =
            |changes: &[Change]| -> Vec<String> { changes.iter().map(Change::to_string).collect() };
        assert_eq!(shown(&stored.factors[0].low), ["jit = on"]);
        assert_eq!(shown(&stored.factors[1].low), [""; 0]);
        assert_eq!(shown(&stored.factors[1].high), ["commit_delay = 50"]);
        let high: Vec<String> = stored.cells.iter().map(|cell| cell.high.join(" + ")).collect();
        assert_eq!(high, ["", "jit", "delay", "jit + delay"]);
        assert_eq!(stored.cells[0].condition, "all low");
    }

    #[test]
    #[cfg(feature = "throttle")]
    fn a_setting_that_two_factors_declare_is_refused_whatever_the_syntax() {
        let slow = |name: &str, iops: u32| {
            let body = format!("{{ device = '/dev/sdb', write_iops = {iops} }}");
            format!("[[factor]]\nname = '{name}'\nlow = {{}}\nhigh = {{ throttle = [{body}] }}\n")
        };
        let error =
            with_factors(&format!("{JIT}{}{}", slow("slow", 100), slow("slower", 10))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.toml:12: factor: `slower` changes write_iops, as `slow` does; a setting belongs to one factor"
        );
    }
}
