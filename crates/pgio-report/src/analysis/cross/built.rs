//! Attributes what differs between two private servers: to how they were built, to the conditions'
//! treatments, or to neither.
//!
//! The file says how a private server is built, so a difference in version, options of initdb,
//! settings, directories or standbys is declared. What is left was not asked for and is named. A server
//! of the user's declares nothing, so everything that differs there is named.

use super::differing::{Usual, compare_facts, join_differences};
use pgio_results::Check;
use pgio_results::change::{Change, Subject};
use pgio_results::store::{ConditionInfo, Manifest};

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
        let of = |info: &ConditionInfo| Some(self.manifest.built.get(&info.name)?.as_slice());
        of(self.info).zip(of(self.baseline))
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
            let of_same = |all: &'a [Change]| all.iter().find(|c| c.is_of_same_setting(change));
            let part = match (of_same(own), of_same(baseline)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::demo;

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
}
