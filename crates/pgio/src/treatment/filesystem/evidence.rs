//! Whether mount options are in force, and which options a condition declares.

use super::mounts::{Mounted, Mounts};
use super::options::{self, Setting};
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};

/// One fact: the options as the kernel shows them. They are their own expectation where all of `settings`
/// are among them.
pub(super) fn evidence(
    when: When,
    mounts: Option<&Mounts>,
    point: &str,
    settings: &[Setting],
) -> Evidence {
    let Some(mounted) = mounts.and_then(|mounts| mounts.at(point)) else {
        let found = "unreadable, or not mounted".to_owned();
        let expected = Some(options::list(settings));
        return Evidence { when, what: format!("mount of {point}"), found, expected };
    };
    let found = format!("{} {}", mounted.file_system, mounted.options);
    let expected = match in_force(mounted, settings) {
        true => found.clone(),
        false => format!("{} with {}", mounted.file_system, options::list(settings)),
    };
    Evidence { when, what: format!("mount of {point}"), found, expected: Some(expected) }
}

pub(super) fn in_force(mounted: &Mounted, settings: &[Setting]) -> bool {
    let known = mounted.known();
    settings.iter().all(|setting| setting.found(&known) == setting.word)
}

/// Each option by its name in the table, so that two values of one are one difference.
pub(super) fn changes(settings: &[Setting], path: Option<&str>) -> impl Iterator<Item = Change> {
    let subject = Subject::Mount { path: path.map(str::to_owned) };
    settings.iter().map(move |s| Change::new(None, subject.clone(), s.name(), &s.word))
}
