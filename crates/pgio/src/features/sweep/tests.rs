//! The section in whole reports, from made-up experiments.

use std::ops::Deref;

use insta::assert_snapshot;
use pgio_report::directories::LoadedReport;
use pgio_report::report::{self, html, json, text};
use pgio_results::points::{Combination, Point};
use pgio_results::store::StoredExperiment;
use pgio_verdict::Analysis;
use pgio_verdict::test_support::{demo, swept};
use regex_lite::Regex;

use super::curves::SweepResult;
use super::{curves, section};

/// An analysis, and what the axes show.
pub(super) struct Found {
    analysis: Analysis,
    pub(super) sweep: Option<SweepResult>,
}

impl Deref for Found {
    type Target = Analysis;

    fn deref(&self) -> &Analysis {
        &self.analysis
    }
}

pub(super) fn analyze(stored: &StoredExperiment) -> Found {
    let LoadedReport { stored, analysis, .. } = loaded(stored);
    let sweep = curves::all(&stored.manifest, &stored.trials, &analysis.comparisons);
    Found { analysis, sweep }
}

fn loaded(stored: &StoredExperiment) -> LoadedReport {
    let mut stored = stored.clone();
    pgio_verdict::judge(&mut stored);
    LoadedReport::new("".as_ref(), stored, &[section])
}

fn page(stored: &StoredExperiment) -> String {
    let loaded = loaded(stored);
    html::render(&html::Source {
        stored: &loaded.stored,
        report: loaded.report(),
        series: &vec![None; stored.trials.len()],
        experiment: "",
    })
}

/// Headings, captions and charts, one a line, in the order of the page.
fn skeleton(page: &str) -> String {
    let elements =
        Regex::new("<(h1|h2|h3|caption|figcaption|title id)[^>]*>(?:<span>)?([^<]*)").unwrap();
    let line = |found: regex_lite::Captures<'_>| {
        let mark = match &found[1] {
            "h1" => "# ",
            "h2" => "## ",
            "h3" => "### ",
            "caption" => "table: ",
            "figcaption" => "figure: ",
            _ => "chart: ",
        };
        format!("{mark}{}\n", &found[2])
    };
    elements.captures_iter(page).map(line).collect()
}

#[test]
fn a_sweep_has_its_charts() {
    let page = page(&swept(6));
    assert_snapshot!(skeleton(&page));
    assert_eq!(page.matches("<title>knee: ").count(), 2, "in both charts of the sessions");
    // Every mark has a title: 2 conditions × (4 + 3) values × 2 charts.
    let tips =
        page.matches("<title>on, sessions ").count() + page.matches("<title>on, delay ").count();
    assert_eq!(tips, 14);
}

#[test]
fn every_chart_has_its_text() {
    let page = page(&swept(6));
    let texts = page.split("<desc").skip(1).filter(|rest| {
        let text = rest.split_once('>').map_or("", |(_, inner)| inner);
        text.split('<').next().unwrap_or_default().split_whitespace().count() >= 5
    });
    assert_eq!(texts.count(), page.matches("role=\"img\"").count());
}

#[test]
fn a_sweep_shows_how_its_points_were_chosen() {
    let mut stored = swept(6);
    assert!(page(&stored).contains("One axis at a time, from the middle point: "));
    stored.manifest.varied.as_mut().unwrap().kind = Combination::Grid;
    let page = page(&stored);
    assert!(page.contains("Every combination of the axes; along each,"));
    assert!(!page.contains("One axis at a time"));
}

#[test]
fn a_sweep_has_a_table_for_each_axis() {
    assert_snapshot!(text::render(&report::document(loaded(&swept(8)).report())));
}

#[test]
fn a_sweep_reads_back_from_json_and_its_knees_come_first() {
    let loaded = loaded(&swept(6));
    let text = json::render(&loaded.analysis);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let read: SweepResult = serde_json::from_value(document["sweep"].clone()).unwrap();
    let ours = analyze(&swept(6)).sweep.unwrap();
    assert_eq!((&read.axes, &read.middle, &read.notes), (&ours.axes, &ours.middle, &ours.notes));
    let cells = |all: &SweepResult| -> Vec<(String, Point)> {
        all.cells.iter().map(|c| (c.condition.clone(), c.point.clone())).collect()
    };
    assert_eq!(cells(&read), cells(&ours));
    let knees = |all: &SweepResult| all.curves.iter().map(|c| c.knee.clone()).collect::<Vec<_>>();
    assert_eq!(knees(&read), knees(&ours));
    // It is indented like the rest.
    assert!(text.contains("\n  \"sweep\": {\n    \"kind\": \"one-at-a-time\",\n"), "{text}");
    let lines = report::lead(loaded.report());
    let knees = "Knee along sessions (beyond it more load mostly adds latency): local none up to 64; on at 16.";
    assert_eq!(lines.last().unwrap(), knees);
    assert!(analyze(&demo()).sweep.is_none());
}
