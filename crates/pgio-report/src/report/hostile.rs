//! Stored results whose every text is hostile, in every format: nothing that a terminal, a page or a
//! spreadsheet would obey comes out.

use std::sync::Arc;

use proptest::prelude::*;

use super::table::{Column, Document, Label, Remark, Table};
use super::{across, classic, csv, document, html, json, lead, markdown, text, trial};
use pgio_results::change::Change;
use pgio_results::store::StoredExperiment;
use pgio_results::{Check, Outcome, Trial, Warning};
use pgio_verdict::across::across as compared;
use pgio_verdict::analyze;
use pgio_verdict::test_support::{classic_trial, demo, replicated};

const WILD: &str = "\u{1b}[31m\u{9b}2J\u{7}\r\u{202e}\u{2066}\u{200f}\u{2028}\u{feff}\u{7f}";

fn spoil(text: &mut String) {
    text.push_str(WILD);
}

fn spoil_trial(trial: &mut Trial) {
    if let Some(place) = &mut trial.place {
        spoil(&mut place.condition);
        spoil(&mut place.experiment);
    }
    trial.settings.values_mut().for_each(spoil);
    Arc::make_mut(&mut trial.environment).values_mut().for_each(spoil);
    trial.warnings.push(Warning::new(WILD, WILD, WILD));
    trial.checks.push(Check::invalid("standby-connected", WILD, WILD));
}

fn spoiled(mut stored: StoredExperiment) -> StoredExperiment {
    let manifest = &mut stored.manifest;
    spoil(&mut manifest.name);
    spoil(&mut manifest.baseline);
    manifest.aa.iter_mut().for_each(spoil);
    for condition in &mut manifest.conditions {
        spoil(&mut condition.name);
        condition.changes.push(Change::server(format!("=cmd|{WILD}"), WILD));
    }
    manifest.environment.values_mut().for_each(spoil);
    stored.trials.iter_mut().for_each(spoil_trial);
    if let Some(last) = stored.trials.last_mut() {
        last.outcome = Outcome::Failed { error: WILD.to_owned() };
    }
    stored
}

#[track_caller]
fn is_safe(format: &str, text: &str) {
    assert!(text.contains("[31m"), "{format} shows the text");
    let wild = text.chars().find(|c| !matches!(c, '\n' | '\t') && !printable::is_safe(*c));
    assert_eq!(wild, None, "{format}: U+{:04x}", wild.map_or(0, u32::from));
}

#[test]
fn no_report_format_passes_on_control_characters() {
    for stored in [spoiled(demo()), spoiled(replicated(3))] {
        let analysis = analyze(&stored);
        is_safe("text", &text::render(&document(&analysis)));
        is_safe("markdown", &markdown::render(&document(&analysis), &lead(&analysis)));
        is_safe("csv", &csv::render(&csv::flat(&analysis)).replace("\r\n", "\n"));
        is_safe("json", &json::render(&analysis));
        let series = vec![None; stored.trials.len()];
        let source = html::Source {
            stored: &stored,
            report: (&analysis).into(),
            series: &series,
            experiment: WILD,
        };
        is_safe("page", &html::render(&source));
        let pages = [(WILD.to_owned(), (&analysis).into())];
        is_safe("index", &html::index(WILD, &pages));
        let both = compared(std::slice::from_ref(&stored), std::slice::from_ref(&stored), &[]);
        is_safe("across, text", &text::render(&across::document(&both)));
        is_safe("across, page", &html::document_page(&across::document(&both)));
        is_safe("across, csv", &csv::render(&across::flat(&both)).replace("\r\n", "\n"));
        is_safe("across, json", &json::render(&both));
    }
}

#[test]
fn the_report_of_a_trial_passes_on_no_control_characters() {
    let mut one = classic_trial();
    spoil_trial(&mut one);
    one.outcome = Outcome::Failed { error: WILD.to_owned() };
    is_safe("trial", &trial::render(&one));
    // The lines of the original hold numbers alone.
    assert!(classic::tail(&one).chars().all(|c| c == '\n' || printable::is_safe(c)));
}

proptest! {
    #[test]
    fn arbitrary_text_is_rendered_printable(texts in prop::collection::vec(any::<String>(), 5)) {
        let [title, heading, cell, note, remark] = <[String; 5]>::try_from(texts).unwrap();
        let table = Table {
            title: title.clone(),
            columns: vec![Column::left("n"), Column::left(heading)],
            rows: vec![vec!["1".to_owned(), cell]],
            notes: vec![note],
        };
        let headline = vec![remark.clone()];
        let remarks = vec![Remark { label: Label::Warning, text: remark }];
        let subtitle = title.clone();
        let document = Document { title, subtitle, headline, tables: vec![table.clone()], remarks };
        let texts = [
            text::render(&document),
            markdown::render(&document, std::slice::from_ref(&document.title)),
            html::document_page(&document),
            csv::render(&table).replace("\r\n", "\n"),
        ];
        for text in texts {
            let safe = |c: char| matches!(c, '\n' | '\t') || printable::is_safe(c);
            prop_assert!(text.chars().all(safe), "{:?}", text);
        }
    }
}
