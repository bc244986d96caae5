//! What a feature is: a static value with everything of it that the core must know.
//!
//! A feature owns its code, checks and examples, and uses only the core and no other feature. The core asks these
//! functions and names no feature. [`crate::features`] is the one list.

use std::fmt::Debug;
use std::rc::Rc;
use std::sync::{LazyLock, Once};

use pgio_report::directories::LoadedReport;
use pgio_report::report::Find;
use pgio_results::change::Change;
use pgio_results::checks::{self, CheckDef};
use pgio_results::metrics;
use pgio_results::model::{Check, Trial, Warning};
use pgio_verdict::cross::{self, CrossCheck};
use pgio_verdict::history::Run;

use crate::cli::exit::{Failure, Outcome};
use crate::cli::report;
use crate::config::experiment::Experiment;
use crate::config::experiment::part::FilePart;
use crate::experiment::application::{Job, Preview, WorkloadCode};
use crate::experiment::companion::Companions;
use crate::experiment::event::Event;
use crate::experiment::generators::Generators;
use crate::host::signature::Claim;
use crate::host::stop::Stop;
use crate::telemetry::observer::Observer;
use crate::treatment::Kind;

/// A feature. Most have only some of this: the rest is [`Feature::NONE`].
#[derive(Debug)]
pub struct Feature {
    /// The name of its directory, and of the Cargo feature that builds it.
    pub name: &'static str,
    /// The kinds of work that it brings.
    pub workloads: &'static [WorkloadCode],
    /// What it can change for a condition.
    pub treatments: &'static [Kind],
    /// Its metrics, after those of the core which they follow in tables.
    pub metrics: &'static [metrics::Group],
    /// Definitions of its checks.
    pub checks: fn() -> Vec<CheckDef>,
    /// Judges a complete trial, whether or not its condition, with these changes, uses the feature.
    pub judge: fn(&Trial, &[Change]) -> Vec<Check>,
    /// Judges the trials of an experiment against each other, and names them by their index.
    pub judge_all: CrossCheck,
    /// What it observes on the hosts of any trial.
    pub observers: &'static [Observer],
    /// Which disks nothing else may overwrite.
    pub claims: &'static [Claim],
    /// Example experiments: the name without extension, and the text.
    pub examples: &'static [(&'static str, &'static str)],
    pub commands: &'static [Subcommand],
    /// How it has other processes generate the load.
    pub generators: &'static [GeneratorKind],
    /// What the file asks for beside the trials.
    pub companions: fn(&Job) -> Option<Box<dyn Companions>>,
    /// What of it watches an experiment that a command runs.
    pub watches: &'static [Watch],
    /// Formats of `pgio report`, and what it shows of something else than one experiment.
    pub formats: &'static [Format],
    pub reports: &'static [Report],
    /// Where it keeps runs.
    pub runs: &'static [RunSource],
    /// What it reads of the experiment file.
    pub file: Option<&'static FilePart>,
    /// What it says of an experiment before it runs, in lines.
    pub plan: fn(&Job, &Preview<'_>) -> Vec<String>,
    /// What it adds to the report of an experiment.
    pub findings: &'static [Find],
    /// The schema of an object with their fields.
    #[cfg(feature = "schema")]
    pub schema: fn() -> Option<schemars::Schema>,
    /// Programs that it uses on this machine.
    pub programs: &'static [Program],
    /// What a command of it holds on this machine beyond its end.
    pub held: fn() -> Option<Held>,
}

/// A program, its purpose and the package that has it.
pub type Program = (&'static str, &'static str, &'static str);

/// A subcommand of `pgio`.
#[derive(Debug)]
pub struct Subcommand {
    pub name: &'static str,
    /// Adds its help and its arguments to the command of its name.
    pub define: fn(clap::Command) -> clap::Command,
    /// Runs it with the arguments that were parsed by this definition.
    pub run: fn(&clap::ArgMatches) -> Result<Outcome, clap::Error>,
}

/// What a feature adds to a command that runs experiments, to watch one.
#[derive(Debug)]
pub struct Watch {
    /// Adds its flags.
    pub define: fn(clap::Command) -> clap::Command,
    /// Opens it before anything is changed, if its flags ask for it.
    pub open: fn(&clap::ArgMatches, &Experiment, &Stop) -> Opened,
}

pub type Opened = Result<Option<Box<dyn Watcher>>, Failure>;

/// Watches an experiment that a command runs.
pub trait Watcher: Debug {
    /// The experiment waits until this returns.
    fn hear(&mut self, event: &Event<'_>);

    fn end(self: Box<Self>, ended: Result<(), &Failure>);
}

/// A way to have other processes generate the load.
#[derive(Debug)]
pub struct GeneratorKind {
    /// The key of what is stored of them among the facts of the environment; also the name of the flag that asks for
    /// them.
    pub fact: &'static str,
    /// The check of a trial that lost one of them.
    pub lost: &'static str,
    /// Adds its flags to a command that runs an experiment.
    pub define: fn(clap::Command) -> clap::Command,
    /// Reads what flags and file ask for.
    pub read: fn(&clap::ArgMatches, &Job) -> Result<Asked, Failure>,
}

/// What flags and file ask for.
#[derive(Debug)]
pub enum Asked {
    Nothing,
    /// The command has answered, and runs nothing.
    Answered,
    Generators(Rc<dyn Generators>),
}

/// A format of `pgio report`.
#[derive(Debug)]
pub struct Format {
    pub name: &'static str,
    pub help: &'static str,
    /// Renders the workloads of one experiment.
    pub render: fn(&[LoadedReport]) -> String,
}

/// What `pgio report` shows of something else than one experiment.
#[derive(Debug)]
pub struct Report {
    /// Adds its arguments.
    pub define: fn(clap::Command) -> clap::Command,
    /// Shows it, if the arguments ask for it.
    pub(crate) show: fn(&report::Args, &clap::ArgMatches) -> Option<Outcome>,
}

/// The runs of an experiment, if the flag of the source is set.
pub type KeptRuns = Result<Option<Vec<Run>>, Failure>;

/// Where runs of experiments are read, beside directories of results.
#[derive(Debug)]
pub struct RunSource {
    /// Adds its flag to a command that reads directories, its `dirs`, without the flag.
    pub define: fn(clap::Command) -> clap::Command,
    /// Reads the runs of the experiment, whose name may be left out if there is only one.
    pub read: fn(&clap::ArgMatches, Option<&str>) -> KeptRuns,
}

/// Something that a command holds on this machine, which every measurement there must state.
#[derive(Debug)]
pub struct Held {
    /// The key among the facts of the environment.
    pub fact: &'static str,
    pub what: String,
    pub warning: Warning,
}

impl Feature {
    pub const NONE: Feature = Feature {
        name: "",
        workloads: &[],
        treatments: &[],
        metrics: &[],
        checks: Vec::new,
        judge: |_, _| Vec::new(),
        judge_all: |_| Vec::new(),
        observers: &[],
        claims: &[],
        examples: &[],
        commands: &[],
        generators: &[],
        companions: |_| None,
        watches: &[],
        formats: &[],
        reports: &[],
        runs: &[],
        file: None,
        plan: |_, _| Vec::new(),
        findings: &[],
        #[cfg(feature = "schema")]
        schema: || None,
        programs: &[],
        held: || None,
    };
}

/// The features that pgio is built with.
pub fn all() -> &'static [&'static Feature] {
    register();
    crate::features::ALL
}

/// Makes known to verdicts and reports what features add. A program calls it before it reads results.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let features = crate::features::ALL.iter();
        cross::register(features.clone().map(|feature| feature.judge_all).collect());
        metrics::register(
            &features.flat_map(|feature| feature.metrics).copied().collect::<Vec<_>>(),
        );
    });
}

/// Returns the features' verdicts on a complete trial of a condition with these changes.
pub fn judge(trial: &Trial, declared: &[Change]) -> impl Iterator<Item = Check> {
    all().iter().flat_map(|feature| (feature.judge)(trial, declared))
}

/// Returns the treatments in the order of application.
pub fn treatments() -> impl Iterator<Item = &'static Kind> {
    all().iter().flat_map(|feature| feature.treatments)
}

/// Returns the kinds of work in the order of the documentation.
pub fn workloads() -> impl Iterator<Item = &'static WorkloadCode> {
    all().iter().flat_map(|feature| feature.workloads)
}

pub fn observers() -> impl Iterator<Item = &'static Observer> {
    all().iter().flat_map(|feature| feature.observers)
}

pub fn claims() -> impl Iterator<Item = &'static Claim> {
    all().iter().flat_map(|feature| feature.claims)
}

pub fn plan(job: &Job, preview: &Preview<'_>) -> impl Iterator<Item = String> {
    all().iter().flat_map(|feature| (feature.plan)(job, preview))
}

pub fn findings() -> Vec<Find> {
    all().iter().flat_map(|feature| feature.findings).copied().collect()
}

pub fn programs() -> impl Iterator<Item = &'static Program> {
    all().iter().flat_map(|feature| feature.programs)
}

pub fn commands() -> impl Iterator<Item = &'static Subcommand> {
    all().iter().flat_map(|feature| feature.commands)
}

pub fn generators() -> impl Iterator<Item = &'static GeneratorKind> {
    all().iter().flat_map(|feature| feature.generators)
}

pub fn companions(job: &Job) -> impl Iterator<Item = Box<dyn Companions>> {
    all().iter().filter_map(|feature| (feature.companions)(job))
}

pub fn watches() -> impl Iterator<Item = &'static Watch> {
    all().iter().flat_map(|feature| feature.watches)
}

pub fn formats() -> impl Iterator<Item = &'static Format> {
    all().iter().flat_map(|feature| feature.formats)
}

pub fn reports() -> impl Iterator<Item = &'static Report> {
    all().iter().flat_map(|feature| feature.reports)
}

pub fn run_sources() -> impl Iterator<Item = &'static RunSource> {
    all().iter().flat_map(|feature| feature.runs)
}

pub fn command(name: &str) -> Option<&'static Subcommand> {
    commands().find(|command| command.name == name)
}

/// The definitions of all checks: the core's, then each feature's.
pub static CHECKS: LazyLock<Vec<CheckDef>> = LazyLock::new(|| {
    let own = all().iter().flat_map(|feature| (feature.checks)());
    checks::CHECKS.iter().cloned().chain(own).collect()
});

/// Ids of the checks that can invalidate a trial and therefore be tolerated.
pub fn tolerable() -> Vec<&'static str> {
    CHECKS.iter().filter(|check| !check.invalid.is_empty()).map(|check| check.id).collect()
}

/// Returns the definition of a check.
pub fn definition(id: &str) -> Option<&'static CheckDef> {
    CHECKS.iter().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use pgio_results::checks::Kind;

    #[test]
    fn each_check_has_one_name_an_outcome_and_a_remedy() {
        let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for c in CHECKS.iter() {
            assert!(!c.invalid.is_empty() || !c.warning.is_empty(), "{}", c.id);
            assert!(!c.remedy.is_empty(), "{}", c.id);
            assert!(c.kind == Kind::Measurement || c.invalid.is_empty(), "{}", c.id);
        }
    }

    #[test]
    fn only_what_can_invalidate_is_tolerated() {
        let tolerable = tolerable();
        assert!(tolerable.contains(&"foreign-load"));
        for id in ["rate-not-reached", "drbd-congested", "data-size", "clock-skew"] {
            assert!(!tolerable.contains(&id), "{id} only warns");
        }
    }

    #[test]
    fn each_feature_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = all().iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), all().len());
        let kinds: BTreeSet<&str> = treatments().map(|kind| kind.name).collect();
        assert_eq!(kinds.len(), treatments().count());
    }
}
