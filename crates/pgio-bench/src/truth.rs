//! `pgio-bench truth` runs complete experiments with a known right answer.
//!
//! Each experiment takes the path of `compare`: its text is parsed, run, stored and analyzed. The bench
//! counts how often the 95 % interval covers the truth. A tenth of the experiments may miss it, twice
//! the nominal rate, so that the bench rarely fails by chance. Each case has one file with a function
//! `run`; [`rounds`] is shared. `tail` instead checks in single trials whether a percentile shows an
//! event, and `faults` whether each broken rule is noticed.

mod cache;
mod commit_delay;
mod demos;
mod disk;
mod faults;
mod levels;
mod margin;
mod read_iops;
pub(super) mod rounds;
mod screening;
mod stalls;
mod tail;

use self::rounds::Plan;
use pgio::cli::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    case: Case,
}

#[derive(Debug, clap::Subcommand)]
enum Case {
    /// Equal conditions: nothing differs
    Aa(cache::AaArgs),
    /// Three equal conditions on data larger than the buffers: do trials reuse blocks that others read?
    Cache(cache::Args),
    /// Two disks with different read IOPS, by loop devices and cgroup v1 (needs root)
    ReadIops(read_iops::Args),
    /// commit_delay = 20 ms against none, compared with a plain psql loop (needs psql)
    CommitDelay(Plan),
    /// The shipped demo beside busy loops: is `on` found, and is the second `local` never accused?
    Demos(demos::Args),
    /// Levels of synchronous_commit, woven against windows (10 s: --seconds 10)
    Levels(levels::Args),
    /// Effects on both sides of a margin of 5 %: which matter?
    Margin(Plan),
    /// Ten factors, of which two act and only together: are they found, and is any other accused?
    Screening(Plan),
    /// A server that is stopped for a third of the window in three trials of ten
    Stalls(Plan),
    /// A lock until after the end of an open loop's window: p99 must show it
    Tail(tail::Args),
    /// Every rule of measurement validity, broken on purpose: does its check see it? (needs root and the lab)
    Faults(faults::Args),
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.case {
        Case::Aa(args) => cache::run_aa(args),
        Case::Cache(args) => cache::run(args),
        Case::ReadIops(args) => read_iops::run(args),
        Case::CommitDelay(plan) => commit_delay::run(plan),
        Case::Demos(args) => demos::run(args),
        Case::Levels(args) => levels::run(args),
        Case::Margin(plan) => margin::run(plan),
        Case::Screening(plan) => screening::run(plan),
        Case::Stalls(plan) => stalls::run(plan),
        Case::Tail(args) => tail::run(args),
        Case::Faults(args) => faults::run(args),
    }
}
