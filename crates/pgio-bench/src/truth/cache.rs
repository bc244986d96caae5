//! Three equal conditions on data eight times the buffers, on both engines: blocks that one trial read
//! must not serve the next. The output has the misses per visit of each trial relative to the first
//! trial of its block.

use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio::config::value::EngineName;
use pgio::pg::private::PrivateCluster;
use pgio_results::{Trial, store};
use pgio_verdict::Comparison;

use super::rounds::{CACHED_READS, Plan, Round, RoundResult, load, private, run_rounds, scratch};

const ENGINES: [EngineName; 2] = [EngineName::Server, EngineName::Client];
const CONDITIONS: [&str; 3] = ["a", "b", "c"];
/// Maximum relative deviation from the first trial of the block.
const TOLERANCE: f64 = 0.25;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plan: Plan,
    /// Size of the data set
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    scale: String,
    #[arg(long, value_name = "SIZE", default_value = "64MB")]
    shared_buffers: String,
    /// Visits per second: so few that the buffers could hold all blocks of a trial
    #[arg(long, value_name = "N", default_value_t = 1500)]
    visits: u32,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let settings = [("shared_buffers", args.shared_buffers.as_str()), ("autovacuum", "off")];
    let cluster = private(args.plan.pg, None, &settings)?;
    load(&cluster, &args.scale)?;
    output::line("engine  block  trial  condition  misses/visit  of the first's");
    let (mut all, mut outside) = (0_usize, 0_usize);
    for number in 1..=args.plan.experiments {
        for engine in ENGINES {
            let name = format!("{number:03}-{}", engine.name());
            let round = args.plan.round(&name, scratch.path(), &stop)?;
            let (trials, warned) = measure(args, &round, &cluster, engine)?;
            for line in lines(&trials) {
                all += 1;
                outside += usize::from(!line.is_within());
                output::line(&format!("{:6}  {}", engine.name(), line.text()));
            }
            if warned {
                output::line(&format!("{:6}  the check cache-carry-over warns", engine.name()));
                outside += 1;
            }
        }
    }
    let text = format!(
        "{} of {all} trials within {:.0} % of their block's first",
        all.saturating_sub(outside),
        TOLERANCE * 100.0
    );
    if outside > 0 || all == 0 {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

fn measure(
    args: &Args,
    round: &Round<'_>,
    cluster: &PrivateCluster,
    engine: EngineName,
) -> Result<(Vec<Trial>, bool), Failure> {
    let analysis = round.analysis(&text(args, &cluster.primary_conninfo(), engine))?;
    let warned = analysis.checks.iter().any(|c| c.id == "cache-carry-over");
    Ok((store::read(&round.out)?.trials, warned))
}

fn text(args: &Args, dsn: &str, engine: EngineName) -> String {
    let calls = args.visits.div_ceil(8);
    let in_window = f64::from(calls) * args.plan.window.as_secs_f64();
    // The engines limit their work in different ways.
    let amount = match engine {
        EngineName::Server => format!("work_loop = {}", in_window.round()),
        EngineName::Client => format!("rate = {calls}"),
    };
    let conditions: String =
        CONDITIONS.iter().map(|name| format!("\n[[condition]]\nname = \"{name}\"\n")).collect();
    format!(
        "{head}\n[target]\ndsn = \"{dsn}\"\n\n[workload]\nkind = \"slob\"\nengine = \"{0}\"\n\
         num_schemas = 1\nnum_threads = 1\nwork_unit = 8\nupdate_pct = 0\n{amount}\n{conditions}",
        engine.name(),
        head = args.plan.head("cache", false)
    )
}

/// One trial compared with the first of its block.
struct Line {
    block: u32,
    position: u32,
    condition: String,
    misses: f64,
    ratio: f64,
}

impl Line {
    fn is_within(&self) -> bool {
        (self.ratio - 1.0).abs() <= TOLERANCE
    }

    fn text(&self) -> String {
        let mark = if self.is_within() { "" } else { "  OUTSIDE" };
        format!(
            "{:5}  {:5}  {:9}  {:12.4}  {:14.3}{mark}",
            self.block, self.position, self.condition, self.misses, self.ratio
        )
    }
}

/// Compares the trials that are not burn-in.
fn lines(trials: &[Trial]) -> Vec<Line> {
    let mut first = f64::NAN;
    let mut lines = Vec::new();
    for trial in trials.iter().filter(|t| !t.is_burn_in()) {
        let Some(place) = &trial.place else { continue };
        let value = |name: &str| trial.metrics.get(name).and_then(|m| m.value).unwrap_or(f64::NAN);
        let misses = value("riops") / value("block_visits_per_second");
        if place.position == 1 && place.attempt == 0 {
            first = misses;
        }
        lines.push(Line {
            block: place.block,
            position: place.position,
            condition: place.condition.clone(),
            misses,
            ratio: misses / first,
        });
    }
    lines
}

// Equal conditions on a small table in shared buffers. A verdict for any condition is a false alarm, so each
// experiment is judged by the condition that differs most from the baseline.

#[derive(Debug, clap::Args)]
pub(super) struct AaArgs {
    #[command(flatten)]
    plan: Plan,
    /// Number of equal conditions, including the baseline
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=20))]
    conditions: u32,
}

pub(super) fn run_aa(args: &AaArgs) -> Outcome {
    let names: Vec<String> = (1..=args.conditions).map(|n| format!("equal-{n}")).collect();
    let mut text = args.plan.head("aa", false) + "\n[target]\nprivate = true\n" + CACHED_READS;
    for name in &names {
        text += &format!("\n[[condition]]\nname = \"{name}\"\n");
    }
    run_rounds(&args.plan, "ratio", |round| {
        let analysis = round.analysis(&text)?;
        let compared = names[1..].iter().filter_map(|name| analysis.primary(name));
        let p = |c: &Comparison| c.p_adjusted.unwrap_or(1.0);
        let furthest = compared.min_by(|a, b| p(a).total_cmp(&p(b)));
        let remark = furthest.map(|c| format!("p {:.3}", p(c))).unwrap_or_default();
        Ok(RoundResult { remark, ..RoundResult::for_ratio(furthest, 1.0) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::test_support::trial;

    #[test]
    fn misses_are_compared_with_the_first_trial_of_the_block() {
        let at = |block: u32, position: u32, misses: f64| {
            let metrics = [("riops", misses), ("block_visits_per_second", 1.0)];
            let mut t = trial("a", block, &metrics);
            t.place.as_mut().unwrap().position = position;
            t
        };
        let trials = [
            at(0, 1, 1.0),
            at(1, 1, 0.8),
            at(1, 2, 0.9),
            at(1, 3, 0.0),
            at(2, 1, 0.5),
            at(2, 2, 0.5),
        ];
        let lines = lines(&trials);
        let within: Vec<bool> = lines.iter().map(Line::is_within).collect();
        assert_eq!(within, [true, true, false, true, true]);
    }
}
