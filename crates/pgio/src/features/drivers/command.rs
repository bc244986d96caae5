//! `pgio drive`: one of several drivers of another pgio, the coordinator.
//!
//! An engine starts it (`pgio compare --drivers`). Where to dial and the token come from the environment,
//! because arguments can be read by every user of the host.

use std::env;
use std::time::Duration;

use clap::{Args as _, FromArgMatches};

use super::messages::{RANKS_VARIABLE, SLURM_RANK_VARIABLE};
use super::serve::serve;
use crate::cli::exit::{Failure, Outcome, USAGE};
use crate::cli::signals;
use crate::feature::{self, Subcommand};
use crate::workload::PartKind;
use pgio_link::{COORDINATOR_VARIABLE, TOKEN_VARIABLE, Token};

/// Variables in which engines give a process its number, the more specific first.
const RANK_VARIABLES: &[&str] =
    &["JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
/// The step of a Slurm job to which the process belongs; srun sets it.
const SLURM_STEP: &str = "SLURM_STEP_ID";
/// Larger numbers are Slurm's own steps, such as the batch script's.
const LAST_STEP_OF_SRUN: u32 = 0xffff_fff0;

pub(super) const COMMAND: Subcommand = Subcommand {
    name: "drive",
    define: |command| {
        let about = "Generate load for the pgio that started this one with --drivers";
        Args::augment_args(command).about(about).display_order(62)
    },
    run: |matches| Ok(run(&Args::from_arg_matches(matches)?)),
};

#[derive(Debug, clap::Args)]
struct Args {
    /// Addresses of the coordinator, separated by commas
    #[arg(long, value_name = "HOST:PORT", env = COORDINATOR_VARIABLE)]
    coordinator: Option<String>,
    /// Give up if no coordinator answers within this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    within: u64,
}

fn run(args: &Args) -> Outcome {
    let refused = |text: String| Failure::message(USAGE, text);
    let coordinator = args.coordinator.as_deref().ok_or_else(|| {
        refused(format!(
            "{COORDINATOR_VARIABLE} is not set; set it, or --coordinator, to the coordinator's address (`pgio compare --drivers` sets it)"
        ))
    })?;
    let token = env::var(TOKEN_VARIABLE).map_err(|_| {
        refused(format!(
            "{TOKEN_VARIABLE} is not set; set it to the token of the run, for example from a Kubernetes Secret"
        ))
    })?;
    let token = Token::parse(&token).map_err(|e| {
        Failure::new(USAGE, e).context(format!("{TOKEN_VARIABLE} is not a valid token"))
    })?;
    let rank = rank_from_environment(|name| env::var(name).ok()).map_err(refused)?;
    let stop = signals::stop_on_signals()?;
    let within = Duration::from_secs(args.within);
    serve(coordinator, &token, rank, within, part_named, &stop)?;
    Ok(())
}

fn part_named(name: &str) -> Option<&'static PartKind> {
    feature::workloads().filter_map(|kind| kind.part.as_ref()).find(|part| part.name == name)
}

/// Returns the driver's rank: its number among the processes of its engine, which selects one of the ranks
/// that this start is for.
fn rank_from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<u32>, String> {
    // Everything that a batch script starts without srun inherits the script's own number, which is 0.
    let step = variable(SLURM_STEP).and_then(|step| step.parse::<u32>().ok());
    let by_srun = step.is_some_and(|step| step <= LAST_STEP_OF_SRUN).then_some(SLURM_RANK_VARIABLE);
    let mut names = RANK_VARIABLES.iter().copied().chain(by_srun);
    let number = names
        .find_map(|name| Some((name, variable(name)?)))
        .map(|(name, text)| {
            text.parse::<usize>().map_err(|_| format!("{name} is `{text}`, not a number"))
        })
        .transpose()?;
    let ranks = variable(RANKS_VARIABLE)
        .map(|text| {
            let all: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
            all.map_err(|_| format!("{RANKS_VARIABLE} is `{text}`, not a list of numbers"))
        })
        .transpose()?;
    Ok(match (ranks.as_deref(), number) {
        (Some([only]), _) => Some(*only),
        (Some(ranks), Some(number)) => ranks.get(number).copied(),
        (Some(_), None) => None,
        (None, Some(number)) => u32::try_from(number).ok(),
        (None, None) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(variables: &[(&str, &str)]) -> Result<Option<u32>, String> {
        rank_from_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_rank_comes_from_the_engine() {
        for name in RANK_VARIABLES {
            assert_eq!(rank_of(&[(name, "2")]), Ok(Some(2)), "{name}");
            assert!(rank_of(&[(name, "x")]).unwrap_err().contains(name));
        }
        let in_step = |number: &str| rank_of(&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", number)]);
        assert_eq!(in_step("2"), Ok(Some(2)));
        assert!(in_step("x").unwrap_err().contains("SLURM_PROCID"));
        assert_eq!(rank_of(&[]), Ok(None));
        // A replacement of ranks 1 and 3 counts its processes from 0.
        let step = ("SLURM_STEP_ID", "4");
        assert_eq!(rank_of(&[(RANKS_VARIABLE, "1,3"), step, ("SLURM_PROCID", "1")]), Ok(Some(3)));
        assert_eq!(rank_of(&[(RANKS_VARIABLE, "2")]), Ok(Some(2)));
        assert_eq!(rank_of(&[(RANKS_VARIABLE, "1,3")]), Ok(None));
        assert!(rank_of(&[(RANKS_VARIABLE, "a,b")]).is_err());
        // mpirun inside an allocation of Slurm: its own number counts.
        assert_eq!(rank_of(&[("OMPI_COMM_WORLD_RANK", "1"), ("SLURM_PROCID", "0")]), Ok(Some(1)));
    }

    #[test]
    fn slurm_procid_of_a_batch_script_is_not_taken_as_rank() {
        let ranks = (RANKS_VARIABLE, "0,1,2,3");
        let inherited = ("SLURM_PROCID", "0");
        assert_eq!(rank_of(&[ranks, inherited]), Ok(None), "any free seat");
        let batch = ("SLURM_STEP_ID", "4294967291");
        assert_eq!(rank_of(&[ranks, inherited, batch]), Ok(None));
        // MPICH and Intel MPI start one daemon a node with srun.
        let of_daemon = ("SLURM_STEP_ID", "1");
        assert_eq!(rank_of(&[ranks, inherited, of_daemon, ("PMI_RANK", "3")]), Ok(Some(3)));
    }
}
