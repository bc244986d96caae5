//! `pgio bench`: pgio itself measured, as ratios within one run.
//!
//! Machines are noisy, so two things are always run in turn (A B A B …) and a ratio is taken of
//! each pair; what is printed is the median of the ratios with the smallest and the largest. The
//! original is given by the path of its checkout; none of its code is here.

mod client;
mod command;
mod draw;
mod driver;
mod load;
mod report;
mod server;
mod telemetry;
mod truth;
mod updates;
mod upstream;
mod versus;
mod visits;

use std::time::Duration;

use self::versus::Versus;
use super::exit::Outcome;
use crate::pg::private::VersionRequest;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Block visits/s on a cached table, against the original's mypgio()
    Visits(Versus),
    /// Loading 4 tables, against the original's setup.sh (needs bash and psql)
    Load(Versus),
    /// What the draw of a key costs the server, by way of drawing: a loop with it against one without
    Draw {
        /// Draws in each loop
        #[arg(long, default_value_t = 500_000)]
        draws: u32,
        /// Pairs of loops
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// The client-side engine against pgbench (needs pgbench)
    Client(client::Args),
    /// What the driver itself costs while many sessions wait
    Driver {
        #[arg(long, default_value_t = 200)]
        sessions: u32,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// What telemetry costs: the same work with it and without
    Telemetry(telemetry::Args),
    /// What it costs pgbench to be run as a workload (needs pgbench)
    Command(command::Args),
    /// Half of the calls updates, four sessions on one table: does the table stay as it is?
    Updates {
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        seconds: u64,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// Time and memory of a report by the number of trials, on results that are made up
    Report(report::Args),
    /// Whole experiments of which the right answer is known: how often is it found?
    Truth(truth::Args),
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Visits(versus) => visits::run(versus),
        What::Load(versus) => load::run(versus),
        What::Draw { draws, rounds, pg } => draw::run(*draws, *rounds, *pg),
        What::Client(args) => client::run(args),
        What::Driver { sessions, pg } => driver::run(*sessions, *pg),
        What::Telemetry(args) => telemetry::run(args),
        What::Command(args) => command::run(args),
        What::Updates { seconds, pg } => updates::run(Duration::from_secs(*seconds), *pg),
        What::Report(args) => report::run(args),
        What::Truth(args) => truth::run(args),
    }
}
