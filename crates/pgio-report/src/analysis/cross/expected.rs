//! The environment that a server is expected to have in the trials of one cell, and what differs from it.
//!
//! A fact must equal the usual one under the baseline; where a change of either condition decides it, or where
//! the baseline has another server, the usual one of the cell's own trials. What was not read differs from
//! nothing. Next: `cross` for the first server of a trial, `servers` for further ones.

use super::differing::{Usual, join_differences, value_text};
use pgio_results::Check;
use pgio_results::change::fact;
use pgio_results::model::Facts;
use pgio_results::store::ConditionInfo;
use pgio_results::telemetry::Storage;

pub(super) const ID: &str = "environment-differs";

pub(super) struct Expected<'a> {
    /// The usual facts in the cell's own trials.
    pub(super) own: Usual<'a>,
    /// Those of the same server under the baseline, with the baseline; without them, only the own ones count.
    pub(super) baseline: Option<(Usual<'a>, &'a ConditionInfo)>,
    pub(super) info: &'a ConditionInfo,
}

/// What a trial recorded of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedFacts<'a> {
    pub(super) facts: &'a Facts,
    /// Where its directories are.
    pub(super) storage: &'a [Storage],
}

impl Expected<'_> {
    /// Returns the facts that differ, each with both values.
    pub(super) fn differences(&self, observed: ObservedFacts<'_>) -> Vec<String> {
        let unread = self.is_unread(observed.facts);
        let further = self.baseline.iter().flat_map(|(usual, _)| usual.keys());
        let names = self.own.keys().chain(further.filter(|name| !self.own.contains_key(*name)));
        let mut differences = Vec::new();
        for name in names.filter(|name| !unread || fact::is_setting(name)) {
            let found = observed.facts.get(*name).map(String::as_str);
            let own = usual(&self.own, name);
            let baseline = self.baseline.as_ref().map(|(facts, info)| (usual(facts, name), *info));
            // A value that equals both references needs no check of declared changes.
            if found == own && baseline.is_none_or(|(usual, _)| found == usual) {
                continue;
            }
            let by_baseline = baseline.filter(|(_, info)| {
                info.name != self.info.name && !self.is_declared(name, info, observed.storage)
            });
            let (expected, of) = match by_baseline {
                Some((usual, info)) => (usual, format!("under `{}`", info.name)),
                None => (own, "in most of its trials".to_owned()),
            };
            if found != expected && !is_unknown(name, [found, expected]) {
                differences.push(format!(
                    "{name} is {} here and {} {of}",
                    value_text(found),
                    value_text(expected)
                ));
            }
        }
        differences
    }

    /// Whether the server's host was not read, which always has a kernel: what is not known differs from
    /// nothing.
    pub(super) fn is_unread(&self, facts: &Facts) -> bool {
        let kernel = fact::host("kernel");
        usual(&self.own, &kernel).is_some() && !facts.contains_key(&kernel)
    }

    /// Whether a change of the condition or of the baseline decides this fact of the trial.
    fn is_declared(&self, fact: &str, baseline: &ConditionInfo, storage: &[Storage]) -> bool {
        let mut changes = [self.info, baseline].into_iter().flat_map(|c| &c.changes);
        changes.any(|change| change.decides(fact, storage))
    }
}

fn usual<'a>(facts: &Usual<'a>, name: &str) -> Option<&'a str> {
    facts.get(name).copied().flatten()
}

/// The verdict on these differences. `unread` names hosts that did not answer.
pub(super) fn verdict(differences: &[String], unread: Option<&str>) -> Option<Check> {
    let remedy = "make the environment equal, or declare the difference as a treatment";
    if !differences.is_empty() {
        return Some(Check::invalid(ID, join_differences(differences), remedy));
    }
    unread.map(|host| {
        Check::warning(
            ID,
            format!("{host} did not answer before the window, so its settings were not compared"),
            "find out what keeps the host from answering within seconds",
        )
    })
}

/// Options of a DRBD connection disappear with the connection, which its protocol already reports.
fn is_unknown(name: &str, values: [Option<&str>; 2]) -> bool {
    fact::is_drbd_network(name) && values.contains(&None)
}
