//! `pgio ballast SIZE`: allocates memory until only SIZE is free on this machine.
//!
//! Asks before it takes the memory, and prints the result; [`super::hold`] does the rest. The ballast
//! outlives the command: `--release` and `pgio undo` free it.

use std::io::{self, IsTerminal};

use clap::{Args as _, FromArgMatches};

use super::amount::Memory;
use super::hold::{self, BallastEvent};
use crate::cli::exit::{Failure, Outcome, REFUSED};
use crate::cli::{output, undo};
use crate::feature::Subcommand;
use pgio_results::Warning;
use pgio_results::units::{self, exact_bytes, human};

pub(super) const COMMAND: Subcommand = Subcommand {
    name: "ballast",
    define: |command| {
        let about = "Leave only SIZE of this machine's memory free, until --release";
        Args::augment_args(command).about(about).display_order(62)
    },
    run: |matches| Ok(run(&Args::from_arg_matches(matches)?)),
};

#[derive(Debug, clap::Args)]
struct Args {
    /// Memory to leave free, such as 1G
    #[arg(
        value_name = "SIZE",
        value_parser = units::parse_bytes,
        allow_hyphen_values = true,
        required_unless_present = "release",
        conflicts_with = "release"
    )]
    size: Option<u64>,
    /// Release the ballast
    #[arg(long)]
    release: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

fn run(args: &Args) -> Outcome {
    match args.size {
        Some(size) => take(size, args.yes),
        None if hold::release(&mut |event| show(&event))? => Ok(()),
        None => {
            output::line("No ballast is held.");
            Ok(())
        }
    }
}

fn take(size: u64, yes: bool) -> Outcome {
    // A ballast already held is replaced only after the new one is confirmed.
    let checked = hold::check(size)?;
    let question = format!(
        "Take memory until only {} of {} is free on this machine ({:.1} %)?",
        exact_bytes(size),
        human::bytes(checked.total),
        size as f64 * 100.0 / checked.total as f64
    );
    if !yes && io::stdin().is_terminal() && !output::confirmed(&question) {
        return Err(Failure::message(REFUSED, "no memory was taken"));
    }
    Ok(hold::take(&checked, &mut |event| show(&event))?)
}

fn show(event: &BallastEvent<'_>) {
    match event {
        BallastEvent::Undo(event) => undo::show(event),
        BallastEvent::Released(memory) => print_memory(memory),
        BallastEvent::Taken { memory, leave } => {
            print_memory(memory);
            output::line("Held until `pgio ballast --release`, `pgio undo` or a reboot.");
            if let Some(why) = memory.too_much_left(*leave) {
                output::warn(&Warning::new(
                    "more memory is free than requested",
                    why,
                    "release the ballast and take it again",
                ));
            }
        }
    }
}

/// Prints the lines of /proc/meminfo that the original shows at the end.
fn print_memory(memory: &Memory) {
    output::line(&format!("MemAvailable:   {:8} kB", memory.available / 1024));
    output::line(&format!("HugePages_Total: {:7}", memory.pages));
}
