//! A history as a document: what changed and when, then a line for each run and condition.
//!
//! This file chooses contents and wording; numbers and verdicts come from `pgio_verdict::history`.
//! Next: `html::history` draws the charts of the page.

use benchmath::change_points;
use jiff::Timestamp;
use pgio_results::Metric;

use super::csv::{number, word};
use super::format::{self, NONE};
use super::table::{Column, Document, Label, Remark, Table, columns};
use pgio_verdict::Verdict;
use pgio_verdict::history::{
    EnvironmentChange, History, LevelChange, MAX_AUTOCORRELATION, Point, Series, Trend,
};

/// Changes of the environment named in one cell.
const NAMED: usize = 2;

pub fn document(history: &History) -> Document {
    let mut tables = summary(history);
    tables.extend(history.conditions.iter().map(|series| lines(history, series)));
    Document {
        title: title(history),
        headline: headline(history),
        tables,
        remarks: remarks(history),
        ..Document::default()
    }
}

/// Everything but the lines of the runs, which the page shows below its charts.
pub(super) fn summary(history: &History) -> Vec<Table> {
    let tables = [changes(history), trends(history), environment(history)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

pub(super) fn title(history: &History) -> String {
    let mut title = format!(
        "{} of {}: {}",
        format::metric_name(&history.metric),
        history.experiment,
        format::counted(history.runs.len(), "run")
    );
    if let (Some(first), Some(last)) = (history.runs.first(), history.runs.last()) {
        title += &format!(", {} to {}", day(&first.created_at), day(&last.created_at));
    }
    title
}

/// A sentence for each change, or one that says that there is none.
pub(super) fn headline(history: &History) -> Vec<String> {
    let sentence = |name: &str, change: &LevelChange| {
        let from = format!("from run {} ({}) on", change.run, day_of_run(history, change.run));
        let why = change.coincides.first().map_or_else(String::new, |e| {
            let more = match change.coincides.len() {
                1 => String::new(),
                n => format!(" and {} more", format::small(n - 1)),
            };
            format!(", when {}{more} changed", e.what)
        });
        format!("{name}: {} {from}{why}.", size(change))
    };
    let changes = searched(history).flat_map(|(name, changes, _)| {
        changes.iter().map(move |change| sentence(&name, change)).collect::<Vec<_>>()
    });
    let changes: Vec<String> = changes.collect();
    let mut sentences = if changes.is_empty() { vec![nothing(history)] } else { changes };
    sentences.extend(dependent(history));
    sentences.extend(history.conditions.iter().filter_map(|series| not_searched(history, series)));
    sentences
}

/// All that was searched, with its changes and its autocorrelation: `on`, then `on against local`.
fn searched(history: &History) -> impl Iterator<Item = (String, &[LevelChange], Option<f64>)> + '_ {
    history.conditions.iter().flat_map(|s| {
        let relative = s.relative.as_ref().map(|relative| {
            let name = format!("{} against {}", s.condition, history.baseline);
            (name, relative.changes.as_slice(), relative.autocorrelation)
        });
        let own = (s.condition.clone(), s.changes.as_slice(), s.autocorrelation);
        std::iter::once(own).chain(relative)
    })
}

/// Why changes are not judged, if some are not.
fn dependent(history: &History) -> Option<String> {
    let names: Vec<String> = searched(history)
        .filter(|(_, changes, r)| !changes.is_empty() && r.is_some_and(|r| r > MAX_AUTOCORRELATION))
        .map(|(name, _, _)| name)
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "Neighboring runs depend on each other, so changes are not judged: {}.",
            names.join(", ")
        )
    })
}

/// `lag-1 autocorrelation of runs around their levels: local 0.05, on −0.12; …`
fn autocorrelations(history: &History) -> Option<String> {
    let known: Vec<String> = searched(history)
        .filter_map(|(name, _, r)| Some(format!("{name} {:.2}", r?).replace('-', "−")))
        .collect();
    (!known.is_empty()).then(|| {
        format!(
            "lag-1 autocorrelation of the runs around their levels: {}; above {MAX_AUTOCORRELATION}, nothing is \
             judged",
            known.join(", ")
        )
    })
}

/// How many runs are not in the search, because only a lower bound of the metric is known.
fn not_searched(history: &History, series: &Series) -> Option<String> {
    let bounded = series.points.iter().filter(|point| point.bounded).count();
    let (have, are) = if bounded == 1 { ("has", "is") } else { ("have", "are") };
    (bounded > 0).then(|| {
        format!(
            "{}: {bounded} of {} {have} only a lower bound of {} and {are} not in the search.",
            series.condition,
            format::counted(history.runs.len(), "run"),
            format::metric_name(&history.metric)
        )
    })
}

/// `slower by 5.1 % [4.0 to 6.2 %]`
fn size(change: &LevelChange) -> String {
    let word = match change.verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Higher => "higher",
        Verdict::NotJudged => return format!("perhaps {}", signed(change)),
        _ => "lower",
    };
    match (change.ratio, change.interval.sides()) {
        (Some(ratio), Some(_)) => {
            let (size, range) = format::size_with_interval(ratio, change.interval);
            format!("{word} by {size} [{range}]")
        }
        (Some(ratio), None) => format!("{word} by {}", format::size(ratio - 1.0)),
        (None, _) => word.to_owned(),
    }
}

fn nothing(history: &History) -> String {
    let known = |series: &Series| series.points.iter().filter(|p| p.value.is_some()).count();
    let runs = history.conditions.iter().map(known).max().unwrap_or_default();
    let with_value = if runs < history.runs.len() { " with a value" } else { "" };
    let alpha = history.alpha / history.conditions.len().max(1) as f64;
    let enough =
        (2 * change_points::MIN_RUNS_PER_SIDE..).find(|n| change_points::smallest_p(*n) <= alpha);
    match enough {
        Some(fewest) if runs < fewest => format!(
            "{}{with_value} cannot show a change: {fewest} are the fewest.",
            format::counted(runs, "run")
        ),
        _ => "No change of the level is detected.".to_owned(),
    }
}

fn changes(history: &History) -> Table {
    let all = || searched(history).flat_map(|(_, changes, _)| changes);
    let coincides = all().any(|change| !change.coincides.is_empty());
    let row = |name: &str, change: &LevelChange| {
        let is_ratio = !history.conditions.iter().any(|series| series.condition == name);
        let level = |value: f64| {
            if is_ratio { format!("{value:.3}") } else { shown(history, Some(value)) }
        };
        let mut cells = vec![
            name.to_owned(),
            change.run.to_string(),
            level(change.before),
            level(change.after),
            signed(change),
            p(change.p),
        ];
        cells.extend(coincides.then(|| facts(&change.coincides)));
        cells
    };
    let mut columns = columns("condition | > from run | > before | > after | change [95 %] | > p");
    columns.extend(coincides.then(|| Column::left("coincides with")));
    let mut rows = Vec::new();
    for (name, changes, _) in searched(history) {
        rows.extend(changes.iter().map(|change| row(&name, change)));
    }
    Table {
        title: "Changes of the level".to_owned(),
        columns,
        rows,
        notes: vec![
            "The run is the unit. p by permutation, 5 % for all conditions together and 5 % for all ratios to the baseline; a change holds for three \
             runs at least. Change and interval are those of the rank-sum test of the two levels (Hodges-Lehmann), not \
             corrected for the search."
                .to_owned(),
        ],
    }
}

fn trends(history: &History) -> Table {
    let row = |series: &Series, trend: &Trend| {
        // The slope is that from run to run, whether or not a run has the condition.
        let whole = trend.per_run.powf((trend.to_run - trend.from_run) as f64);
        let verdict = match trend.verdict {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Higher => "rises",
            Verdict::Lower => "falls",
            Verdict::NotJudged => "not judged",
            _ => "~",
        };
        vec![
            series.condition.clone(),
            format!("{} to {}", trend.from_run, trend.to_run),
            format::change(trend.per_run),
            format::change(whole),
            p(trend.p),
            verdict.to_owned(),
        ]
    };
    let rows = history.conditions.iter().filter_map(|s| Some(row(s, s.trend.as_ref()?)));
    Table {
        title: "Trend since the last change".to_owned(),
        columns: columns("condition | runs | > per run | > in all | > p | trend"),
        rows: rows.collect(),
        notes: vec![
            "~ not decided (Mann-Kendall, the run as the unit; 5 % for all conditions together)."
                .to_owned(),
        ],
    }
}

fn environment(history: &History) -> Table {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.to_owned());
    let row = |e: &EnvironmentChange| {
        vec![e.run.to_string(), e.what.to_string(), value(&e.before), value(&e.after)]
    };
    let notes = match history.varying.as_slice() {
        [] => Vec::new(),
        some => vec![format!("Different in most runs, and not listed: {}.", some.join(", "))],
    };
    Table {
        title: "Changes of the environment".to_owned(),
        columns: columns("> from run | what | before | after"),
        rows: history.environment.iter().map(row).collect(),
        notes,
    }
}

/// A line for each run of one condition.
pub(super) fn lines(history: &History, series: &Series) -> Table {
    let is_baseline = series.condition == history.baseline;
    let row = |point: &Point| {
        let mut cells = vec![point.run.to_string(), minute(created_at(history, point.run))];
        cells.push(shown(history, point.value));
        if !is_baseline {
            cells.push(point.to_baseline.map_or_else(|| NONE.to_owned(), format::change));
        }
        cells.extend([point.trials.to_string(), marks(history, series, point)]);
        cells
    };
    let mut columns = columns("> run | started | > value");
    if !is_baseline {
        columns.push(Column::right(format!("to {}", history.baseline)));
    }
    columns.extend([Column::right("trials"), Column::left("")]);
    Table {
        title: series.condition.clone() + if is_baseline { " (baseline)" } else { "" },
        columns,
        rows: series.points.iter().map(row).collect(),
        ..Table::default()
    }
}

/// What happened at a run: a change of the level, changes of the environment.
fn marks(history: &History, series: &Series, point: &Point) -> String {
    let run = point.run;
    let bounded = point.bounded.then(|| "only a lower bound".to_owned());
    let change = series.changes.iter().find(|change| change.run == run).map(size);
    let relative = series.relative.iter().flat_map(|relative| &relative.changes);
    let relative = relative.filter(|change| change.run == run).map(size).next();
    let relative = relative.map(|size| format!("{size} against {}", history.baseline));
    let changed: Vec<EnvironmentChange> = changes_at(history, series, run).cloned().collect();
    let facts = (!changed.is_empty()).then(|| facts(&changed));
    [bounded, change, relative, facts].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Changes of the environment at this run, without other conditions' treatments.
fn changes_at<'a>(
    history: &'a History,
    series: &'a Series,
    run: usize,
) -> impl Iterator<Item = &'a EnvironmentChange> {
    let at_run = history.environment.iter().filter(move |e| e.run == run);
    at_run.filter(move |e| e.what.concerns(&series.condition))
}

/// `host.kernel: 6.1.0-26 → 6.1.0-28`
fn facts(changes: &[EnvironmentChange]) -> String {
    let one = |e: &EnvironmentChange| {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.to_owned());
        format!("{}: {} → {}", e.what, value(&e.before), value(&e.after))
    };
    let mut all: Vec<String> = changes.iter().take(NAMED).map(one).collect();
    if changes.len() > NAMED {
        all.push(format!("{} more", changes.len() - NAMED));
    }
    all.join("; ")
}

fn remarks(history: &History) -> Vec<Remark> {
    let gaps: Vec<&str> = history
        .conditions
        .iter()
        .filter(|series| series.points.iter().any(|p| p.value.is_none() && !p.bounded))
        .map(|series| series.condition.as_str())
        .collect();
    let mut all = Vec::new();
    if !gaps.is_empty() {
        let text = format!("not every run has a value for {}", gaps.join(", "));
        all.push(Remark { label: Label::Note, text });
    }
    all.extend(autocorrelations(history).map(|text| Remark { label: Label::Note, text }));
    if history.conditions.iter().any(|series| !series.changes.is_empty()) {
        let text = "a change of the environment at the same run is a hint, not a cause; to know, run the two \
                    as conditions of one experiment";
        all.push(Remark { label: Label::Note, text: text.to_owned() });
    }
    all
}

fn signed(change: &LevelChange) -> String {
    let shown = |ratio| format::change_as_known(ratio, change.interval, None).to_string();
    change.ratio.map_or_else(|| NONE.to_owned(), shown)
}

fn p(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn shown(history: &History, value: Option<f64>) -> String {
    format::metric(&Metric::new(value, history.unit.clone()))
}

fn created_at(history: &History, run: usize) -> &str {
    history.runs.get(run - 1).map_or("", |run| &run.created_at)
}

fn day_of_run(history: &History, run: usize) -> String {
    day(created_at(history, run))
}

fn day(at: &str) -> String {
    time(at, "%Y-%m-%d")
}

fn minute(at: &str) -> String {
    time(at, "%Y-%m-%d %H:%M")
}

/// The time as stored if it cannot be read.
fn time(at: &str, form: &str) -> String {
    at.parse::<Timestamp>().map_or_else(|_| at.to_owned(), |time| time.strftime(form).to_string())
}

/// All numbers, a row for each run and condition.
pub fn flat(history: &History) -> Table {
    const COLUMNS: [&str; 18] = [
        "experiment",
        "run",
        "run_id",
        "started_at",
        "condition",
        "baseline",
        "metric",
        "unit",
        "value",
        "trials",
        "to_baseline",
        "change",
        "level_before",
        "level_after",
        "ratio",
        "ratio_low",
        "ratio_high",
        "p",
    ];
    let row = |series: &Series, point: &Point| {
        let run = &history.runs[point.run - 1];
        let mut cells = vec![history.experiment.clone(), point.run.to_string()];
        cells.extend([run.run_id.clone(), run.created_at.clone(), series.condition.clone()]);
        cells.push((series.condition == history.baseline).to_string());
        cells.extend([history.metric.clone(), history.unit.clone(), number(point.value)]);
        cells.extend([point.trials.to_string(), number(point.to_baseline)]);
        match series.changes.iter().find(|change| change.run == point.run) {
            Some(c) => {
                cells.push(word(c.verdict));
                let numbers =
                    [Some(c.before), Some(c.after), c.ratio, c.interval.low, c.interval.high];
                cells.extend(numbers.into_iter().chain([Some(c.p)]).map(number));
            }
            None => cells.extend([const { String::new() }; 7]),
        }
        cells
    };
    let rows = history.conditions.iter().flat_map(|s| s.points.iter().map(move |p| row(s, p)));
    Table { columns: COLUMNS.map(Column::left).to_vec(), rows: rows.collect(), ..Table::default() }
}

#[cfg(test)]
mod tests {
    use benchmath::rng::SplitMix64;

    use super::*;
    use crate::report::{csv, html, text};
    use pgio_results::store::StoredExperiment;
    use pgio_verdict::history::{ChangedSubject, Question, Run, history};
    use pgio_verdict::test_support::{stored_runs, unit_noise};

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
        let read = |stored: &[StoredExperiment]| {
            let all = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
            document(&history(all, Question::default()).unwrap())
        };
        let found = read(&stored);
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
        let remarks = read(&stored).remarks;
        assert_eq!(remarks[0].text, "not every run has a value for on");
    }

    #[test]
    fn a_metric_that_is_only_bounded_is_known_and_cannot_show_a_change() {
        let mut stored = stored_runs(12, |_| 1.0);
        for t in stored[1..].iter_mut().flat_map(|run| &mut run.trials) {
            t.metrics.get_mut("commits_per_second").unwrap().at_least = true;
        }
        let all =
            |from: usize| stored[from..].iter().map(|s| Run::from_stored(s).unwrap()).collect();
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
}
