//! The header and footer of the page: the answer for each condition, the facts of the measurement, the
//! versions.
//!
//! Some readers read only the first lines, so what speaks against the result is there.

use maud::{Markup, html};

use super::super::format::{self, counted, moment};
use super::super::lead::{RERUN, headline, in_one_sentence, lead};
use super::super::noise::{blindness, trust, woven};
use super::super::section::Report;
use super::super::summary::answers;
use super::page::Page;
use super::table::{self, prose};
use pgio_results::Trial;
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_results::units::human;

pub(super) fn header(page: &Page<'_>) -> Markup {
    html! {
        p.kind { "pgio experiment" }
        h1 { (page.analysis.experiment) }
        (opening(page.report()))
        (answered(page.report(), Some("#terms")))
        @if !page.remarks.is_empty() {
            p { a href="#warnings" { (counted(page.remarks.len(), "remark")) " on the measurement" } }
        }
        dl.facts {
            @for (name, value) in facts(page) { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// The question, the answer in a sentence, and what speaks against it.
pub(super) fn opening(report: Report<'_>) -> Markup {
    let analysis = report.analysis;
    html! {
        @if !analysis.question.is_empty() { p.question { (prose(&analysis.question)) } }
        @if let Some(doubt) = blindness(analysis, RERUN) { p.lead.doubt { (prose(&doubt)) } }
        @if let Some(answer) = in_one_sentence(report) { p.lead { (prose(&answer)) } }
        @for problem in headline(analysis) { p.doubt { (prose(&problem)) } }
    }
}

/// The answer for each condition and whether to trust it; where effects take their place, the lead in sentences.
pub(super) fn answered(report: Report<'_>, terms: Option<&str>) -> Markup {
    let analysis = report.analysis;
    html! {
        @if let Some(table) = answers(analysis) {
            div.answers { (table::render_cards(&table, "The answer for each condition")) }
            p { @if blindness(analysis, RERUN).is_none() { (prose(&trust(analysis))) " " }
                @if let Some(sentence) = woven(analysis) { (prose(&sentence)) " " }
                @if let Some(terms) = terms { a href=(terms) { "What the words mean." } } }
        } @else {
            // Where effects take the place of comparisons, the first one is the answer in a sentence.
            @let known = usize::from(report.instead().is_some());
            @for sentence in lead(report).iter().skip(known) { p { (prose(sentence)) } }
        }
    }
}

fn facts(page: &Page<'_>) -> Vec<(&'static str, String)> {
    let manifest = &page.stored.manifest;
    let mut facts = vec![("Measured", moment(&manifest.created_at))];
    let trials = format!(
        "{} of {}{}, {}{}",
        counted(page.count(), "trial"),
        counted(manifest.conditions.len(), "condition"),
        match manifest.points().len() {
            1 => String::new(),
            n => format!(" at {}", counted(n, "point")),
        },
        counted(blocks(page.stored.trials.iter()), "block"),
        match page.statuses.len() - page.count() {
            0 => String::new(),
            n => format!(", after {}", counted(n, "burn-in trial")),
        },
    );
    facts.push(("Trials", trials));
    if let Some(trial) = described(page.stored) {
        facts.push(("Window", window(trial)));
        facts.push(("Workload", workload(trial)));
        facts.extend(trial.dataset.as_ref().map(|d| {
            let (tables, size) =
                (counted(d.tables as usize, "table"), human::bytes(d.bytes_before));
            let rows =
                if d.layout.is_default() { String::new() } else { format!("; {}", d.layout) };
            let used = d.bytes_used.map(|n| format!(", of which {} are used", human::bytes(n)));
            let used = used.unwrap_or_default();
            ("Data", format!("{tables} of {}, {size} in total{used}{rows}", d.scale))
        }));
        facts.push(("Server", server(trial, manifest)));
    }
    facts
}

/// The trial that describes all: the baseline's first at the middle point, if it has one. Another condition may have
/// another server, and which of them ran first was drawn.
fn described(stored: &StoredExperiment) -> Option<&Trial> {
    let manifest = &stored.manifest;
    let at_middle = |t: &&Trial| t.place.as_ref().is_none_or(|p| p.point == *manifest.middle());
    let is_baseline =
        |t: &&Trial| t.place.as_ref().is_some_and(|p| p.condition == manifest.baseline);
    let baselines = stored.trials.iter().filter(at_middle).find(is_baseline);
    baselines.or_else(|| stored.trials.iter().find(at_middle))
}

fn blocks<'a>(trials: impl Iterator<Item = &'a Trial>) -> usize {
    trials.filter_map(|t| t.place.as_ref()).map(|p| p.block).max().unwrap_or(0) as usize
}

fn window(trial: &Trial) -> String {
    let w = &trial.window;
    let length = match w.asked_seconds {
        Some(seconds) => format::seconds(seconds),
        None => format!("{}, {}", format::seconds(w.seconds), amount(&trial.workload.kind)),
    };
    format!("{length} after {} of warm-up", format::seconds(w.warmup_seconds))
}

/// What a workload without a duration does.
fn amount(kind: &str) -> &'static str {
    match kind {
        "command" => "one run of the program",
        "slob" => "a fixed number of calls",
        _ => "a fixed number of transactions",
    }
}

fn workload(trial: &Trial) -> String {
    let keys = trial.workload.keys.iter().map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key} = {value}")
    });
    let keys: Vec<String> = keys.collect();
    format!("{}: {}", trial.workload.kind, keys.join(", "))
}

fn server(trial: &Trial, manifest: &Manifest) -> String {
    let version = trial.server.version.split(" (").next().unwrap_or_default();
    let memory = &trial.server.shared_buffers;
    let kernel = manifest.environment.get("driver.kernel");
    let kernel = kernel.map_or_else(String::new, |k| format!(", Linux {k}"));
    format!("PostgreSQL {version}, shared_buffers {memory}{kernel}")
}

pub(super) fn footer(page: &Page<'_>) -> Markup {
    html! {
        p {
            "Measured with pgio " (page.stored.manifest.pgio) ", report by pgio "
            (env!("CARGO_PKG_VERSION")) ". Intervals are 95 %; the trial is the unit, and trials \
            are paired by block. Line charts zoom: choose Zoom, or select a range."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::test_support::{classic_trial, demo};

    #[test]
    fn the_server_is_the_baselines_whichever_condition_ran_first() {
        let is_on = |t: &Trial| t.place.as_ref().is_some_and(|p| p.condition == "on");
        let mut stored = demo();
        for t in &mut stored.trials {
            if is_on(t) {
                t.server.shared_buffers = "4GB".to_owned();
            }
        }
        stored.trials.swap(0, 3);
        assert!(is_on(&stored.trials[0]));
        let shown = |stored: &StoredExperiment| {
            described(stored).map(|trial| server(trial, &stored.manifest)).unwrap()
        };
        assert_eq!(shown(&stored), "PostgreSQL 15.14, shared_buffers 128MB");
        stored.trials.retain(is_on);
        assert_eq!(shown(&stored), "PostgreSQL 15.14, shared_buffers 4GB");
    }

    #[test]
    fn a_window_without_a_duration_says_what_was_done() {
        let mut trial = classic_trial();
        trial.window.asked_seconds = None;
        for (kind, amount) in [
            ("command", "one run of the program"),
            ("slob", "a fixed number of calls"),
            ("commit", "a fixed number of transactions"),
        ] {
            trial.workload.kind = kind.to_owned();
            let text = window(&trial);
            assert!(text.contains(&format!(", {amount} after")), "{text}");
        }
        trial.window.asked_seconds = Some(10.0);
        assert!(window(&trial).starts_with("10.0 s after"), "{}", window(&trial));
    }
}
