//! What is missing or would spoil a measurement, found before anything is measured; each with a remedy.
//!
//! [`Scope`] is what a run would use; [`examine`] checks it, one [`Section`] for each subject. Changes
//! nothing: ends no session and creates no table. What only a trial can show is judged there
//! (`trial_checks`).
//!
//! One file per subject, in one shape: it gathers facts first; each check is a function of the facts.
//! Prints nothing. Next: `cli::doctor` shows the sections.

mod command;
mod data;
mod machine;
mod section;
mod server;
mod storage;
mod subject;
mod surroundings;

pub use self::section::Section;
pub use self::subject::Scope;

/// Checks pgio's own surroundings, the machines, the commands and the servers, in this order. Takes a
/// second for each machine.
pub fn examine(scope: &Scope) -> Vec<Section> {
    let (machines, hosts) = machine::sections(&scope.hosts);
    let mut sections = vec![surroundings::section()];
    sections.extend(machines);
    sections.extend(command::section(&scope.commands, &hosts));
    sections.extend(scope.subjects.iter().map(|subject| server::section(subject, &hosts)));
    sections
}
