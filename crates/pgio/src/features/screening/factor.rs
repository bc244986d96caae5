//! `[[factor]]`: something that is either low or high, in place of conditions.
//!
//! `low` and `high` are tables of treatments, as a condition has them; an empty table leaves everything
//! as it is. `setting = [0, 100]` is short for two values of the PostgreSQL setting that the factor is
//! named after. Next: [`super::design`] combines factors into conditions.

use crate::config::experiment::condition;
use crate::config::experiment::key::section;
use crate::config::experiment::section::Section;
use crate::config::experiment::{TreatmentSpec, limits};
use crate::config::value::ConfigError;

section! { keys, "[[factor]]",
    "Something that is either low or high, in place of conditions: the design makes the conditions from all factors. `low` is the present state.";
    name: Parsed<String>("one line of text", label) or "required", "name of the factor in reports";
    low: Raw("a table of treatments") or "required without setting",
        "treatments of the low level; {} changes nothing";
    high: Raw("a table of treatments") or "required without setting",
        "treatments of the high level; {} changes nothing";
    setting: Raw("an array of two values"),
        "low and high value of the PostgreSQL setting that the factor is named after; replaces low and high";
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct FactorSpec {
    pub name: String,
    /// Treatments of the level that is in force now; empty if nothing changes.
    pub low: Vec<TreatmentSpec>,
    pub high: Vec<TreatmentSpec>,
    /// Line of the section, counted from 1.
    pub line: usize,
}

/// The treatment that `setting` is short for, and in which two factors could meet.
const POSTGRES: &str = "postgres";

/// Parses every `[[factor]]`; an experiment with conditions has none.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
) -> Result<Vec<FactorSpec>, ConfigError> {
    let mut factors: Vec<FactorSpec> = Vec::new();
    for section in root.sections_within("factor", limits::FACTORS)? {
        let factor = factor(&section, treatments)?;
        if factors.iter().any(|earlier| earlier.name == factor.name) {
            let message = format!("`{}` is the name of two factors", factor.name);
            return Err(section.error(&keys::name, message));
        }
        for earlier in &factors {
            if let Some(setting) = common_setting(earlier, &factor) {
                let message = format!(
                    "changes `{setting}`, as factor `{}` in line {} does; a setting belongs to one factor",
                    earlier.name, earlier.line
                );
                return Err(section.header_error(message));
            }
        }
        factors.push(factor);
    }
    Ok(factors)
}

fn factor(section: &Section<'_>, treatments: &[&str]) -> Result<FactorSpec, ConfigError> {
    section.refuse_keys_outside(&keys::SECTION)?;
    let name = condition::name(section, &keys::name)?;
    let (low, high) = if section.has(&keys::setting) {
        setting(section, &name)?
    } else {
        (level(section, &keys::low, treatments)?, level(section, &keys::high, treatments)?)
    };
    let bodies = |specs: &[TreatmentSpec]| -> Vec<(String, toml::Value)> {
        specs.iter().map(|spec| (spec.kind.clone(), spec.body.clone())).collect()
    };
    if bodies(&low) == bodies(&high) {
        let key = if section.has(&keys::setting) { keys::setting } else { keys::high };
        let message = "has the same level twice; write two different levels";
        return Err(section.error(&key, message));
    }
    Ok(FactorSpec { name, low, high, line: section.line() })
}

/// Parses `setting = [low, high]`.
fn setting(
    section: &Section<'_>,
    name: &str,
) -> Result<(Vec<TreatmentSpec>, Vec<TreatmentSpec>), ConfigError> {
    if let Some(other) = [keys::low.name, keys::high.name].into_iter().find(|key| section.has(key))
    {
        let message = format!("conflicts with {other}; keep either setting or low and high");
        return Err(section.error(&keys::setting, message));
    }
    let example = "write the present and the other value, such as setting = [0, 100]";
    let values = if section.is_list(&keys::setting) {
        section.items(&keys::setting, limits::VALUES)?
    } else {
        return Err(section.error(&keys::setting, format!("is not a list; {example}")));
    };
    let [low, high] = <[toml::Value; 2]>::try_from(values).map_err(|values| {
        let count = match values.len() {
            1 => "one level".to_owned(),
            n => format!("{n} levels"),
        };
        section.error(&keys::setting, format!("has {count} instead of two; {example}"))
    })?;
    let line = section.line_of(&keys::setting);
    let spec = |value: toml::Value| {
        let body = toml::Value::Table([(name.to_owned(), value)].into_iter().collect());
        vec![TreatmentSpec { kind: POSTGRES.to_owned(), body, line }]
    };
    Ok((spec(low), spec(high)))
}

fn level(
    section: &Section<'_>,
    key: &str,
    treatments: &[&str],
) -> Result<Vec<TreatmentSpec>, ConfigError> {
    let Some(table) = section.section(key)? else {
        let message = format!(
            "has no {key} level; write {key} = {{ postgres = {{ ... }} }}, or {key} = {{}} to change nothing"
        );
        return Err(section.header_error(message));
    };
    condition::treatments(&table, treatments, &[])
}

/// A PostgreSQL setting that both factors change. [`super::design`] compares other treatments, by what they declare.
fn common_setting<'a>(one: &'a FactorSpec, other: &FactorSpec) -> Option<&'a str> {
    let names = |factor: &FactorSpec| -> Vec<String> {
        settings(factor).map(str::to_ascii_lowercase).collect()
    };
    let others = names(other);
    settings(one).find(|name| others.contains(&name.to_ascii_lowercase()))
}

fn settings(factor: &FactorSpec) -> impl Iterator<Item = &str> {
    let server_levels = factor.low.iter().chain(&factor.high).filter(|spec| spec.kind == POSTGRES);
    server_levels
        .filter_map(|spec| spec.body.as_table())
        .flat_map(|body| body.keys().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::tests::{error, read};

    const THREE: &str = "[[factor]]\nname = 'jit'\nsetting = ['on', 'off']\n\
                         [[factor]]\nname = 'slow disk'\nlow = {}\nhigh = { throttle = { write_iops = 100 } }\n\
                         [[factor]]\nname = 'commit'\nlow = { postgres = { commit_delay = 0 } }\n\
                         high = { postgres = { commit_delay = 50, commit_siblings = 0 } }\n";

    /// The names of the first `n` factors, as a file with one setting each.
    fn settings(n: usize) -> String {
        let one = |n| format!("[[factor]]\nname = 's{n}'\nsetting = [0, 1]\n");
        (1..=n).map(one).collect()
    }

    #[test]
    fn a_design_makes_conditions_of_factors() {
        let e = read(THREE);
        let names: Vec<&str> = e.conditions.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(e.conditions.len(), 8, "three factors have no smaller design");
        assert_eq!(
            (names[0], names[7], e.baseline.as_str(), e.aa),
            ("all low", "cell 8", "all low", false)
        );
        let bodies = |n: usize| -> Vec<String> {
            let shown = |body: &toml::Value| body.to_string();
            e.conditions[n]
                .treatments
                .iter()
                .map(|t| format!("{} {}", t.kind, shown(&t.body)))
                .collect()
        };
        assert_eq!(bodies(0), ["postgres { jit = \"on\" }", "postgres { commit_delay = 0 }"]);
        assert_eq!(
            bodies(7),
            [
                "postgres { jit = \"off\" }",
                "throttle { write_iops = 100 }",
                "postgres { commit_delay = 50, commit_siblings = 0 }"
            ]
        );
        let ten = read(&settings(10));
        assert_eq!(ten.conditions.len(), 32);
        let single =
            read(&format!("[experiment]\ndesign = 'one-at-a-time'\njudge = ['commit']\n{THREE}"));
        let names: Vec<&str> = single.conditions.iter().map(|c| c.name.as_str()).collect();
        assert_eq!((names, single.aa), (vec!["all low", "jit", "slow disk", "commit"], true));
        let named =
            "[experiment]\ndesign = 'one-at-a-time'\nbaseline = 'all low'\n".to_owned() + THREE;
        assert_eq!(read(&named).baseline, "all low");
        let full =
            read(&format!("[experiment]\ndesign = 'full'\nbaseline = 'cell 3'\n{}", settings(6)));
        assert_eq!((full.conditions.len(), full.baseline.as_str()), (64, "cell 3"));
    }

    #[test]
    fn a_factor_has_two_levels_and_a_name_of_its_own() {
        let one = |lines: &str| error(&format!("[[factor]]\nname = 'a'\n{lines}\n{}", settings(2)));
        for (lines, expected) in cases! {
            "setting = [1]"
                => "x.toml:3: factor.setting: has one level instead of two; write the present and the other value, such as setting = [0, 100]";
            "setting = [1, 2, 3]"
                => "x.toml:3: factor.setting: has 3 levels instead of two; write the present and the other value, such as setting = [0, 100]";
            "setting = 1"
                => "x.toml:3: factor.setting: is not a list; write the present and the other value, such as setting = [0, 100]";
            "setting = [1, 1]" => "x.toml:3: factor.setting: has the same level twice; write two different levels";
            "low = {}\nsetting = [1, 2]"
                => "x.toml:4: factor.setting: conflicts with low; keep either setting or low and high";
            "low = {}"
                => "x.toml:1: factor: has no high level; write high = { postgres = { ... } }, or high = {} to change nothing";
            "high = {}"
                => "x.toml:1: factor: has no low level; write low = { postgres = { ... } }, or low = {} to change nothing";
            "low = {}\nhigh = {}" => "x.toml:4: factor.high: has the same level twice; write two different levels";
            "low = {}\nhigh = { postgers = {} }"
                => "x.toml:4: factor.high.postgers: is an unknown key; the nearest valid one is `postgres`";
            "low = {}\nhigh = { postgres = { S2 = 1 } }"
                => "x.toml:8: factor: changes `S2`, as factor `a` in line 1 does; a setting belongs to one factor";
        } {
            assert_eq!(one(lines), expected);
        }
        let twice = settings(1) + &settings(1);
        assert_eq!(error(&twice), "x.toml:5: factor.name: `s1` is the name of two factors");
        assert_eq!(
            error(&settings(1)),
            "x.toml:1: factor: is the only factor; add another, or write two [[condition]] tables"
        );
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn factors_exclude_what_belongs_to_conditions() {
        let with = |head: &str| error(&format!("[experiment]\n{head}\n{}", settings(7)));
        for (head, expected) in cases! {
            "design = 'half'"
                => "x.toml:2: experiment.design: cannot be `half`; valid names: fractional, full, one-at-a-time";
            "design = 'full'"
                => "x.toml:2: experiment.design: makes 128 cells of 7 factors, but only 64 are allowed; set design = \"fractional\", which has 16 cells, or set cells_limit = 128";
            "cells_limit = 8"
                => "x.toml:2: experiment.cells_limit: makes 16 cells of 7 factors, but only 8 are allowed; remove factors, or set cells_limit = 16";
            "aa = true"
                => "x.toml:2: experiment.aa: does not apply to design = \"fractional\", where factors without an effect show the noise; delete it";
            "judge = ['s1']"
                => "x.toml:2: experiment.judge: does not apply to design = \"fractional\", which judges all effects as one family; delete it";
            "baseline = 's1'" => "x.toml:2: experiment.baseline: `s1` is not a condition; ";
            "design = 'one-at-a-time'\njudge = ['s9']"
                => "x.toml:3: experiment.judge: `s9` is not a condition other than the baseline; ";
            "design = 'one-at-a-time'\nbaseline = 's1'"
                => "x.toml:3: experiment.baseline: cannot be `s1` with design = \"one-at-a-time\", which compares each factor with `all low`; delete it";
            "sweep = 'grid'" => "x.toml:2: experiment.sweep: requires an axis; ";
            "[workload]\nkind = 'commit'\nsessions = [1, 4]"
                => "x.toml:2: workload: cannot have a list of values for `sessions` with [[factor]]; write one value, or write [[condition]] tables";
            "[workload]\nkind = 'commit'\nconditions = ['all low']"
                => "x.toml:4: workload.conditions: does not apply with [[factor]], because an effect needs every cell; delete it";
            "[[axis]]\nname = 'd'\nvalues = [1, 2]"
                => "x.toml:2: axis: conflicts with [[factor]]; give a factor two values, or write [[condition]] tables";
            "[[condition]]\nname = 'd'"
                => "x.toml:4: factor: conflicts with [[condition]], because a design makes the conditions from the factors; keep only one of them";
            "[targets.a]\nprivate = true\n[targets.b]\nprivate = true"
                => "x.toml:6: factor: conflicts with several targets, because all cells run on one; keep one";
        } {
            let found = with(head);
            assert!(found.starts_with(expected), "{found}");
        }
        assert_eq!(
            error("[experiment]\ndesign = 'full'\n[[condition]]\nname = 'a'"),
            "x.toml:2: experiment.design: requires factors; add [[factor]] tables"
        );
        assert_eq!(
            error(&format!("[experiment]\ndesign = 'full'\ncells_limit = 9999\n{}", settings(8))),
            "x.toml:3: experiment.cells_limit: makes 256 cells of 8 factors, but only 200 are allowed; \
             set design = \"fractional\", which has 16 cells"
        );
        assert!(error(&settings(33)).contains("has 33 tables; the maximum is 32"));
        let limited =
            "[experiment]\ndesign = 'full'\ncells_limit = 128\n".to_owned() + &settings(7);
        assert_eq!(read(&limited).conditions.len(), 128);
    }

    #[test]
    fn a_cell_has_at_most_as_many_treatments_as_a_condition() {
        let throttles = vec!["{ write_iops = 100 }"; 30].join(", ");
        let factor = |name: &str| {
            format!(
                "[[factor]]\nname = '{name}'\nlow = {{}}\nhigh = {{ throttle = [{throttles}] }}\n"
            )
        };
        let two = factor("a") + &factor("b");
        assert_eq!(
            error(&two),
            "x.toml:1: factor: makes a condition of 60 treatments; the maximum is 50"
        );
        let single = read(&format!("[experiment]\ndesign = 'one-at-a-time'\n{two}"));
        assert_eq!(single.conditions.len(), 3, "no condition has both");
    }
}
