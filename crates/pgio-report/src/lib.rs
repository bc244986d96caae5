//! Verdicts and reports of pgio, from stored results alone: no server, no host, no clock.
//!
//! [`analysis`] draws the conclusions, [`report`] shows them as text, Markdown, HTML, CSV and JSON.
//! Both read records of [`pgio_results`]; statistics come from [`benchmath`].

pub mod analysis;
pub mod report;
