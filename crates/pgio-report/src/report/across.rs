//! Two experiments as a document: the numbers, and what differs besides the date.
//!
//! This file chooses contents and wording, also of the rulings; numbers and verdicts come from `pgio_verdict::across`.
//! Next: `text` prints the document.

use super::csv::{at_least, number, word};
use super::format::{self, NONE, NOT_DECIDED, moment};
use super::lead::probability;
use super::table::{Column, Document, Label, Remark, Table, columns};
use pgio_results::Metric;
use pgio_verdict::across::gate::RuleResult;
use pgio_verdict::across::{
    Across, AcrossComparison, AcrossEffect, AcrossFailures, Effect, MIN_RUNS, Side,
};
use pgio_verdict::{Interval, Verdict};

pub fn document(across: &Across) -> Document {
    let mut tables = vec![primary(across)];
    tables.extend((!across.effects.is_empty()).then(|| effects(across)));
    tables.extend(secondary(across));
    tables.extend((!across.reasons.is_empty()).then(|| reasons(across)));
    Document {
        title: format::metric_name(&across.primary_metric),
        subtitle: format!(
            "B against A (95 % intervals). A: {}. B: {}.",
            description(&across.a),
            description(&across.b)
        ),
        tables,
        remarks: remarks(across),
        ..Document::default()
    }
}

/// All numbers, a row for each condition and metric.
pub fn flat(across: &Across) -> Table {
    const COLUMNS: [&str; 18] = [
        "condition",
        "metric",
        "unit",
        "primary",
        "a",
        "b",
        "trials_a",
        "trials_b",
        "ratio",
        "low",
        "high",
        "p",
        "p_adjusted",
        "verdict",
        "a_bound",
        "b_bound",
        "runs_a",
        "runs_b",
    ];
    let row = |c: &AcrossComparison| {
        let unit = across.unit(&c.metric);
        let mut cells = vec![c.condition.clone(), c.metric.clone(), unit.to_owned()];
        cells.push(c.primary.to_string());
        cells.extend([number(c.a), number(c.b), c.trials_a.to_string(), c.trials_b.to_string()]);
        cells.extend([c.ratio, c.interval.low, c.interval.high, c.p, c.p_adjusted].map(number));
        cells.push(word(c.verdict));
        cells.extend([at_least(c.a_at_least), at_least(c.b_at_least)]);
        cells.extend([c.runs_a, c.runs_b].map(|runs| runs.to_string()));
        cells
    };
    Table {
        columns: COLUMNS.map(Column::left).to_vec(),
        rows: across.comparisons.iter().map(row).collect(),
        ..Table::default()
    }
}

fn description(side: &Side) -> String {
    let runs = match side.runs {
        1 => String::new(),
        n => format!("{}, the first ", format::counted(n, "run")),
    };
    let trials = format::counted(side.valid, "valid trial");
    format!("{}, {runs}started {}, {trials}", side.experiment, moment(&side.created_at))
}

fn side_columns(first: &str, last: &str) -> Vec<Column> {
    vec![
        Column::left(first),
        Column::right("A"),
        Column::right("B"),
        Column::left("B against A [95 %]"),
        Column::right(last),
    ]
}

fn primary(across: &Across) -> Table {
    let compared = || across.comparisons.iter().filter(|c| c.primary);
    let some_without = compared().any(is_without_runs);
    let mut columns = side_columns("condition", "trials A / B");
    columns.extend(some_without.then(|| Column::right("runs A / B")));
    columns.extend((!across.failures.is_empty()).then(|| Column::right("failed A / B")));
    let row = |c: &AcrossComparison| {
        let mut cells = vec![c.condition.clone()];
        cells.extend(values(across, c));
        cells.push(format!("{} / {}", c.trials_a, c.trials_b));
        cells.extend(some_without.then(|| format!("{} / {}", c.runs_a, c.runs_b)));
        cells.extend((!across.failures.is_empty()).then(|| {
            let found = across.failures.iter().find(|f| f.condition == c.condition);
            let (a, b) = found.map_or((0, 0), |f| (f.a.failed, f.b.failed));
            format!("{a} / {b}")
        }));
        cells
    };
    Table {
        title: String::new(),
        columns,
        rows: compared().map(row).collect(),
        notes: vec![if rows_judged(across) {
            format!(
                "{NOT_DECIDED} The unit is the run: Welch's interval for the ratio of the runs' geometric means."
            )
        } else {
            format!(
                "Shown, not judged: fewer than {MIN_RUNS} runs per side cannot separate a change from the \
                 variation between runs. To judge, run: pgio report B1 B2 B3 --against A1 A2 A3"
            )
        }],
    }
}

/// Whether a run of either side has no value of it.
fn is_without_runs(c: &AcrossComparison) -> bool {
    !(c.runs_without_a.is_empty() && c.runs_without_b.is_empty())
}

/// `failed in 8 of 16 trials of B, in 0 of 16 of A, p = 0.002`, with these names of the sides.
fn failed_beside(failures: &AcrossFailures, [of_b, of_a]: [&str; 2]) -> String {
    let (a, b) = (failures.a, failures.b);
    let p = failures.p.map_or_else(String::new, |p| format!(", {}", probability(p)));
    format!(
        "failed in {} of {} trials {of_b}, in {} of {} {of_a}{p}",
        b.failed, b.of, a.failed, a.of
    )
}

/// Why a rule fails or is undecided, if not by the interval that is shown.
pub fn ruling_reasons(ruling: &RuleResult) -> Option<String> {
    let sides = ["of the new runs", "of the old ones"];
    let failures = ruling.failures.as_ref().map(|failures| failed_beside(failures, sides));
    let all: Vec<String> = failures.into_iter().chain(ruling.obstacle.clone()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// `run 2 of B`; empty if all runs have a value.
fn runs_without(c: &AcrossComparison) -> Vec<String> {
    let sides = [("A", &c.runs_without_a), ("B", &c.runs_without_b)];
    let named = |(side, runs): (&str, &Vec<usize>)| {
        let numbers: Vec<String> = runs.iter().map(usize::to_string).collect();
        let what = if runs.len() == 1 { "run" } else { "runs" };
        (!runs.is_empty()).then(|| format!("{what} {} of {side}", numbers.join(", ")))
    };
    sides.into_iter().filter_map(named).collect()
}

/// Warns of what has no value: runs without a valid trial, and failed trials.
fn without_value(across: &Across) -> Vec<Remark> {
    let warning = |text: String| Remark { label: Label::Warning, text };
    let primary = across.comparisons.iter().filter(|c| c.primary && is_without_runs(c));
    let runs = primary.map(|c| {
        warning(format!(
            "missing-runs: `{}` has no valid trial with {} in {}, which the change leaves out",
            c.condition,
            format::metric_name(&c.metric),
            runs_without(c).join(" and ")
        ))
    });
    let failed = across.failures.iter().map(|f| {
        warning(format!(
            "failed-trials: `{}` {}; the change is that of the trials that completed",
            f.condition,
            failed_beside(f, ["of B", "of A"])
        ))
    });
    runs.chain(failed).collect()
}

fn rows_judged(across: &Across) -> bool {
    let has_runs = |c: &AcrossComparison| c.runs_a.min(c.runs_b) >= MIN_RUNS;
    across.comparisons.iter().any(|c| c.primary && has_runs(c))
}

fn values(across: &Across, c: &AcrossComparison) -> [String; 3] {
    let unit = across.unit(&c.metric);
    let shown =
        |value, at_least| format::metric(&Metric { value, unit: unit.to_owned(), at_least });
    [shown(c.a, c.a_at_least), shown(c.b, c.b_at_least), change(c)]
}

fn change(c: &AcrossComparison) -> String {
    match (c.verdict, c.ratio, format::interval(c.interval)) {
        (_, None, _) => NONE.to_owned(),
        (Verdict::NotApplicable, Some(ratio), _) => {
            format!("{} (no spread)", format::change(ratio))
        }
        (Verdict::NotJudged, Some(ratio), _) => format!("{} (not judged)", format::change(ratio)),
        (Verdict::NoDifference, _, Some(interval)) => format!("~ {interval}"),
        (_, Some(ratio), Some(_)) => format::change_as_known(ratio, c.interval, None).to_string(),
        (_, Some(ratio), None) => format!("~ {}", format::change(ratio)),
    }
}

fn effects(across: &Across) -> Table {
    let shown = |e: &Effect| match e.ratio {
        Some(ratio) if e.interval != Interval::UNKNOWN => {
            format::change_as_known(ratio, e.interval, None).to_string()
        }
        Some(ratio) => {
            format!("{} ({})", format::change(ratio), format::counted(e.blocks, "block"))
        }
        None => NONE.to_owned(),
    };
    let row = |e: &AcrossEffect| {
        let ratio = e.ratio.map_or_else(|| NONE.to_owned(), |r| format!("{r:.3}"));
        let change = match (e.interval.low, e.interval.high) {
            (Some(low), Some(high)) => format!("{ratio} [{low:.3}, {high:.3}]"),
            _ => ratio,
        };
        vec![e.condition.clone(), shown(&e.a), shown(&e.b), change]
    };
    Table {
        title: format!("Effect against {}, each in its own experiment", across.a.baseline),
        columns: columns("condition | in A [95 %] | in B [95 %] | B / A [95 %]"),
        rows: across.effects.iter().map(row).collect(),
        notes: vec![
            "These ratios exclude whatever affects all conditions equally, such as a slower machine.".to_owned(),
        ],
    }
}

/// The secondary metrics of the baseline, which show how the machine itself changed.
fn secondary(across: &Across) -> Option<Table> {
    let is_listed = |c: &&AcrossComparison| {
        let zero = |v: Option<f64>| v.is_none_or(|v| v == 0.0);
        !c.primary && c.condition == across.a.baseline && !(zero(c.a) && zero(c.b))
    };
    let row = |c: &AcrossComparison| {
        let mut cells = vec![format::metric_name(&c.metric)];
        cells.extend(values(across, c));
        cells
    };
    let rows: Vec<Vec<String>> = across.comparisons.iter().filter(is_listed).map(row).collect();
    let mut columns = side_columns("metric", "");
    columns.pop();
    let named: Vec<String> = across.named.iter().map(|name| format::metric_name(name)).collect();
    let note = || format!("Judged on its own, because a rule names it: {}.", named.join(", "));
    (!rows.is_empty()).then(|| Table {
        title: format!("Secondary metrics of {} (indicative, Holm)", across.a.baseline),
        columns,
        rows,
        notes: (!named.is_empty()).then(note).into_iter().collect(),
    })
}

fn reasons(across: &Across) -> Table {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.to_owned());
    Table {
        title: "Other differences, which may make the two incomparable".to_owned(),
        columns: columns("what | A | B"),
        rows: across
            .reasons
            .iter()
            .map(|r| vec![r.what.clone(), shown(&r.a), shown(&r.b)])
            .collect(),
        ..Table::default()
    }
}

fn remarks(across: &Across) -> Vec<Remark> {
    let warning = |text: String| Remark { label: Label::Warning, text };
    let mut all = vec![warning(format!(
        "not-interleaved: the trials of A and B were not interleaved, so every change above includes \
         whatever else changed between {} and {}; to compare two things, run them as conditions of \
         one experiment",
        moment(&across.a.created_at),
        moment(&across.b.created_at)
    ))];
    if !across.reasons.is_empty() {
        all.push(warning(format!(
            "not-the-same: {} besides the date; a change may be due to any of them",
            match across.reasons.len() {
                1 => "one thing differs".to_owned(),
                n => format!("{} things differ", format::small(n)),
            }
        )));
    }
    all.extend(without_value(across));
    for (names, here, there) in [(&across.only_in_a, "A", "B"), (&across.only_in_b, "B", "A")] {
        if !names.is_empty() {
            all.push(warning(format!(
                "conditions: {} of {here} not in {there}, excluded ({})",
                match names.len() {
                    1 => "one condition".to_owned(),
                    n => format!("{} conditions", format::small(n)),
                },
                names.join(", ")
            )));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text;
    use pgio_results::Outcome;
    use pgio_results::store::StoredExperiment;
    use pgio_verdict::across::across;
    use pgio_verdict::test_support::{demo, stored_runs};

    #[test]
    fn a_lower_bound_is_marked_on_its_side() {
        let metric = "commit_latency_p95";
        let (mut a, mut b) = (demo(), demo());
        a.manifest.primary_metric = metric.to_owned();
        let one =
            b.trials.iter_mut().find(|t| t.place.as_ref().unwrap().condition == "on").unwrap();
        one.metrics.get_mut(metric).unwrap().at_least = true;
        let found = across(&[a], &[b], &[]);
        let row = |condition: &str| -> Vec<bool> {
            let rows = primary(&found).rows;
            let row = rows.into_iter().find(|row| row[0] == condition).unwrap();
            row[1..3].iter().map(|cell| cell.starts_with(format::AT_LEAST)).collect()
        };
        assert_eq!(row("on"), [false, true]);
        assert_eq!(row("local"), [false, false]);
        let flat = flat(&found);
        let bounds: Vec<&[String]> =
            flat.rows.iter().filter(|row| row[1] == metric).map(|row| &row[14..]).collect();
        assert_eq!(bounds.iter().filter(|b| b[1] == "at_least").count(), 1);
        assert!(bounds.iter().all(|b| b[0].is_empty()));
    }

    #[test]
    fn fewer_than_three_runs_are_not_judged_whatever_cannot_be_compared() {
        let (a, mut b) = (demo(), demo());
        for t in b.trials.iter_mut().filter(|t| t.place.as_ref().unwrap().condition == "on") {
            t.metrics.get_mut("commits_per_second").unwrap().at_least = true;
        }
        let found = across(&[a], &[b], &[]);
        let is_on = |c: &&AcrossComparison| c.primary && c.condition == "on";
        let on = found.comparisons.iter().find(is_on).unwrap();
        assert_eq!(on.verdict, Verdict::NotApplicable);
        let notes = primary(&found).notes;
        assert!(notes[0].starts_with("Shown, not judged"), "{notes:?}");
    }

    /// Four runs; the ones in `fails` have a failed trial of `on` in each block up to this one of four.
    fn runs(fails: &[usize], blocks: u32) -> Vec<StoredExperiment> {
        let mut runs = stored_runs(4, |run| 1.0 + 0.004 * f64::from(run % 3));
        for run in fails {
            for t in &mut runs[*run].trials {
                let place = t.place.as_ref().unwrap();
                if place.condition == "on" && place.block <= blocks {
                    t.outcome = Outcome::Failed { error: "out of memory".to_owned() };
                }
            }
        }
        runs
    }

    #[test]
    fn runs_and_failed_trials_have_columns_where_some_are_missing() {
        let headings = |found: &Across| -> Vec<String> {
            primary(found).columns.into_iter().map(|column| column.heading).collect()
        };
        let row = |found: &Across, condition: &str| -> Vec<String> {
            let rows = primary(found).rows;
            rows.into_iter().find(|row| row[0] == condition).unwrap().split_off(4)
        };
        let old = runs(&[], 0);
        let same = across(&old, &old, &[]);
        assert_eq!(headings(&same).last().map(String::as_str), Some("trials A / B"));
        assert_eq!(row(&same, "on"), ["16 / 16"]);
        let found = across(&old, &runs(&[1], 4), &[]);
        assert_eq!(headings(&found)[4..], ["trials A / B", "runs A / B", "failed A / B"]);
        assert_eq!(row(&found, "on"), ["16 / 12", "4 / 3", "0 / 4"]);
        assert_eq!(row(&found, "local"), ["16 / 16", "4 / 4", "0 / 0"]);
        let text = text::render(&document(&found));
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for warning in [
            "warning: missing-runs: `on` has no valid trial with commits/s in run 2 of B, which the change leaves out",
            "warning: failed-trials: `on` failed in 4 of 16 trials of B, in 0 of 16 of A, p = 0.10;",
        ] {
            assert!(flowing.contains(warning), "{text}");
        }
        let half = across(&old, &runs(&[0, 1, 2, 3], 2), &[]);
        assert_eq!(row(&half, "on"), ["16 / 8", "0 / 8"]);
        let csv = flat(&found);
        let on = csv.rows.iter().find(|row| row[0] == "on" && row[3] == "true").unwrap();
        assert_eq!(on[16..], ["4", "3"]);
    }
}
