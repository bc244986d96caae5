//! `pgio report`: shows a stored experiment in any format.
//!
//! `pgio_report::directories` reads and judges the results. A feature may add formats, and reports of something else
//! than one experiment.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::exit::{Failure, Outcome, USAGE};
use super::gate::{self, MarginArg};
use super::output;
use crate::feature;
use pgio_report::directories::{self, LoadedReport};
use pgio_report::report::{self, Report};
use pgio_results::store::{self, StoredExperiment};
use pgio_verdict::{self as analysis, Analysis};

#[derive(Debug, Clone)]
pub(crate) enum Format {
    Text,
    Html,
    Markdown,
    Csv,
    Json,
    OfFeature(&'static feature::Format),
}

static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    let own = [Format::Text, Format::Html, Format::Markdown, Format::Csv, Format::Json];
    own.into_iter().chain(feature::formats().map(Format::OfFeature)).collect()
});

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Format] {
        &FORMATS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Format::Text => PossibleValue::new("text"),
            Format::Html => PossibleValue::new("html").help("One self-contained page"),
            Format::Markdown => PossibleValue::new("markdown"),
            Format::Csv => PossibleValue::new("csv").help("One row per condition and metric"),
            Format::Json => PossibleValue::new("json"),
            Format::OfFeature(format) => PossibleValue::new(format.name).help(format.help),
        })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Results of compare or demo, or of one workload
    #[arg(required = true, num_args = 1.., value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
    /// With --format text: all tables and remarks, not only the answers
    #[arg(long)]
    pub(crate) all: bool,
    /// Compare with this condition instead of the experiment's own baseline
    #[arg(long, value_name = "CONDITION")]
    pub(crate) baseline: Option<String>,
    /// The margin: an effect smaller than this share does not matter; replaces that of the experiment
    #[arg(long, value_name = "SHARE")]
    pub(crate) matters: Option<MarginArg>,
    /// Exit with 8 if a condition is worse by more than the margin, with 9 if that is undecided
    #[arg(long)]
    pub(crate) gate: bool,
    /// With --format csv: a row for each trial and a column for each metric
    #[arg(long)]
    pub(crate) wide: bool,
    /// Write to this file instead of stdout
    #[arg(long, visible_alias = "output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

pub(super) fn run(args: &Args, matches: &clap::ArgMatches) -> Outcome {
    if let Some(outcome) = feature::reports().find_map(|other| (other.show)(args, matches)) {
        return outcome;
    }
    args.check_forms(true)?;
    match args.dirs.as_slice() {
        [dir] => one_experiment(&store::experiments(dir)?, args),
        _ => Err(Failure::message(USAGE, "more than one results directory: name one")),
    }
}

/// Shows the workloads of one experiment, each judged once, and answers for the gate.
fn one_experiment(dirs: &[PathBuf], args: &Args) -> Outcome {
    let is_one_document = matches!(args.format, Format::Csv | Format::Html | Format::OfFeature(_));
    if !is_one_document {
        check_shown_together(dirs.len(), &args.format)?;
    }
    let judge = |dir: &PathBuf| Ok(LoadedReport::new(dir, args.read(dir)?, &feature::findings()));
    let all = dirs.iter().map(judge).collect::<Result<Vec<_>, Failure>>()?;
    let analyses: Vec<&Analysis> = all.iter().map(|judged| &judged.analysis).collect();
    for analysis in &analyses {
        gate::check_margin(args.gate, analysis.margin)?;
    }
    let rendered = match (&args.format, all.as_slice()) {
        (_, all) if args.wide => report::csv::render(&report::csv::wide(&stored(all))),
        (Format::OfFeature(format), all) => (format.render)(all),
        (Format::Csv, [_, _, ..]) => report::csv::render(&report::csv::flat_all(
            &all.iter().map(LoadedReport::report).collect::<Vec<_>>(),
        )),
        (Format::Html, [_, _, ..]) => {
            if args.baseline.is_some() || args.matters.is_some() {
                let why = "--baseline and --matters do not change the pages of the workloads, to which this page \
                           leads: name the directory of one workload";
                return Err(Failure::message(USAGE, why));
            }
            let directory = args.out.as_deref().and_then(Path::parent).unwrap_or(&args.dirs[0]);
            directories::index(directory, &all)
        }
        (_, all) => render_each(all, |judged| render_one(judged, args))?,
    };
    args.write(&rendered)?;
    if args.gate { gate::outcome(&analyses) } else { Ok(()) }
}

fn stored(all: &[LoadedReport]) -> Vec<&StoredExperiment> {
    all.iter().map(|judged| &judged.stored).collect()
}

/// Refuses several workloads in a format that holds only one.
pub(crate) fn check_shown_together(workloads: usize, format: &Format) -> Outcome {
    let readable = matches!(format, Format::Text | Format::Markdown);
    if workloads > 1 && !readable {
        let format = format.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
        return Err(Failure::message(
            USAGE,
            format!(
                "several workloads cannot be shown together as {format}: name the directory of one workload"
            ),
        ));
    }
    Ok(())
}

/// Shows workloads one after the other.
pub(crate) fn render_each<T>(
    all: &[T],
    show: impl Fn(&T) -> Result<String, Failure>,
) -> Result<String, Failure> {
    Ok(all.iter().map(show).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn render_one(judged: &LoadedReport, args: &Args) -> Result<String, Failure> {
    let analysis = &judged.analysis;
    Ok(match args.format {
        Format::Text if args.all => report::text::render(&report::document(judged.report())),
        Format::Text => {
            short_text(judged, &format!("pgio compare --resume {}", args.dirs[0].display()))
        }
        Format::Html => judged.page()?,
        Format::Markdown => markdown(judged.report()),
        Format::Csv => report::csv::render(&report::csv::flat(judged.report())),
        Format::Json => report::json::render(analysis),
        Format::OfFeature(format) => (format.render)(std::slice::from_ref(judged)),
    })
}

impl Args {
    /// Refuses forms of a format that is not asked for, or that are only for one experiment.
    pub(crate) fn check_forms(&self, is_of_one: bool) -> Outcome {
        if self.wide && !(is_of_one && matches!(self.format, Format::Csv)) {
            let why = "--wide is a form of --format csv for one experiment";
            return Err(Failure::message(USAGE, why));
        }
        if self.all && !(is_of_one && matches!(self.format, Format::Text)) {
            let why = "--all is a form of --format text for one experiment";
            return Err(Failure::message(USAGE, why));
        }
        Ok(())
    }

    pub(crate) fn read(&self, dir: &Path) -> Result<StoredExperiment, Failure> {
        // Declared changes, and so faults, depend on the baseline.
        let mut stored = store::read(dir)?;
        if let Some(baseline) = &self.baseline {
            stored = stored.with_baseline(baseline).map_err(|unknown| {
                Failure::new(USAGE, unknown).context(format!("--baseline: {}", dir.display()))
            })?;
        }
        if let Some(margin) = &self.matters {
            stored.manifest.rules.matters = Some(margin.share);
        }
        analysis::judge(&mut stored);
        Ok(stored)
    }

    pub(crate) fn write(&self, rendered: &str) -> Outcome {
        match &self.out {
            Some(file) => store::write_named(file, rendered)?,
            None => output::document(rendered),
        }
        Ok(())
    }
}

/// The short report; `rerun` is the command that adds blocks.
pub(super) fn short_text(judged: &LoadedReport, rerun: &str) -> String {
    report::text::render(&report::summary(judged.report(), rerun))
}

fn markdown(found: Report<'_>) -> String {
    report::markdown::render(&report::answered(found), &report::lead(found))
}
