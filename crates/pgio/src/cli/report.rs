//! `pgio report`: shows a stored experiment in any format, or compares two stored
//! experiments.
//!
//! `pgio_report::directories` reads, judges and compares the results.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::exit::{Failure, Outcome, USAGE};
use super::gate::{self, MarginArg, RuleArg};
use super::output;
use pgio_report::directories::{self, LoadedReport};
use pgio_report::report::{self, html};
use pgio_results::store::{self, Manifest, StoreError, StoredExperiment};
use pgio_verdict::across::Across;
use pgio_verdict::sides::{self, WorkloadPairs};
use pgio_verdict::{self as analysis, Analysis};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    /// One self-contained page
    Html,
    Markdown,
    /// One row per condition and metric
    Csv,
    Json,
    /// For Prometheus; a .prom file for node exporter's textfile collector
    Openmetrics,
    /// Test cases for CI: each condition, or each --fail-if
    Junit,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 2 if two experiments have no condition or no workload in common."
)]
pub(super) struct Args {
    /// Results of compare or demo, or of one workload; given two, compare the second with the first
    #[arg(required = true, num_args = 1.., value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Compare the runs in DIR with these older runs; with three or more runs on each side, differences are
    /// judged
    #[arg(long, num_args = 1.., value_name = "DIR")]
    against: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With --format text: all tables and remarks, not only the answers
    #[arg(long)]
    all: bool,
    /// Compare with this condition instead of the experiment's own baseline
    #[arg(long, value_name = "CONDITION")]
    baseline: Option<String>,
    /// The margin: an effect smaller than this share does not matter; replaces that of the experiment
    #[arg(long, value_name = "SHARE")]
    matters: Option<MarginArg>,
    /// Exit with 8 if a condition is worse by more than the margin, with 9 if that is undecided
    #[arg(long)]
    gate: bool,
    /// Exit with 8 if the runs are slower than those of --against by more than this share, such as
    /// slower:5%, changed:5% or commit_latency_p99:slower:10%; with 9 if that is undecided. May be repeated
    #[arg(long, value_name = "RULE", requires = "against")]
    fail_if: Vec<RuleArg>,
    /// With --format csv: a row for each trial and a column for each metric
    #[arg(long)]
    wide: bool,
    /// Write to this file instead of stdout
    #[arg(long, visible_alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let judged = !args.against.is_empty();
    if args.dirs.len() > 1 && !judged && (args.gate || args.matters.is_some()) {
        let why = "--gate and --matters are about one experiment: name one results directory, or --against \
                   and the runs to compare with";
        return Err(Failure::message(USAGE, why));
    }
    if judged && args.matters.is_some() && !args.gate {
        let why = "--matters with --against is the margin of --gate: add --gate, or use --fail-if";
        return Err(Failure::message(USAGE, why));
    }
    if args.dirs.len() > 1 && !judged && args.format == Format::Junit {
        let why = "--format junit of several results shows the rules between them: name the older ones after \
                   --against, with --fail-if or --gate";
        return Err(Failure::message(USAGE, why));
    }
    if args.wide && (args.format != Format::Csv || judged || args.dirs.len() > 1) {
        let why = "--wide is a form of --format csv for one experiment";
        return Err(Failure::message(USAGE, why));
    }
    if args.all && (args.format != Format::Text || judged || args.dirs.len() > 1) {
        let why = "--all is a form of --format text for one experiment";
        return Err(Failure::message(USAGE, why));
    }
    let workloads = |dirs: &[PathBuf]| -> Result<Vec<Vec<PathBuf>>, StoreError> {
        dirs.iter().map(|dir| store::experiments(dir)).collect()
    };
    let (dirs, against) = (workloads(&args.dirs)?, workloads(&args.against)?);
    if judged && args.format == Format::Junit && args.fail_if.is_empty() && !args.gate {
        let why = "--format junit with --against shows the rules: add --fail-if or --gate";
        return Err(Failure::message(USAGE, why));
    }
    match (dirs.as_slice(), against.as_slice()) {
        ([a, b], []) => compare_sides(std::slice::from_ref(a), std::slice::from_ref(b), args),
        ([_, _, _, ..], []) => Err(Failure::message(
            USAGE,
            "more than two results: name the runs of one side, then --against and the runs of the \
             other",
        )),
        // The older side is A, as where two results are named in the order of time.
        (new, old @ [_, ..]) => compare_sides(old, new, args),
        (dirs, []) => one_experiment(&dirs.concat(), args),
    }
}

/// Shows the workloads of one experiment, each judged once, and answers for the gate.
fn one_experiment(dirs: &[PathBuf], args: &Args) -> Outcome {
    let is_one_document =
        matches!(args.format, Format::Csv | Format::Html | Format::Junit | Format::Openmetrics);
    if !is_one_document {
        check_shown_together(dirs.len(), args.format)?;
    }
    let judge = |dir: &PathBuf| Ok(LoadedReport::new(dir, args.read(dir)?));
    let all = dirs.iter().map(judge).collect::<Result<Vec<_>, Failure>>()?;
    let analyses: Vec<&Analysis> = all.iter().map(|judged| &judged.analysis).collect();
    for analysis in &analyses {
        gate::check_margin(args.gate, analysis.margin)?;
    }
    let rendered = match all.as_slice() {
        all if args.wide => report::csv::render(&report::csv::wide(&stored(all))),
        _ if args.format == Format::Junit => report::junit::experiments(&analyses),
        all if args.format == Format::Openmetrics => {
            report::openmetrics::render(&with_manifests(all))
        }
        [_, _, ..] if args.format == Format::Csv => {
            report::csv::render(&report::csv::flat_all(&analyses))
        }
        [_, _, ..] if args.format == Format::Html => {
            if args.baseline.is_some() || args.matters.is_some() {
                let why = "--baseline and --matters do not change the pages of the workloads, to which this page \
                           leads: name the directory of one workload";
                return Err(Failure::message(USAGE, why));
            }
            let directory = args.out.as_deref().and_then(Path::parent).unwrap_or(&args.dirs[0]);
            directories::index(directory, &all)
        }
        all => render_each(all, |judged| render_one(judged, args))?,
    };
    args.write(&rendered)?;
    if args.gate { gate::outcome(&analyses) } else { Ok(()) }
}

fn stored(all: &[LoadedReport]) -> Vec<&StoredExperiment> {
    all.iter().map(|judged| &judged.stored).collect()
}

fn with_manifests(all: &[LoadedReport]) -> Vec<(&Manifest, &Analysis)> {
    all.iter().map(|judged| (&judged.stored.manifest, &judged.analysis)).collect()
}

/// Refuses several workloads in a format that holds only one.
fn check_shown_together(workloads: usize, format: Format) -> Outcome {
    let readable = [Format::Text, Format::Markdown].contains(&format);
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
fn render_each<T>(
    all: &[T],
    show: impl Fn(&T) -> Result<String, Failure>,
) -> Result<String, Failure> {
    Ok(all.iter().map(show).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Compares the runs of both sides, workload by workload.
fn compare_sides(a: &[Vec<PathBuf>], b: &[Vec<PathBuf>], args: &Args) -> Outcome {
    let WorkloadPairs { pairs, left_out } = sides::pair_workloads(&a[0], &b[0])?;
    output::warn_all(&left_out);
    let runs = |(of_a, of_b): &(PathBuf, PathBuf)| {
        Ok((sides::runs_like(of_a, a)?, sides::runs_like(of_b, b)?))
    };
    let sides = pairs.iter().map(runs).collect::<Result<Vec<_>, Failure>>()?;
    check_shown_together(sides.len(), args.format)?;
    let found = sides.iter().map(|(a, b)| compare(a, b, args)).collect::<Result<Vec<_>, _>>()?;
    args.write(&render_each(&found, |(found, rules)| render_comparison(found, rules, args))?)?;
    let rules: gate::RuleResults = found.into_iter().flat_map(|(_, rules)| rules).collect();
    if rules.is_empty() { Ok(()) } else { gate::rules_outcome(&rules) }
}

fn render_one(judged: &LoadedReport, args: &Args) -> Result<String, Failure> {
    let analysis = &judged.analysis;
    Ok(match args.format {
        Format::Text if args.all => report::text::render(&report::document(analysis)),
        Format::Text => {
            short_text(analysis, &format!("pgio compare --resume {}", args.dirs[0].display()))
        }
        Format::Html => judged.page()?,
        Format::Markdown => markdown(analysis),
        Format::Csv => report::csv::render(&report::csv::flat(analysis)),
        Format::Json => report::json::render(analysis),
        Format::Openmetrics => report::openmetrics::render(&[(&judged.stored.manifest, analysis)]),
        Format::Junit => report::junit::experiments(&[analysis]),
    })
}

/// Compares the runs of one workload, and applies the rules.
fn compare(
    a: &[PathBuf],
    b: &[PathBuf],
    args: &Args,
) -> Result<(Across, gate::RuleResults), Failure> {
    let read = |dirs: &[PathBuf]| dirs.iter().map(|d| args.read(d)).collect::<Result<Vec<_>, _>>();
    let (stored_a, stored_b) = (read(a)?, read(b)?);
    let named: Vec<_> = args.fail_if.iter().filter_map(|rule| rule.0.metric.clone()).collect();
    let found = sides::compare((&a[0], &b[0]), &stored_a, &stored_b, &named)?;
    let margin = || gate::required_margin("--gate", stored_b[0].manifest.rules.matters);
    let margin = args.gate.then(margin).transpose()?;
    let rules = gate::judge(&found, &args.fail_if, margin)?;
    Ok((found, rules))
}

fn render_comparison(
    found: &Across,
    rules: &gate::RuleResults,
    args: &Args,
) -> Result<String, Failure> {
    let document = || report::across::document(found);
    Ok(match args.format {
        Format::Text => report::text::render(&document()),
        Format::Html => html::document_page(&document()),
        Format::Markdown => report::markdown::render(&document(), &[]),
        Format::Csv => report::csv::render(&report::across::flat(found)),
        Format::Json => report::json::render(found),
        Format::Junit => report::junit::rulings(&found.b.experiment, rules),
        Format::Openmetrics => {
            let why = "--format openmetrics is for one experiment: name one results directory";
            return Err(Failure::message(USAGE, why));
        }
    })
}

impl Args {
    fn read(&self, dir: &Path) -> Result<StoredExperiment, Failure> {
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

    fn write(&self, rendered: &str) -> Outcome {
        match &self.out {
            Some(file) => store::write_named(file, rendered)?,
            None => output::document(rendered),
        }
        Ok(())
    }
}

/// The short report; `rerun` is the command that adds blocks.
pub(super) fn short_text(analysis: &Analysis, rerun: &str) -> String {
    report::text::render(&report::summary(analysis, rerun))
}

fn markdown(analysis: &Analysis) -> String {
    report::markdown::render(&report::answered(analysis), &report::lead(analysis))
}
