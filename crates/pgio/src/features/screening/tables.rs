//! The effects of factors in words: what matters here, what does not, and what acts together.
//!
//! Numbers come from `pgio_verdict::effects`; this file words them. The table has every main effect and the
//! interactions that were detected; JSON and CSV have all.

use pgio_report::report::format::{self, NONE, NOT_DECIDED};
use pgio_report::report::table::{Column, Table, columns};
use pgio_report::report::{effect, margin};
use pgio_results::Metric;
use pgio_results::change::Change;
use pgio_results::factors::{DesignKind, Factor};
use pgio_verdict::effects::{Conditional, Effect, FactorEffects, LevelEffect, title};
use pgio_verdict::{Analysis, Comparison, Condition, Decision, Interval, Verdict};

/// The ranked effects, one table for each metric.
pub(super) fn tables(analysis: &Analysis, screened: &FactorEffects) -> Vec<Table> {
    let mut metrics: Vec<&str> = Vec::new();
    for effect in &screened.effects {
        if !metrics.contains(&effect.comparison.metric.as_str()) {
            metrics.push(&effect.comparison.metric);
        }
    }
    let mut tables: Vec<Table> =
        metrics.iter().map(|metric| ranked(analysis, screened, metric)).collect();
    if let Some(last) = tables.last_mut() {
        last.notes.extend(screened.notes.iter().map(|note| format!("Note: {note}.")));
    }
    tables
}

/// Why there is no table of effects, if there is none; a factorial design says so in its lead.
pub(super) fn notes_without_effects(screened: &FactorEffects) -> Vec<String> {
    let none = screened.effects.is_empty() && !screened.design.is_factorial();
    let notes = screened.notes.iter().filter(|_| none);
    notes.map(|note| format!("Note: {note}.")).collect()
}

fn ranked(analysis: &Analysis, screened: &FactorEffects, metric: &str) -> Table {
    let has_metric = |e: &&Effect| e.comparison.metric == metric;
    let shown: Vec<&Effect> =
        screened.effects.iter().filter(has_metric).filter(|e| is_shown(e)).collect();
    let with_margin = shown.iter().any(|e| e.comparison.decision.is_some());
    let mut columns = columns("factor | low → high | effect [95 %] | > ratio");
    if let Some(share) = analysis.margin.filter(|_| with_margin) {
        columns.push(Column::left(format!("more than {}", margin::share(share))));
    }
    let row = |e: &&Effect| {
        let c = &e.comparison;
        let ratio = c.ratio.map_or_else(|| NONE.to_owned(), |r| format!("{r:.3}"));
        let mut cells = vec![c.condition.clone(), levels(screened, e), effect(c, false), ratio];
        cells.extend((analysis.margin.is_some() && with_margin).then(|| {
            match e.depends_on.as_slice() {
                // The interval beside the effect belongs to half of it.
                [] if e.is_interaction() && c.decision == Some(Decision::Matters) => {
                    let whole = |end: Option<f64>| end.map(|end| end * end);
                    let whole =
                        Interval { low: whole(c.interval.low), high: whole(c.interval.high) };
                    let interval = format::interval(whole).unwrap_or_default();
                    format!("{}\n{interval}", margin::cell(c))
                }
                [] => margin::cell(c),
                others => format!("depends on {}\n({})", others.join(", "), margin::cell(c)),
            }
        }));
        cells
    };
    let rows = shown.iter().map(row).collect();
    let mut notes: Vec<String> = shown.iter().flat_map(|e| interaction_notes(e)).collect();
    notes.extend(screened.factors.iter().filter_map(unsafe_note));
    notes.extend(not_shown(screened, metric));
    if shown.iter().any(|e| e.comparison.verdict == Verdict::NoDifference) {
        notes.push(NOT_DECIDED.to_owned());
    }
    if let Some(smallest) =
        screened.minimum_detectable_effect.filter(|_| metric == analysis.primary_metric)
    {
        let blocks = shown.first().map_or(0, |e| e.comparison.blocks);
        notes.push(format!(
            "With {} {} is detected with 80 % power.",
            margin::blocks_and_time(analysis, u32::try_from(blocks).unwrap_or(u32::MAX)),
            format::loss_or_gain(smallest)
        ));
    }
    let open: Vec<&str> = shown
        .iter()
        .map(|e| &e.comparison)
        .filter(|c| c.open_by_totals)
        .map(|c| c.condition.as_str())
        .collect();
    if !open.is_empty() {
        notes.push(format!(
            "{}: undecided, because some trials stall; all of them together may lie beyond the margin.",
            open.join(", ")
        ));
    }
    // Otherwise beside the comparisons with the baseline.
    if screened.design.is_factorial() {
        notes.extend(margin::blocks_to_decide(analysis, shown.iter().map(|e| &e.comparison)));
    }
    Table {
        title: format!("What matters here: {}, {}", format::metric_name(metric), design(screened)),
        columns,
        rows,
        notes,
    }
}

/// All main effects, and the interactions that were detected.
pub(super) fn is_shown(effect: &Effect) -> bool {
    !effect.is_interaction() || effect.comparison.verdict.is_decided()
}

/// `10 factors in 32 cells (fractional, resolution IV)`
pub(super) fn design(screened: &FactorEffects) -> String {
    let kind = match (screened.design, screened.resolution) {
        (DesignKind::Fractional, Some(5)) => "fractional, resolution V".to_owned(),
        (DesignKind::Fractional, Some(4)) => "fractional, resolution IV".to_owned(),
        (kind, _) => kind.name().to_owned(),
    };
    format!(
        "{} in {} ({kind})",
        format::counted(screened.factors.len(), "factor"),
        format::counted(screened.cells.len(), "cell")
    )
}

/// `0 → 10000`; empty for an interaction.
fn levels(screened: &FactorEffects, effect: &Effect) -> String {
    let [name] = effect.factors.as_slice() else { return String::new() };
    let Some(factor) = screened.factors.iter().find(|f| f.name == *name) else {
        return String::new();
    };
    let level = |own: &[Change], other: &[Change]| {
        // What both levels change alike tells nothing about either.
        let own: Vec<&Change> = own.iter().filter(|change| !other.contains(change)).collect();
        level(factor, &own)
    };
    let (low, high) = (level(&factor.low, &factor.high), level(&factor.high, &factor.low));
    format!("{low} → {high}")
}

/// What the levels of a factor endanger, each by its greatest danger.
fn unsafe_note(factor: &Factor) -> Option<String> {
    let greatest = |changes: &[Change]| changes.iter().filter_map(Change::danger).max();
    let danger = greatest(&factor.high).max(greatest(&factor.low))?;
    Some(format!("{}: {danger}.", factor.name))
}

fn level(factor: &Factor, changes: &[&Change]) -> String {
    match changes {
        [] => "as it is".to_owned(),
        [only] if only.sets(&factor.name) => only.value.clone(),
        several => several.iter().map(|change| change.to_string()).collect::<Vec<_>>().join(", "),
    }
}

/// The effect of one factor at both levels of the other, and the aliases.
fn interaction_notes(effect: &Effect) -> Vec<String> {
    let given = effect.conditional.as_ref().map(|c| format!("{}.", at_levels(c)));
    let aliased = (!effect.aliases.is_empty()).then(|| {
        format!(
            "{} is aliased with {}: this design cannot tell them apart.",
            title(&effect.factors),
            aliases(effect)
        )
    });
    given.into_iter().chain(aliased).collect()
}

fn aliases(effect: &Effect) -> String {
    effect.aliases.iter().map(|pair| title(pair)).collect::<Vec<_>>().join(", ")
}

/// `commit_delay: −33.4 % [−35.0, −31.8] while synchronous_commit is low, +0.1 % [−1.0, +1.2] while it is
/// high`
fn at_levels(c: &Conditional) -> String {
    let text = |at: &LevelEffect| {
        let shown = |ratio| format::change_as_known(ratio, at.interval, None).to_string();
        at.ratio.map_or_else(|| NONE.to_owned(), shown)
    };
    format!(
        "{}: {} while {} is low, {} while it is high",
        c.factor,
        text(&c.low),
        c.given,
        text(&c.high)
    )
}

/// What the interactions without a row are.
fn not_shown(screened: &FactorEffects, metric: &str) -> Option<String> {
    let hidden: Vec<&Comparison> = screened
        .effects
        .iter()
        .filter(|e| e.comparison.metric == metric && !is_shown(e))
        .map(|e| &e.comparison)
        .collect();
    if hidden.is_empty() {
        return None;
    }
    let contrasts = format::counted(hidden.len(), "contrast");
    if hidden.iter().all(|c| c.verdict != Verdict::NoDifference) {
        return Some(format!("{contrasts} of two factors each could not be judged."));
    }
    let with = |decision| hidden.iter().filter(|c| c.decision == Some(decision)).count();
    let (none, open) = (with(Decision::DoesNotMatter), with(Decision::Undecided));
    let decided = match none + open {
        0 => String::new(),
        _ => format!(" ({none} do not matter, {open} undecided)"),
    };
    Some(format!(
        "No interaction was detected in {contrasts} of two factors each{decided}; JSON and CSV have \
         their numbers."
    ))
}

/// The cells, with which factors are high in each.
pub(super) fn cells(analysis: &Analysis, screened: &FactorEffects) -> Table {
    let row = |c: &Condition| {
        let cell = screened.cells.iter().find(|cell| cell.condition == c.name);
        let high = cell.map(|cell| cell.high.join(", ")).filter(|high| !high.is_empty());
        let value = c.metrics.get(&analysis.primary_metric);
        let shown = |m: &Metric| Some(format::marked(format::bare(m.value?, &m.unit), m.at_least));
        let value = value.and_then(shown);
        let trials = if c.valid == c.trials {
            c.trials.to_string()
        } else {
            format!("{} of {}", c.valid, c.trials)
        };
        vec![
            c.name.clone(),
            high.unwrap_or_else(|| NONE.to_owned()),
            value.unwrap_or_else(|| NONE.to_owned()),
            trials,
            format!("{}/{}", c.checks_passed, c.checks_total),
        ]
    };
    Table {
        title: "Cells".to_owned(),
        columns: vec![
            Column::left("cell"),
            Column::left("high"),
            Column::right(format::metric_name(&analysis.primary_metric)),
            Column::right("trials"),
            Column::right("checks"),
        ],
        rows: analysis.conditions.iter().map(row).collect(),
        ..Table::default()
    }
}

/// The answer in sentences.
pub(super) fn lead(analysis: &Analysis, screened: &FactorEffects) -> Vec<String> {
    let primary = || screened.effects.iter().filter(|e| e.comparison.primary);
    let main: Vec<&Effect> = primary().filter(|e| !e.is_interaction()).collect();
    let mut sentences = vec![detected(analysis, &main)];
    let joint = primary().filter(|e| e.is_interaction() && e.comparison.verdict.is_decided());
    sentences.extend(joint.map(describe_joint_effect));
    sentences.extend(by_margin(analysis, &main));
    sentences
}

fn detected(analysis: &Analysis, main: &[&Effect]) -> String {
    let metric = format::metric_name(&analysis.primary_metric);
    match main.first().map(|e| &e.comparison) {
        None => {
            return format!(
                "No effect on {metric} could be computed: the cells do not form a design."
            );
        }
        Some(c) if c.verdict == Verdict::TooFewBlocks => {
            let needed = c.blocks_needed.map_or_else(String::new, |n| {
                format!("; {} are needed", format::counted(n as usize, "block"))
            });
            return format!(
                "The effects on {metric} cannot be judged yet: {} of {} have a valid trial of every \
                 cell{needed}.",
                c.blocks,
                format::counted(analysis.blocks, "block")
            );
        }
        Some(c) if c.verdict == Verdict::NotApplicable => {
            let why = c.warnings.first().map_or_else(String::new, |why| format!(": {why}"));
            return format!("The effects on {metric} cannot be computed{why}.");
        }
        Some(_) => {}
    }
    let found: Vec<String> = main
        .iter()
        .filter(|e| e.comparison.verdict.is_decided())
        .map(|e| format!("{} {}", e.comparison.condition, effect(&e.comparison, false)))
        .collect();
    let factors = format::counted(main.len(), "factor");
    match found.as_slice() {
        [] => format!("No effect on {metric} was detected for any of {factors}."),
        [only] => format!("Of {factors}, one changes {metric}: {only}."),
        several => format!(
            "Of {factors}, {} change {metric}: {}.",
            format::small(several.len()),
            several.join("; ")
        ),
    }
}

fn describe_joint_effect(effect: &Effect) -> String {
    let given =
        effect.conditional.as_ref().map_or_else(String::new, |c| format!(": {}", at_levels(c)));
    let aliased = if effect.aliases.is_empty() {
        String::new()
    } else {
        format!(" (aliased with {})", aliases(effect))
    };
    format!("{} act together{given}{aliased}.", effect.factors.join(" and "))
}

fn by_margin(analysis: &Analysis, main: &[&Effect]) -> Option<String> {
    let share = margin::share(analysis.margin?);
    let names = |decision| -> Vec<&str> {
        let with = main.iter().filter(|e| e.comparison.decision == Some(decision));
        with.map(|e| e.comparison.condition.as_str()).collect()
    };
    let part = |what: &str, decision| {
        let names = names(decision);
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    let parts = [
        part("matters", Decision::Matters),
        part("does not matter", Decision::DoesNotMatter),
        part("undecided", Decision::Undecided),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("By the margin of {share}, {}.", parts.join("; ")))
}
