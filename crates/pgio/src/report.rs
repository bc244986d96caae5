//! Telling: stored results and their analysis as text and JSON.
//!
//! Reports measure nothing and see no server: whatever they say can be said again from the stored
//! record. [`table`] is the model that every format renders; `comparison` fills it from an
//! analysis, `across` from two of them, and [`text`] prints it; [`sentence`] says a verdict in words; [`json`] is the versioned
//! form for other programs. For one trial: [`classic`] prints the original pgio's lines, [`trial`]
//! what stands under them, and [`session_detail`] the file of that name.

mod across;
pub mod classic;
mod comparison;
mod explain;
mod format;
pub mod json;
pub mod sentence;
pub mod session_detail;
pub mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod trial;

pub use across::document as across_document;
pub use comparison::document;
