//! `pgio report`: shows a stored experiment in any format, or compares two stored
//! experiments.

use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;

use super::exit::{Failure, Outcome, USAGE};
use super::fail_if::{self, RuleArg};
use super::gate::{self, MarginArg};
use super::output;
use pgio_report::analysis::across::{Across, across};
use pgio_report::analysis::{self, Analysis};
use pgio_report::report::table::Table;
use pgio_report::report::{self, html};
use pgio_results::Warning;
use pgio_results::change::Change;
use pgio_results::store::{self, Manifest, StoreError, StoredExperiment};

/// The page that `compare` and `demo` write beside the results.
const PAGE: &str = "report.html";

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
    if args.wide && (args.format != Format::Csv || judged || args.dirs.len() > 1) {
        let why = "--wide is a form of --format csv for one experiment";
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
        ([a, b], []) => compared(std::slice::from_ref(a), std::slice::from_ref(b), args),
        ([_, _, _, ..], []) => Err(Failure::message(
            USAGE,
            "more than two results: name the runs of one side, then --against and the runs of the \
             other",
        )),
        // The older side is A, as where two results are named in the order of time.
        (new, old @ [_, ..]) => compared(old, new, args),
        (dirs, []) => one_experiment(&dirs.concat(), args),
    }
}

/// Shows the workloads of one experiment, each judged once, and answers for the gate.
fn one_experiment(dirs: &[PathBuf], args: &Args) -> Outcome {
    let in_one =
        matches!(args.format, Format::Csv | Format::Html | Format::Junit | Format::Openmetrics);
    if !in_one {
        check_shown_together(dirs.len(), args.format)?;
    }
    let judge = |dir: &PathBuf| Ok(LoadedReport::new(dir, args.read(dir)?));
    let all = dirs.iter().map(judge).collect::<Result<Vec<_>, Failure>>()?;
    let analyses: Vec<&Analysis> = all.iter().map(|judged| &judged.analysis).collect();
    for analysis in &analyses {
        gate::check_margin(args.gate, analysis.margin)?;
    }
    let rendered = match all.as_slice() {
        all if args.wide => report::csv::render(&report::wide::flat(&stored(all))),
        _ if args.format == Format::Junit => report::junit::experiments(&analyses),
        all if args.format == Format::Openmetrics => {
            report::openmetrics::render(&with_manifests(all))
        }
        [_, _, ..] if args.format == Format::Csv => rows(&analyses),
        [_, _, ..] if args.format == Format::Html => {
            if args.baseline.is_some() || args.matters.is_some() {
                let why = "--baseline and --matters do not change the pages of the workloads, to which this page \
                           leads: name the directory of one workload";
                return Err(Failure::message(USAGE, why));
            }
            let directory = args.out.as_deref().and_then(Path::parent).unwrap_or(&args.dirs[0]);
            index(directory, &all, &analyses)
        }
        all => each(all, |judged| render_one(judged, args.format))?,
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
fn each<T>(all: &[T], show: impl Fn(&T) -> Result<String, Failure>) -> Result<String, Failure> {
    Ok(all.iter().map(show).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Compares the runs of both sides, workload by workload.
fn compared(a: &[Vec<PathBuf>], b: &[Vec<PathBuf>], args: &Args) -> Outcome {
    let mut sides = Vec::new();
    for (first_a, first_b) in pairs(&a[0], &b[0])? {
        let runs = |first: &PathBuf, side: &[Vec<PathBuf>]| -> Result<Vec<PathBuf>, Failure> {
            let (alone, others) = (side[0].len() == 1, &side[1..]);
            let like = |run: &Vec<PathBuf>| match run.as_slice() {
                // The first of several workloads, if the run ended early, is not each of them.
                [only] if alone => Ok(only.clone()),
                all => all.iter().find(|d| d.file_name() == first.file_name()).cloned().ok_or_else(
                    || {
                        let message = format!("no workload like {} in this run", first.display());
                        Failure::message(USAGE, message)
                    },
                ),
            };
            let others = others.iter().map(like).collect::<Result<Vec<_>, _>>()?;
            Ok([vec![first.clone()], others].concat())
        };
        sides.push((runs(&first_a, a)?, runs(&first_b, b)?));
    }
    check_shown_together(sides.len(), args.format)?;
    let found = sides.iter().map(|(a, b)| compare(a, b, args)).collect::<Result<Vec<_>, _>>()?;
    args.write(&each(&found, |(found, rules)| render_comparison(found, rules, args))?)?;
    let rules: fail_if::RuleResults = found.into_iter().flat_map(|(_, rules)| rules).collect();
    if rules.is_empty() { Ok(()) } else { fail_if::outcome(&rules) }
}

/// Pairs the workloads of both experiments by directory name.
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
                "the experiments have no workload in common: name two of {}; {}",
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
            format!("{} is excluded", left_out.display()),
            "the other experiment has no such workload",
            "show its report separately",
        ));
    }
    Ok(pairs)
}

/// Renders the index page that links the pages of several workloads.
fn index(dir: &Path, all: &[LoadedReport], analyses: &[&Analysis]) -> String {
    // Each workload's experiment is named after the file, then after its own directory.
    let name = |judged: &LoadedReport| {
        let own = judged.dir.file_name().map_or_else(String::new, |n| format!(" {}", n.display()));
        let name = &judged.stored.manifest.name;
        name.strip_suffix(&own).unwrap_or(name).to_owned()
    };
    let title = all.first().map_or_else(String::new, name);
    let dirs: Vec<&Path> = all.iter().map(|judged| judged.dir.as_path()).collect();
    index_of(dir, &title, &dirs, analyses)
}

/// `dir` is the directory of the page.
fn index_of(dir: &Path, title: &str, dirs: &[&Path], analyses: &[&Analysis]) -> String {
    let place = |d: &&Path| way_from(dir, d).join(PAGE).display().to_string();
    let workloads: Vec<_> = dirs.iter().map(place).zip(analyses.iter().copied()).collect();
    html::index(title, &workloads)
}

/// The relative path from one directory to another.
fn way_from(from: &Path, to: &Path) -> PathBuf {
    // An empty path is the working directory.
    let whole = |dir: &Path| fs::canonicalize(Path::new(".").join(dir));
    let (Ok(from), Ok(to)) = (whole(from), whole(to)) else { return to.to_owned() };
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// Renders all in one table, with the experiment's name in each row.
fn rows(analyses: &[&Analysis]) -> String {
    let mut all = Table::default();
    for analysis in analyses {
        let table = report::csv::flat(analysis);
        all.columns = table.columns;
        all.rows.extend(table.rows);
    }
    report::csv::render(&all)
}

fn render_one(judged: &LoadedReport, format: Format) -> Result<String, Failure> {
    let analysis = &judged.analysis;
    Ok(match format {
        Format::Text => text(analysis),
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
) -> Result<(Across, fail_if::RuleResults), Failure> {
    let read = |dirs: &[PathBuf]| dirs.iter().map(|d| args.read(d)).collect::<Result<Vec<_>, _>>();
    let (stored_a, stored_b) = (read(a)?, read(b)?);
    must_have_a_condition_in_common((&a[0], &stored_a[0]), (&b[0], &stored_b[0]))?;
    let found = across(&stored_a, &stored_b, &fail_if::metrics(&args.fail_if));
    let margin = || gate::required_margin("--gate", stored_b[0].manifest.rules.matters);
    let margin = args.gate.then(margin).transpose()?;
    let rules = fail_if::judge(&found, &args.fail_if, margin)?;
    Ok((found, rules))
}

fn render_comparison(
    found: &Across,
    rules: &fail_if::RuleResults,
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

/// Refuses experiments without a common condition; an empty table would look like a result.
fn must_have_a_condition_in_common(
    a: (&Path, &StoredExperiment),
    b: (&Path, &StoredExperiment),
) -> Result<(), Failure> {
    fn names(stored: &StoredExperiment) -> Vec<&str> {
        stored.manifest.conditions.iter().map(|c| c.name.as_str()).collect()
    }
    let (of_a, of_b) = (names(a.1), names(b.1));
    if of_a.iter().any(|name| of_b.contains(name)) {
        return Ok(());
    }
    let list = |(dir, _): (&Path, &StoredExperiment), names: &[&str]| {
        format!("{} has {}", dir.display(), names.join(", "))
    };
    Err(Failure::message(
        USAGE,
        format!(
            "the experiments have no condition in common: {}; {}",
            list(a, &of_a),
            list(b, &of_b)
        ),
    ))
}

impl Args {
    fn read(&self, dir: &Path) -> Result<StoredExperiment, Failure> {
        // Declared changes, and so faults, depend on the baseline.
        let mut stored = read(dir)?;
        if let Some(baseline) = &self.baseline {
            stored = stored.against(baseline).map_err(|unknown| {
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

pub fn analyze(dir: &Path) -> Result<Analysis, StoreError> {
    Ok(judged(dir)?.analysis)
}

/// The results of one workload, read and judged once for all formats and the gate.
pub(super) struct LoadedReport {
    dir: PathBuf,
    pub(super) stored: StoredExperiment,
    pub(super) analysis: Analysis,
}

impl LoadedReport {
    fn new(dir: &Path, stored: StoredExperiment) -> LoadedReport {
        let analysis = analysis::analyze(&stored);
        LoadedReport { dir: dir.to_owned(), stored, analysis }
    }

    pub(super) fn page(&self) -> Result<String, Failure> {
        let LoadedReport { dir, stored, analysis } = self;
        let series: Vec<_> = stored
            .trials
            .iter()
            .map(|trial| match html::is_drawn(stored, trial) {
                true => store::read_series(dir, trial),
                false => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        // The page works without it.
        let experiment = store::read_experiment(dir)?;
        let experiment =
            experiment.unwrap_or_else(|| "# not stored with these results\n".to_owned());
        let source = html::Source { stored, analysis, series: &series, experiment: &experiment };
        Ok(html::render(&source))
    }
}

pub(super) fn judged(dir: &Path) -> Result<LoadedReport, StoreError> {
    let mut stored = read(dir)?;
    analysis::judge(&mut stored);
    Ok(LoadedReport::new(dir, stored))
}

/// Reads results and puts each name on one line: a line break in a name could forge a table row.
pub(super) fn read(dir: &Path) -> Result<StoredExperiment, StoreError> {
    let mut stored = store::read(dir)?;
    let one_line = |name: &mut String| *name = printable::line(name).into_owned();
    let manifest = &mut stored.manifest;
    one_line(&mut manifest.name);
    one_line(&mut manifest.baseline);
    manifest.aa.iter_mut().for_each(one_line);
    for condition in &mut manifest.conditions {
        one_line(&mut condition.name);
        condition.changes.iter_mut().flat_map(Change::texts_mut).for_each(one_line);
    }
    for place in stored.trials.iter_mut().filter_map(|trial| trial.place.as_mut()) {
        one_line(&mut place.experiment);
        one_line(&mut place.condition);
    }
    Ok(stored)
}

/// Renders the comparison and what was observed, for a demo.
pub(super) fn short(analysis: &Analysis) -> String {
    report::text::render(&report::brief(analysis))
}

pub(super) fn text(analysis: &Analysis) -> String {
    report::text::render(&report::document(analysis))
}

fn markdown(analysis: &Analysis) -> String {
    report::markdown::render(&report::answered(analysis), &report::lead(analysis))
}

/// Writes the page beside the results. They are stored already, so a page that cannot be written is
/// only a warning.
pub(super) fn write_page(dir: &Path) {
    let page = judged(dir).map_err(Failure::from).and_then(|judged| judged.page());
    write_beside(dir, page);
}

/// Writes an index page that links the pages of the workloads.
pub(super) fn write_index(dir: &Path, title: &str, dirs: &[PathBuf]) {
    let analyses: Result<Vec<Analysis>, StoreError> = dirs.iter().map(|d| analyze(d)).collect();
    let index = analyses.map(|all| {
        let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
        index_of(dir, title, &dirs, &all.iter().collect::<Vec<_>>())
    });
    write_beside(dir, index.map_err(Failure::from));
}

fn write_beside(dir: &Path, page: Result<String, Failure>) {
    let file = dir.join(PAGE);
    let written = page.and_then(|text| Ok(store::write_durably(&file, &text)?));
    if let Err(failure) = written {
        output::note(&format!("warning: cannot write {}: {}", file.display(), failure.sentence()));
    }
}

/// Returns the path of an experiment's page.
pub(super) fn page_of(dir: &Path) -> String {
    dir.join(PAGE).display().to_string()
}
