//! `pgio device`: measures one device or file system with fio, or compares two.
//!
//! The tests are the DRBD User's Guide's plus random I/O. Each round runs every
//! test on each target, in an order drawn for each test, so that drift affects both alike.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as _, FromArgMatches};
use rustix::fs::Access;

use super::bench::{Bench, Rounds, Step};
use super::place::{Consent, Kind, Place};
use super::{SMALLEST_REGION, user_guide_tests};
use crate::cli::exit::{Failure, Outcome, REFUSED, USAGE};
use crate::cli::output::{self, Status};
use crate::cli::progress::clock_text;
use crate::cli::signals;
use crate::experiment::state;
use crate::feature::Subcommand;
use crate::host::Host;
use pgio_report::report::{device as report, json, text};
use pgio_results::model::DeviceRecord;
use pgio_results::{Warning, store, units};
use pgio_verdict::device as analysis;

pub(super) const COMMAND: Subcommand = Subcommand {
    name: "device",
    define: |command| {
        let about = "Measure one device, or compare two, without PostgreSQL: throughput, latency, random I/O";
        Args::augment_args(command).about(about).display_order(61)
    },
    run: |matches| Ok(run(&Args::from_arg_matches(matches)?)),
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "In a directory, pgio creates a scratch file and removes it at the end. A non-empty file or a\n\
    block device is only read, unless --destroy allows pgio to overwrite its contents."
)]
struct Args {
    /// A block device, a file, or a directory
    #[arg(value_name = "DEVICE-OR-FILE")]
    place: String,
    /// Measure this one as well, alternately, and compare the two
    #[arg(long, value_name = "OTHER")]
    against: Option<String>,
    /// Run the write tests too, overwriting existing contents
    #[arg(long)]
    destroy: bool,
    /// UUID of a file system or other content that --destroy may overwrite; repeat for each
    #[arg(long, value_name = "UUID", requires = "destroy")]
    uuid: Vec<String>,
    /// Number of passes over all tests [default: 5 as in the User's Guide; with --against 6, the fewest that can reach a verdict]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Size of the scratch file, or of the part of a device or file to test
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = units::parse_bytes)]
    size: u64,
    /// Duration of each random test
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = units::parse_duration)]
    duration: Duration,
    /// Seed of the test order and of random offsets [default: drawn]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Store all runs and results as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const HINT: &str = "; to overwrite it, name it by --uuid as well";

fn run(args: &Args) -> Outcome {
    check(args)?;
    let host = Host::local();
    let names = std::iter::once(&args.place).chain(&args.against);
    let places = names.map(|name| Place::find(&host, name)).collect::<Result<Vec<_>, _>>()?;
    if let [a, b] = places.as_slice()
        && a.path == b.path
        && a.kind != Kind::Scratch
    {
        let message = format!("{} and {} are the same: name two different targets", a.name, b.name);
        return Err(Failure::message(USAGE, message));
    }
    let uuids: Vec<&str> = args.uuid.iter().map(String::as_str).collect();
    let consent = Consent { destroy: args.destroy, uuids: &uuids, hint: HINT };
    let mut writable = Vec::with_capacity(places.len());
    for place in &places {
        writable.push(place.may_write(&host, host.name(), consent)?);
        check_rights(place, args.destroy)?;
        warn(place, args.destroy);
    }
    let regions = places.iter().map(|p| p.region(args.size)).collect::<Result<Vec<_>, _>>()?;
    let stop = signals::stop_on_signals()?;
    let region = regions.into_iter().min().unwrap_or(args.size);
    let open = |place| Bench::open(&host, place, region);
    let benches = places.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let sector = places.iter().map(|p| p.sector).max().flatten();
    // A test that only one target supports has nothing to be compared with.
    let writes = writable.iter().all(|may_write| *may_write);
    let rounds = Rounds {
        tests: user_guide_tests(sector, args.duration)
            .into_iter()
            .filter(|(test, _)| writes || !test.writes())
            .collect(),
        fill: writable,
        region,
        rounds: args.rounds.unwrap_or(if places.len() == 2 { 6 } else { 5 }),
        seed: args.seed.unwrap_or_else(state::new_seed),
        places,
        benches,
    };
    let mut status = Status::new();
    let all = rounds.rounds;
    let mut noted = String::new();
    let record = rounds.record(&stop, &mut |step| {
        let (round, test) = step_text(step, all);
        let left = step.left.map_or_else(String::new, |t| format!(", {} left", clock_text(t)));
        if status.width().is_some() {
            status.show(&format!("{round}{test}{left}"));
        } else if noted != round {
            // A line for each round.
            output::note(&format!("{round}{left}"));
            noted = round;
        }
    })?;
    drop(status);
    write_results(args, &record)
}

/// Returns `round 2 of 5`, and `: /srv, random reads`.
fn step_text(step: &Step<'_>, rounds: u32) -> (String, String) {
    match &step.test {
        None => (format!("filling {}", step.place), String::new()),
        Some((round, test)) => {
            (format!("round {round} of {rounds}"), format!(": {}, {test}", step.place))
        }
    }
}

fn check(args: &Args) -> Outcome {
    let refuse = |message: String| Err(Failure::message(USAGE, message));
    if args.size < SMALLEST_REGION || !args.size.is_multiple_of(1 << 20) {
        return refuse("--size must be whole mebibytes, at least 4M".to_owned());
    }
    if args.duration.is_zero() {
        return refuse("--duration must be longer than zero".to_owned());
    }
    Ok(())
}

/// Checks access before fio does, for a clearer message.
fn check_rights(place: &Place, destroy: bool) -> Outcome {
    let (doing, wanted) = match (&place.kind, destroy) {
        (Kind::Scratch, _) => ("create a file in", Access::WRITE_OK | Access::EXEC_OK),
        (_, false) => ("read", Access::READ_OK),
        (_, true) => ("read and write", Access::READ_OK | Access::WRITE_OK),
    };
    rustix::fs::access(&place.path, wanted).map_err(|e| {
        let (name, why) = (&place.name, std::io::Error::from(e));
        let message =
            format!("cannot {doing} {name}: {why}; run pgio with sudo, or as a user with access");
        Failure::message(REFUSED, message)
    })
}

/// Warns of skipped tests, and of other I/O that would be included in the figures.
fn warn(place: &Place, destroy: bool) {
    let name = &place.name;
    if !destroy && place.kind != Kind::Scratch {
        output::warn(&Warning::new(
            format!("{name} is only read"),
            "the write tests would overwrite its contents",
            "use --destroy if the contents may be lost, or name a directory for a scratch file",
        ));
    }
    if let Kind::Device(device) = &place.kind
        && !device.uses.is_empty()
    {
        output::warn(&Warning::new(
            format!("{name} is in use ({})", device.uses.join(", ")),
            "I/O of other programs is included in the figures",
            "measure it while it is idle",
        ));
    }
}

fn write_results(args: &Args, record: &DeviceRecord) -> Outcome {
    let results = analysis::results(record);
    let document = || json::device(record, &results);
    if args.json.as_deref() == Some(Path::new("-")) {
        output::document(&document());
        return Ok(());
    }
    // First what cannot fail: a measurement takes minutes.
    output::print(&text::render(&report::document(record, &results)));
    args.json.iter().try_for_each(|path| store::write_named(path, &document()))?;
    Ok(())
}
