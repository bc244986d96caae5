//! Makes what is stored beside the trials: the manifest, and the file as run.
//!
//! Stores no secret, neither in the file's text nor in the description of a server.

use std::collections::BTreeMap;

use super::job::Job;
use crate::config::experiment::{
    self, AA_SUFFIX, Experiment, PrivateTarget, StandbyTarget, Target, Weave, WorkloadSpec,
};
use crate::experiment::live::LiveCell;
use crate::experiment::{environment, target};
use crate::treatment;
use crate::workload::command;
use jiff::Timestamp;
use pgio_connect::{ConnectParams, Secret};
use pgio_results::change::{Change, Subject};
use pgio_results::metrics::DeclaredMetric;
use pgio_results::points::Varied;
use pgio_results::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Rules};
use pgio_results::{joint, units};

/// Stored instead of a file that contains a password.
pub(super) const NOT_STORED: &str = "# not stored: the file contains a password\n";

/// Describes the servers and this machine. With several targets, a key begins with its target's name.
pub(super) fn environment_of(
    targets: &mut BTreeMap<String, target::Target>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let several = targets.len() > 1;
    for (name, target) in targets.iter_mut() {
        let prefix = if several { format!("{name}.") } else { String::new() };
        for (key, value) in environment::describe(&mut target.admin, &target.server) {
            found.insert(format!("{prefix}{key}"), value);
        }
    }
    found.extend(environment::held().into_iter().map(|held| (held.fact.to_owned(), held.what)));
    found
}

/// Returns the primary metric: the file's, else the workload's default.
pub(super) fn primary_of(job: &Job, targets: &BTreeMap<String, target::Target>) -> String {
    let default = || Some(targets.values().next()?.workloads.first()?.info().primary_metric);
    job.experiment.primary.clone().or_else(default).unwrap_or_default()
}

/// Makes the manifest of one workload; `rules` are the file's with the workload's own reset.
pub(super) fn manifest(
    job: &Job,
    spec: &WorkloadSpec,
    cells: &[LiveCell],
    varied: Option<Varied>,
    rules: &experiment::Rules,
    mut environment: BTreeMap<String, String>,
    primary_metric: String,
) -> Manifest {
    let e = &job.experiment;
    if let Some(generators) = &job.generators {
        environment.insert(generators.fact().to_owned(), generators.described());
    }
    Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        name: job.name_of(spec),
        created_at: Timestamp::now().to_string(),
        seed: job.seed,
        blocks: e.blocks,
        baseline: e.baseline.clone(),
        own_baseline: None,
        aa: e.aa.then(|| format!("{}{AA_SUFFIX}", e.baseline)),
        metrics: declared_metrics(job, spec, &primary_metric),
        primary_metric,
        conditions: cells
            .iter()
            .filter(|c| varied.as_ref().is_none_or(|s| c.cell.point == *s.middle()))
            .map(|c| ConditionInfo {
                name: c.cell.condition.clone(),
                changes: treatment::changes(&c.treatments),
            })
            .collect(),
        built: BTreeMap::new(),
        environment,
        rules: Rules {
            precision: rules.precision,
            max_blocks: rules.precision.map(|_| rules.max_blocks),
            repeats: rules.repeats,
            reset: rules.reset.name().to_owned(),
            checkpoint: rules.checkpoint.name().to_owned(),
            weave_seconds: match rules.weave {
                Weave::Off | Weave::Auto => None,
                Weave::Slices(slice) => Some(slice.as_secs_f64()),
            },
            tolerate: rules.tolerate.clone(),
            question: rules.question.text.clone(),
            judge: rules.question.judge.clone(),
            also_judge: rules.question.also_judge.clone(),
            effect: rules.question.effect,
            matters: rules.question.matters,
        },
        resumed: Vec::new(),
        varied,
        design: job.experiment.design.clone(),
        // Known only after the first slices.
        weave: None,
    }
}

/// Returns the metrics of the workload's command, and of single servers if conditions have several.
fn declared_metrics(job: &Job, spec: &WorkloadSpec, primary: &str) -> Vec<DeclaredMetric> {
    let mut all = spec.command.as_ref().map(command::declared).unwrap_or_default();
    let asked = joint::judged_metrics(primary, &job.experiment.rules.question.also_judge);
    all.extend(joint::declare_metrics(&asked, &job.experiment.compared_targets(spec)));
    all
}

/// Returns the file as run, without secrets of a dsn.
pub(super) fn stored_text(job: &Job, params: &BTreeMap<String, ConnectParams>) -> String {
    let mut text = job.text.clone();
    let mut secrets: Vec<Secret> = params.values().filter_map(|p| p.password.clone()).collect();
    for (name, target) in &job.experiment.targets {
        let Target::Server { dsn, .. } = target else { continue };
        let dsn_secrets = pgio_connect::secrets(dsn.expose());
        // The file spells such a dsn with escapes, so that it is not found below.
        if !dsn_secrets.is_empty() && !job.text.contains(dsn.expose()) {
            return NOT_STORED.to_owned();
        }
        let has_secret = !dsn_secrets.is_empty() || pgio_connect::names_secret(dsn.expose());
        secrets.extend(dsn_secrets);
        if let Some(params) = params.get(name)
            && (has_secret || params.password.is_some())
        {
            let safe = params.without_secrets();
            // The dsn contains single quotes, which would end a TOML literal string.
            let literal = format!("'{}'", dsn.expose());
            text = text.replace(&literal, &toml::Value::String(safe.clone()).to_string());
            text = text.replace(dsn.expose(), &safe);
        }
    }
    let leaked = secrets.iter().any(|secret| secret.is_exactly_in(&text));
    if leaked { NOT_STORED.to_owned() } else { text }
}

/// Describes how the private servers of conditions were built, as changes that tell targets apart.
///
/// They are stored beside the conditions and are no treatments: `pgio_verdict` attributes a difference
/// between two targets to them. A server of the user's is not described, because what it was built from is unknown.
pub(super) fn built_servers(
    cells: &[LiveCell],
    e: &Experiment,
    targets: &BTreeMap<String, target::Target>,
) -> BTreeMap<String, Vec<Change>> {
    let built = |cell: &LiveCell| {
        let Some(Target::Private(private)) = e.targets.get(&cell.target) else { return None };
        let version = targets.get(&cell.target)?.cluster.as_ref()?.version();
        Some((cell.cell.condition.clone(), describe(private, &version.to_string())))
    };
    cells.iter().filter_map(built).collect()
}

fn describe(target: &PrivateTarget, version: &str) -> Vec<Change> {
    let mut all = vec![Change::new(None, Subject::Version, "version", version)];
    let mut options = target.initdb.iter().peekable();
    while let Some(option) = options.next() {
        let (name, mut value) = match option.split_once('=') {
            Some((name, value)) if option.starts_with("--") => (name, value),
            _ => (option.as_str(), ""),
        };
        // `-E UTF8`: the value is an argument of its own.
        if let Some(next) = options.next_if(|next| !next.starts_with('-')) {
            value = next;
        }
        all.push(Change::new(None, Subject::Initdb, name, value));
    }
    for (key, path) in [("directory", &target.directory), ("wal_directory", &target.wal_directory)]
    {
        if let Some(path) = path {
            all.push(Change::new(None, Subject::Directory, key, path.to_string_lossy()));
        }
    }
    let settings = target.settings.iter();
    all.extend(settings.map(|(name, value)| Change::server(name.as_str(), value.as_str())));
    all.extend(target.standbys.iter().map(describe_standby));
    all
}

fn describe_standby(standby: &StandbyTarget) -> Change {
    let mut parts = vec![format!("from {}", standby.from.as_deref().unwrap_or("the primary"))];
    parts.extend(standby.directory.iter().map(|path| format!("in {}", path.display())));
    if !standby.apply_delay.is_zero() {
        parts.push(format!("apply_delay {}", units::exact_duration(standby.apply_delay)));
    }
    if standby.archive {
        parts.push("archive".to_owned());
    }
    parts.extend(standby.settings.iter().map(|(name, value)| format!("{name} = {value}")));
    let subject = Subject::Standby { name: standby.name.clone() };
    Change::new(None, subject, "standby", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::cells;
    use crate::experiment::application::scripted::{COMMITS, first, job};
    use crate::experiment::target;

    fn manifest_of(text: &str) -> Manifest {
        let job = job(text);
        let (spec, cells) = first(&job);
        let varied = cells::varied(&job.experiment, spec).unwrap();
        let rules = &job.experiment.rules;
        manifest(
            &job,
            spec,
            &cells,
            varied,
            rules,
            BTreeMap::new(),
            "commit_latency_p99".to_owned(),
        )
    }

    #[test]
    fn the_manifest_records_seed_blocks_conditions_and_rules() {
        let m = manifest_of(COMMITS);
        assert_eq!((m.name.as_str(), m.seed, m.blocks), ("x", 7, 6));
        assert_eq!((m.baseline.as_str(), m.aa.as_deref()), ("local", Some("local (A/A)")));
        assert_eq!(m.primary_metric, "commit_latency_p99");
        let names: Vec<&str> = m.conditions.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["local", "local (A/A)", "on"]);
        assert!(m.conditions[2].changes[0].sets("synchronous_commit"));
        // A limit is of no meaning without a precision.
        assert_eq!((m.rules.precision, m.rules.max_blocks), (None, None));
        let precise = COMMITS.replace("seed = 7", "precision = '5%'\nmax_blocks = 20");
        assert_eq!(manifest_of(&precise).rules.max_blocks, Some(20));
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn the_manifest_of_a_sweep_lists_each_condition_once() {
        let m = manifest_of(&format!("{COMMITS}sessions = [1, 4, 16]\n"));
        assert_eq!(m.conditions.len(), 3);
        assert_eq!(m.varied.unwrap().points.len(), 3);
    }

    /// Returns what is stored of a file with this dsn, as written, and this comment.
    fn stored_with(dsn: &str, comment: &str) -> String {
        let text = COMMITS.replace("private = true", &format!("dsn = {dsn}")) + comment;
        let job = job(&text);
        let Target::Server { dsn, .. } = &job.experiment.targets["target"] else {
            panic!("it is a server of the user's")
        };
        let params = target::params(dsn, "1").unwrap();
        stored_text(&job, &BTreeMap::from([("target".to_owned(), params)]))
    }

    #[test]
    fn no_password_is_stored() {
        let with = |quote: &str, comment: &str| {
            let dsn = format!("{quote}host=h user=u dbname=d password=geheim{quote}");
            stored_with(&dsn, comment)
        };
        for quote in ["\"", "'"] {
            let stored = with(quote, "# as run\n");
            assert!(stored.contains("host='h'") && stored.contains("# as run"), "{stored}");
            assert!(!stored.contains("geheim"), "{stored}");
            assert!(stored.parse::<toml::Table>().is_ok(), "{stored}");
        }
        assert_eq!(with("\"", "# the password is geheim\n"), NOT_STORED);
    }

    #[test]
    fn no_other_secret_of_a_dsn_is_stored() {
        for keyword in ["password", "sslpassword", "oauth_client_secret"] {
            let dsn = format!("host=h user=u dbname=d {keyword}=geheim");
            let stored = stored_with(&format!("\"{dsn}\""), "# as run\n");
            assert!(stored.contains("host='h'") && !stored.contains("geheim"), "{stored}");
            assert_eq!(stored_with(&format!("\"{dsn}\""), "# it is geheim\n"), NOT_STORED);
            // The text of the file is another one than the dsn's.
            for escaped in [r"'a\\b'", r"'gehei\\m'", r"\u0067eheim"] {
                let dsn = dsn.replace("geheim", escaped);
                assert_eq!(stored_with(&format!("\"{dsn}\""), ""), NOT_STORED, "{dsn}");
            }
        }
    }

    #[test]
    fn a_private_target_is_described_by_version_options_and_standbys() {
        let lines = "private = true\ninitdb = ['-E', 'UTF8', '--wal-segsize=64', '-k']\n\
                     wal_directory = '/srv/wal'\npostgres = { shared_buffers = '64MB' }\n\
                     standbys = [{ name = 'a' }, { name = 'b', from = 'a', apply_delay = '5s' }]";
        let job = job(&COMMITS.replace("private = true", lines));
        let Target::Private(private) = &job.experiment.targets["target"] else { panic!() };
        let texts: Vec<String> = describe(private, "18.6").iter().map(Change::to_string).collect();
        let expected = [
            "PostgreSQL 18.6",
            "initdb -E=UTF8",
            "initdb --wal-segsize=64",
            "initdb -k",
            "wal_directory = /srv/wal",
            "shared_buffers = 64MB",
            "standby a (from the primary)",
            "standby b (from a, apply_delay 5s)",
        ];
        assert_eq!(texts, expected);
    }
}
