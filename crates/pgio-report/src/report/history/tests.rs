use benchmath::rng::SplitMix64;

use super::*;
use crate::analysis::history::{ChangedSubject, Question, Run, history};
use crate::analysis::test_support::{stored_runs, unit_noise};
use crate::report::{csv, html, text};
use pgio_results::store::StoredExperiment;

fn followed(runs: u32, step_at: u32) -> History {
    let mut rng = SplitMix64::new(1);
    let stored = stored_runs(runs, |run| {
        let level = if run < step_at { 1.0 } else { 0.95 };
        level * (0.015 * unit_noise(&mut rng)).exp()
    });
    let mut all: Vec<Run> = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
    for (number, run) in (1..).zip(&mut all) {
        let kernel = if number < 10 { "6.1.0-26" } else { "6.1.0-28" };
        run.facts.insert("host.kernel".to_owned(), kernel.to_owned());
    }
    history(all, Question::default()).unwrap()
}

#[test]
fn a_change_is_in_the_headline_and_marked_at_its_run() {
    insta::assert_snapshot!(text::render(&document(&followed(16, 10))));
}

#[test]
fn without_a_change_the_headline_states_if_one_was_detectable() {
    assert_eq!(headline(&followed(12, 99)), ["No change of the level is detected."]);
    assert_eq!(headline(&followed(5, 99)), ["5 runs cannot show a change: 10 are the fewest."]);
}

/// The runs of 3 October to 6 October overloaded `on`.
#[test]
fn runs_of_which_a_lower_bound_is_known_are_counted() {
    let mut stored = stored_runs(12, |_| 1.0);
    let overloaded = stored[2..6].iter_mut().flat_map(|run| &mut run.trials);
    for t in overloaded.filter(|t| t.place.as_ref().unwrap().condition == "on") {
        t.metrics.get_mut("commits_per_second").unwrap().at_least = true;
    }
    let of = |stored: &[StoredExperiment]| {
        let all = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
        document(&history(all, Question::default()).unwrap())
    };
    let found = of(&stored);
    let not_searched =
        "on: 4 of 12 runs have only a lower bound of commits/s and are not in the search.";
    assert_eq!(found.headline, ["No change of the level is detected.", not_searched]);
    let [autocorrelation] = found.remarks.as_slice() else { panic!("{:?}", found.remarks) };
    let text = "lag-1 autocorrelation of the runs around their levels: local ";
    assert!(autocorrelation.text.starts_with(text), "{autocorrelation:?}");
    let on = found.tables.iter().find(|table| table.title == "on").unwrap();
    let marked = on.rows.iter().filter(|row| row.last().unwrap() == "only a lower bound");
    assert_eq!(marked.count(), 4);

    // A run without a valid trial is another matter.
    stored[0].trials.retain(|t| t.place.as_ref().unwrap().condition != "on");
    let remarks = of(&stored).remarks;
    assert_eq!(remarks[0].text, "not every run has a value for on");
}

#[test]
fn a_metric_that_is_only_bounded_is_known_and_cannot_show_a_change() {
    let mut stored = stored_runs(12, |_| 1.0);
    for t in stored[1..].iter_mut().flat_map(|run| &mut run.trials) {
        t.metrics.get_mut("commits_per_second").unwrap().at_least = true;
    }
    let all = |from: usize| stored[from..].iter().map(|s| Run::from_stored(s).unwrap()).collect();
    let lines = headline(&history(all(0), Question::default()).unwrap());
    assert_eq!(lines[0], "1 run with a value cannot show a change: 10 are the fewest.");
    let found = history(all(1), Question::default()).unwrap();
    assert!(found.conditions.iter().all(|s| s.points.iter().all(|p| p.bounded)));
}

#[test]
fn treatments_are_marked_at_their_own_condition_alone() {
    let mut history = followed(16, 10);
    let what = ChangedSubject::Treatments { condition: "on".to_owned() };
    let (before, after) = (Some("a".to_owned()), Some("b".to_owned()));
    history.environment = vec![EnvironmentChange { run: 3, what, before, after }];
    let marked = |name: &str| {
        let series = history.conditions.iter().find(|s| s.condition == name).unwrap();
        marks(&history, series, &series.points[2])
    };
    assert_eq!(marked("on"), "treatments of on: a → b");
    assert_eq!(marked("local"), "");
    let json = serde_json::to_value(&history).unwrap();
    assert_eq!(json["environment"][0]["what"], "treatments of on");
}

#[test]
fn a_spreadsheet_has_a_row_for_each_run_and_condition() {
    let history = followed(16, 10);
    let table = flat(&history);
    assert_eq!(table.rows.len(), 16 * 3);
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    let rendered = csv::render(&table);
    let change = rendered.lines().find(|line| line.contains(",slower,")).unwrap();
    assert!(
        change.starts_with("sync-commit,10,20261010T020000Z-1,2026-10-10T02:00:00Z,local,true"),
        "{change}"
    );
}

/// The second, the fifth and the last of nine runs lack the condition.
#[test]
fn a_trend_in_all_spans_the_runs_that_lack_the_condition() {
    let stored = stored_runs(9, |run| 0.98f64.powi(run.cast_signed()));
    let mut all: Vec<Run> = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
    for (number, run) in (1..).zip(&mut all) {
        if [2, 5, 9].contains(&number) {
            run.conditions.remove(1);
        } else {
            let values = &mut run.conditions[1].values;
            values.insert("commits_per_second".to_owned(), 0.98f64.powi(number));
        }
    }
    let table = trends(&history(all, Question::default()).unwrap());
    let row = table.rows.iter().find(|row| row[0] == "on").unwrap();
    // 0.98 to the power of 7.
    assert_eq!(row[1..4], ["1 to 8", "−2.0 %", "−13.2 %"]);
}

#[test]
fn the_page_has_a_chart_for_each_condition() {
    let page = html::history_page(&followed(16, 10));
    assert_eq!(page.matches("<figure").count(), 3);
    assert!(page.contains("slower by") && page.contains("host.kernel"));
    let mut history = followed(16, 10);
    let change = history.conditions[0].changes[0].clone();
    history.conditions[1].relative.as_mut().unwrap().changes = vec![change];
    let page = html::history_page(&history);
    assert!(page.contains("the ratio to local changes at run 10"));
}
