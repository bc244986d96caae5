//! Two experiments as a document: the numbers, and what differs besides the date.
//!
//! This file chooses contents and wording; numbers and verdicts come from `analysis::across`.
//! Next: `text` prints the document.

use super::csv::{at_least, number, word};
use super::format::{self, NONE};
use super::table::{Column, Document, Label, Remark, Table};
use crate::analysis::Verdict;
use crate::analysis::across::{Across, AcrossComparison, AcrossEffect, Effect, MIN_RUNS, Side};
use pgio_results::Metric;

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
    const COLUMNS: [&str; 16] = [
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
    ];
    let row = |c: &AcrossComparison| {
        let unit = across.unit(&c.metric);
        let mut cells = vec![c.condition.clone(), c.metric.clone(), unit.to_owned()];
        cells.push(c.primary.to_string());
        cells.extend([number(c.a), number(c.b), c.trials_a.to_string(), c.trials_b.to_string()]);
        cells.extend([c.ratio, c.interval.low, c.interval.high, c.p, c.p_adjusted].map(number));
        cells.push(word(c.verdict));
        cells.extend([at_least(c.a_at_least), at_least(c.b_at_least)]);
        cells
    };
    Table {
        title: String::new(),
        columns: COLUMNS.map(Column::left).to_vec(),
        rows: across.comparisons.iter().map(row).collect(),
        notes: Vec::new(),
    }
}

fn description(side: &Side) -> String {
    let runs = match side.runs {
        1 => String::new(),
        n => format!("{}, the first ", format::counted(n, "run")),
    };
    let trials = format::counted(side.valid, "valid trial");
    format!("{}, {runs}started {}, {trials}", side.experiment, side.created_at)
}

fn columns(first: &str, last: &str) -> Vec<Column> {
    vec![
        Column::left(first),
        Column::right("A"),
        Column::right("B"),
        Column::left("B against A [95 %]"),
        Column::right(last),
    ]
}

fn primary(across: &Across) -> Table {
    let row = |c: &AcrossComparison| {
        let mut cells = vec![c.condition.clone()];
        cells.extend(values(across, c));
        cells.push(format!("{} / {}", c.trials_a, c.trials_b));
        cells
    };
    let rows: Vec<Vec<String>> = across.comparisons.iter().filter(|c| c.primary).map(row).collect();
    Table {
        title: String::new(),
        columns: columns("condition", "trials A / B"),
        rows,
        notes: vec![if rows_judged(across) {
            "~ no difference detected. The unit is the run: Welch's interval for the ratio of the \
             runs' geometric means."
                .to_owned()
        } else {
            format!(
                "Shown, not judged: fewer than {MIN_RUNS} runs per side cannot separate a change from the \
                 variation between runs. To judge, run: pgio report B1 B2 B3 --against A1 A2 A3"
            )
        }],
    }
}

fn rows_judged(across: &Across) -> bool {
    across.comparisons.iter().any(|c| c.primary && c.verdict != Verdict::NotJudged)
}

fn values(across: &Across, c: &AcrossComparison) -> [String; 3] {
    let unit = across.unit(&c.metric);
    let shown =
        |value, at_least| format::metric(&Metric { value, unit: unit.to_owned(), at_least });
    [shown(c.a, c.a_at_least), shown(c.b, c.b_at_least), change(c)]
}

fn change(c: &AcrossComparison) -> String {
    match (c.verdict, c.ratio, c.interval.low, c.interval.high) {
        (_, None, ..) => NONE.to_owned(),
        (Verdict::NotApplicable, Some(ratio), ..) => {
            format!("{} (no spread)", format::change(ratio))
        }
        (Verdict::NotJudged, Some(ratio), ..) => {
            format!("{} (not judged)", format::change(ratio))
        }
        (Verdict::NoDifference, _, Some(low), Some(high)) => {
            format!("~ {}", format::interval(low, high))
        }
        (_, Some(ratio), Some(low), Some(high)) => {
            format::change_with_interval(ratio, low, high).to_string()
        }
        (_, Some(ratio), ..) => format!("~ {}", format::change(ratio)),
    }
}

fn effects(across: &Across) -> Table {
    let shown = |e: &Effect| match (e.ratio, e.interval.low, e.interval.high) {
        (Some(ratio), Some(low), Some(high)) => {
            format::change_with_interval(ratio, low, high).to_string()
        }
        (Some(ratio), ..) => {
            format!("{} ({})", format::change(ratio), format::counted(e.blocks, "block"))
        }
        (None, ..) => NONE.to_owned(),
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
        columns: vec![
            Column::left("condition"),
            Column::left("in A [95 %]"),
            Column::left("in B [95 %]"),
            Column::left("B / A [95 %]"),
        ],
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
    let mut columns = columns("metric", "");
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
        columns: vec![Column::left("what"), Column::left("A"), Column::left("B")],
        rows: across
            .reasons
            .iter()
            .map(|r| vec![r.what.clone(), shown(&r.a), shown(&r.b)])
            .collect(),
        notes: Vec::new(),
    }
}

fn remarks(across: &Across) -> Vec<Remark> {
    let warning = |text: String| Remark { label: Label::Warning, text };
    let mut all = vec![warning(format!(
        "not-interleaved: the trials of A and B were not interleaved, so every change above includes \
         whatever else changed between {} and {}; to compare two things, run them as conditions of \
         one experiment",
        across.a.created_at, across.b.created_at
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
    use crate::analysis::across::across;
    use crate::analysis::test_support::demo;

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
}
