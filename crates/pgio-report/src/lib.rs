//! Reports of pgio, from stored results and verdicts alone: no server, no host, no clock.
//!
//! [`report`] shows records of [`pgio_results`] and their analysis by [`pgio_verdict`] as text, Markdown, HTML, CSV and
//! JSON. [`directories`] reads the records from results directories and writes report pages there.

pub mod directories;
pub mod report;
