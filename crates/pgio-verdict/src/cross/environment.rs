//! What differs between the environments of trials and of servers, and what of it is declared: how private servers were
//! built, the conditions' treatments, or nothing.
//!
//! The file says how a private server is built, so a difference in version, options of initdb,
//! settings, directories or standbys is declared. What is left was not asked for and is named. A server
//! of the user's declares nothing, so everything that differs there is named.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::Check;
use pgio_results::change::{Change, Subject, fact};
use pgio_results::model::Facts;
use pgio_results::store::{ConditionInfo, Manifest};
use pgio_results::telemetry::Storage;

/// A condition on one server and the baseline on another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) info: &'a ConditionInfo,
    pub(super) baseline: &'a ConditionInfo,
    pub(super) facts: (&'a Usual<'a>, &'a Usual<'a>),
    /// Descriptions of both servers.
    pub(super) servers: (&'a str, &'a str),
}

impl<'a> Pair<'a> {
    /// How both servers were built; `None` if either is not private.
    fn built(&self) -> Option<(&'a [Change], &'a [Change])> {
        let changes = |info: &ConditionInfo| Some(self.manifest.built.get(&info.name)?.as_slice());
        changes(self.info).zip(changes(self.baseline))
    }

    /// Declared changes that only one of both servers has.
    fn declared(&self) -> Vec<&'a Change> {
        let Some((own, baseline)) = self.built() else { return Vec::new() };
        let lacks = |all: &[Change], change: &&Change| !all.contains(change);
        let own_only = own.iter().filter(|change| lacks(baseline, change));
        own_only.chain(baseline.iter().filter(|change| lacks(own, change))).collect()
    }

    /// What differs and follows from no declared change.
    fn undeclared(&self) -> Vec<String> {
        let treatments = self.info.changes.iter().chain(&self.baseline.changes);
        let declared: Vec<&Change> = self.declared().into_iter().chain(treatments).collect();
        let mut left = compare_facts(self.facts.0, self.facts.1);
        left.retain(|fact| !declared.iter().any(|change| change.decides(&fact.name, &[])));
        left.into_iter().map(|fact| fact.text).collect()
    }

    /// The warning of what else differs; none if everything is declared.
    pub(super) fn check(&self) -> Option<Check> {
        let (here, there) = self.servers;
        let undeclared = self.undeclared();
        (!undeclared.is_empty()).then(|| {
            Check::warning(
                "environment-differs",
                format!(
                    "`{}` runs on {here}, the baseline on {there}, and they differ in more than the file declares: \
                     {}; all of it is part of the effect",
                    self.info.name,
                    join_differences(&undeclared)
                ),
                "make it equal or declare it in both targets, with initdb or postgres",
            )
        })
    }

    pub(super) fn is_declared(&self) -> bool {
        self.built().is_some()
    }

    /// The sentence that attributes the effect; none unless both servers are private.
    pub(super) fn attribution(&self) -> Option<String> {
        let (own, baseline) = self.built()?;
        let mut parts: Vec<String> = Vec::new();
        for change in self.declared() {
            let same_setting =
                |all: &'a [Change]| all.iter().find(|c| c.is_of_same_setting(change));
            let part = match (same_setting(own), same_setting(baseline)) {
                (Some(here), Some(there)) => format!("{here} here and {} there", value_of(there)),
                (Some(here), None) => format!("{here} here only"),
                (None, Some(there)) => format!("{there} there only"),
                (None, None) => continue,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        let name = &self.info.name;
        let treatments = self.info.changes != self.baseline.changes;
        let and = if treatments { " beside their treatments" } else { "" };
        let what = match parts.len() {
            0 if treatments => return None,
            0 => "were built alike".to_owned(),
            _ => format!("differ in {}{and}", parts.join(", ")),
        };
        let rest = match self.undeclared().len() {
            0 => "nothing else was found to differ, so the effect is attributed to that",
            _ => "more was found to differ, see environment-differs",
        };
        let rest = if parts.is_empty() { "an effect is that of the copy" } else { rest };
        Some(format!("the servers of `{name}` and `{}` {what}; {rest}", self.baseline.name))
    }
}

/// The value alone, because the setting was named before.
fn value_of(change: &Change) -> String {
    match change.subject {
        Subject::Initdb if change.value.is_empty() => change.to_string(),
        _ => change.value.clone(),
    }
}

// What differs between the environments of two servers.

/// Maximum number of differences in one message.
const MAX_LISTED: usize = 5;

/// The usual value of each fact.
pub(super) type Usual<'a> = BTreeMap<&'a str, Option<&'a str>>;

/// A fact that is not the same on both servers.
#[derive(Debug, PartialEq)]
pub(super) struct FactDifference {
    /// With any directory, if it belongs to a standby.
    pub(super) name: String,
    pub(super) text: String,
}

/// Compares this server with another one, by the names of the facts.
pub(super) fn compare_facts(own: &Usual<'_>, other: &Usual<'_>) -> Vec<FactDifference> {
    let standbys = (standbys(own), standbys(other));
    let (own, other) = (comparable(own), comparable(other));
    let names: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    let mut found: Vec<FactDifference> = Vec::new();
    for name in names.into_iter().filter(|name| own.get(*name) != other.get(*name)) {
        let (ours, theirs) = (own.get(name), other.get(name));
        let setting = ours.or(theirs).and_then(|known| known.setting_of_standby);
        let text = match (standbys, setting) {
            // Their settings differ only because they are there.
            ((0, other), Some(_)) => format!("standbys: none here and {other} there"),
            ((own, 0), Some(_)) => format!("standbys: {own} here and none there"),
            _ => {
                let value = |of: Option<&FactValue<'_>>| {
                    value_text(of.map(|known| known.value.as_str())).to_owned()
                };
                let subject = match setting {
                    Some(setting) => format!("{setting} of standbys"),
                    None => name.clone(),
                };
                format!("{subject} is {} here and {} there", value(ours), value(theirs))
            }
        };
        if found.iter().all(|known| known.text != text) {
            found.push(FactDifference { name: name.clone(), text });
        }
    }
    found
}

/// Stands for the directories of standbys, which are drawn anew for every cluster.
const ANY_DIRECTORY: &str = "any";

/// Returns the number of standbys whose settings are known.
fn standbys(facts: &Usual<'_>) -> usize {
    let known = facts.iter().filter(|(_, value)| value.is_some());
    let standbys = known.filter_map(|(name, _)| Some(fact::setting_of_standby(name)?.0));
    standbys.collect::<BTreeSet<_>>().len()
}

/// A fact of one server.
#[derive(Debug, PartialEq)]
struct FactValue<'a> {
    /// The setting, if the fact is one of standbys.
    setting_of_standby: Option<&'a str>,
    /// With several standbys, the values of all.
    value: String,
}

/// The known facts by name, facts of standbys with [`ANY_DIRECTORY`] directory.
fn comparable<'a>(facts: &Usual<'a>) -> BTreeMap<String, FactValue<'a>> {
    let mut all: BTreeMap<String, (Option<&str>, Vec<&str>)> = BTreeMap::new();
    for (name, value) in facts {
        let Some(value) = value else { continue };
        let setting = fact::setting_of_standby(name).map(|(_, setting)| setting);
        let name = match setting {
            Some(setting) => fact::standby(ANY_DIRECTORY, setting),
            None => (*name).to_owned(),
        };
        all.entry(name).or_insert((setting, Vec::new())).1.push(value);
    }
    let known = |(setting_of_standby, mut values): (Option<&'a str>, Vec<&str>)| {
        values.sort_unstable();
        FactValue { setting_of_standby, value: values.join(", ") }
    };
    all.into_iter().map(|(name, found)| (name, known(found))).collect()
}

pub(super) fn value_text(value: Option<&str>) -> &str {
    match value {
        None => "absent",
        Some("") => "empty",
        Some(value) => value,
    }
}

pub(super) fn join_differences(differences: &[String]) -> String {
    let mut text = differences[..differences.len().min(MAX_LISTED)].join("; ");
    if differences.len() > MAX_LISTED {
        text += &format!("; and {} more", differences.len() - MAX_LISTED);
    }
    text
}

// The environment that a server is expected to have in the trials of one cell, and what differs from it.
//
// A fact must equal the usual one under the baseline; where a change of either condition decides it, or where
// the baseline has another server, the usual one of the cell's own trials. What was not read differs from
// nothing. Next: `cross` for the first server of a trial, `servers` for further ones.

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

/// Options of a connection disappear with the connection, which its protocol already reports.
fn is_unknown(name: &str, values: [Option<&str>; 2]) -> bool {
    fact::is_of_connection(name) && values.contains(&None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::demo;

    fn version(value: &str) -> Change {
        Change::new(None, Subject::Version, "version", value)
    }

    fn initdb(option: &str, value: &str) -> Change {
        Change::new(None, Subject::Initdb, option, value)
    }

    /// The warning and the attribution for servers that were built like this, with these facts.
    fn judged(
        built: [&[Change]; 2],
        facts: [&[(&'static str, &'static str)]; 2],
    ) -> (Option<String>, Option<String>) {
        let mut manifest = demo().manifest;
        let infos =
            ["new", "old"].map(|name| ConditionInfo { name: name.to_owned(), changes: Vec::new() });
        for (info, changes) in infos.iter().zip(built) {
            manifest.built.insert(info.name.clone(), changes.to_vec());
        }
        let [own, baseline] = facts
            .map(|of| of.iter().map(|(name, value)| (*name, Some(*value))).collect::<Usual<'_>>());
        let pair = Pair {
            manifest: &manifest,
            info: &infos[0],
            baseline: &infos[1],
            facts: (&own, &baseline),
            servers: ("x", "y"),
        };
        (pair.check().map(|c| c.message), pair.attribution())
    }

    #[test]
    fn a_version_alone_is_attributed_with_what_initdb_writes() {
        let (check, attribution) = judged(
            [&[version("18.6")], &[version("13.23")]],
            [
                &[("setting.autovacuum_worker_slots", "16"), ("standby./a/b.fsync", "on")],
                &[("standby./c/d.fsync", "on")],
            ],
        );
        assert_eq!(check, None);
        assert_eq!(
            attribution.unwrap(),
            "the servers of `new` and `old` differ in PostgreSQL 18.6 here and 13.23 there; nothing else was found to \
             differ, so the effect is attributed to that"
        );
    }

    #[test]
    fn checksums_that_came_with_a_version_are_named() {
        let facts: [&[(&str, &str)]; 2] =
            [&[("setting.data_checksums", "on")], &[("setting.data_checksums", "off")]];
        let (check, attribution) = judged([&[version("18.6")], &[version("13.23")]], facts);
        let check = check.unwrap();
        assert!(check.contains("setting.data_checksums is on here and off there"), "{check}");
        assert!(attribution.unwrap().contains("more was found to differ"));
        let declared = [version("18.6"), initdb("--data-checksums", "")];
        let (check, attribution) = judged([&declared, &[version("18.6")]], facts);
        assert_eq!(check, None, "the option explains it");
        assert!(attribution.unwrap().contains("differ in initdb --data-checksums here only;"));
        let (_, attribution) = judged([&[version("18.6")], &declared], [facts[1], facts[0]]);
        assert!(attribution.unwrap().contains("differ in initdb --data-checksums there only;"));
    }

    #[test]
    fn a_setting_and_a_standby_explain_their_facts_only() {
        let own = [
            version("15.1"),
            Change::server("shared_buffers", "4GB"),
            Change::new(
                None,
                Subject::Standby { name: "b".to_owned() },
                "standby",
                "from the primary",
            ),
        ];
        let facts: [&[(&str, &str)]; 2] = [
            &[
                ("setting.shared_buffers", "4GB"),
                ("setting.synchronous_standby_names", "b"),
                ("host.kernel", "6"),
            ],
            &[("setting.shared_buffers", "128MB"), ("host.kernel", "5")],
        ];
        let (check, attribution) = judged([&own, &[version("15.1")]], facts);
        let check = check.unwrap();
        assert!(
            check.contains("host.kernel is 6 here and 5 there") && !check.contains("setting."),
            "{check}"
        );
        let attribution = attribution.unwrap();
        assert!(attribution.contains("shared_buffers = 4GB here only"), "{attribution}");
        assert!(attribution.contains("standby b (from the primary) here only"), "{attribution}");
    }

    #[test]
    fn servers_that_were_built_alike_are_copies() {
        let (check, attribution) = judged([&[version("15.1")], &[version("15.1")]], [&[], &[]]);
        assert_eq!(check, None);
        assert!(attribution.unwrap().contains("were built alike; an effect is that of the copy"));
    }

    fn texts(own: &[(&str, &str)], other: &[(&str, &str)]) -> Vec<String> {
        fn usual<'a>(facts: &[(&'a str, &'a str)]) -> Usual<'a> {
            facts.iter().map(|(name, value)| (*name, Some(*value))).collect()
        }
        compare_facts(&usual(own), &usual(other)).into_iter().map(|fact| fact.text).collect()
    }

    #[test]
    fn values_are_shown_and_equal_ones_left_out() {
        let own = [("host.kernel", "5.10.0"), ("setting.work_mem", "4MB")];
        let other = [("host.kernel", "6.1.0"), ("setting.work_mem", "4MB"), ("host.governor", "")];
        assert_eq!(
            texts(&own, &other),
            [
                "host.governor is absent here and empty there",
                "host.kernel is 5.10.0 here and 6.1.0 there"
            ]
        );
    }

    #[test]
    fn standbys_of_one_server_alone_are_counted_and_their_settings_not_listed() {
        let two = [
            ("standby./srv/a.fsync", "on"),
            ("standby./srv/a.shared_buffers", "128MB"),
            ("db2.standby./srv/b.fsync", "on"),
        ];
        assert_eq!(texts(&[], &two), ["standbys: none here and 2 there"]);
        assert_eq!(texts(&two, &[]), ["standbys: 2 here and none there"]);
    }

    #[test]
    fn settings_of_standbys_are_compared_without_their_directories() {
        let a = [("standby./srv/a.fsync", "on")];
        assert_eq!(texts(&a, &[("standby./srv/b.fsync", "on")]), [""; 0]);
        assert_eq!(
            texts(&a, &[("standby./srv/b.fsync", "off")]),
            ["fsync of standbys is on here and off there"]
        );
    }
}
