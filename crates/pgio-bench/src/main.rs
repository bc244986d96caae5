//! `pgio-bench` measures pgio itself, as ratios within one run.
//!
//! Machines are noisy, so the two measured things take turns (A B A B …), and each pair gives a ratio.
//! The output is the median of the ratios with the smallest and the largest. `--upstream` names a
//! checkout of the original pgio, whose code is not included here.
//!
//! This program is for developers of pgio. It is a separate crate, so that users neither build nor
//! install it.

// Its own sessions meet only its own servers.
#![allow(clippy::disallowed_methods)]

mod client;
mod command;
mod draw;
mod driver;
mod history;
mod load;
mod report;
mod server;
mod telemetry;
mod truth;
mod upstream;
mod weave;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::upstream::UpstreamArgs;
use pgio::cli::exit;
use pgio::cli::signals;
use pgio::pg::private::{self, VersionRequest};

/// Measures pgio itself: two things in turn, and the ratios of each pair.
#[derive(Debug, Parser)]
#[command(
    name = "pgio-bench",
    version,
    after_help = exit::help(),
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Block visits/s on a cached table, against the original's mypgio()
    Visits(UpstreamArgs),
    /// Loading 4 tables, against the original's setup.sh (needs bash and psql)
    Load(UpstreamArgs),
    /// CPU cost of drawing a key, by distribution: a loop with the draw against one without
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
    /// CPU and memory of pgio while many sessions wait
    Driver {
        #[arg(long, default_value_t = 200)]
        sessions: u32,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// Cost of telemetry: the same work with and without it
    Telemetry(telemetry::Args),
    /// Cost of running pgbench as a workload (needs pgbench)
    Command(command::Args),
    /// Does a table keep its size? Four sessions, half of the calls updates
    Updates {
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        seconds: u64,
        #[arg(long, value_name = "VERSION")]
        pg: Option<VersionRequest>,
    },
    /// Time and memory of a report by the number of trials, on synthetic results
    Report(report::Args),
    /// Time and memory of a history of many experiments, from directories and from a database
    History(history::Args),
    /// Complete experiments with a known right answer: how often does the interval cover it?
    Truth(truth::Args),
    /// How long it takes to detect an effect: woven windows against windows of their own
    Weave(weave::Args),
    /// Own a private cluster until the pipe to its owner closes
    #[command(hide = true, disable_help_flag = true)]
    Supervise,
}

fn main() -> ExitCode {
    pgio::feature::register();
    let outcome = match Cli::parse().bench {
        Bench::Visits(args) => upstream::run(&args),
        Bench::Load(args) => load::run(&args),
        Bench::Draw { draws, rounds, pg } => draw::run(draws, rounds, pg),
        Bench::Client(args) => client::run(&args),
        Bench::Driver { sessions, pg } => driver::run(sessions, pg),
        Bench::Telemetry(args) => telemetry::run(&args),
        Bench::Command(args) => command::run(&args),
        Bench::Updates { seconds, pg } => load::run_updates(Duration::from_secs(seconds), pg),
        Bench::Report(args) => report::run(&args),
        Bench::History(args) => history::run(&args),
        Bench::Truth(args) => truth::run(&args),
        Bench::Weave(args) => weave::run(&args),
        Bench::Supervise => return private::supervise().into(),
    };
    match exit::check_stdout(outcome) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => signals::replace_if_stopped(failure).print(),
    }
}
