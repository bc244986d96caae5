//! Reports: stored results and their analysis as text, Markdown, CSV, JSON and a page.
//!
//! Reports measure nothing and access no server, so each can be made again from the stored record.
//! [`table`] is the model that every format renders. `comparison` fills it from an analysis, `sweep` from the
//! curves of a sweep, `screening` and `cells` from a factorial design, [`across`] from two sides, [`history`] from
//! many runs, and [`mod@pilot`] from a pilot; [`mod@summary`] is the short form, which a terminal shows. [`text`], [`markdown`], [`csv`] and [`mod@html`]
//! render it. [`answers`] puts the answer for each condition into words, [`sentence`] a verdict.
//!
//! [`json`] is the versioned form for other programs, [`junit`] the form for CI systems, [`openmetrics`] the form for
//! Prometheus, and [`wide`] the table of trials for spreadsheets. For one trial, [`classic`] prints the original
//! pgio's lines, [`trial`] the details below them, and [`session_detail`] the file of that name.

pub mod across;
mod answer;
mod answers;
mod background;
mod cells;
pub mod classic;
mod comparison;
pub mod csv;
pub mod device;
mod effect;
mod explain;
mod format;
mod gate;
pub mod history;
#[cfg(test)]
mod hostile;
pub mod html;
pub mod json;
pub mod junit;
mod lead;
mod margin;
pub mod markdown;
pub mod openmetrics;
mod outcomes;
pub mod pilot;
mod screening;
pub mod sentence;
mod servers;
pub mod session_detail;
mod standbys;
mod summary;
mod sweep;
pub mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod trial;
mod variance;
pub mod wide;

pub use answer::answer;
pub use answers::{answered, answers};
pub use comparison::document;
pub use gate::{GateResult, gate};
pub use lead::lead;
pub use outcomes::{failures, headline};
pub use summary::summary;
