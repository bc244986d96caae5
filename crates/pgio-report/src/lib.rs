//! Verdicts and reports of pgio, from stored results alone: no server, no host, no clock.
//!
//! [`analysis`] draws the conclusions, [`report`] shows them as text, Markdown, HTML, CSV and JSON.
//! Both work on records of [`pgio_results`] in memory; statistics come from [`benchmath`]. [`directories`] reads the
//! records from results directories and writes report pages there, [`sides`] compares the records of two sides.

pub mod analysis;
pub mod directories;
pub mod report;
pub mod sides;
