//! The commands, as a person types them. One file each, in one shape: its arguments, `run`.
//!
//! Only this level prints, and only here errors become sentences and exit codes ([`exit`]). Stored
//! results go to stdout or to files, what is told on the way to stderr, so that a pipe gets the
//! result alone.

mod ballast;
mod compare;
pub mod connection;
mod demo;
mod destroy;
mod device;
mod doctor;
mod example;
pub mod exit;
mod flags;
pub mod jobs;
pub mod loading;
pub mod output;
mod progress;
pub mod report;
mod run;
mod setup;
pub mod signals;
mod undo;

pub use doctor::{DOCTOR_SCHEMA, DoctorDocument};

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

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
    /// See in about a minute what synchronous replication costs, on servers of pgio's own
    Demo(demo::Args),
    /// Load the data set, as ./pgio.conf and the flags say
    Setup(setup::Args),
    /// Run one trial: the classic lines, then what they cannot say
    Run(run::Args),
    /// Run an experiment: the same kind of work under each condition, in random order
    Compare(compare::Args),
    /// Tell a stored experiment again
    Report(report::Args),
    /// Say what is here, what is missing and what would spoil a measurement, and change nothing
    Doctor(doctor::Args),
    /// Measure a device, or two in turn, without PostgreSQL: throughput, latency, random I/O
    Device(device::Args),
    /// Leave only SIZE of this machine's memory free, until --release
    Ballast(ballast::Args),
    /// Put back whatever an interrupted run left changed
    Undo(undo::Args),
    /// Remove what setup made, and nothing else
    Destroy(destroy::Args),
    /// Print a shipped, commented experiment
    Example(example::Args),
    /// Own a private cluster until the pipe to its owner closes
    #[command(hide = true, disable_help_flag = true)]
    Supervise {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
}

/// The command line's definition, for the man page and shell completions.
pub fn command() -> clap::Command {
    Cli::command()
}

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no errors, and clap knows which stream they belong to.
        Err(error) => {
            let error = flags::explain(error);
            let _ = error.print();
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            return code.into();
        }
    };
    let outcome = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Ballast(args) => ballast::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Example(args) => example::run(&args),
        Command::Supervise { args } => return crate::pg::private::supervise(args).into(),
    };
    match outcome {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => signals::stopped(failure).tell(),
    }
}
