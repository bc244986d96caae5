//! The subcommands of `pgio`. One file each, in one shape: its arguments and `run`.
//!
//! Only this level prints, and only here errors become sentences and exit codes ([`exit`]). Stored
//! results go to stdout or to files; progress and warnings go to stderr, so that a pipe gets the
//! result alone.
//!
//! `pgio-bench` is a command line of its own and prints through the public modules; [`jobs`] runs experiments for
//! both.

mod compare;
mod compare_plan;
mod demo;
mod destroy;
mod doctor;
mod example;
pub mod exit;
pub mod flags;
pub(crate) mod gate;
pub mod jobs;
pub mod output;
mod plan;
pub(crate) mod progress;
mod progress_table;
pub(crate) mod report;
mod run;
pub mod setup;
pub mod signals;
pub(crate) mod undo;

pub use doctor::{DOCTOR_SCHEMA, DoctorDocument};

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::feature;

/// Measures what a storage or replication choice costs a PostgreSQL database.
#[derive(Debug, Parser)]
#[command(
    name = "pgio",
    version,
    about,
    after_help = exit::help(),
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show in about a minute what synchronous replication costs, on private servers
    Demo(demo::Args),
    /// Load the data set that ./pgio.conf and the flags describe
    Setup(setup::Args),
    /// Run one trial: print the classic lines, then latencies and checks
    Run(run::Args),
    /// Run an experiment: the same workload under each condition, in random order
    Compare(compare::Args),
    /// Compute from a pilot how many blocks decide whether effects exceed a margin
    Plan(plan::Args),
    /// Show the report of a stored experiment
    Report(report::Args),
    /// Check what is missing and what would spoil a measurement; change nothing
    Doctor(doctor::Args),
    /// Undo the changes that an interrupted run left in place
    Undo(undo::Args),
    /// Drop what setup and workloads created, and nothing else
    Destroy(destroy::Args),
    /// Print a commented example experiment
    Example(example::Args),
    /// Supervise a private cluster until the pipe to its owner closes
    #[command(hide = true, disable_help_flag = true)]
    Supervise,
}

/// Returns the definition of the command line, for the man page and shell completions.
pub fn command() -> clap::Command {
    let core = Cli::command().mut_subcommands(|command| {
        // A feature says where its commands stand between these.
        let place = command.get_display_order() * 10;
        let command = command.display_order(place);
        match command.get_name() {
            "compare" => {
                let own = feature::generators().map(|generators| generators.define);
                own.chain(feature::watches().map(|watch| watch.define))
                    .fold(command, |all, define| define(all))
            }
            "report" => feature::reports().fold(command, |all, other| (other.define)(all)),
            _ => command,
        }
    });
    feature::commands()
        .fold(core, |all, own| all.subcommand((own.define)(clap::Command::new(own.name))))
}

pub fn main() -> ExitCode {
    crate::host::exec::close_inherited_on_exec();
    pgio_connect::on_warning(|found| output::warn(&crate::experiment::target::warning(found)));
    let ran = command().try_get_matches().and_then(|matches| {
        let named = matches.subcommand();
        let own = named.and_then(|(name, own)| Some((feature::command(name)?, own)));
        match own {
            Some((command, matches)) => Ok(finish((command.run)(matches)?)),
            None => Ok(run(Cli::from_arg_matches(&matches)?.command, &matches)),
        }
    });
    ran.unwrap_or_else(|error| {
        let error = flags::explain(error);
        output::usage(&error);
        // Help and version are not errors.
        if error.use_stderr() { exit::USAGE.into() } else { finish(Ok(())) }
    })
}

/// `all` has the arguments of features as well.
fn run(command: Command, all: &clap::ArgMatches) -> ExitCode {
    let (_, matches) = all.subcommand().expect("clap requires a subcommand");
    finish(match command {
        Command::Demo(args) => demo::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args, matches),
        Command::Plan(args) => plan::run(&args),
        Command::Report(args) => report::run(&args, matches),
        Command::Doctor(args) => doctor::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Example(args) => example::run(&args),
        Command::Supervise => return crate::pg::private::supervise().into(),
    })
}

fn finish(outcome: exit::Outcome) -> ExitCode {
    match exit::check_stdout(outcome) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => signals::replace_if_stopped(failure).print(),
    }
}
