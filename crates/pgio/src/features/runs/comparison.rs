//! `pgio report` of several results: compares two runs, or the runs of two sides, and applies rules to the difference.

use std::path::PathBuf;

use clap::{Args as _, FromArgMatches};

use super::JUNIT;
use super::rules::{self, RuleArg, RuleResults};
use super::sides::{self, WorkloadPairs};
use crate::cli::exit::{Failure, Outcome, USAGE};
use crate::cli::report::{Args, Format, check_shown_together, render_each};
use crate::cli::{gate, output};
use crate::feature::Report;
use pgio_report::report::{self, html};
use pgio_results::store::{self, StoreError};
use pgio_verdict::across::Across;

pub(super) const REPORT: Report = Report {
    define: |command| {
        let help = "Results of compare or demo, or of one workload; given two, compare the second with the first";
        let after = "Exits with 2 if two experiments have no condition or no workload in common.";
        Flags::augment_args(command).mut_arg("dirs", |dirs| dirs.help(help)).after_help(after)
    },
    show: |args, matches| {
        let flags = match Flags::from_arg_matches(matches) {
            Ok(flags) => flags,
            Err(wrong) => return Some(Err(Failure::new(USAGE, wrong))),
        };
        let is_of_one = flags.against.is_empty() && args.dirs.len() == 1;
        (!is_of_one).then(|| show(args, &flags))
    },
};

#[derive(Debug, clap::Args)]
struct Flags {
    /// Compare the runs in DIR with these older runs; with three or more runs on each side, differences are
    /// judged
    #[arg(long, num_args = 1.., value_name = "DIR", display_order = 0)]
    against: Vec<PathBuf>,
    /// Exit with 8 if the runs are slower than those of --against by more than this share, such as
    /// slower:5%, changed:5% or commit_latency_p99:slower:10%; with 9 if that is undecided. May be repeated
    #[arg(long, value_name = "RULE", requires = "against", display_order = 5)]
    fail_if: Vec<RuleArg>,
}

fn is_junit(format: &Format) -> bool {
    matches!(format, Format::OfFeature(format) if format.name == JUNIT.name)
}

fn show(args: &Args, flags: &Flags) -> Outcome {
    check(args, flags)?;
    args.check_forms(false)?;
    let workloads = |dirs: &[PathBuf]| -> Result<Vec<Vec<PathBuf>>, StoreError> {
        dirs.iter().map(|dir| store::experiments(dir)).collect()
    };
    let (dirs, against) = (workloads(&args.dirs)?, workloads(&flags.against)?);
    let rules = flags.fail_if.as_slice();
    if !against.is_empty() && is_junit(&args.format) && rules.is_empty() && !args.gate {
        let why = "--format junit with --against shows the rules: add --fail-if or --gate";
        return Err(Failure::message(USAGE, why));
    }
    match (dirs.as_slice(), against.as_slice()) {
        ([a, b], []) => {
            compare_sides(std::slice::from_ref(a), std::slice::from_ref(b), args, rules)
        }
        (_, []) => Err(Failure::message(
            USAGE,
            "more than two results: name the runs of one side, then --against and the runs of the \
             other",
        )),
        // The older side is A, as where two results are named in the order of time.
        (new, old) => compare_sides(old, new, args, rules),
    }
}

fn check(args: &Args, flags: &Flags) -> Outcome {
    let judged = !flags.against.is_empty();
    let why = if !judged && (args.gate || args.matters.is_some()) {
        "--gate and --matters are about one experiment: name one results directory, or --against \
         and the runs to compare with"
    } else if judged && args.matters.is_some() && !args.gate {
        "--matters with --against is the margin of --gate: add --gate, or use --fail-if"
    } else if !judged && is_junit(&args.format) {
        "--format junit of several results shows the rules between them: name the older ones after \
         --against, with --fail-if or --gate"
    } else {
        return Ok(());
    };
    Err(Failure::message(USAGE, why))
}

/// Compares the runs of both sides, workload by workload.
fn compare_sides(
    a: &[Vec<PathBuf>],
    b: &[Vec<PathBuf>],
    args: &Args,
    rules: &[RuleArg],
) -> Outcome {
    let WorkloadPairs { pairs, left_out } = sides::pair_workloads(&a[0], &b[0])?;
    output::warn_all(&left_out);
    let runs = |(of_a, of_b): &(PathBuf, PathBuf)| {
        Ok((sides::runs_like(of_a, a)?, sides::runs_like(of_b, b)?))
    };
    let sides = pairs.iter().map(runs).collect::<Result<Vec<_>, Failure>>()?;
    check_shown_together(sides.len(), &args.format)?;
    let found =
        sides.iter().map(|(a, b)| compare(a, b, args, rules)).collect::<Result<Vec<_>, _>>()?;
    args.write(&render_each(&found, |(found, rules)| render_comparison(found, rules, args))?)?;
    let rules: RuleResults = found.into_iter().flat_map(|(_, rules)| rules).collect();
    if rules.is_empty() { Ok(()) } else { rules::outcome(&rules) }
}

/// Compares the runs of one workload, and applies the rules.
fn compare(
    a: &[PathBuf],
    b: &[PathBuf],
    args: &Args,
    rules: &[RuleArg],
) -> Result<(Across, RuleResults), Failure> {
    let read = |dirs: &[PathBuf]| dirs.iter().map(|d| args.read(d)).collect::<Result<Vec<_>, _>>();
    let (stored_a, stored_b) = (read(a)?, read(b)?);
    let named: Vec<_> = rules.iter().filter_map(|rule| rule.0.metric.clone()).collect();
    let found = sides::compare((&a[0], &b[0]), &stored_a, &stored_b, &named)?;
    let margin = || gate::required_margin("--gate", stored_b[0].manifest.rules.matters);
    let margin = args.gate.then(margin).transpose()?;
    let rules = rules::judge(&found, rules, margin)?;
    Ok((found, rules))
}

fn render_comparison(found: &Across, rules: &RuleResults, args: &Args) -> Result<String, Failure> {
    let document = || report::across::document(found);
    Ok(match &args.format {
        Format::Text => report::text::render(&document()),
        Format::Html => html::document_page(&document()),
        Format::Markdown => report::markdown::render(&document(), &[]),
        Format::Csv => report::csv::render(&report::across::flat(found)),
        Format::Json => report::json::render(found),
        format if is_junit(format) => report::junit::rulings(&found.b.experiment, rules),
        Format::OfFeature(format) => {
            let name = format.name;
            let why = format!("--format {name} is for one experiment: name one results directory");
            return Err(Failure::message(USAGE, why));
        }
    })
}
