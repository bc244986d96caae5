//! `pgio ballast SIZE`: allocates memory until only SIZE is free on this machine.
//!
//! The ballast has a journal of its own, so that runs can start while it is held. `--release` and
//! `pgio undo` free it. Next: `treatment::ballast`, the same inside an experiment.

use std::io::{self, BufRead, IsTerminal};

use super::exit::{Failure, Outcome, REFUSED};
use super::{output, undo};
use crate::experiment::state;
use crate::host::Host;
use crate::treatment::ballast::huge_pages;
use crate::treatment::ballast::memory::Memory;
use crate::treatment::journal::{self, Journal, UndoTarget};
use crate::treatment::{OnConflict, Step};
use pgio_results::Warning;
use pgio_results::units::{self, exact_bytes, human};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
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

pub(super) fn run(args: &Args) -> Outcome {
    match args.size {
        Some(size) => take(size, args.yes),
        None if release()? => Ok(()),
        None => {
            output::line("No ballast is held.");
            Ok(())
        }
    }
}

/// Returns whether a ballast was held.
fn release() -> Result<bool, Failure> {
    let mut any = false;
    let found = journal::unfinished(&state::held_dir()?)?;
    if let Some(error) = found.unreadable.into_iter().next() {
        return Err(error.into());
    }
    for journal in found.dead {
        any |= undo::undo_one(journal, None, OnConflict::Ask)?;
    }
    if any {
        print_memory(&huge_pages::read_memory(&Host::local())?);
    }
    Ok(any)
}

fn take(size: u64, yes: bool) -> Outcome {
    let host = Host::local();
    // A ballast already held is replaced only after the new one is confirmed.
    let memory = huge_pages::check(&host, size, &journal::steps_of(&state::held_dir()?))?;
    let question = format!(
        "Take memory until only {} of {} is free on this machine ({:.1} %)? Type YES: ",
        exact_bytes(size),
        human::bytes(memory.total),
        size as f64 * 100.0 / memory.total as f64
    );
    if !yes && io::stdin().is_terminal() && !confirmed(&question) {
        return Err(Failure::message(REFUSED, "no memory was taken"));
    }
    let released = release()?;
    let step = huge_pages::plan(&host, size).map_err(|error| match released {
        true => Failure::from(error).context("the previous ballast was released"),
        false => error.into(),
    })?;
    let mut journal = Journal::new(&state::held_dir()?, "ballast");
    let touches = vec![huge_pages::memory_of(&host)];
    journal.set_target(UndoTarget { private: true, touches, ..UndoTarget::default() })?;
    let number = journal.intent(&step.record())?;
    let given = match huge_pages::take(&host, &step) {
        Ok(given) => given,
        Err(error) => {
            undo::undo_one(journal, None, OnConflict::Ask)?;
            return Err(error.into());
        }
    };
    journal.done(number)?;
    print_memory(&given);
    output::line("Held until `pgio ballast --release`, `pgio undo` or a reboot.");
    if let Some(why) = given.too_much_left(size) {
        output::warn(&Warning::new(
            "more memory is free than requested",
            why,
            "release the ballast and take it again",
        ));
    }
    Ok(())
}

/// Prints the lines of /proc/meminfo that the original shows at the end.
fn print_memory(memory: &Memory) {
    output::line(&format!("MemAvailable:   {:8} kB", memory.available / 1024));
    output::line(&format!("HugePages_Total: {:7}", memory.pages));
}

fn confirmed(question: &str) -> bool {
    output::print(question);
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim() == "YES"
}
