//! The shipped demo beside busy loops: `on` must be slower than `local` in nine of ten experiments, and the
//! second `local` must never differ.

use std::path::PathBuf;
use std::time::Instant;

use super::rounds::{Round, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio::pg::private::VersionRequest;
use pgio_bench::BusyLoop;
use pgio_verdict::{Analysis, Comparison, Verdict};

const DEMO: &str = include_str!("../../../../examples/demo.toml");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, value_name = "N", default_value_t = 10)]
    experiments: usize,
    /// Busy loops beside all experiments
    #[arg(long, value_name = "N", default_value_t = 2)]
    busy: u32,
    /// Keep the results here, a directory for each experiment
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let _busy = BusyLoop::several(args.busy)?;
    output::line(
        "experiment  on: ratio  95 % interval       verdict        twin: ratio  verdict        seconds",
    );
    let (mut found, mut accused) = (0, 0);
    for number in 1..=args.experiments {
        let out = args.out.as_deref().unwrap_or(scratch.path()).join(format!("{number:03}"));
        let round = Round { out, stop: &stop, pg: args.pg };
        round.check_interrupted()?;
        let began = Instant::now();
        let analysis = round.analysis(DEMO)?;
        output::line(&line(number, &analysis, began.elapsed().as_secs_f64()));
        found += usize::from(verdict(analysis.primary("on")) == Verdict::Slower);
        accused += usize::from(verdict(twin(&analysis)).is_decided());
    }
    let text = format!(
        "`on` found slower in {found} of {0}, the second `local` accused in {accused} of {0}",
        args.experiments
    );
    if found * 10 < args.experiments * 9 || accused > 0 {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

fn twin(analysis: &Analysis) -> Option<&Comparison> {
    let name = analysis.conditions.iter().find(|c| analysis.is_aa(&c.name))?;
    analysis.primary(&name.name)
}

fn verdict(found: Option<&Comparison>) -> Verdict {
    found.map_or(Verdict::NotApplicable, |c| c.verdict)
}

fn line(number: usize, analysis: &Analysis, seconds: f64) -> String {
    let (on, twin) = (analysis.primary("on"), twin(analysis));
    let value = |found: Option<&Comparison>, of: fn(&Comparison) -> Option<f64>| {
        found.and_then(of).unwrap_or(f64::NAN)
    };
    format!(
        "{number:10}  {:9.3}  {:6.3} to {:6.3}     {:13}  {:11.3}  {:13}  {seconds:7.1}",
        value(on, |c| c.ratio),
        value(on, |c| c.interval.low),
        value(on, |c| c.interval.high),
        format!("{:?}", verdict(on)),
        value(twin, |c| c.ratio),
        format!("{:?}", verdict(twin)),
    )
}
