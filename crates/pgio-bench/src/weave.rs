//! How long it takes to detect an effect, with woven windows and with windows of their own.
//!
//! The same experiment runs in turn with and without `weave`. The spread of the log-ratios between blocks
//! gives the number of blocks that detect the effect with a power of 80 %, and the time of a block the
//! time for that. Six blocks are needed in any case, so that a small spread does not show in these times: the
//! time for equal precision (variance times time of a block) is printed beside them.
//!
//! The conditions differ by little: the ratio of a large effect varies with the machine's speed, since what a
//! delay adds stays the same, and this is no noise of the design.

use std::path::PathBuf;
use std::time::Instant;

use benchmath::power;

use super::server::spread;
use super::truth::rounds::{Round, scratch};
use pgio::cli::exit::{FAILED, FILES, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio::experiment::event::Event;
use pgio::host::stop::Stop;
use pgio::pg::private::VersionRequest;
use pgio_bench::BusyLoop;
use pgio_results::{BURN_IN_BLOCK, store};
use pgio_verdict::pilot;

const ALPHA: f64 = 0.05;
const POWER: f64 = 0.8;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Pairs of experiments
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 6)]
    blocks: u32,
    /// Levels of synchronous_commit with a standby, instead of settings of one server
    #[arg(long)]
    levels: bool,
    /// Window of each condition in a plain experiment, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    plain: u64,
    /// Counted time of each condition in a woven window, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300)]
    woven: u64,
    /// `weave` of the woven experiments
    #[arg(long, value_name = "LENGTH", default_value = "20ms")]
    weave: String,
    /// The effect to detect, as a share
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    effect: f64,
    /// Busy loops beside all experiments
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: u32,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

/// Names and settings; the first is the baseline.
const SETTINGS: &[(&str, &str)] =
    &[("plain", "track_wal_io_timing = false"), ("timed", "track_wal_io_timing = true")];
const LEVELS: &[(&str, &str)] = &[
    ("local", "synchronous_commit = \"local\""),
    ("remote_write", "synchronous_commit = \"remote_write\""),
    ("on", "synchronous_commit = \"on\""),
    ("remote_apply", "synchronous_commit = \"remote_apply\""),
];

/// What one experiment shows of its design.
#[derive(Debug)]
struct Design {
    /// Standard deviation of the log-ratios between blocks, over all conditions.
    sd: f64,
    /// Seconds of a block, with all that is not measured.
    block: f64,
    /// Length of the slices in seconds; none: plain windows.
    slice: Option<f64>,
}

impl Design {
    /// Returns the seconds that it takes to detect an effect.
    fn detects_in(&self, effect: f64) -> f64 {
        let blocks = power::blocks_needed(effect.ln_1p(), self.sd, ALPHA, POWER);
        blocks.map_or(f64::NAN, |blocks| f64::from(blocks) * self.block)
    }

    /// Proportional to the time that a given precision takes.
    fn cost(&self) -> f64 {
        self.sd.powi(2) * self.block
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let _busy = BusyLoop::several(args.busy)?;
    output::line(
        "round  plain: sd  s/block  needs     woven: sd  s/block  needs     slices    equal precision",
    );
    let (mut detected, mut precise) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        let mut designs = Vec::new();
        // The first of each pair alternates.
        for weave in [round % 2 == 0, round % 2 == 1] {
            let out = scratch.path().join(format!("{round}-{weave}"));
            designs.push((weave, design(args, weave, out, &stop)?));
        }
        designs.sort_by_key(|(weave, _)| *weave);
        let [(_, plain), (_, woven)] = designs.as_slice() else { unreachable!("two were run") };
        detected.push(plain.detects_in(args.effect) / woven.detects_in(args.effect));
        precise.push(plain.cost() / woven.cost());
        let slice = woven.slice.map_or("windows".to_owned(), |s| format!("{:.0} ms", s * 1e3));
        output::line(&format!(
            "{round:5}  {:9.4}  {:7.2}  {:6.1} s   {:9.4}  {:7.2}  {:6.1} s  {slice:8}  {:6.2} times",
            plain.sd,
            plain.block,
            plain.detects_in(args.effect),
            woven.sd,
            woven.block,
            woven.detects_in(args.effect),
            plain.cost() / woven.cost(),
        ));
    }
    output::line(&format!(
        "time to detect {:.1} % at 80 % power, plain / woven: {}",
        args.effect * 100.0,
        spread(&detected, 2)
    ));
    output::line(&format!("time for equal precision, plain / woven: {}", spread(&precise, 2)));
    Ok(())
}

fn text(args: &Args, weave: bool) -> String {
    let (duration, weave) = if weave {
        (args.woven, format!("{:?}", args.weave))
    } else {
        (args.plain, "false".to_owned())
    };
    let conditions = if args.levels { LEVELS } else { SETTINGS };
    let mut text = format!(
        "[experiment]\nblocks = {}\nduration = \"{duration}ms\"\nwarmup = \"200ms\"\nbaseline = {:?}\n\
         aa = true\nburn_in = true\nrepeats = 0\nprimary = \"commits_per_second\"\nweave = {weave}\n\
         tolerate = [\"foreign-load\", \"steal\", \"generator-bound\"]\n\n\
         [target]\nprivate = true\nstandby = {}\n\n[workload]\nkind = \"commit\"\nsessions = 1\n",
        args.blocks, conditions[0].0, args.levels
    );
    for (name, settings) in conditions {
        text += &format!("\n[[condition]]\nname = \"{name}\"\npostgres = {{ {settings} }}\n");
    }
    text
}

fn design(args: &Args, weave: bool, out: PathBuf, stop: &Stop) -> Result<Design, Failure> {
    let (mut begun, mut ended) = (None, None);
    let round = Round { out, stop, pg: args.pg };
    let dir = round.results(&text(args, weave), &mut |event| match event {
        Event::Begins { planned, .. } if planned[0].block != BURN_IN_BLOCK => {
            begun.get_or_insert_with(Instant::now);
        }
        Event::Ended { .. } => ended = Some(Instant::now()),
        _ => {}
    })?;
    let stored = store::read(&dir).map_err(|e| Failure::new(FILES, e))?;
    let plan = pilot::plan(&stored, args.effect, args.blocks)
        .map_err(|e| Failure::message(FAILED, e.to_string()))?;
    let seconds = begun
        .zip(ended)
        .map_or(f64::NAN, |(begun, ended): (Instant, Instant)| (ended - begun).as_secs_f64());
    Ok(Design {
        sd: plan.spread.sd_log,
        block: seconds / f64::from(args.blocks),
        slice: stored.manifest.rules.weave_seconds,
    })
}
