//! Verdicts that are hard to say: what every form of the report says of them.

use pgio_results::store::StoredExperiment;
use pgio_verdict::history::{Question, Run, history};
use pgio_verdict::test_support::{changing_runs, demo, set, stalling, woven};
use pgio_verdict::{Gate, analyze};

use super::{document, gate, summary, text};

/// The whole report in one line.
fn reported(stored: &StoredExperiment) -> String {
    on_one_line(&text::render(&document(&analyze(stored))))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_rate_in_another_unit_is_not_shown_again() {
    let mut stored = demo();
    for t in &mut stored.trials {
        let rate = t.metrics["commits_per_second"].value.unwrap();
        set(t, "rows_per_second", rate * 3.0);
        set(t, "seconds_per_10000_transactions", 1e4 / rate);
    }
    let text = reported(&stored);
    assert!(!text.contains("rows/s") && !text.contains("10,000"), "{text}");
}

#[test]
fn a_gate_says_how_much_worse_stalls_may_be() {
    for (metric, of_total, what) in [
        ("commits_per_second", 17, "all work over all time"),
        ("commit_latency_mean", 21, "all trials together"),
        ("seconds", 43, "all trials together"),
    ] {
        let value = |rate: f64| if metric == "commits_per_second" { rate } else { 1.0 / rate };
        let gated = gate(&analyze(&stalling(metric, value))).unwrap().why;
        let why = format!("({what} may be up to {of_total} % worse): x");
        assert!(gated.contains(&why), "{gated}");
        assert!(gated.contains("possibly worse than local by more than 5 %"), "{gated}");
    }
}

#[test]
fn a_percentile_has_no_total_and_the_report_says_so() {
    let mut analysis = analyze(&stalling("commit_latency_p50", |rate| 1.0 / rate));
    let x = analysis.primary("x").unwrap();
    assert_eq!((x.totals, x.gate), (None, Some(Gate::Pass)), "{x:?}");
    let why = "commit latency p50 has no total, so this says nothing about stalls";
    let text = on_one_line(&text::render(&summary(&analysis, "pgio")));
    assert!(text.contains(why), "{text}");
    analysis.comparisons.retain(|c| c.condition != "wild");
    analysis.conditions.retain(|c| c.name != "wild");
    let gated = gate(&analysis).unwrap();
    assert!(gated.gate == Gate::Pass && gated.why.ends_with(why), "{gated:?}");
}

/// Silence is no evidence: whatever was found, the report says what could have been.
#[test]
fn slices_say_how_large_a_carry_over_they_exclude() {
    let mut few = woven(1.0, 1.0);
    for t in &mut few.trials {
        t.woven.as_mut().unwrap().halves_error = Some(5.0);
    }
    for (stored, said) in
        [(woven(1.0, 1.0), "exclude only a carry-over above"), (few, "are too few to")]
    {
        let analysis = analyze(&stored);
        for shown in [document(&analysis), summary(&analysis, "pgio demo")] {
            let shown = text::render(&shown);
            assert!(shown.contains(said), "{shown}");
        }
    }
}

#[test]
fn a_change_of_a_ratio_over_many_runs_is_a_sentence() {
    let stored = changing_runs();
    let runs = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
    let found = history(runs, Question::default()).unwrap();
    let text = super::history::document(&found).headline;
    let sentence = "on against local: slower by 4.8 %";
    assert!(text.iter().any(|s| s.starts_with(sentence)), "{text:?}");
}
