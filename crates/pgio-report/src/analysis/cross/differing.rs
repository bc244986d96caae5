//! What differs between the environments of two servers.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::change::fact;

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

/// The known facts by name, those of standbys with [`ANY_DIRECTORY`] directory.
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

#[cfg(test)]
mod tests {
    use super::*;

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
