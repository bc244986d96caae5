//! `pgio report`: tells a stored experiment again, in any of its forms, or holds two against each
//! other.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::exit::{FILES, Failure, USAGE};
use super::{Outcome, output};
use crate::analysis::across::across;
use crate::analysis::shares::State;
use crate::analysis::{self, Analysis};
use crate::report::table::Table;
use crate::report::{self, html};
use crate::results::Warning;
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
    /// What compare or demo wrote, or one workload of it; of two the second is compared with the first
    #[arg(required = true, num_args = 1..=2, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Compare with this condition instead of the experiment's own baseline
    #[arg(long, value_name = "CONDITION")]
    baseline: Option<String>,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let dirs: Vec<_> =
        args.dirs.iter().map(|dir| store::experiments(dir)).collect::<Result<_, _>>()?;
    let told = match dirs.as_slice() {
        [a, b] => {
            let pairs = pairs(a, b)?;
            one_by_one(&pairs, args.format, |(a, b)| both(a, b, args))
        }
        dirs => match dirs.concat().as_slice() {
            all if all.len() > 1 && args.format == Format::Csv => rows(all, args),
            all => one_by_one(all, args.format, |dir| one(dir, args)),
        },
    }?;
    match &args.out {
        Some(file) => Ok(store::write_durably(file, &told)?),
        None => {
            output::print(&told);
            Ok(())
        }
    }
}

/// An experiment of several workloads: what is for reading is told one after the other.
fn one_by_one<T>(
    all: &[T],
    format: Format,
    tell: impl Fn(&T) -> Result<String, Failure>,
) -> Result<String, Failure> {
    let readable = [Format::Text, Format::Markdown].contains(&format);
    if all.len() > 1 && !readable {
        let format = format.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
        return Err(Failure::message(
            USAGE,
            format!("several workloads have no common form as {format}: name the directory of one"),
        ));
    }
    Ok(all.iter().map(tell).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The workloads that both have, by the names of their directories.
fn pairs(a: &[PathBuf], b: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    if let ([a], [b]) = (a, b) {
        return Ok(vec![(a.clone(), b.clone())]);
    }
    let like = |one: &PathBuf, others: &[PathBuf]| {
        others.iter().find(|other| other.file_name() == one.file_name()).cloned()
    };
    let pairs: Vec<_> = a.iter().filter_map(|one| Some((one.clone(), like(one, b)?))).collect();
    if pairs.is_empty() {
        let list = |dirs: &[PathBuf]| {
            dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        return Err(Failure::message(
            USAGE,
            format!(
                "no workload of the one has its like in the other: name two of {}; {}",
                list(a),
                list(b)
            ),
        ));
    }
    let alone = |all: &[PathBuf], others: &[PathBuf]| {
        all.iter().filter(|one| like(one, others).is_none()).cloned().collect::<Vec<_>>()
    };
    for left_out in [alone(a, b), alone(b, a)].concat() {
        output::warn(&Warning::new(
            format!("{} is left out", left_out.display()),
            "the other experiment has no such workload",
            "see it by itself",
        ));
    }
    Ok(pairs)
}

/// Of all in one table, which names the experiment in each row.
fn rows(dirs: &[PathBuf], args: &Args) -> Result<String, Failure> {
    let mut all = Table::default();
    for dir in dirs {
        let table = report::csv::flat(&analysis::analyse(&args.read(dir)?));
        all.columns = table.columns;
        all.rows.extend(table.rows);
    }
    Ok(report::csv::render(&all))
}

fn one(dir: &Path, args: &Args) -> Result<String, Failure> {
    let stored = args.read(dir)?;
    let analysis = || analysis::analyse(&stored);
    Ok(match args.format {
        Format::Text => text(&analysis()),
        Format::Html => page(dir, &stored)?,
        Format::Markdown => markdown(&analysis()),
        Format::Csv => report::csv::render(&report::csv::flat(&analysis())),
        Format::Json => report::json::render(&analysis()),
    })
}

fn both(a: &Path, b: &Path, args: &Args) -> Result<String, Failure> {
    let found = across(&args.read(a)?, &args.read(b)?);
    let document = || report::across::document(&found);
    Ok(match args.format {
        Format::Text => report::text::render(&document()),
        Format::Html => html::of_document(&document()),
        Format::Markdown => report::markdown::render(&document(), &[]),
        Format::Csv => report::csv::render(&report::across::flat(&found)),
        Format::Json => report::json::across::render(&found),
    })
}

impl Args {
    fn read(&self, dir: &Path) -> Result<Stored, Failure> {
        // What is declared, and so what is a fault, depends on the baseline.
        let mut stored = store::read(dir)?;
        if let Some(baseline) = &self.baseline {
            stored = stored.against(baseline).map_err(|unknown| {
                Failure::new(USAGE, unknown).context(format!("--baseline: {}", dir.display()))
            })?;
        }
        analysis::judge(&mut stored);
        Ok(stored)
    }
}

pub(super) fn analyse(dir: &Path) -> Result<Analysis, StoreError> {
    Ok(analysis::analyse(&judged(dir)?))
}

/// The conditions of which no trial succeeded, a sentence each.
pub(super) fn failures(analysis: &Analysis) -> Vec<String> {
    let failed = analysis.conditions.iter().filter(|c| c.state == State::Failed);
    let told = failed.filter_map(|c| report::failure(analysis, c));
    told.map(|sentence| sentence.trim_end_matches('.').to_owned()).collect()
}

/// Judged once, so that nothing that is made from it judges a copy.
fn judged(dir: &Path) -> Result<Stored, StoreError> {
    let mut stored = store::read(dir)?;
    analysis::judge(&mut stored);
    Ok(stored)
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

fn page(dir: &Path, stored: &Stored) -> Result<String, Failure> {
    let series: Vec<_> = stored
        .trials
        .iter()
        .map(|trial| match html::is_drawn(stored, trial) {
            true => store::read_series(dir, trial),
            false => Ok(None),
        })
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
    let analysis = analysis::analyse(stored);
    let source =
        html::Source { stored, analysis: &analysis, series: &series, experiment: &experiment };
    Ok(html::render(&source))
}

/// Leaves the page beside the results. They are safe already, so a page that cannot be written is
/// only told.
pub(super) fn leave_page(dir: &Path) {
    let page = judged(dir).map_err(Failure::from).and_then(|stored| page(dir, &stored));
    leave(dir, page);
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
