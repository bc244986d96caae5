//! What is stored of an experiment beside its trials: the manifest, and the file as run.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::job::Job;
use crate::cli::ballast;
use crate::config::experiment::{self, AA_SUFFIX, Target};
use crate::experiment::environment;
use crate::experiment::live::{self, LiveCell};
use crate::pg::connect::ConnectParams;
use crate::results::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Rules};
use crate::results::sweep::Sweep;
use crate::treatment;

/// In place of a file that cannot be stored.
pub(super) const NOT_STORED: &str = "# not stored: it holds a password\n";

impl Job {
    pub(super) fn manifest(
        &self,
        name: &str,
        cells: &[LiveCell],
        rules: &experiment::Rules,
        sweep: Option<Sweep>,
        targets: &mut BTreeMap<String, live::Target>,
    ) -> Manifest {
        let e = &self.experiment;
        let mut environment = BTreeMap::new();
        let mut primary = e.primary.clone();
        let several = targets.len() > 1;
        for (name, target) in targets.iter_mut() {
            let prefix = if several { format!("{name}.") } else { String::new() };
            for (key, value) in environment::describe(&mut target.admin, &target.server) {
                environment.insert(format!("{prefix}{key}"), value);
            }
            primary.get_or_insert_with(|| target.workloads[0].info().primary_metric);
        }
        if let Some(held) = ballast::held() {
            environment.insert("driver.ballast".to_owned(), held);
        }
        let aa = e.aa.then(|| format!("{}{AA_SUFFIX}", e.baseline));
        Manifest {
            schema: MANIFEST_SCHEMA.to_owned(),
            pgio: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            created_at: Timestamp::now().to_string(),
            seed: self.seed,
            blocks: e.blocks,
            baseline: e.baseline.clone(),
            aa,
            primary_metric: primary.unwrap_or_default(),
            conditions: cells
                .iter()
                .filter(|c| sweep.as_ref().is_none_or(|s| c.cell.point == *s.middle()))
                .map(|c| ConditionInfo {
                    name: c.cell.condition.clone(),
                    changes: treatment::changes(&c.treatments),
                })
                .collect(),
            metrics: Vec::new(),
            environment,
            rules: Rules {
                precision: rules.precision,
                max_blocks: rules.precision.map(|_| rules.max_blocks),
                repeats: rules.repeats,
                reset: rules.reset.name().to_owned(),
                checkpoint: rules.checkpoint.name().to_owned(),
                tolerate: rules.tolerate.clone(),
                judge: rules.question.judge.clone(),
                also_judge: rules.question.also_judge.clone(),
                effect: rules.question.effect,
            },
            resumed: Vec::new(),
            sweep,
        }
    }

    /// The file as run, without what a dsn may hold of a secret.
    pub(super) fn stored_text(&self, params: &BTreeMap<String, ConnectParams>) -> String {
        let mut text = self.text.clone();
        for (name, target) in &self.experiment.targets {
            let (Target::Server { dsn, .. }, Some(params)) = (target, params.get(name)) else {
                continue;
            };
            if params.password.is_some() {
                text = text.replace(dsn.expose(), &params.without_secrets());
            }
        }
        let leaked = params
            .values()
            .filter_map(|p| p.password.as_ref())
            .any(|p| p.is_in(&text) || !p.expose().is_empty() && text.contains(p.expose()));
        if leaked { NOT_STORED.to_owned() } else { text }
    }
}
