//! Several processes that generate the load together: `[drivers]`, `--drivers` and `pgio drive`.
//!
//! [`spec`] reads what starts how many, [`launch`] starts them. The pgio that runs the experiment is their
//! [`coordinator`]: [`roster`] waits for them and replaces lost ones, [`connected`] knows who is there, [`phases`] are
//! what all do together, and [`proof`] compares their sum with PostgreSQL's own count. [`serve`] and [`part`] run in each
//! driver, [`preflight`] is what it looks at before; [`messages`] is what both say to each other.

mod command;
mod connected;
mod coordinator;
mod launch;
mod messages;
mod part;
mod phases;
mod preflight;
mod proof;
mod roster;
mod serve;
mod spec;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use self::messages::DriverError;
use self::roster::{DriverCounts, Drivers};
use self::spec::{DriverEngine, DriverSpec, Spread, parse_engine};
use crate::cli::exit::{Failure, USAGE};
use crate::cli::output;
use crate::config::experiment::part::FilePart;
use crate::config::experiment::section::Section;
use crate::config::value::ConfigError;
use crate::experiment::application::Job;
use crate::experiment::generators::Generators;
use crate::experiment::target::Target;
use crate::feature::{Asked, Feature, GeneratorKind};
use crate::host::stop::Stop;
use crate::workload::{Coordinator, EngineError};
use pgio_results::checks::{CheckDef, def};
use pgio_results::model::Check;
use pgio_results::thresholds::Share;

pub(crate) static FEATURE: Feature = Feature {
    name: "drivers",
    file: Some(&FilePart {
        sections: &[spec::keys::SECTION],
        complete: |file, _| read_keys(file.root).map(drop),
        hidden: &["drivers.engine"],
        ..FilePart::NONE
    }),
    generators: &[GeneratorKind { fact: NAME, lost: LOST, define, read }],
    checks,
    commands: &[command::COMMAND],
    ..Feature::NONE
};

const NAME: &str = "drivers";
const LOST: &str = "driver-lost";
const SUM: &str = "driver-sum";
/// Difference between two counts of the same work.
const COUNTS_APART: Share = Share(0.001);

fn checks() -> Vec<CheckDef> {
    vec![
        def(
            LOST,
            "a driver was lost after it was ready and before the window ended; with the workload `mail`, also during preparation",
            "",
            LOST_REMEDY,
        ),
        def(
            SUM,
            format!(
                "the server's count of the work differs by more than {COUNTS_APART} from the sum of the drivers, it counted over {COUNTS_APART} fewer commits than calls, or it does not show the drivers' sessions"
            ),
            "",
            SUM_REMEDY,
        ),
    ]
}

const SUM_REMEDY: &str =
    "look for other sessions that use the workload's tables, and for a pooler in between";
const LOST_REMEDY: &str =
    "find out what ended the driver or cut its connection; the trial is repeated with all drivers";

/// The check of a trial that lost a driver.
fn lost(error: &DriverError) -> Check {
    Check::invalid(LOST, error.to_string(), LOST_REMEDY)
}

#[derive(Debug, clap::Args)]
struct DriverArgs {
    /// Generate the load by several drivers: local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND, with
    /// {drive} in COMMAND; replaces `engine` of [drivers]
    #[arg(long, value_name = "ENGINE")]
    drivers: Option<String>,
    /// Container image for Kubernetes drivers
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// With --drivers kubernetes:N: print the manifest and do nothing
    #[arg(long, conflicts_with = "plan")]
    dry_run: bool,
}

fn define(command: clap::Command) -> clap::Command {
    <DriverArgs as clap::Args>::augment_args(command)
}

/// Returns what the file says of them.
fn read_keys(root: &Section<'_>) -> Result<spec::DriverKeys, ConfigError> {
    let section = root.section(NAME)?.as_ref().map(spec::read).transpose()?;
    Ok(section.unwrap_or_default())
}

/// Returns the drivers that flags and file ask for together.
fn read(matches: &clap::ArgMatches, job: &Job) -> Result<Asked, Failure> {
    let args = <DriverArgs as clap::FromArgMatches>::from_arg_matches(matches)
        .map_err(|error| Failure::new(USAGE, error))?;
    let refused = |why: String| Failure::message(USAGE, format!("--drivers: {why}"));
    let engine = args.drivers.as_deref().map(parse_engine).transpose().map_err(refused)?;
    let by_flag = engine.is_some() || args.image.is_some();
    let keys = job.read_again(read_keys).expect("the file was read before");
    let spec = keys.resolve(engine, args.image).map_err(|why| {
        if by_flag { refused(why) } else { Failure::message(USAGE, format!("[drivers]: {why}")) }
    })?;
    if args.dry_run {
        print_manifest(spec.as_ref())?;
        return Ok(Asked::Answered);
    }
    Ok(spec.map_or(Asked::Nothing, |spec| Asked::Generators(Rc::new(spec))))
}

/// Prints what a run would give to kubectl; a run puts its own token and address in.
fn print_manifest(spec: Option<&DriverSpec>) -> Result<(), Failure> {
    match spec {
        Some(spec) if spec.engine == DriverEngine::Kubernetes => {
            let address = spec.listen.map_or("COORDINATOR:PORT".to_owned(), |a| a.to_string());
            output::print(&launch::manifest(spec, "RUN", &address, "TOKEN"));
            Ok(())
        }
        _ => Err(Failure::message(USAGE, "--dry-run needs --drivers kubernetes:N")),
    }
}

impl Generators for DriverSpec {
    fn fact(&self) -> &'static str {
        NAME
    }

    fn described(&self) -> String {
        self.divided()
    }

    /// Names the engine as the user does, and the address as configured: a port is chosen when the run begins.
    fn plan_line(&self) -> String {
        let engine = match &self.engine {
            DriverEngine::Local => "local".to_owned(),
            DriverEngine::Slurm => "slurm".to_owned(),
            DriverEngine::Kubernetes => "kubernetes".to_owned(),
            DriverEngine::Run(line) => format!("run:{line}"),
        };
        let place = match (self.listen, &self.engine) {
            (Some(address), _) => format!("at {address}"),
            (None, DriverEngine::Local) => "on a free port of the loopback".to_owned(),
            (None, _) => "on a free port of all addresses".to_owned(),
        };
        format!(
            "Drivers that generate the load: {}; engine {engine}; pgio listens for them {place}.",
            self.divided()
        )
    }

    fn check(&self, job: &Job) -> Result<(), EngineError> {
        for workload in &job.experiment.workloads {
            let layer = workload.layer.clone().over(job.base_keys.layer.clone());
            let judged = &job.experiment.rules.question.also_judge;
            if let Some(why) = (workload.kind.def().indivisible)(workload, &layer, judged) {
                let why = format!("workload `{}`: {why}, or leave out the drivers", workload.name);
                return Err(DriverError::Refused(why).into());
            }
        }
        check_targets(job, self)?;
        Ok(launch::launcher(self).check()?)
    }

    fn check_work(
        &self,
        servers: usize,
        targets: &BTreeMap<String, Target>,
    ) -> Result<(), EngineError> {
        let each = self.count / groups(self, servers);
        for workload in targets.values().flat_map(|target| &target.workloads) {
            let Some(sessions) = workload.divisible() else { continue };
            if sessions < each {
                let sessions = sessions as usize;
                return Err(DriverError::MoreThanSessions { drivers: each, sessions }.into());
            }
        }
        Ok(())
    }

    fn start(
        &self,
        servers: usize,
        run_id: &str,
        stop: &Stop,
    ) -> Result<Vec<Arc<dyn Coordinator>>, EngineError> {
        let counts = DriverCounts { drivers: self.count, groups: groups(self, servers) };
        let all = Drivers::open(launch::launcher(self), counts, self.listen, run_id, stop)?;
        Ok(all.into_iter().map(|drivers| drivers as Arc<dyn Coordinator>).collect())
    }
}

/// A driver works on one server at a time.
fn check_targets(job: &Job, spec: &DriverSpec) -> Result<(), DriverError> {
    let mut conditions = job.experiment.conditions.iter();
    let joint = conditions.find(|condition| condition.targets().count() > 1);
    let targets = job.experiment.targets.len();
    let refused = match (spec.spread, joint) {
        (Spread::Sessions, Some(condition)) => format!(
            "condition `{}` has several targets, and a driver works on one at a time; write spread = \"target\" in [drivers]",
            condition.name
        ),
        // With more drivers one server would have more load than another.
        (Spread::Target, _) if targets > 0 && !(spec.count as usize).is_multiple_of(targets) => {
            format!(
                "spread = \"target\" divides the drivers equally among {targets} targets, and {} cannot be; use a multiple of {targets}",
                spec.count
            )
        }
        _ => return Ok(()),
    };
    Err(DriverError::Refused(refused))
}

/// Returns how many groups of drivers divide the servers among them.
fn groups(spec: &DriverSpec, servers: usize) -> u32 {
    match spec.spread {
        Spread::Sessions => 1,
        Spread::Target => servers.max(1) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::job;

    #[test]
    fn each_judged_metric_of_a_command_can_be_combined() {
        let checked = |head: &str| {
            let job = job(&format!(
                "[target]\nprivate = true\n[experiment]\n{head}\n[workload]\nkind = 'command'\npreset = 'sysbench-oltp_read_only'\n"
            ));
            spec("local:2", None).check(&job).map_err(|error| error.to_string())
        };
        checked("").unwrap();
        checked("primary = 'sysbench_latency_mean'").unwrap();
        for head in ["primary = 'sysbench_latency_p95'", "also_judge = ['sysbench_latency_p95']"] {
            let error = checked(head).unwrap_err();
            let expected = "combine the values of several drivers for `sysbench_latency_p95`";
            assert!(error.contains(expected), "{head}: {error}");
        }
    }

    fn spec(engine: &str, listen: Option<&str>) -> DriverSpec {
        let image = engine.starts_with("kubernetes").then(|| "image".to_owned());
        let listen = listen.map(|address| address.parse().unwrap());
        DriverSpec::new(parse_engine(engine).unwrap(), None, image, listen).unwrap()
    }

    #[test]
    fn a_plan_names_engine_number_and_address() {
        for (engine, listen, expected) in [
            (
                "local:3",
                None,
                "3; engine local; pgio listens for them on a free port of the loopback.",
            ),
            (
                "local:3",
                Some("127.0.0.1:7"),
                "3; engine local; pgio listens for them at 127.0.0.1:7.",
            ),
            (
                "kubernetes:8",
                None,
                "8; engine kubernetes; pgio listens for them on a free port of all addresses.",
            ),
            (
                "run:4:mpirun {drive}",
                Some("10.0.0.1:7432"),
                "4; engine run:mpirun {drive}; pgio listens for them at 10.0.0.1:7432.",
            ),
        ] {
            let line = spec(engine, listen).plan_line();
            assert_eq!(line, format!("Drivers that generate the load: {expected}"));
        }
        let apart = DriverSpec { spread: Spread::Target, ..spec("slurm:4", None) };
        assert!(apart.plan_line().contains("4, divided among the servers; engine slurm; "));
    }
}
