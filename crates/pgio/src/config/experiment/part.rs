//! What features read of an experiment file: sections of their own, keys in sections of the core, lists of values.

use std::collections::BTreeMap;

use super::key::{SectionDef, SectionKey};
use super::points::AxisSpec;
use super::section::{Document, Section};
use super::{Condition, Experiment, Target};
use crate::config::keys::Key;
use crate::config::value::ConfigError;
use pgio_results::factors::FactorDesign;

/// What a feature reads. Most read only some of this: the rest is `NONE`.
#[derive(Debug)]
pub struct FilePart {
    /// One with the title of a section of the core adds keys to that one.
    pub(crate) sections: &'static [SectionDef],
    /// Reads the keys of a workload that have lists of values, as axes.
    pub(crate) lists: Option<ReadLists>,
    /// Makes the conditions in place of `[[condition]]`, if the file asks for it.
    pub(crate) conditions: Option<MakeConditions>,
    /// Completes the experiment, once the core has read the file, and refuses what the feature cannot read.
    pub(crate) complete: fn(&File<'_>, &mut Experiment) -> Result<(), ConfigError>,
    /// Paths of values that may hold a secret.
    pub(crate) hidden: &'static [&'static str],
}

type ReadLists = fn(&Section<'_>, &[&'static Key]) -> Result<Vec<AxisSpec>, ConfigError>;

type MakeConditions =
    fn(&File<'_>, &BTreeMap<String, Target>) -> Result<Option<MadeConditions>, ConfigError>;

/// Conditions that combine the levels of factors, a condition for each cell of the design.
#[derive(Debug)]
pub(crate) struct MadeConditions {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) design: FactorDesign,
}

#[derive(Debug)]
pub(crate) struct File<'a> {
    pub(crate) root: &'a Section<'a>,
    /// `[experiment]`.
    pub(crate) head: &'a Section<'a>,
    /// The valid kinds of treatment.
    pub(crate) treatments: &'a [&'a str],
}

impl FilePart {
    pub(crate) const NONE: FilePart = FilePart {
        sections: &[],
        lists: None,
        conditions: None,
        complete: |_, _| Ok(()),
        hidden: &[],
    };
}

/// Reads a file that was parsed before.
pub(crate) fn read_again<T>(
    text: &str,
    read: impl FnOnce(&Section<'_>) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let document = Document { file: "", text };
    let parsed = document.parse()?;
    read(&Section::root(&document, parsed.get_ref()))
}

/// Whether the value at this path may hold a secret.
pub(crate) fn is_hidden(path: &str) -> bool {
    all().any(|part| part.hidden.contains(&path))
}

pub(super) fn all() -> impl Iterator<Item = &'static FilePart> {
    crate::feature::all().iter().filter_map(|feature| feature.file)
}

fn sections() -> impl Iterator<Item = &'static SectionDef> {
    all().flat_map(|part| part.sections)
}

/// The function that reads the lists of a workload, if a feature does.
pub(super) fn lists() -> Option<ReadLists> {
    all().find_map(|part| part.lists)
}

/// The conditions that a feature makes, if the file asks for it.
pub(super) fn conditions(
    file: &File<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<Option<MadeConditions>, ConfigError> {
    let mut made = all().filter_map(|part| part.conditions).map(|make| make(file, targets));
    made.find_map(Result::transpose).transpose()
}

/// The keys that features add to a section.
pub(crate) fn added(section: &SectionDef) -> impl Iterator<Item = &'static str> {
    let title = section.title;
    sections().filter(move |own| own.title == title).flat_map(|own| own.names).copied()
}

/// All keys of a section.
pub(super) fn names(section: &SectionDef) -> Vec<&'static str> {
    section.names.iter().copied().chain(added(section)).collect()
}

/// The names at the top of a file of the sections that features bring.
pub(super) fn titles() -> impl Iterator<Item = &'static str> {
    let is_own = |own: &&SectionDef| super::SECTIONS.iter().all(|core| core.title != own.title);
    sections().filter(is_own).map(|own| own.title.trim_matches(['[', ']']))
}

/// A section as documented.
#[derive(Debug)]
pub struct SectionText {
    pub title: &'static str,
    pub about: String,
    pub keys: Vec<SectionKey>,
}

/// All sections: the core's with the keys that features add, then those of features.
pub fn documented() -> Vec<SectionText> {
    let mut all: Vec<SectionText> = Vec::new();
    for section in super::SECTIONS.iter().chain(sections()) {
        let keys = (section.keys)();
        match all.iter_mut().find(|known| known.title == section.title) {
            Some(known) => {
                known.about += section.about;
                known.keys.extend(keys);
            }
            None => all.push(SectionText {
                title: section.title,
                about: section.about.to_owned(),
                keys,
            }),
        }
    }
    all
}
