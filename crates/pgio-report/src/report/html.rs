//! report.html: the complete report of a stored experiment, in one file that needs no network.
//!
//! The answers come first, one line for each condition, then the effects and where the time went: this is the summary, two
//! printed pages. The appendix has all other charts and tables, checks and warnings, how to reproduce the result, and the
//! terms. Charts are SVG and complete without JavaScript; with it (`page.js`, uPlot) line charts zoom.
//! Tables are the text report's. Numbers and verdicts come from the analysis; sections without
//! content are omitted. maud escapes all text. Next: `html/` has one file per section. Charts are of two
//! kinds, [`intervals`] and [`timeline`], over the parts of [`svg`].

mod checks;
mod effects;
mod head;
mod history;
pub mod intervals;
mod latency;
mod manifest;
mod page;
mod series;
pub mod svg;
pub mod table;
pub mod timeline;
mod waits;

use maud::html;

use super::comparison::remarks;
use super::section::Report;
use super::table::Document;
pub use history::history_page;
use page::{Page, Section, Shell};
pub use page::{SCRIPTS, STYLES, empty, served};
use pgio_results::store::StoredExperiment;
use pgio_results::telemetry::Series;
use pgio_verdict::trial_statuses;
pub use series::is_drawn;
use svg::LineStyles;

/// The input of a page.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub stored: &'a StoredExperiment,
    pub report: Report<'a>,
    /// The samples of each trial, if available.
    pub series: &'a [Option<Series>],
    /// experiment.toml as run.
    pub experiment: &'a str,
}

pub fn render(source: &Source<'_>) -> String {
    let page = Page {
        stored: source.stored,
        analysis: source.report.analysis,
        sections: source.report.sections,
        series: source.series,
        experiment: source.experiment,
        remarks: remarks(source.report.analysis),
        statuses: trial_statuses(source.stored),
        looks: LineStyles::new(&source.stored.manifest),
    };
    let of_features = |explains| {
        let with_body = source.report.explaining(explains).filter(|s| !s.body.0.is_empty());
        with_body.map(|s| Some(Section { id: s.name, title: s.title, body: s.body.clone() }))
    };
    let (summary, details) = match source.report.instead() {
        Some(section) => {
            let (title, body) = (section.title, section.body.clone());
            let effects = Section { id: "effects", title, body };
            (vec![Some(effects)], vec![checks::trial_values(&page)])
        }
        None => (
            vec![Some(effects::section(&page)), waits::section(&page)],
            [Some(effects::numbers(&page))]
                .into_iter()
                .chain(of_features(false))
                .chain([
                    checks::trial_values(&page),
                    latency::section(&page),
                    series::section(&page),
                    waits::details(&page),
                    effects::reads(&page),
                    effects::replicas(&page),
                    effects::standbys(&page),
                ])
                .chain(of_features(true))
                .chain([effects::values(&page)])
                .collect(),
        ),
    };
    let about = [
        Some(checks::section(&page)),
        Some(manifest::environment(&page)),
        Some(manifest::reproduce(&page)),
        Some(page::section(&page)),
    ];
    let mut sections: Vec<Section> = summary.into_iter().flatten().collect();
    let summary = sections.len();
    sections.extend(details.into_iter().chain(about).flatten());
    let whole = Shell {
        title: &page.analysis.experiment,
        header: head::header(&page),
        sections: &sections,
        summary,
        footer: head::footer(&page),
        zooms: true,
    };
    page::page(&whole)
}

/// Renders a document's tables and remarks, such as the comparison of two experiments.
pub fn document_page(document: &Document) -> String {
    let tables = html! { @for t in &document.tables { (table::render(t, "Comparison")) } };
    let mut sections = vec![Section { id: "numbers", title: "Numbers", body: tables }];
    if !document.remarks.is_empty() {
        let body = checks::list(&document.remarks);
        sections.push(Section { id: "checks", title: "Remarks", body });
    }
    let (title, subtitle) = (&document.title, &document.subtitle);
    let header = html! {
        p.kind { "pgio" } h1 { (title) } @if !subtitle.is_empty() { p { (subtitle) } }
    };
    page::simple(title, header, &sections, false)
}

/// Renders the answers of each workload's page, with a link to that page.
pub fn index(title: &str, workloads: &[(String, Report<'_>)]) -> String {
    let body = html! { @for (place, report) in workloads {
        h3 { a href=(place) { (report.experiment) } }
        (head::opening(*report))
        (head::answered(*report, None))
    } };
    let sections = [Section { id: "workloads", title: "Workloads", body }];
    page::simple(title, html! { p.kind { "pgio experiment" } h1 { (title) } }, &sections, false)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use insta::assert_snapshot;

    use super::{Source, render};
    use pgio_results::change::Change;
    use pgio_results::model::{Slice, Woven};
    use pgio_results::store::StoredExperiment;
    use pgio_results::telemetry::{Moment, Series, Track};
    use pgio_results::{Check, Outcome};
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{demo, experiment, trial};

    const EXPERIMENT: &str = "[experiment]\nname = \"</script><b>\"\n";

    fn page(stored: &StoredExperiment) -> String {
        page_with_samples(stored, &vec![None; stored.trials.len()])
    }

    fn page_with_samples(stored: &StoredExperiment, series: &[Option<Series>]) -> String {
        let analysis = analyze(stored);
        render(&Source { stored, report: (&analysis).into(), series, experiment: EXPERIMENT })
    }

    /// Two blocks of `local` and its twin. Each trial has a timeline of 2 s and samples with a checkpoint at 1.2 s.
    fn observed() -> (StoredExperiment, Vec<Option<Series>>) {
        let conditions = ["local", "local-aa"];
        let mut trials = Vec::new();
        for block in 1..=2 {
            for condition in conditions {
                let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
                t.window.seconds = 2.0;
                t.timeline = [1.0, 2.0]
                    .map(|at| Slice { at, seconds: 1.0, commits: 100, ..Slice::default() })
                    .to_vec();
                trials.push(t);
            }
        }
        let track = Track {
            source: "server".to_owned(),
            subject: String::new(),
            name: "wal_bytes_per_second".to_owned(),
            unit: "bytes/s".to_owned(),
            at: vec![1.0, 2.0],
            values: vec![Some(8192.0); 2],
        };
        let samples = Series {
            tracks: vec![track],
            moments: vec![Moment { at: 1.2, what: "checkpoint".to_owned() }],
            ..Series::new(2.0)
        };
        let series = vec![Some(samples); trials.len()];
        (experiment(&conditions, trials), series)
    }

    /// Landmarks, headings, captions and charts, one a line, in the order of the page.
    fn skeleton(page: &str) -> String {
        let mut found = String::new();
        for tag in ["header", "nav", "main", "footer"] {
            assert_eq!(page.matches(&format!("<{tag}")).count(), 1, "{tag}");
        }
        for (at, _) in page.match_indices('<') {
            let rest = &page[at..];
            for (tag, mark) in [
                ("<h1", "# "),
                ("<h2", "## "),
                ("<h3", "### "),
                ("<caption", "table: "),
                ("<figcaption", "figure: "),
                ("<title id", "chart: "),
            ] {
                if rest.starts_with(tag) {
                    let inner = rest.split_once('>').map_or("", |(_, inner)| inner);
                    let text =
                        inner.trim_start_matches("<span>").split('<').next().unwrap_or_default();
                    let _ = writeln!(found, "{mark}{text}");
                }
            }
        }
        found
    }

    #[test]
    fn the_verdict_comes_first_and_every_part_has_its_place() {
        assert_snapshot!(skeleton(&page(&demo())));
    }

    #[test]
    fn an_experiment_without_trials_is_a_page_too() {
        assert_snapshot!(skeleton(&page(&experiment(&["local", "on"], Vec::new()))));
    }

    #[test]
    fn a_served_page_is_the_report_below_what_the_server_adds() {
        let report = page(&demo());
        let served = super::served(&report, "<style>h</style>", "<p>top</p>");
        assert!(report.contains("http-equiv") && !served.contains("http-equiv"));
        let (before, after) = served.split_once("<style>h</style></head><body><p>top</p>").unwrap();
        assert!(!before.contains("<body>") && report.ends_with(after));
        assert!(super::empty("</title><b>").contains("<h1>&lt;/title&gt;&lt;b&gt;</h1>"));
    }

    #[test]
    fn no_text_becomes_markup() {
        const WILD: &str = "<img src=x onerror=alert(1)>\"'&";
        let mut stored = demo();
        stored.manifest.name = WILD.to_owned();
        stored.manifest.environment.insert(WILD.to_owned(), WILD.to_owned());
        stored.manifest.conditions[3].name = WILD.to_owned();
        stored.manifest.conditions[3].changes = vec![Change::server(WILD, WILD)];
        for t in &mut stored.trials {
            t.checks.push(Check::invalid(WILD, WILD, WILD));
            t.outcome = Outcome::Failed { error: WILD.to_owned() };
            let place = t.place.as_mut().unwrap();
            if place.condition == "on" {
                place.condition = WILD.to_owned();
            }
        }
        let page = page(&stored);
        assert!(!page.contains("<img"));
        assert!(!page.contains("</script><b>"), "the experiment's text stays in its box");
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    }

    #[test]
    fn the_page_loads_no_external_resources() {
        let page = page(&demo());
        for fetched in ["src=", "url(", "@import", "href=\"http", "fetch(", "XMLHttpRequest"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_page_shows_and_explains_excluded_trials() {
        let mut stored = demo();
        let why = Check::invalid("standby", "the standby went away", "look at its log");
        stored.trials[7].checks.push(why);
        let page = page(&stored);
        assert!(page.contains("1 of 24\u{a0}trials do not count: 1 invalid (standby 1)."));
        assert_eq!(page.matches("class=\"crossed\"").count(), 1);
        assert!(page.contains("standby: the standby went away"));
    }

    #[test]
    fn the_answers_stand_before_every_section_and_the_summary_before_the_appendix() {
        let page = page(&demo());
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
        let places = [
            "<header>",
            "class=\"answers\"",
            ": shown (5\u{a0}% risk for all conditions)",
            "</header>",
            "id=\"effects\"",
            "class=\"appendix\"",
            "id=\"numbers\"",
            "id=\"checks\"",
            "id=\"terms\"",
        ];
        let found: Vec<usize> = places.into_iter().map(at).collect();
        assert!(found.is_sorted(), "{found:?}");
        assert!(at("href=\"#terms\"") < at("</header>"));
    }

    #[test]
    fn warnings_are_folded_and_each_stands_there_once() {
        let mut stored = demo();
        for t in &mut stored.trials {
            t.checks.push(Check::warning("thermal", "the processor was throttled", "cool it"));
        }
        stored.trials[7].checks.push(Check::invalid("standby", "it went away", "look at its log"));
        let page = page(&stored);
        let (_, warnings) =
            page.split_once("<details class=\"warnings\" id=\"folded-warnings\">").unwrap();
        let (warnings, _) = warnings.split_once("</details>").unwrap();
        for text in ["the processor was throttled", "cool it"] {
            assert_eq!(page.matches(text).count(), 1, "{text}");
            assert!(warnings.contains(text), "{text}");
        }
        assert!(!warnings.contains("look at its log"), "an invalid trial is not folded away");
        assert_eq!(page.matches("look at its log").count(), 1);
    }

    #[test]
    fn every_chart_has_its_text() {
        let page = page(&demo());
        let charts = page.matches("role=\"img\"").count();
        assert!(charts > 0);
        let texts = page.split("<desc").skip(1).filter(|rest| {
            let text = rest.split_once('>').map_or("", |(_, inner)| inner);
            text.split('<').next().unwrap_or_default().split_whitespace().count() >= 5
        });
        assert_eq!(texts.count(), charts);
    }

    #[test]
    fn samples_of_a_woven_window_belong_to_no_condition() {
        let (mut stored, series) = observed();
        let plain = page_with_samples(&stored, &series);
        assert_eq!(
            plain.matches("2 trials: commits/s within the window; 2 checkpoints.").count(),
            2
        );
        assert!(plain.contains("Devices and server") && plain.contains("class=\"moment\""));
        assert!(!plain.contains("Woven windows are left out"));

        for trial in &mut stored.trials {
            trial.window.seconds = 8.0;
            trial.woven = Some(Woven { window_seconds: 20.0, ..Woven::default() });
        }
        let woven = page_with_samples(&stored, &series);
        // Nothing is known of checkpoints, so the text does not say that there was none.
        assert_eq!(woven.matches("2 trials: commits/s within the window.").count(), 2);
        for shared in ["Devices and server", "class=\"moment\"", "checkpoint ends"] {
            assert!(!woven.contains(shared), "{shared}");
        }

        stored.trials[0].window.seconds = 2.0;
        stored.trials[0].woven = None;
        let both = page_with_samples(&stored, &series);
        let known = "commits/s within the window; 1 checkpoint in the samples of 1 trial.";
        assert_eq!(both.matches(known).count(), 1);
        let (_, chart) = both.split_once("Means over the window: ").unwrap();
        let (chart, _) = chart.split_once("</figure>").unwrap();
        let (means, _) = chart.split_once("</desc>").unwrap();
        assert!(means.starts_with("local ") && !means.contains("local-aa"), "{means}");
        // The axis is the window's of 2 s: its checkpoint lies at 60 %.
        assert!(chart.contains("x1=\"60.00%\""), "{chart}");
        assert!(both.contains("Woven windows are left out"));
    }

    #[test]
    fn a_zoomed_chart_has_the_lines_of_its_picture() {
        let (mut stored, series) = observed();
        stored.trials[1].checks.push(Check::invalid("standby", "it went away", "look at its log"));
        let page = page_with_samples(&stored, &series);
        let (_, chart) = page.split_once("<figcaption>local-aa</figcaption>").unwrap();
        let (chart, _) = chart.split_once("</figure>").unwrap();
        let (picture, data) = chart.split_once("<script").unwrap();
        assert_eq!(picture.matches("class=\"line void\"").count(), 1);
        assert_eq!(picture.matches("class=\"line c0 d0 thin\"").count(), 1);
        let (_, data) = data.split_once('>').unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let lines = data["lines"].as_array().unwrap();
        let excluded: Vec<bool> = lines.iter().map(|line| line["excluded"] == true).collect();
        assert_eq!(excluded, [true, false]);
        assert!(lines.iter().all(|line| line["dash"] == 0), "{lines:?}");
        // The script draws such a line as the style sheet does, and breaks lines where the picture does.
        let style = ".void { stroke: var(--quiet); stroke-width: 1.25; stroke-dasharray: 1.5 3; }";
        assert!(page.contains(style));
        assert!(page.contains("{ color: \"--quiet\", dash: [1.5, 3], width: 1.25 }"));
        assert!(page.contains("spanGaps: false") && page.contains("tables.map(() => [2, 2])"));
    }
}
