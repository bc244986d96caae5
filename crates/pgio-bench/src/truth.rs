//! `pgio bench truth`: whole experiments of which the right answer is known.
//!
//! Each goes the way of `compare`: a text is parsed, run, stored and analysed. Counted is how often
//! the 95 % interval covers the truth; a tenth of the experiments may miss it, twice what 95 % says,
//! so that chance alone hardly ever fails the bench. One file a case, in one shape: `run`; [`rounds`] is what they
//! share. `tail` asks of single trials instead, whether a percentile shows what happened.

mod aa;
mod cache;
mod commit_delay;
mod disk;
mod read_iops;
mod rounds;
mod server;
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
    Aa(aa::Args),
    /// Three equal conditions on data larger than the buffers: do trials read what others fetched?
    Cache(cache::Args),
    /// A disk of fewer read IOPS against another, by loop devices and cgroup v1 (needs root)
    ReadIops(read_iops::Args),
    /// commit_delay = 20 ms against none, beside a plain psql loop (needs psql)
    CommitDelay(Plan),
    /// A server that stands still for a third of the window in three trials of ten
    Stalls(Plan),
    /// A lock until after the end of an open loop's window: p99 must show it
    Tail(tail::Args),
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.case {
        Case::Aa(args) => aa::run(args),
        Case::Cache(args) => cache::run(args),
        Case::ReadIops(args) => read_iops::run(args),
        Case::CommitDelay(plan) => commit_delay::run(plan),
        Case::Stalls(plan) => stalls::run(plan),
        Case::Tail(args) => tail::run(args),
    }
}
