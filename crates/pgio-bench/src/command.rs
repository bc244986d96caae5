//! Compares pgbench through the workload `command` with pgbench alone, on the same tables.
//!
//! Each block has three runs, in rotating order: alone, alone again, and as a trial with telemetry. The
//! second run shows the noise of the machine.

use std::sync::Arc;
use std::time::Duration;

use benchmath::effect::{self, Decision, Paired};

use super::server::{Bench, metric};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::output;
use pgio::config::CommandSettings;
use pgio::config::experiment;
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::host::{Host, Hosts};
use pgio::pg::private::VersionRequest;
use pgio::telemetry::{Survey, TelemetrySources};
use pgio::workload::command::Lines;
use pgio::workload::{Command, Workload};

const ALPHA: f64 = 0.05;
const CADENCE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Blocks of three runs each
    #[arg(long, default_value_t = 8)]
    blocks: usize,
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value_t = 4)]
    sessions: u32,
    /// The preset: pgbench (TPC-B), pgbench-N, pgbench-S
    #[arg(long, value_name = "NAME", default_value = "pgbench")]
    preset: String,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("autovacuum", "off")];
    let mut bench = Bench::start(args.pg, &settings)?;
    let settings = settings_of(args)?;
    let host = Arc::new(Host::local());
    let command =
        Arc::new(Command::new(settings, (host, Lines::All), &bench.params, &mut bench.admin)?);
    let workload: Arc<dyn Workload> = Arc::clone(&command) as _;
    let (params, server, hosts) = (&bench.params, &bench.server, &Hosts::new());
    let survey = Survey { params, server, cadence: CADENCE, hosts, host: None };
    let sources = TelemetrySources::survey(&survey, &mut bench.admin);
    // Create the tables and warm them up.
    bench.trial(&workload, Duration::ZERO)?;

    let mut rates: [Vec<f64>; 3] = Default::default();
    for block in 0..args.blocks {
        for turn in 0..3 {
            let which = (block + turn) % 3;
            bench.settle()?;
            let rate = match which {
                2 => {
                    let trial = bench.observed_trial(
                        &workload,
                        Duration::ZERO,
                        Some(&sources),
                        &mut |_| {},
                    )?;
                    metric(&trial, "transactions_per_second")
                }
                _ => alone(&bench, &command)?,
            };
            rates[which].push(rate);
        }
    }
    let [alone, again, through] = &rates;
    print_ratio("alone again / alone      ", again, alone);
    print_ratio("through command / alone  ", through, alone);
    Ok(())
}

fn settings_of(args: &Args) -> Result<CommandSettings, Failure> {
    let Args { seconds, sessions, preset, .. } = args;
    let text = format!(
        "[experiment]\nwarmup = 0\n[workload]\nkind = \"command\"\npreset = {preset:?}\n\
         setup_once = true\nsessions = {sessions}\nrun_time = \"{seconds}s\"\n\
         [[condition]]\nname = \"as it is\"\n"
    );
    let parsed = experiment::parse(&text, "bench", "bench", &[], &[])?;
    let workload = parsed.workloads.into_iter().next();
    let spec = workload.expect("a file has a workload, explicit or default");
    let command = spec.command.expect("the text above sets kind = command");
    Ok(CommandSettings::resolve(command, spec.layer))
}

/// Runs the program as a user would start it.
fn alone(bench: &Bench, command: &Command) -> Result<f64, Failure> {
    let (argv, env) = command.command_line(&bench.params);
    let line = CommandLine::new(&argv[0]).args(&argv[1..]);
    let line = env.iter().fold(line, |line, (name, value)| line.env(name, value));
    let output = Local.run(&line)?;
    let mut rates =
        output.lines().filter_map(|l| l.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    let last = rates.next_back();
    last.ok_or_else(|| Failure::message(FAILED, format!("no tps in pgbench's output: {output}")))
}

fn print_ratio(what: &str, values: &[f64], of: &[f64]) {
    let paired = Paired::new(values, of).expect("each block has all three");
    let c = effect::compare(paired, ALPHA);
    let decision = match c.decision {
        Decision::Above => "faster",
        Decision::Below => "slower",
        Decision::NoDifference => "no difference shown",
        Decision::TooFewBlocks => "too few blocks to decide",
        Decision::NotApplicable => "no ratio",
    };
    let shown = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| format!("{n:.4}"));
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
    output::line(&format!(
        "{what} tps, {} blocks: {} ({} to {}, 95 %): {decision}; {:.0} / {:.0}",
        c.blocks,
        shown(c.ratio),
        shown(c.low),
        shown(c.high),
        mean(values),
        mean(of),
    ));
}
