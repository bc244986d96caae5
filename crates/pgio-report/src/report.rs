//! Reports: stored results and their analysis as text, Markdown, CSV, JSON and a page.
//!
//! Reports measure nothing and access no server, so each can be made again from the stored record. [`table`] is the
//! model that every format renders. `comparison` fills it from an analysis, [`across`] from two sides, [`history`] from
//! many runs, and [`mod@pilot`] from a pilot; [`mod@summary`] is the short form, which a terminal shows. [`text`],
//! [`markdown`], [`csv`] and [`mod@html`] render it. [`Statement`] has the words for the verdict on a condition, short
//! and long, for every format; `lead` the first lines of a report, `margin` the gate. A [`Section`] is what a feature
//! adds.
//!
//! [`json`] is the versioned form for other programs, [`junit`] the form for CI systems. For one trial, [`classic`]
//! prints the original pgio's lines, [`trial`] the details below them.

pub mod across;
pub mod classic;
mod comparison;
pub mod csv;
pub mod device;
mod explain;
pub mod format;
pub mod history;
#[cfg(test)]
mod hostile;
pub mod html;
pub mod json;
pub mod junit;
mod lead;
pub mod margin;
pub mod markdown;
mod noise;
pub mod pilot;
mod section;
mod servers;
mod statement;
mod summary;
pub mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod trial;
#[cfg(test)]
mod worded_tests;

pub use comparison::document;
pub use lead::{failures, headline, lead};
pub use margin::{GateResult, gate};
pub use section::{Find, Report, Section};
pub use statement::{Statement, effect};
pub use summary::{answered, summary};
