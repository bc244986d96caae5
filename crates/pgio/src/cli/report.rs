//! `pgio report`: tells a stored experiment again, in any of its forms, or holds two against each
//! other.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::exit::{FILES, Failure};
use super::{Outcome, output};
use crate::analysis::across::across;
use crate::analysis::{self, Analysis};
use crate::report::{self, html};
use crate::results::store::{self, StoreError, Stored};

/// What `compare` and `demo` leave beside the results.
const PAGE: &str = "report.html";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    /// One self-contained page
    Html,
    Markdown,
    /// A row for each condition and metric
    Csv,
    Json,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What compare or demo wrote; of two directories the second is compared with the first
    #[arg(required = true, num_args = 1..=2, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let told = match args.dirs.as_slice() {
        [a, b] => both(a, b, args.format)?,
        dirs => dirs.iter().map(|dir| one(dir, args.format)).collect::<Result<String, _>>()?,
    };
    match &args.out {
        Some(file) => Ok(store::write_durably(file, &told)?),
        None => {
            output::print(&told);
            Ok(())
        }
    }
}

fn one(dir: &Path, format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Text => text(&analyse(dir)?),
        Format::Html => page(dir)?,
        Format::Markdown => markdown(&analyse(dir)?),
        Format::Csv => report::csv::render(&report::csv::flat(&analyse(dir)?)),
        Format::Json => report::json::render(&analyse(dir)?),
    })
}

fn both(a: &Path, b: &Path, format: Format) -> Result<String, Failure> {
    let found = across(&store::read(a)?, &store::read(b)?);
    let document = || report::across::document(&found);
    Ok(match format {
        Format::Text => report::text::render(&document()),
        Format::Html => html::of_document(&document()),
        Format::Markdown => report::markdown::render(&document(), &[]),
        Format::Csv => report::csv::render(&report::across::flat(&found)),
        Format::Json => report::json::across::render(&found),
    })
}

pub(super) fn analyse(dir: &Path) -> Result<Analysis, StoreError> {
    Ok(analysis::analyse(&store::read(dir)?))
}

/// The comparison and what speaks against it, without the secondary metrics.
pub(super) fn short(analysis: &Analysis) -> String {
    let mut document = report::document(analysis);
    document.tables.truncate(1);
    report::text::render(&document)
}

pub(super) fn text(analysis: &Analysis) -> String {
    report::text::render(&report::document(analysis))
}

fn markdown(analysis: &Analysis) -> String {
    report::markdown::render(&report::document(analysis), &report::lead(analysis))
}

fn page(dir: &Path) -> Result<String, Failure> {
    let stored: Stored = store::read(dir)?;
    let series: Vec<_> = stored
        .trials
        .iter()
        .map(|trial| store::read_series(dir, trial))
        .collect::<Result<_, _>>()?;
    let file = dir.join("experiment.toml");
    let experiment = match fs::read_to_string(&file) {
        Ok(text) => text,
        // The page tells all the rest without it.
        Err(e) if e.kind() == ErrorKind::NotFound => "# not among these results\n".to_owned(),
        Err(e) => {
            let doing = format!("cannot read {}", file.display());
            return Err(Failure::new(FILES, e).context(doing));
        }
    };
    let analysis = analysis::analyse(&stored);
    let source = html::Source {
        stored: &stored,
        analysis: &analysis,
        series: &series,
        experiment: &experiment,
    };
    Ok(html::render(&source))
}

/// Leaves the page beside the results. They are safe already, so a page that cannot be written is
/// only told.
pub(super) fn leave_page(dir: &Path) {
    leave(dir, page(dir));
}

/// Leaves a page that leads to those of the workloads below.
pub(super) fn leave_index(dir: &Path, title: &str, dirs: &[PathBuf]) {
    let analyses: Result<Vec<Analysis>, StoreError> = dirs.iter().map(|d| analyse(d)).collect();
    let index = analyses.map(|all| {
        let place = |d: &PathBuf| {
            let below = d.strip_prefix(dir).unwrap_or(d);
            below.join(PAGE).display().to_string()
        };
        let workloads: Vec<_> = dirs.iter().map(place).zip(&all).collect();
        html::index(title, &workloads)
    });
    leave(dir, index.map_err(Failure::from));
}

fn leave(dir: &Path, page: Result<String, Failure>) {
    let file = dir.join(PAGE);
    let written = page.and_then(|text| Ok(store::write_durably(&file, &text)?));
    if let Err(failure) = written {
        eprintln!("pgio: warning: no {}: {}", file.display(), failure.sentence());
    }
}

/// Where the page of an experiment is.
pub(super) fn page_of(dir: &Path) -> String {
    dir.join(PAGE).display().to_string()
}
