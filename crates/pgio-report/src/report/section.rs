//! What features add to the report of an experiment: a section, whose parts every format shows in its places.
//!
//! A feature finds its section in the same trials, next to the analysis. This module knows none of them; the caller
//! passes what finds them to [`crate::directories`].

use std::ops::Deref;

use maud::{Markup, html};
use pgio_results::store::StoredExperiment;
use pgio_verdict::Analysis;
use serde::Serialize;
use serde_json::value::RawValue;

use super::table::Table;

/// Finds the section of a feature in judged results, if they have anything of it.
pub type Find = fn(&StoredExperiment, &Analysis) -> Option<Section>;

#[derive(Debug)]
pub struct Section {
    /// Its field in the JSON of the analysis; its anchor on the page.
    pub name: &'static str,
    pub title: &'static str,
    /// The field's value.
    pub json: Box<RawValue>,
    /// Sentences for the first lines of a report.
    pub lead: Vec<String>,
    /// Tables of effects, before that of conditions; in the short report they take its place.
    pub effects: Vec<Table>,
    /// Notes on effects below the table of conditions.
    pub effect_notes: Vec<String>,
    /// If effects take the place of the comparisons with the baseline: what of, and the tables that follow them.
    pub instead: Option<(String, Vec<Table>)>,
    /// A note below the table of conditions.
    pub note: Option<String>,
    /// They follow the table of conditions.
    pub tables: Vec<Table>,
    /// Whether its tables and its part of the page stand at the end of what explains the effects instead.
    pub explains: bool,
    /// Further rows of the flat table.
    pub rows: Vec<Vec<String>>,
    /// Words of it, each with its meaning.
    pub terms: Vec<(&'static str, &'static str)>,
    /// The section on the page; empty: it has none.
    pub body: Markup,
}

impl Section {
    /// A section with nothing but its field.
    pub fn new(name: &'static str, title: &'static str, field: &impl Serialize) -> Section {
        Section {
            name,
            title,
            json: json(field),
            lead: Vec::new(),
            effects: Vec::new(),
            effect_notes: Vec::new(),
            instead: None,
            note: None,
            tables: Vec::new(),
            explains: false,
            rows: Vec::new(),
            terms: Vec::new(),
            body: html! {},
        }
    }
}

/// An analysis with the sections that features add to it.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub analysis: &'a Analysis,
    pub sections: &'a [Section],
}

impl Report<'_> {
    pub(super) fn lead(&self) -> impl Iterator<Item = String> {
        self.sections.iter().flat_map(|section| section.lead.iter().cloned())
    }

    /// The tables of effects that precede the table of conditions.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Table> {
        self.sections.iter().flat_map(|section| &section.effects)
    }

    /// The sections that explain the effects, or those that do not.
    pub(super) fn explaining(&self, explains: bool) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.explains == explains)
    }

    /// The section whose effects take the place of the comparisons with the baseline.
    pub(super) fn instead(&self) -> Option<&Section> {
        self.sections.iter().find(|section| section.instead.is_some())
    }
}

impl Deref for Report<'_> {
    type Target = Analysis;

    fn deref(&self) -> &Analysis {
        self.analysis
    }
}

impl<'a> From<&'a Analysis> for Report<'a> {
    fn from(analysis: &'a Analysis) -> Report<'a> {
        Report { analysis, sections: &[] }
    }
}

/// A value as it stands in the document of its analysis, whose writer leaves it as it is: indented by one level.
fn json(value: &impl Serialize) -> Box<RawValue> {
    let text = serde_json::to_string_pretty(value);
    let text = text.expect("plain data with string keys always serializes");
    RawValue::from_string(text.replace('\n', "\n  ")).expect("it is JSON")
}
