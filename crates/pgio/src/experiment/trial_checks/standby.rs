//! Checks of standbys: whether one flushes what it confirms, and whether one came, went or changed.
//!
//! With fsync = off, a commit that waits for the standby's flush waits for nothing, and the level of synchronous_commit
//! that the condition names was not measured. The settings of standbys are among the facts of the environment
//! (`telemetry::environment`).

use pgio_results::change::fact;
use pgio_results::checks;
use pgio_results::model::{Check, Trial};

use crate::treatment::SYNCHRONOUS;

/// `None` if no standby was found on an observed host, or the server itself does not flush.
pub(super) fn durability(trial: &Trial) -> Option<Check> {
    const ID: &str = "standby-durability";
    if trial.server.fsync == "off" {
        return None;
    }
    let flushes = trial
        .environment
        .iter()
        .filter(|(name, _)| fact::is_of_standby(name) && name.ends_with(".fsync"));
    let (mut known, mut off) = (0, Vec::new());
    for (name, value) in flushes {
        known += 1;
        if value == "off" {
            off.push(name.as_str());
        }
    }
    if off.is_empty() {
        return (known > 0).then(|| Check::ok(ID, "fsync is on on every standby that was found"));
    }
    Some(Check::warning(
        ID,
        format!(
            "{} = off: commits that wait for the standby's flush wait for nothing",
            off.join(" and ")
        ),
        "turn fsync on in the standby's configuration and reload it",
    ))
}

/// Reports standbys that came, went or changed their state: commits may have waited for another one.
pub(super) fn changed(trial: &Trial) -> Option<Check> {
    const ID: &str = "standby-changed";
    let all = trial.evidence.iter().filter(|e| e.what == SYNCHRONOUS && e.expected.is_some());
    let found: Vec<&str> = all.map(|e| e.found.as_str()).collect();
    let first = *found.first()?;
    let other = *found.iter().find(|state| **state != first)?;
    Some(Check::warning(
        ID,
        format!("the standbys were `{first}` and then `{other}`"),
        checks::remedy(ID),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::model::{Evidence, When};
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn checked(facts: &[(&str, &str)]) -> Option<Check> {
        let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        durability(&Trial {
            environment: Arc::new(facts.collect::<BTreeMap<_, _>>()),
            ..full_trial()
        })
    }

    #[test]
    fn standbys_that_change_inside_a_window_are_reported() {
        let found = |states: &[&str]| {
            let one = |state: &&str| Evidence {
                when: When::During,
                what: SYNCHRONOUS.to_owned(),
                found: (*state).to_owned(),
                expected: Some((*state).to_owned()),
            };
            changed(&Trial { evidence: states.iter().map(one).collect(), ..full_trial() })
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&["near: sync, far: potential"; 3]), None);
        let check = found(&["near: sync, far: potential", "far: sync", "far: sync"]).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert_eq!(
            check.message,
            "the standbys were `near: sync, far: potential` and then `far: sync`"
        );
    }

    #[test]
    fn a_standby_that_does_not_flush_is_reported() {
        let check = checked(&[("db2.standby./srv/s.fsync", "off"), ("standby./srv/t.fsync", "on")])
            .unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.starts_with("db2.standby./srv/s.fsync = off: "), "{}", check.message);
    }

    #[test]
    fn a_healthy_standby_passes_and_none_is_not_judged() {
        let healthy = [("standby./srv/t.fsync", "on"), ("standby./srv/t.shared_buffers", "off")];
        assert_eq!(checked(&healthy).unwrap().verdict, CheckVerdict::Ok);
        assert_eq!(checked(&[("setting.fsync", "off"), ("host.kernel", "6.1")]), None);
    }
}
