//! The experiment file of `pgio compare`: workloads, targets, hosts and conditions, or
//! the factors that conditions are made of.
//!
//! The parser keeps line numbers, so that every error names its line. It must not read the
//! environment or a pgio.conf. The bodies of treatments stay TOML values: each treatment parses its
//! own, and the caller passes the valid kinds.
//!
//! Each section of the file has its own submodule; all use the reader in `section`.

pub(crate) mod command;
pub(crate) mod condition;
pub(super) mod hosts;
pub(crate) mod key;
pub mod limits;
pub mod part;
pub(crate) mod points;
mod private;
mod rules;
pub(crate) mod section;
pub(crate) mod size;
pub(super) mod target;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use benchmath::margin::LARGEST_SHARE;
use pgio_results::factors::FactorDesign;
use toml::de::DeTable;

use self::key::{SectionDef, section};
use self::section::{Document, Section};
use super::value::{ConfigError, nearest};

pub use super::kinds::WorkloadKind;
pub use condition::{AA_SUFFIX, Condition, TreatmentSpec};
pub use hosts::HostSpec;
pub use pgio_results::points::Combination;
pub use points::{AxisSpec, AxisValueSpec, PointSpec};
pub use private::{PrivateTarget, RESERVED_NAMES, StandbyTarget, initdb_option_name};
pub use rules::{Checkpoint, Question, Reset, Rules, Weave};
pub use size::Size;
pub use target::{ControlMethod, SINGLE_TARGET, Target};
pub use workload::WorkloadSpec;

/// The sections that belong to no feature.
static SECTIONS: &[SectionDef] = &[
    keys::SECTION,
    target::keys::SECTION,
    private::keys::SECTION,
    hosts::keys::SECTION,
    condition::keys::SECTION,
    workload::keys::SECTION,
    command::keys::SECTION,
    limits::keys::SECTION,
];

section! { keys, "[experiment]",
    "How pgio runs and judges the experiment.";
    name: Parsed<String>("one line of text", label) or "the file's name", "name of the experiment in reports";
    blocks: Whole<u32>(1..=limits::BLOCKS)
        or "6 for one comparison, 7 for 2-3, 8 for 4-6, 9 for 7-12, 10 for 13-25",
        "passes over all conditions, each in a new random order; with fewer than the default, one noisy condition can hide the effects of the others";
    warmup: Time(ZERO) = Duration::from_secs(2), "time that the workload runs before each window starts";
    duration: Time(ABOVE_ZERO) = Duration::from_secs(10), "length of each measured window";
    seed: Whole<u64>(0..=u64::MAX) or "drawn and recorded",
        "seed of the order of conditions and of the workload";
    baseline: Parsed<String>("the name of a condition", label) or "the first condition",
        "the condition that all others are compared with";
    aa: Switch or "true; false with factors, unless design is one-at-a-time",
        "run the baseline twice in each block to measure the noise";
    burn_in: Switch or "true if the workload reads a data set, or has setup_once",
        "run the baseline once before the first block; the trial is stored but not counted";
    primary: Parsed<String>("the name of a metric", label) or "depends on the workload", "the metric that is judged";
    telemetry: Time(ZERO) = Duration::from_secs(1),
        "interval at which pgio observes server and hosts; 0s turns observation off";
    precision: Share(None),
        "from 8 blocks on, add blocks until every judged primary interval is within ± this share";
    max_blocks: Whole<u32>(1..=limits::BLOCKS) = 30,
        "maximum number of blocks that precision may add up to; at least blocks";
    repeats: Whole<u32>(0..=limits::REPEATS) = 2,
        "maximum number of times to repeat an invalid trial";
    reset: OneOf<Reset>(Reset::ALL) = Reset::Checkpoint,
        "what is made equal before each trial: checkpoint restores no data and only issues a CHECKPOINT, vacuum removes dead rows, reload reloads the data set, recreate drops and re-creates the database";
    checkpoint: OneOf<Checkpoint>(Checkpoint::ALL) = Checkpoint::Before,
        "checkpoints that affect windows: before issues one before the warm-up, spread requires windows of whole checkpoint cycles, none leaves checkpoints to the server";
    weave: Raw("auto, false or a duration of at least 5ms") or "false",
        "mean length of the slices in which the conditions of a block take turns inside one window, for conditions that differ only in settings of sessions; auto finds the shortest length at which slices agree; false gives each trial a window of its own";
    together: Switch = false, "run each condition that names no target on all targets, in one window";
    recreate_database: Parsed<String>("the name of the database", label),
        "the database that reset = \"recreate\" may drop; required unless all servers are private";
    question: Parsed<String>("a text", label) or "made from the conditions",
        "what the experiment shall answer, in words; the report begins with it";
    judge: Texts("an array of condition names") or "all conditions",
        "conditions whose comparisons answer the question; a single one is judged unadjusted, several form one family";
    also_judge: Texts("an array of metric names"),
        "metrics judged in addition to the primary one, in the same family";
    effect: Share(None),
        "the effect to plan for; the report shows how many blocks detect it with 80 % power";
    matters: Share(Some(LARGEST_SHARE)),
        "the margin: the report decides whether each effect exceeds the margin, stays below it, or is undecided, and --gate turns the answer into an exit code";
    tolerate: Texts("an array of check ids"),
        "checks that shall warn instead of making a trial invalid; valid ids are those of the table Checks below that can do so";
    cells_limit: Whole<u64>(1..=limits::CELLS) or "200; 64 for a design",
        "maximum number of cells that lists of values or a design make; setting it also allows lists that take more than 8 h";
}

const TITLES: &[&str] = &["experiment", "hosts", "target", "targets", "workload", "condition"];

/// Parses an experiment file. Errors contain the name `file`; `stem` is the default name of the
/// experiment; `treatments` are the valid kinds of treatment; `checks` are the ids that `tolerate`
/// accepts.
pub fn parse(
    text: &str,
    file: &str,
    stem: &str,
    treatments: &[&str],
    checks: &[&str],
) -> Result<Experiment, ConfigError> {
    let document = Document { file, text };
    let parsed = document.parse()?;
    let root = Section::root(&document, parsed.get_ref());
    let titles: Vec<&str> = TITLES.iter().copied().chain(part::titles()).collect();
    root.refuse_unknown_keys(&titles)?;

    let hosts = hosts::parse(&root)?;
    let targets = target::parse(&root, &hosts)?;
    let nothing = DeTable::new();
    let head = root.section("experiment")?.unwrap_or_else(|| Section::root(&document, &nothing));
    head.refuse_unknown_keys(&part::names(&keys::SECTION))?;
    let file = part::File { root: &root, head: &head, treatments };
    let (conditions, design) = match part::conditions(&file, &targets)? {
        Some(made) => (made.conditions, Some(made.design)),
        None => {
            let together = condition::together(&head, targets.len())?;
            (condition::parse(&root, treatments, &targets, together)?, None)
        }
    };
    let warmup = head.get(&keys::warmup)?;
    let duration = head.get(&keys::duration)?;
    let baseline = baseline(&head, &conditions)?;
    let mut workloads = workload::parse(&root, warmup, duration, &baseline, &conditions)?;
    condition::check_shared_windows(&root, &workloads, &conditions)?;
    let others: Vec<&str> =
        conditions.iter().map(|c| c.name.as_str()).filter(|name| *name != baseline).collect();
    // In a factorial design, factors without an effect show the noise.
    let is_factorial = design.as_ref().is_some_and(|design| design.kind.is_factorial());
    let aa = head.read(&keys::aa)?.unwrap_or(!is_factorial);
    let compared = match &design {
        // Each effect is one of all cells, so none is noisier than another.
        Some(_) if is_factorial => 1,
        _ => others.len() + usize::from(aa),
    };
    let (blocks, rules) = rules::parse(&head, compared, targets.values(), checks, &others)?;
    workload::check_judged(&head, &rules.question.judge, &workloads, &others)?;
    let primary = head.read(&keys::primary)?;
    let commands = workloads.iter_mut().filter_map(|workload| workload.command.as_mut());
    commands.for_each(|command| {
        command.note_judged(primary.as_deref(), &rules.question.also_judge);
    });
    let mut experiment = Experiment {
        name: head.read(&keys::name)?.unwrap_or_else(|| stem.to_owned()),
        blocks,
        warmup,
        duration,
        seed: head.read(&keys::seed)?,
        baseline,
        aa,
        burn_in: head.read(&keys::burn_in)?,
        telemetry: head.get(&keys::telemetry)?,
        primary,
        hosts,
        rules,
        combination: Combination::OneAtATime,
        targets,
        workloads,
        conditions,
        design,
    };
    part::all().try_for_each(|part| (part.complete)(&file, &mut experiment))?;
    size::check(&head, &experiment)?;
    Ok(experiment)
}

/// Returns the baseline: the one that the file names, else the first condition.
fn baseline(head: &Section<'_>, conditions: &[Condition]) -> Result<String, ConfigError> {
    let Some(name) = head.read(&keys::baseline)? else { return Ok(conditions[0].name.clone()) };
    let names: Vec<&str> = conditions.iter().map(|c| c.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(head
        .error(&keys::baseline, format!("`{name}` is not a condition; {}", nearest(&name, &names))))
}

#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    /// Passes over all conditions.
    pub blocks: u32,
    /// For reports; each workload's layer already contains it, as well as `duration`.
    pub warmup: Duration,
    pub duration: Duration,
    /// Seed of the order of conditions. Absent: drawn and recorded.
    pub seed: Option<u64>,
    /// The name of one of the conditions.
    pub baseline: String,
    /// Whether the baseline runs twice in each block to measure the noise.
    pub aa: bool,
    /// Whether an uncounted trial of the baseline precedes block 1; absent: depends on the workload.
    pub burn_in: Option<bool>,
    /// Interval at which pgio observes server and hosts; zero: never.
    pub telemetry: Duration,
    /// The metric that is judged; absent: the workload's default.
    pub primary: Option<String>,
    /// Machines to observe, by their names in the file.
    pub hosts: BTreeMap<String, HostSpec>,
    pub rules: Rules,
    /// How the axes of a workload are combined into points.
    pub combination: Combination,
    /// Empty: pgio.conf, then the PG* variables, apply.
    pub targets: BTreeMap<String, Target>,
    pub workloads: Vec<WorkloadSpec>,
    /// In the order of the file, without the A/A condition.
    pub conditions: Vec<Condition>,
    /// The factors whose levels the conditions combine, if they do.
    pub design: Option<FactorDesign>,
}

impl Experiment {
    /// Returns whether a burn-in trial comes first. By default it does if all trials share a data set,
    /// because the share of it that is cached differs; a command with `setup_once` counts as such.
    pub fn burns_in(&self, workload: &WorkloadSpec) -> bool {
        let prepared = workload.command.as_ref().is_some_and(|command| command.setup_once);
        self.burn_in.unwrap_or(prepared || workload.kind.def().data_set)
    }

    pub fn reset_of<'a>(&'a self, workload: &'a WorkloadSpec) -> &'a Reset {
        workload.reset.as_ref().unwrap_or(&self.rules.reset)
    }

    /// Returns the targets of a workload that are compared one by one, because conditions have several; in the
    /// order of the conditions.
    pub fn compared_targets(&self, workload: &WorkloadSpec) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        if self.conditions_of(workload).any(|condition| !condition.further_targets.is_empty()) {
            for name in self.conditions_of(workload).flat_map(Condition::targets) {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
        }
        all
    }

    /// Returns the conditions of a workload, in the order of the file.
    pub fn conditions_of<'a>(
        &'a self,
        workload: &'a WorkloadSpec,
    ) -> impl Iterator<Item = &'a Condition> {
        self.conditions.iter().filter(|condition| workload.runs_under(&condition.name))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{Experiment, Target, parse, *};
    use crate::config::keys::Layer;
    use crate::config::resolve::{CommitSettings, Extent, SlobSettings};
    use crate::config::value::ConnectString;

    pub(crate) const TREATMENTS: &[&str] = &["postgres", "drbd", "throttle", "command"];
    pub(crate) const CHECKS: &[&str] = &["durability", "foreign-load"];

    pub(crate) fn read(text: &str) -> Experiment {
        parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap()
    }

    pub(crate) fn error(text: &str) -> String {
        parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap_err().to_string()
    }

    /// Returns the error of a valid file with these lines in front.
    pub(crate) fn error_of(lines: &str) -> String {
        error(&format!("{lines}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n"))
    }

    /// Returns the error of a valid file with these lines in the second condition.
    pub(crate) fn condition_error(lines: &str) -> String {
        error(&format!("[[condition]]\nname = 'a'\n[[condition]]\n{lines}\n"))
    }

    pub(crate) fn server(dsn: &str) -> Target {
        Target::Server {
            dsn: ConnectString::new(dsn),
            host: None,
            standby_host: None,
            device: None,
            control: None,
        }
    }

    #[test]
    fn only_the_name_of_a_condition_is_required() {
        let seconds = Duration::from_secs;
        assert_eq!(
            read("[[condition]]\nname = 'a'\n"),
            Experiment {
                name: "x".to_owned(),
                blocks: 6,
                warmup: seconds(2),
                duration: seconds(10),
                seed: None,
                baseline: "a".to_owned(),
                aa: true,
                burn_in: None,
                telemetry: seconds(1),
                primary: None,
                hosts: BTreeMap::new(),
                rules: Rules {
                    precision: None,
                    enough_blocks: 6,
                    max_blocks: 6,
                    repeats: 2,
                    reset: Reset::Checkpoint,
                    checkpoint: Checkpoint::Before,
                    weave: Weave::Off,
                    tolerate: Vec::new(),
                    question: Question::default(),
                },
                combination: Combination::OneAtATime,
                targets: BTreeMap::new(),
                workloads: vec![WorkloadSpec {
                    name: "slob".to_owned(),
                    kind: crate::config::kinds::SLOB,
                    layer: Layer {
                        warmup: Some(seconds(2)),
                        run_time: Some(seconds(10)),
                        ..Layer::default()
                    },
                    axes: Vec::new(),
                    command: None,
                    conditions: None,
                    reset: None,
                }],
                conditions: vec![Condition {
                    name: "a".to_owned(),
                    target: None,
                    further_targets: Vec::new(),
                    treatments: Vec::new(),
                    everywhere: true,
                }],
                design: None,
            }
        );
    }

    #[test]
    fn all_keys_are_read() {
        let experiment = read(
            "[experiment]\nname = 'sync commit'\nblocks = 12\nwarmup = 0\nduration = '500ms'\n\
             seed = 0xffff_ffff_ffff_ffff\nbaseline = 'b'\naa = false\nprimary = 'wal_bytes'\n\
             [targets.east]\ndsn = 'service=east'\n[targets.own]\nprivate = true\npg = 18\n\
             standby = true\n\
             [workload]\nkind = 'slob'\nupdate_pct = 10\nscale = 25_600\naccess = 'bitmap'\n\
             run_time = '1m'\ncreate_base_table = false\n\
             [[condition]]\nname = 'a'\ntarget = 'own'\n\
             postgres = { synchronous_commit = 'on', work_mem = 4, x = 1.5, y = true }\n\
             drbd = { protocol = 'C' }\n\
             [[condition]]\nname = 'b'\ntarget = 'east'\n[condition.throttle]\niops = 500\n",
        );
        assert_eq!(experiment.name, "sync commit");
        assert_eq!(experiment.blocks, 12);
        assert_eq!(experiment.warmup, Duration::ZERO);
        assert_eq!(experiment.duration, Duration::from_millis(500));
        assert_eq!(experiment.seed, Some(u64::MAX));
        assert_eq!(experiment.baseline, "b");
        assert!(!experiment.aa);
        assert_eq!(experiment.primary.as_deref(), Some("wal_bytes"));

        let [a, b] = experiment.conditions.as_slice() else { panic!("two conditions") };
        let standbys = vec![StandbyTarget::named("standby")];
        let own = Target::Private(PrivateTarget {
            major: Some(18),
            standbys,
            ..PrivateTarget::default()
        });
        let east = server("service=east");
        assert_eq!(experiment.targets[a.target.as_ref().unwrap()], own);
        assert_eq!(experiment.targets[b.target.as_ref().unwrap()], east);
        let kinds: Vec<_> = a.treatments.iter().map(|t| (t.kind.as_str(), t.line)).collect();
        assert_eq!(kinds, [("postgres", 26), ("drbd", 27)], "in the order of the file");
        let settings = a.treatments[0].body.as_table().unwrap();
        assert_eq!(settings["synchronous_commit"].as_str(), Some("on"));
        assert_eq!(settings["work_mem"].as_integer(), Some(4));
        assert_eq!(settings["x"].as_float(), Some(1.5));
        assert_eq!(settings["y"].as_bool(), Some(true));
        assert_eq!(b.treatments[0].body["iops"].as_integer(), Some(500));

        let slob = SlobSettings::resolve(experiment.workloads[0].layer.clone()).unwrap();
        assert_eq!(slob.scale, "200M".parse().unwrap());
        assert_eq!(slob.run_time, Duration::from_secs(60), "overrides the experiment's duration");
        assert_eq!(slob.warmup, Duration::ZERO);
    }

    #[test]
    fn shipped_examples_parse_with_their_workloads_and_conditions() {
        let sync = include_str!("../../../../examples/sync-commit-quick.toml");
        let sync =
            parse(sync, "sync-commit-quick.toml", "sync-commit", TREATMENTS, CHECKS).unwrap();
        assert_eq!(sync.name, "sync-commit");
        assert_eq!(sync.baseline, "local");
        let [commit, slob] = sync.workloads.as_slice() else { panic!("two workloads") };
        assert_eq!(sync.conditions_of(commit).count(), 5);
        let names: Vec<_> = sync.conditions_of(slob).map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["local", "on", "remote_apply"]);
        SlobSettings::resolve(slob.layer.clone()).unwrap();

        let fixed = include_str!("../../../../examples/commit-10000.toml");
        let fixed = parse(fixed, "commit-10000.toml", "commit-10000", TREATMENTS, CHECKS).unwrap();
        let settings = CommitSettings::resolve(fixed.workloads[0].layer.clone()).unwrap();
        assert_eq!(settings.extent, Extent::Transactions(10_000));
        assert_eq!(fixed.conditions.len(), 2);
    }
}
